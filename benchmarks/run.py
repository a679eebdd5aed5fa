"""Run the benchmarks: ``python benchmarks/run.py --help``."""

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, whose files would otherwise be importable under their bare names. The checkout comes
    # first, so that its own dual_attention is measured, not an installed one.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

    from benchmarks.main import main

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, with what was measured so far
    sys.exit(main())
