"""The experiments of the paper, one folder each."""
