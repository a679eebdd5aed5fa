"""Synthetic sequence tasks for small causal models: to recall, to copy, to track a state, to sort and to solve."""
