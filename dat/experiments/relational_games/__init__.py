"""Relational Games: training one model, reproducing the paper's learning curves, and the demonstration."""
