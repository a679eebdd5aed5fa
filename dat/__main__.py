"""``python -m dat``: the ``dat`` command."""

import os
import sys

from ._processes import leave
from .cli.main import main

if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:  # in one of the processes that torchrun starts
        leave(main)
    sys.exit(main())
