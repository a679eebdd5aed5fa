"""Analysis of trained models: the relations that they compute, and pictures of them."""
