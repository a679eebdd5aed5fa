"""How processes of the package start and end."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dat._processes import starting_workers

BEGINS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs have not
print("begins", flush=True)
sys.stdin.readline()  # as long as imports take
"""


@pytest.fixture
def own_handler():
    """Ctrl-C raises here, also if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def began(program: str) -> subprocess.Popen[str]:
    """A process that has printed its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


@pytest.mark.parametrize("held", [True, False])
def test_a_worker_that_is_still_importing_hears_no_interrupt(held, own_handler):
    ends = "from dat._processes import follow_parent; follow_parent(); os.kill(os.getpid(), signal.SIGINT); print(1)"
    if held:
        with starting_workers():
            process = began(BEGINS + ends)
    else:
        process = began(BEGINS + ends)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate("\n", timeout=60)
    assert (output, "KeyboardInterrupt" in errors) == (("1\n", False) if held else ("", True))


def test_this_process_hears_interrupts_again_once_workers_have_started(own_handler):
    with starting_workers():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)


@pytest.mark.parametrize(("end", "status"), [("lambda: 3", 3), ("lambda: sys.exit(4)", 4), ("lambda: sys.exit()", 0)])
def test_leaving_ends_at_once(end, status):
    """With the status and what was printed, and without what is to be done at exit."""
    program = "import atexit, sys; from dat._processes import leave; atexit.register(print, 'exit')"
    program = f"{program}; print('here'); leave({end})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "here\n", "")
