"""Relational Games between handwritten digits: the same is the same digit by another hand."""
