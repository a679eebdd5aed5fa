"""Language modelling: text files become tokens, and a DAT or a Transformer learns to predict the next one."""
