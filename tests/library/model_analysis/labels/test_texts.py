"""Texts with labelled pairs of words, and their files."""

from __future__ import annotations

import json

import pytest

from dual_attention.model_analysis.labels import LabelledText, find_words, label_same_words, read_labels, write_labels


def written(text: LabelledText, label: str) -> set[tuple[str, str]]:
    words = [text.text[start:stop] for start, stop in text.words]
    return {(words[j], words[i]) for i, j in text.pairs[label]}


def test_words_are_what_is_written_in_letters():
    text = "Zoë's 3 cats—snow_white, naïve: 猫."
    assert [text[a:b] for a, b in find_words(text)] == ["Zoë", "s", "cats", "snow", "white", "naïve", "猫"]


def test_same_words():
    text = label_same_words("The cat saw the other Cat; the cat!")
    assert written(text, "same word") == {
        ("The", "the"),
        ("the", "the"),
        ("cat", "Cat"),
        ("Cat", "cat"),
        ("cat", "cat"),
    }
    assert len(text.pairs["same word"]) == 6
    assert text.groups_of("same word") == (0,) * 8


def test_files_keep_texts(tmp_path):
    one = label_same_words("A rose is a rose.")
    other = LabelledText("x é y", ((0, 1), (4, 5)), {"k": frozenset({(1, 0)})}, {"k": (0, -1)})
    write_labels(tmp_path / "labels.jsonl", [one, other])
    assert list(read_labels(tmp_path / "labels.jsonl")) == [one, other]


def test_a_file_of_a_user_needs_only_text_and_pairs(tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps({"text": "one two three", "pairs": {"mine": [[0, 2]]}}) + "\n\n", encoding="utf-8")
    (text,) = read_labels(path)
    assert written(text, "mine") == {("one", "three")}
    with pytest.raises(ValueError, match="label: expected one of mine, got 'other'"):
        text.groups_of("other")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "expected a JSON object, got list"),
        ('{"text": "a b"}', "has no 'pairs'"),
        ('{"text": 3, "pairs": {}}', "text: expected a string, got int"),
        ('{"text": "a b", "pairs": {"k": [[0, 2]]}}', r"pairs: expected two of 2 words for 'k', got \(2, 0\)"),
        ('{"text": "a b", "pairs": {}, "groups": {"k": [0]}}', "groups: expected 2 of 'k', got 1"),
        ('{"text": "a b", "words": [[0, 9]], "pairs": {}}', "words: expected ascending spans within 3, got 0 to 9"),
        ('{"text": "a b", "words": [[2, 3], [0, 1]], "pairs": {}}', "words: expected ascending spans"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"text": "", "pairs": {}}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"labels.jsonl, line 2: .*{message}"):
        list(read_labels(path))
