"""Names that are near to a wrong one, and texts that are safe to print."""

import pytest

from dual_attention._base.words import printable, suggestion

KEYS = ("optim.lr", "optim.warmup_steps", "data.n_train", "data.seed", "seed", "model.d_model", "loop.steps")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("lr", "; did you mean optim.lr?"),
        ("n_train", "; did you mean data.n_train?"),
        ("seed", "; did you mean data.seed or seed?"),
        ("optim.warm_up_steps", "; did you mean optim.warmup_steps?"),
        ("n_trian", "; did you mean data.n_train?"),
        ("train.lr", "; did you mean optim.lr?"),
        ("zebra", ""),
    ],
)
def test_the_nearest_name(wrong, hint):
    assert suggestion(wrong, KEYS, separator=".") == hint


def test_names_without_parts():
    assert suggestion("T-1.3B", ("T-1.31B", "T-353M", "DAT-1.37B")) == "; did you mean T-1.31B?"
    assert suggestion("resnet", ("T-1.31B", "esbn")) == ""


@pytest.mark.parametrize("wrong", ["dat-tiny", "DAT-TINY", "DAT-tny", "dat-1.37", "DAT-353M"])
def test_neither_case_nor_a_rival_misleads(wrong):
    """A Transformer is not offered for a DAT, however near its name."""
    hint = suggestion(wrong, ("T-tiny", "T-353M", "T-1.31B", "DAT-tiny", "DAT-368M", "DAT-1.37B"))
    assert "DAT-" in hint and " T-" not in hint


@pytest.mark.parametrize(
    ("wrong", "known", "hint"),
    [
        ("rope", ("pos_emb", "RoPE", "none"), "RoPE"),
        ("bf16", ("auto", "float32", "bfloat16"), "bfloat16"),
        ("gpu", ("auto", "cpu", "cuda"), "cuda"),
        ("euclidean", ("dot", "squared_distance"), "squared_distance"),
        ("gpt-2", ("T-tiny", "T-353M", "DAT-tiny"), "T-353M"),
        ("DAT-small", ("T-tiny", "DAT-tiny", "DAT-368M"), "DAT-tiny or DAT-368M"),
    ],
)
def test_names_of_other_libraries(wrong, known, hint):
    assert suggestion(wrong, known) == f"; did you mean {hint}?"
    assert suggestion("gpu", ("auto", "float32")) == ""


def test_names_that_begin_with_the_given_one():
    known = ("DAT-734M", "DAT-343M-nr8", "DAT-343M-nr32")
    assert suggestion("dat-343m", known) == "; did you mean DAT-343M-nr8 or DAT-343M-nr32?"


def test_control_characters_are_shown_and_not_obeyed():
    assert printable("a\x1b[31mred\x07\r\x9b\u202e") == "a\\x1b[31mred\\x07\\r\\x9b\\u202e"
    assert printable("\ud800") == "\\ud800"
    assert printable("two\nlines\tund Umlaute: ü, 漢字, 👩‍👩‍👧") == "two\nlines\tund Umlaute: ü, 漢字, 👩‍👩‍👧"
