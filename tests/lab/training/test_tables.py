"""Tables on the screen: every number, whatever the width of the terminal."""

import pytest

from dat.training.tables import numbers_table, show

NUMBERS = {
    "test": {"accuracy": 0.512, "loss": 0.25, "examples": 10_000},
    "heldout hexominoes": {"accuracy": 0.5, "loss": None, "examples": 9},
}


@pytest.mark.parametrize("columns", ["0", "1", "20", "80", "1000000000", "-5", "wide"])
def test_no_number_is_cut_off(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    show(numbers_table("DAT on same", "data", ("accuracy", "loss", "examples"), NUMBERS))
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("51.2", "0.250", "10,000", "50.0", "hexominoes", "examples"))
