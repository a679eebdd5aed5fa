"""The sub-commands of ``dat`` that take trained models, wherever they come from."""
