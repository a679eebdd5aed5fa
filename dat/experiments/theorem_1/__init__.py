"""Theorem 1 of arXiv 2405.16727: relational attention selects an object and tells a relation with it."""
