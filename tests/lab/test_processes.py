"""How processes of the package end."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("end", "status"), [("lambda: 3", 3), ("lambda: sys.exit(4)", 4), ("lambda: sys.exit()", 0)])
def test_leaving_ends_at_once(end, status):
    """With the status and what was printed, and without what is to be done at exit."""
    program = "import atexit, sys; from dat._processes import leave; atexit.register(print, 'exit')"
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}; print('here'); leave({end})"], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "here\n", "")
