"""``python -m dual_attention``: the command ``dat`` under its former name."""

import os
import sys

if __name__ == "__main__":
    from dat._processes import leave
    from dat.cli.main import main

    if os.environ.get("RANK", "0") == "0":
        print("python -m dual_attention is now python -m dat", file=sys.stderr)
    if "WORLD_SIZE" in os.environ:  # in one of the processes that torchrun starts
        leave(main)
    sys.exit(main())
