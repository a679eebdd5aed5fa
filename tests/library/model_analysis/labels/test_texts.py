"""Texts with labelled pairs of words."""

from dual_attention.model_analysis.labels import LabelledText, find_words, label_same_words
from tests.support.refusals import refused


def written(text: LabelledText, label: str) -> set[tuple[str, str]]:
    words = [text.text[start:stop] for start, stop in text.words]
    return {(words[j], words[i]) for i, j in text.pairs[label]}


def test_words_are_what_is_written_in_letters():
    text = "Zoë's 3 cats—snow_white, naïve: 猫."
    assert [text[a:b] for a, b in find_words(text)] == ["Zoë", "s", "cats", "snow", "white", "naïve", "猫"]


def test_same_words():
    text = label_same_words("The cat saw the other Cat; the cat!")
    cats = {("cat", "Cat"), ("Cat", "cat"), ("cat", "cat")}
    assert written(text, "same word") == {("The", "the"), ("the", "the"), *cats}
    assert len(text.pairs["same word"]) == 6
    assert text.groups_of("same word") == (0,) * 8


def labelled(*words, pairs=((1, 0),), **groups):
    return LabelledText("a b", words or ((0, 1), (2, 3)), {"k": frozenset(pairs)}, groups)


test_refusals = refused(
    (lambda: labelled(pairs=[(2, 0)]), r"pairs: expected two of 2 words for 'k', got \(2, 0\)"),
    (lambda: labelled(pairs=[(0, 1)]), r"pairs: expected two of 2 words for 'k', got \(0, 1\)"),
    (lambda: labelled(k=(0,)), "groups: expected 2 of 'k', got 1"),
    (lambda: labelled((0, 1), (2, 9)), "words: expected ascending spans within 3, got 2 to 9"),
    (lambda: labelled((2, 3), (0, 1)), "words: expected ascending spans"),
    (lambda: labelled().groups_of("other"), "label: expected one of k, got 'other'"),
)
