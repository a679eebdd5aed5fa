"""What a type checker must say of calls of a user's: read by `make types`, never run."""
