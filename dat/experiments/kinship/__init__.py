"""Family relations by length of the chain, told as text."""
