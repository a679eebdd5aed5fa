"""Progressive matrices: which answer completes the rules that eight panels follow."""
