"""The trials see what they are made to see; `make reliability` runs them in earnest."""

from __future__ import annotations

import os
import random
import signal

import pytest

from .draws import calls, clear
from .page import last_run
from .trials import Called, Tally, broken, dat, in_a_process, run_trials


def test_a_trial_that_dies_is_a_finding():
    assert in_a_process(lambda: os.kill(os.getpid(), signal.SIGKILL)) == "finding: its process died (SIGKILL)"
    assert in_a_process(lambda: "refused") == "refused"


@pytest.mark.parametrize(
    ("called", "found"),
    [
        (Called(1, "", "", "KeyError"), "finding: traceback (KeyError)"),
        (Called(2, "", "dat: error: it failed"), "finding: the error does not name what is wrong: it failed"),
        (Called(2, "", "dat: error: config.yaml: not YAML"), None),
        (Called(0, "", ""), None),
    ],
)
def test_a_broken_promise_is_a_finding(called, found):
    assert broken(called, ("config.yaml",)) == found


def test_a_raw_error_is_a_finding():
    assert str(clear(RuntimeError("no"))).startswith("finding: raw error")
    assert clear(ValueError("d_model: expected a number, got 'x'"), "d_model") is None
    assert dat("train", "lan").status == 2


def test_findings_stand_on_the_page():
    tallies = {name: Tally() for name in ("kills", "mutations", "configurations", "calls")}
    tallies["kills"].counts["kill -9"] = 2
    run_trials(calls(random.Random(0)), tallies["calls"], 0)
    tallies["mutations"].add("`dat info` of run", "finding: traceback")
    assert tallies["calls"].total == 20
    page = last_run(tallies, 0, 1)
    assert "2 kills in 0 runs" in page and "`traceback` | 1 | `dat info` of run" in page
