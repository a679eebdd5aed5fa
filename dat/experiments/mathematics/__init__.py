"""School mathematics, character by character (Saxton et al. 2019): encoder-decoder models answer questions."""
