"""``python -m dual_attention``: the ``dat`` command."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
