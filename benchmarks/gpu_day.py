"""What to measure when a GPU is at hand, in one command: ``python benchmarks/gpu_day.py --help``."""

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # as in run.py

    from benchmarks.gpu.main import main

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does, and its processes with it
    sys.exit(main())
