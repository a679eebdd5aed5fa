"""Labels of tokens: every character can be told, wherever tokens cut it."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.generation.tokenizer import BytePairTokenizer, ByteTokenizer
from dual_attention.model_analysis.views import draw_matrices, drawable, token_labels


def labels(text: str) -> list[str]:
    tokenizer = ByteTokenizer()
    return token_labels(tokenizer, tokenizer.encode(text))


def test_characters_that_are_split():
    assert labels("aé b\n\t") == ["a", "é¹⁄₂", "é²⁄₂", "␣", "b", "↵", "⇥"]
    assert labels("猫") == ["猫¹⁄₃", "猫²⁄₃", "猫³⁄₃"]
    assert labels("😀")[3] == "😀⁴⁄₄"


def test_tokens_that_hold_parts_of_several_characters():
    """Byte pairs may join the end of one character and the beginning of the next."""
    one, two = "é".encode()
    ranks = {bytes((byte,)): byte for byte in range(256)} | {bytes((two, one)): 256, b"a" + bytes((one,)): 257}
    tokenizer = BytePairTokenizer.of_ranks(ranks)
    assert token_labels(tokenizer, [one, 256, two]) == ["é¹⁄₂", "é²⁄₂é¹⁄₂", "é²⁄₂"]
    assert token_labels(tokenizer, [257, two, tokenizer.end, 999]) == ["aé¹⁄₂", "é²⁄₂", "⟨end⟩", "⟨999⟩"]


def test_bytes_that_are_no_character_and_controls():
    assert token_labels(ByteTokenizer(), [0xC3, 0x41, 0xFF, 0x00, 256]) == ["\\xc3", "A", "\\xff", "\\x00", "⟨end⟩"]
    assert labels("\u202e")[0].startswith("\\u202e")  # it turns the direction of writing
    assert labels("\u0301")[0].startswith("\u0301")


@given(st.text())
def test_every_character_of_a_text_is_shown(text):
    whole = labels(text)
    shown = {"␣": " ", "↵": "\n", "⇥": "\t"}
    assert len(whole) == len(text.encode())
    for character in text:
        assert any(shown.get(label, label).startswith((character, "\\")) for label in whole)


def test_what_the_font_lacks_is_named():
    assert drawable(["naïve␣↵²⁄₂", "猫¹⁄₂"]) == ["naïve␣↵²⁄₂", "U+732B¹⁄₂"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of glyphs that are missing
        draw_matrices(torch.ones(2, 2), ["猫", "$x$"]).canvas.draw()


@pytest.mark.parametrize("text", ["", "x"])
def test_short_texts(text):
    assert labels(text) == list(text)
