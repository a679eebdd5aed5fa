"""The scripts under docs/ that sum up runs of Relational Games: what they print, and what they refuse."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "experiments" / "relational_games" / "results"
Call = Callable[..., None]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.syspath_prepend(ROOT / "docs")

    def run(name: str, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        importlib.import_module(name).main()

    return run


@pytest.mark.parametrize("name", ["agreement", "near_misses", "same_negatives", "stairs"])
@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--unknown", 2)])
def test_help_and_a_wrong_argument_read_and_draw_nothing(call, capsys, name, argument, status):
    figures = {path: path.stat().st_mtime_ns for path in RESULTS.rglob("*.png")}
    with pytest.raises(SystemExit) as end:
        call(name, argument)
    assert end.value.code == status
    out, err = capsys.readouterr()
    assert (f"usage: {name}.py" in out) if status == 0 else ("unrecognized arguments: --unknown" in err)
    assert {path: path.stat().st_mtime_ns for path in RESULTS.rglob("*.png")} == figures


def test_agreement_sums_up_a_table(call, capsys):
    """A Transformer's means of match_pattern, of 11 and 10 published runs: 20/12 + 20/11 are expected outside."""
    call("agreement", RESULTS / "match-pattern" / "results.csv", "--models", *["transformer-128-h2"] * 2)
    first, sums, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("results.csv, after 100 epochs")
    assert sums.startswith("  match_pattern, pentominoes: 2 means: -1.5 points, root mean square 1.58;")
    assert "of 20 runs 18 below and 0 above the published ones, where 3 are expected; losses 1.04" in sums
    far = [line for line in rest if "far:" in line]
    assert far[1].endswith("10,000 images, pentominoes: 50.5 (published 52.4), t -10.6")


def test_agreement_measures_leads_and_other_lengths(call, capsys):
    call("agreement", RESULTS / "before-dat" / "after-50.csv", "--models", "predinet", "corelnet", "--epochs", "50")
    found = capsys.readouterr().out
    assert "PrediNet, pentominoes: 8 means: +0.8 points" in found and "score 1.03" in found
    assert "less Transformer" not in found
    call("agreement", RESULTS / "match-pattern" / "results.csv")
    assert "match_pattern, pentominoes, DAT 0+2 less Transformer: +11.8, published +13.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (RESULTS / "baselines" / "results.csv", (), "expected runs with losses and lengths, found no"),
        (RESULTS / "nothing.csv", (), "expected a results.csv or the folder of a grid, found nothing"),
        (ROOT / "README.md", (), "README.md: "),
        (RESULTS / "main" / "results.csv", ("--epochs", "7"), "after 7 epochs of batches of 512, found none"),
        (RESULTS / "main" / "results.csv", ("--models", "resnet"), "--models: expected some of .*, got resnet"),
        (
            RESULTS / "main" / "results.csv",
            ("--models", "predinet"),
            "of predinet after 100 epochs of batches of 512, found none",
        ),
        (RESULTS / "squared-distances" / "results.csv", (), "two or more, found 0 of"),
        (RESULTS / "protocol" / "batches_128.csv", ("--epochs", "50"), "50 epochs of batches of 512, found none"),
    ],
)
def test_agreement_says_in_one_line_what_is_wrong(call, capsys, table, arguments, message):
    with pytest.raises(SystemExit) as end:
        call("agreement", table, *arguments)
    assert end.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("agreement.py: error: ")
    assert re.search(message, last), last
