"""Messages, files, checksums, extras, and the style and intervals of figures, for the library and the lab."""
