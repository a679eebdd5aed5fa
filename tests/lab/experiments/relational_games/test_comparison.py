"""Measured learning curves beside the published ones."""

import pytest

from dat.experiments.relational_games.experiment import RelationalGames
from dat.sweeps.published import Published, welch_t
from dat.sweeps.report import cell_text, comparison_text, measured_table, outside_sentence
from dual_attention._base.intervals import half_width


def row(task, model, n_train, seed, **accuracies):
    return {"task": task, "model": model, "n_train": n_train, "seed": seed, **accuracies}


GAMES = RelationalGames()
ROWS = [
    row("occurs", "dat-0+2-sym", 1000, 0, test=88.0, hexominoes=80.0),
    row("occurs", "dat-0+2-sym", 1000, 1, test=90.0, hexominoes=84.0),
    row("occurs", "transformer-128-h2", 1000, 0, test=60.0, hexominoes=61.0),
    row("same", "dat-0+2-sym", 250, 0, test=70.0, hexominoes=71.0),
    row("match_pattern", "unpublished", 5000, 0, test=50.0, hexominoes=50.0),
]


@pytest.mark.parametrize(
    "values, published, text",
    [
        ([88.0, 90.0], Published(1000, 88.6), "89.0 ± 12.7 (88.6)"),
        ([1.0, 2.0, 3.0], None, "2.0 ± 2.5 (–)"),
        ([61.25], Published(1000, 66.0, 5, 2.0, 63.0, 68.0), "61.2 (66.0; 1 out)"),
        ([88.0, 90.0], Published(1000, 88.6, 10, 1.0, 87.0, 89.0), "89.0 ± 12.7 (88.6; t 0.4; 1 out)"),
        ([88.0, 90.0], Published(1000, 88.6, 10, 1.0, 87.0, 91.0, 88.0), "89.0 ± 12.7 (88.6 → 88.0; t 0.4)"),
    ],
)
def test_a_cell_is_mean_interval_and_published_numbers(values, published, text):
    assert cell_text(values, published) == text


def test_tasks_with_the_same_sizes_share_a_table_in_the_papers_order():
    lines = measured_table(GAMES.table, ROWS, "test").splitlines()
    assert lines == [
        "| task | model | 250 |",
        "|---|---|---|",
        "| same | DAT 0+2, symmetric | 70.0 (65.2; 1 out) |",
        "",
        "| task | model | 1,000 |",
        "|---|---|---|",
        "| occurs | Transformer (128, 2 heads) | 60.0 (65.8; 1 out) |",
        "| occurs | DAT 0+2, symmetric | 89.0 ± 12.7 (88.6; t 0.4) |",
        "",
        "| task | model | 5,000 |",
        "|---|---|---|",
        "| match_pattern | unpublished | 50.0 (–) |",
    ]


def test_published_numbers_are_those_of_the_object_set():
    assert "82.0 ± 25.4 (85.0; t -1.4; 1 out)" in measured_table(GAMES.table, ROWS, "hexominoes")


def test_runs_outside_the_published_range_are_counted():
    """Three of four: two below and above ten and eleven published runs, 2 / 11 each expected; one is not published."""
    assert outside_sentence(GAMES.table, ROWS, "test").startswith("2 of the 4 runs lie outside the range")
    assert outside_sentence(GAMES.table, ROWS, "test").endswith("as theirs, 0.7 would be expected to lie there.")
    assert outside_sentence(GAMES.table, [ROWS[-1]], "test") == ""


def test_losses_stand_beside_the_published_ones():
    """Where results have them; their published range is not known."""
    rows = [{**row, "test_loss": 1.25 + row["seed"]} for row in ROWS]
    text = comparison_text(GAMES.table, rows).split("## Cross-entropy: pentominoes, as in training")[1]
    assert "| occurs | DAT 0+2, symmetric | 1.75 ± 6.35 (0.82; t 1.8) |" in text
    assert "| same | DAT 0+2, symmetric | 1.25 (3.27) |" in text and "lie outside" not in text
    assert "Cross-entropy: hexominoes" not in text and "Cross-entropy" not in comparison_text(GAMES.table, ROWS)


def test_an_object_set_that_was_not_measured_leaves_its_cells_empty():
    text = comparison_text(GAMES.table, ROWS)
    assert "1 to 2 trials" in text and "## Stripes" not in text
    text = comparison_text(GAMES.table, [*ROWS, row("occurs", "transformer-128-h2", 1000, 1, test=61.0, stripes=55.0)])
    assert "| occurs | DAT 0+2, symmetric |  |" in text.split("## Stripes")[1]


def test_intervals_and_welchs_t():
    """Against the textbook's table: 2.776 standard errors of five trials."""
    assert half_width([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.776 * 2.5**0.5 / 5**0.5, abs=1e-3)
    assert welch_t([10.0, 12.0], Published(1, 8.0, trials=4, sd=2.0)) == pytest.approx(3 / (2 / 2 + 4 / 4) ** 0.5)
    assert welch_t([10.0, 12.0], Published(1, 8.0)) is None and welch_t([1.0], Published(1, 8.0, 4, 2.0)) is None
