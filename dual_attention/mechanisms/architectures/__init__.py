"""Architectures composed of several attentions, in the paper's own form where one attention cannot say it."""
