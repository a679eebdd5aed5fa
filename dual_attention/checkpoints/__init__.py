"""Checkpoints of language models, in a folder or on the hub: read without transformers."""
