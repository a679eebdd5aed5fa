"""The ``dat`` command, one file for each sub-command."""
