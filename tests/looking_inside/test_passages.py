"""Passages of prose, their labels, and pairs with a label beside others like them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.labels import label_same_words
from dual_attention.model_analysis.labels.texts import find_words, unordered
from studies.looking_inside.matched_pairs import balance, match_pairs
from studies.looking_inside.passages import (
    SEMANTIC,
    SYNTACTIC,
    Meanings,
    find_passages,
    label_passages,
)

from . import planted

SENTENCE = "The cat and a dog saw cats near stones. "
KINDS = {"cat": "animal", "cats": "animal", "dog": "animal", "stones": "thing", "near": "thing"}


class Words:
    """In the place of WordNet's dictionary."""

    def counts(self, word):
        return {"noun": {"near": 1, "saw": 2}.get(word.lower(), 4 * (word.lower() in KINDS)), "verb": 2}

    def base_forms(self, word):
        return frozenset({word.lower().rstrip("s")})

    def synsets(self, word):
        return ["cat.1"] if word in ("cat", "dog") else [f"{word}.1"]

    def lexname(self, word):
        return KINDS.get(word)


def links(text):
    words = find_words(text)
    return replace(label_same_words(text), pairs={"link": unordered((i, i - 1) for i in range(1, len(words)))})


@pytest.fixture
def passages():
    documents = [SENTENCE * 20, "Short. ", SENTENCE * 12]
    frequencies = {"cat": 7, "the": 100}
    meanings = Meanings(Words(), Words()).label
    return label_passages(documents, ByteTokenizer(), frequencies, meanings=meanings, links=links, length=90, most=3)


def test_passages_begin_with_sentences_inside_prose():
    tokenizer = ByteTokenizer()
    document = f"Short paragraph.\n\n{SENTENCE * 12}\n\n{'x = {y: [z]}; ' * 40}"
    found = find_passages(document, tokenizer, length=90)
    assert found and all(text.startswith("The cat") for text in found)
    assert len(found) == len(SENTENCE * 12) // (3 * len(SENTENCE))  # each at the first sentence 90 tokens on
    assert find_passages(document, tokenizer, length=90, most=2) == [found[0], found[len(found) // 2]]
    assert find_passages(document, tokenizer, length=5000) == []


def test_nouns_of_one_sentence_that_mean_alike():
    text = Meanings(Words(), Words()).label("The cat saw a dog near stones. Two cats.")
    words = [text.text[a:b] for a, b in text.words]
    pairs = {label: {(words[j], words[i]) for i, j in found} for label, found in text.pairs.items()}
    assert ("cat", "dog") in pairs[SEMANTIC] and ("cat", "dog") in pairs["synset"]
    assert ("dog", "stones") not in pairs[SEMANTIC] and ("cat", "cats") in pairs["same"]
    groups = dict(zip(words, text.groups[SEMANTIC], strict=True))
    assert groups == {"The": -1, "cat": 0, "saw": -1, "a": -1, "dog": 0, "near": -1, "stones": 0, "Two": -1, "cats": 1}


def test_labels_of_passages(passages):
    assert passages.tokens.shape == (6, 90) and passages.documents.tolist() == [0, 2, 0, 2, 0, 2]
    assert passages.partners.tolist() == [1, 2, 3, 4, 5, 0]
    text = ByteTokenizer().decode(passages.tokens[0].tolist())
    ends = {
        word: text.index(f"{word} ") + len(word) - 1
        for word in ("cat", "dog", "saw", "cats", "stones."[:-1])
        if f"{word} " in text
    }
    semantic, mask = passages.labels[SEMANTIC][0], passages.masks[SEMANTIC][0]
    assert semantic[ends["dog"], ends["cat"]] and not semantic[ends["cat"], ends["dog"]]
    assert not mask[ends["cats"], ends["cat"]]  # they share a base form, so they count for nothing
    assert not mask[ends["saw"], ends["cat"]] and passages.masks[SYNTACTIC][0][ends["saw"], ends["cat"]]
    assert passages.labels[SYNTACTIC][0][ends["saw"], ends["dog"]]
    other = text.index("cat", 45) + 2  # of the next sentence
    assert not mask[other, ends["dog"]]
    frequent = passages.strata[0, ends["dog"], ends["cat"]] != passages.strata[0, ends["cats"], ends["dog"]]
    assert frequent


def test_documents_without_prose_are_refused():
    with pytest.raises(ValueError, match="expected prose of at least 90 tokens, got none in 1"):
        label_passages(["Short."], ByteTokenizer(), {}, meanings=links, links=links, length=90)


def test_pairs_are_matched_one_by_one_and_balanced():
    passages = planted.passages(SEMANTIC)
    strata = passages.strata * 2 + (torch.rand(passages.strata.shape) < 0.5)
    masks = {**passages.masks, SEMANTIC: passages.masks[SEMANTIC] & (passages.distances > 2)}
    passages = replace(passages, strata=strata, masks=masks)
    matched = {label: match_pairs(passages, label) for label in (SEMANTIC, SYNTACTIC)}
    for label, one in matched.items():
        assert len(one.positives) == len(one.negatives) > 0
        with_label, without = (tuple(pairs.T) for pairs in (one.positives, one.negatives))
        assert passages.labels[label][with_label].all() and not passages.labels[label][without].any()
        assert passages.masks[label][without].all()
        assert (passages.strata[with_label] == passages.strata[without]).all()
        assert (with_label[0] == without[0]).all()
        assert int(one.places(labelled=True).sum()) == len(one.positives) == int(one.count.sum())
    drawn = balance(matched, passages.distances)
    numbers = []
    for label, one in drawn.items():
        whole = set(map(tuple, torch.cat([matched[label].positives, matched[label].negatives], 1).tolist()))
        assert set(map(tuple, torch.cat([one.positives, one.negatives], 1).tolist())) <= whole
        numbers.append(torch.bincount(passages.distances[one.positives[:, 1], one.positives[:, 2]], minlength=11))
    assert numbers[0].equal(numbers[1]) and numbers[0].sum() > 0
