"""Pictures: one for each suite, without gaps, and with floors."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots
from benchmarks.cases import Request
from benchmarks.main import main
from benchmarks.report import spreads
from benchmarks.results import Row, SideResult
from benchmarks.suites import SUITES

ABOUT: dict[str, Any] = {
    "settings": {"device": "cpu", "threads": 2, "dtype": "float32"},
    "hardware": {"cpu": "a processor"},
    "date": "2026-01-02T03:04:05+00:00",
}


def side(name: str, *samples: float, least: float = 0.5) -> SideResult:
    floors = {"floor_arithmetic": least, "floor_bytes": least / 2}
    return SideResult(name, "plain" if name == "plain" else "dual", "measured", samples=list(samples), **floors)


def row(suite: str, label: str, length: int, *sides: SideResult) -> Row:
    return Row(suite, label, length, "step", False, 1e-4, list(sides))


@pytest.fixture
def pyplot() -> Any:
    pytest.importorskip("matplotlib").use("Agg")
    return pytest.importorskip("matplotlib.pyplot")


def test_every_side_has_a_colour_of_its_own():
    """Without one, matplotlib would give the dot and the bar of a side two different ones."""
    for suite in SUITES.values():
        for case in suite.cases(Request(suite.lengths)):
            named = [side.name for side in case.sides if side.timed]
            assert len({plots.COLOURS[name] for name in named}) == len(named)


def test_a_picture_for_each_suite(pyplot: Any, tmp_path: Path):
    one, other = ([row(suite, name, 16, side("ours", 1.0)) for name in "abc"] for suite in ("step", "short"))
    assert plots.draw_plots(ABOUT, one, tmp_path / "x") == [tmp_path / "x.png"]
    both = plots.draw_plots(ABOUT, [*one, *other], tmp_path / "y.1")
    assert [path.name for path in both] == ["y.1.step.png", "y.1.short.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in both)


def test_nothing_to_draw(tmp_path: Path):
    refused = side("ours", 1.0)
    refused.refused = "differs"
    assert plots.draw_plots(ABOUT, [row("step", "a", 16, refused)], tmp_path / "x") == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 19])
def test_panels_fill_the_picture(count: int):
    lines = plots.mosaic(count)
    assert [*dict.fromkeys(chain(*lines))] == [*range(count)] and len({*map(len, lines)}) == 1


def dashed(axis: Any) -> list[list[float]]:
    return [list(line.get_xdata()) + list(line.get_ydata()) for line in axis.lines if line.get_linestyle() == "--"]


def test_floors_of_one_length(pyplot: Any):
    _, axis = pyplot.subplots()
    plots.draw_dots(axis, [row("step", "a", 16, side("ours", 1.0, 1.2), side("plain", 0.9, least=0.4))])
    assert dashed(axis) == [[0.4, 0.4, -0.35, 0.35], [0.5, 0.5, 0.65, 1.35]]
    assert axis.get_xlabel() == "time; dashed: floor"
    pyplot.close()


@pytest.mark.parametrize(
    ("low", "high", "figures"),
    [
        (0.0101, 0.042, [0.012, 0.015, 0.02, 0.025, 0.03, 0.04]),
        (0.4, 20.0, [0.5, 1, 2, 5, 10, 20]),
        (0.004, 3.0, [0.01, 0.1, 1]),
        (0.033, 0.45, [0.05, 0.1, 0.2]),  # not 0.05, 0.07, 0.1, 0.15, 0.2 and 0.3, of which two would touch
    ],
)
def test_round_figures(low: float, high: float, figures: list[float]):
    assert plots.round_figures(low, high) == pytest.approx(figures)


def test_floors_over_the_length(pyplot: Any):
    rows = [
        row("step", "a", n, side("ours", n, least=n / 2), side("published", 2 * n), side("plain", n, least=n / 4))
        for n in (16, 32)
    ]
    _, axis = pyplot.subplots()
    plots.draw_lines(axis, rows)
    assert dashed(axis) == [[16, 32, 8, 16], [16, 32, 4, 8]]  # published has the floor of ours
    pyplot.close()


def test_spread_of_one_run():
    rows = [row("step", "a", n, side("ours", 1, 2, 3), side("plain", 1, 1, 1)) for n in (16, 32)]
    rows.append(row("step", "b", 16, side("ours", 10, 10, 11), side("plain", 1, 2, 3)))
    assert spreads(rows) == [
        "spread, step, a: quartiles of ours 50% apart, of any side at most 50%",
        "spread, step, b: quartiles of ours 5% apart, of any side at most 50%",
    ]


def test_spread_between_runs():
    runs = [[row("step", "a", 16, side("ours", seconds), side("plain", 1.0))] for seconds in (1.0, 1.1, 0.9)]
    other = [row("step", "a", 16, side("ours", 1.0, 3.0))]
    other[0].label = "b"
    (of_runs, of_one) = spreads([*runs[0], *other], runs[1:])
    assert of_runs == "spread, step, a: medians of 3 runs of ours 20% apart, of any side at most 20%"
    assert of_one == "spread, step, b: quartiles of ours 50% apart, of any side at most 50%"


def test_spread_after_a_run_with_fewer_sides():
    before, now = ([row("step", "a", 16, side("ours", 1.0), *more)] for more in ([], [side("ours+native", 2.0)]))
    assert spreads(now, [before]) == ["spread, step, a: medians of 2 runs of ours 0% apart, of any side at most 0%"]


def test_memory_has_no_spread():
    assert spreads([Row("memory", "a", 16, "step", True, 1e-4, [SideResult("ours", "dual", "measured")])]) == []


def test_results_can_be_drawn_again(pyplot: Any, tmp_path: Path):
    rows = [row("step", "a", 16, side("ours", 1.0, 1.1, 0.9), side("plain", 1.0))]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**ABOUT, "suites": ["step"], "rows": [each.to_json() for each in rows]}))
    assert main(["--redraw", str(path)]) == 0
    assert list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"rows": [1]}', json.dumps({"rows": 3})])
def test_what_cannot_be_drawn_again(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert main(["--redraw", str(path)]) == 2
    said = capsys.readouterr()
    assert "argument --redraw: " in said.err and str(path) in said.err and len(said.err.strip().splitlines()) == 1
