"""Recall, copying and state: what a causal model brings back from its context, and at which step it learns to."""
