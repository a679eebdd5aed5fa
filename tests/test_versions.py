"""The versions that `make versions` takes, and what it says of a run."""

import pytest

from tests.support.refusals import refused
from tests.test_imports import PROJECT
from tests.versions import SHOWN, SIDES, Row, lowest, outcome, stages, table


def test_the_lowest_versions_are_those_that_are_declared():
    """All that is shown in the table is pinned in the end, and so is all else that the stages install by its extra."""
    extras = PROJECT["optional-dependencies"]
    found = {}
    for stage in stages(2):
        found = lowest(PROJECT, stage.extras)
        for line in (*PROJECT["dependencies"], *(line for extra in stage.extras for line in extras[extra])):
            assert line.partition(">=")[0] in found
    assert set(SHOWN) <= found.keys()
    assert f"torch>={lowest(PROJECT, ())['torch']}" in PROJECT["dependencies"]


def test_the_highest_of_several_bounds_is_the_lowest_version():
    extras = {"train": ["b>=1.9", "c>=3"], "hf": ["b>=1.10"], "test": ["peft>=0.2", "pytest>=8", "trl>=1.0.1"]}
    project = {"dependencies": ["a>=2"], "optional-dependencies": extras}
    assert lowest(project, ()) == {"a": "2"}
    assert lowest(project, ("train", "hf")) == {"a": "2", "b": "1.10", "c": "3", "peft": "0.2", "trl": "1.0.1"}


test_bounds_that_are_none = refused(
    (lambda: lowest({"dependencies": ["a"], "optional-dependencies": {}}, ()), "expected NAME>=VERSION, got 'a'")
)


@pytest.mark.parametrize(
    ("status", "output", "words"),
    [
        (0, "....\n== 12 passed, 3 skipped in 4.20s ==\n", "12 passed, 3 skipped"),
        (0, "12 passed in 104.20s (0:01:44)\n", "12 passed"),
        (1, "==== 1 failed, 12 passed in 4.20s ====\n", "FAILED (1 failed, 12 passed, status 1)"),
        (0, "step 10/10\n", "ran"),
        (2, "dat: error: no\n", "FAILED (ran, status 2)"),
    ],
)
def test_how_a_command_ended(status: int, output: str, words: str):
    assert outcome(status, output) == words


def test_the_table_has_a_line_for_each_stage():
    versions = {"python": "3.10", "torch": "2.6.0"}
    rows = [Row(side, stage.name, versions, "ran", True) for side in SIDES for stage in stages(2)]
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(rows) and len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| lowest | no extra | 3.10 | 2.6.0 | - | - | - | - | ran |"
