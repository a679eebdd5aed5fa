"""What models share: their bases, inputs, weights and symbol retrievers."""
