"""Sweeps: many runs of one experiment in parallel processes, and the tables and figures of their results."""
