"""Common parts of the models: their bases, inputs, weights and symbol retrievers."""
