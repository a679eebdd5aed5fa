"""Trials of what survives what: kills, damaged files, wrong configurations and calls. See docs/reliability.md."""
