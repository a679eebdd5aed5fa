"""The first signal is obeyed between two steps, and what a second one does depends on its kind."""

import os
import signal

import pytest

from dat.training.interrupt import StopOnSignal


def test_a_second_notice_changes_nothing():
    """From torchrun, say, after that of the scheduler."""
    with StopOnSignal() as stop:
        assert not stop()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop() and stop.terminated


def test_a_second_interrupt_stops_at_once():
    with StopOnSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop() and not stop.terminated
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_both_kinds():
    """Ctrl-C after a notice stops at once; a notice after Ctrl-C asks for a restart."""
    with StopOnSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop() and stop.terminated
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
