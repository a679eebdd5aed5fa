"""What processes of the package's own do with memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from torch import nn
from dat._processes import keep_freed_memory

def faults():
    for step in range(60):
        if step == 3:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        model(x).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)) for _ in range(2)])
x = torch.randn(4096, 128)
print(faults(), keep_freed_memory(), faults())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the settings are those of glibc; elsewhere nothing is set, see below"
)
def test_freed_memory_is_kept():
    """The system need not hand out pages again in training steps.

    There are many of them, since it takes some back on its own, and the least block that is given back grows by itself.
    """
    ran = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    given, told, kept = ran.stdout.split()
    assert told == "True" and int(kept) < int(given) / 3, ran.stdout


def test_other_libraries_are_left_alone(monkeypatch):
    from dat import _processes

    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(_processes, "ctypes", None)
    assert not _processes.keep_freed_memory()


@pytest.mark.parametrize(("end", "status"), [("lambda: 3", 3), ("lambda: sys.exit(4)", 4), ("lambda: sys.exit()", 0)])
def test_leaving_ends_at_once(end, status):
    """With the status and what was printed, and without what is to be done at exit."""
    program = "import atexit, sys; from dat._processes import leave; atexit.register(print, 'exit')"
    ran = subprocess.run(
        [sys.executable, "-c", f"{program}; print('here'); leave({end})"], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "here\n", "")
