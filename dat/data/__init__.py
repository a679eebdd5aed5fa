"""Data of the experiments, one file or folder per source. Nothing is downloaded or generated at import."""
