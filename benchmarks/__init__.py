"""Benchmarks: this library beside the published package, a plain Transformer and its own readable reference."""
