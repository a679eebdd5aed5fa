"""The explorer: a page with the relations, attention and symbols of a model on a text, in a file or from a server."""
