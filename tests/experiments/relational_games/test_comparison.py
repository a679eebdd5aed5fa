"""Measured learning curves beside the published ones."""

from __future__ import annotations

import pytest

from dual_attention.experiments.relational_games.experiment import RelationalGames
from dual_attention.sweeps.comparison import cell_text, comparison_table, comparison_text


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
        ([88.0, 90.0], 88.6, "89.0 ± 1.0 (88.6)"),
        ([1.0, 2.0, 3.0], None, "2.0 ± 0.6 (–)"),
        ([61.25], 66.0, "61.2 (66.0)"),
    ],
)
def test_a_cell_is_mean_standard_error_and_published_mean(values, published, text):
    assert cell_text(values, published) == text


def test_tasks_with_the_same_sizes_share_a_table_in_the_papers_order():
    lines = comparison_table(GAMES, ROWS, "test").splitlines()
    assert lines == [
        "| task | model | 250 |",
        "|---|---|---|",
        "| same | DAT 0+2, symmetric | 70.0 (65.2) |",
        "",
        "| task | model | 1,000 |",
        "|---|---|---|",
        "| occurs | Transformer (128, 2 heads) | 60.0 (66.0) |",
        "| occurs | DAT 0+2, symmetric | 89.0 ± 1.0 (88.6) |",
        "",
        "| task | model | 5,000 |",
        "|---|---|---|",
        "| match_pattern | unpublished | 50.0 (–) |",
    ]


def test_published_numbers_are_those_of_the_object_set():
    assert "82.0 ± 2.0 (85.0)" in comparison_table(GAMES, ROWS, "hexominoes")


def test_an_object_set_that_was_not_measured_leaves_its_cells_empty():
    text = comparison_text(GAMES, ROWS)
    assert "1 to 2 trials" in text
    stripes = text.split("## Stripes")[1]
    assert "| occurs | DAT 0+2, symmetric |  |" in stripes
