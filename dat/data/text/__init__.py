"""Text: files, tokens kept in memory-mapped files, and tokenizers."""
