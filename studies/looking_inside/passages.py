"""Passages of prose that a language model was not trained on, with labels of meaning and of grammar.

Shapes: B passages, N tokens of each that the model reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dat.experiments import experiment_of_run
from dat.experiments.language.config import LanguageConfig
from dat.experiments.language.data import TextSequences, load_data
from dat.experiments.language.problem import ORIGIN, TOKENS
from dat.training.config_io import read_config
from dat.training.run_folder import RunFolder
from dual_attention._files import read_json
from dual_attention.generation.tokenizer import FOLDER, Tokenizer, load_tokenizer
from dual_attention.model_analysis.labels import LabelledText, find_words, label_tokens, last_tokens
from dual_attention.model_analysis.labels.texts import pairs_of_equal, unordered
from dual_attention.model_analysis.measures import combine_strata, distance_strata

from .link_grammar import find_sentences
from .wordnet import WordNet

SEMANTIC, SYNONYMS, SYNTACTIC = "semantic", "synset", "syntactic"
LENGTH = 128
"""Tokens of a passage, the last of which is only predicted."""
MOST = 16
"""Passages of a document."""
PARAGRAPH, ODD_SHARE = 400, 0.01
"""Characters of a paragraph, at least, and the share of those that prose seldom has, at most."""
DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Distances in tokens at which a stratum begins; pairs from the last one on are left out."""
OCTAVES = 2
"""Binary orders of magnitude of a word's frequency in one stratum."""
NOT_NOUNS = frozenset({"will", "may", "might", "while"})
"""Words that are seldom the nouns which WordNet counted."""

_ODD = re.compile(r"[^\w\s.,;:'\"!?()-]|_")
_READ = 1000  # characters from the beginning of a passage that are labelled: more than it has, to whole sentences


class HeldOut(NamedTuple):
    """The text of a run.

    Attributes:
        documents: those kept apart from training.
        frequencies: occurrences of each word, in lower case, in the text trained on.
        tokenizer: of the model.
    """

    documents: list[str]
    frequencies: Mapping[str, int]
    tokenizer: Tokenizer


def read_held_out(run: Path) -> HeldOut:
    """The documents that a run of language modelling kept apart, from the text that it was trained on.

    Raises:
        ValueError: if it is a run of something else, or the text is not the one that it was trained on.
        OSError: if something cannot be read.
    """
    folder = RunFolder(run)
    if experiment_of_run(folder).name != "language":
        raise ValueError(f"{run}: expected a run of language, got one of {experiment_of_run(folder).name}")
    config = read_config(LanguageConfig, folder.config)
    tokenizer = load_tokenizer(run / FOLDER)
    data = load_data(
        replace(config.data, val_tokens=10**12),
        tokenizer,
        context=config.model.context,
        vocab_size=tokenizer.vocab_size,
        seed=config.seed,
        cache=run.parent / TOKENS,
    )
    origin = read_json(run / ORIGIN)
    if (origin["train"], origin["val"]) != (data.origin["train"], data.origin["val"]):
        raise ValueError(f"{run}: the text is not the one that it was trained on, see {ORIGIN} there")
    frequencies: Counter[str] = Counter()
    for text in _texts(data.train, tokenizer):
        frequencies.update(text[start:stop].lower() for start, stop in find_words(text))
    return HeldOut(_texts(data.val, tokenizer), frequencies, tokenizer)


def _texts(sequences: TextSequences, tokenizer: Tokenizer) -> list[str]:
    """The documents of tokens; an end token stands before each."""
    tokens = np.concatenate([array[:] for array in sequences.arrays])
    parts = np.split(tokens, np.flatnonzero(tokens == tokenizer.end))
    return [tokenizer.decode(part.tolist()) for part in parts if len(part)]


def find_passages(document: str, tokenizer: Tokenizer, *, length: int = LENGTH, most: int = MOST) -> list[str]:
    """Beginnings of sentences within paragraphs of prose, each with ``length`` tokens or more of text after it.

    Args:
        length: tokens that one begins after another, at least.
        most: of them, spread evenly over those that there are.

    Returns:
        Their texts, longer than ``length`` tokens where the paragraph goes on, so that sentences are whole.
    """
    found = []
    for paragraph in re.split(r"\n\s*\n", document):
        if len(paragraph) < PARAGRAPH or len(_ODD.findall(paragraph)) > ODD_SHARE * len(paragraph):
            continue
        free = 0
        for start, stop in find_sentences(paragraph):
            start += len(paragraph[start:stop]) - len(paragraph[start:stop].lstrip())
            if start < free:
                continue
            text = paragraph[start : start + _READ]
            tokens = tokenizer.encode(text)
            if len(tokens) < length:
                break
            free = start + len(tokenizer.decode(tokens[:length]))
            found.append(text)
    return found if len(found) <= most else [found[i * len(found) // most] for i in range(most)]


class Meanings:
    """Labels of words by WordNet: nouns of one kind or with a common sense, and words that share a base form.

    Args:
        nouns, words: WordNet's nouns, and all its parts of speech.
    """

    def __init__(self, nouns: WordNet | None = None, words: WordNet | None = None) -> None:
        self._nouns = WordNet() if nouns is None else nouns
        self._words = WordNet(parts=("noun", "verb", "adj", "adv")) if words is None else words

    def is_noun(self, word: str) -> bool:
        """Whether a word is more often a noun than anything else, as WordNet's authors counted."""
        if len(word) < 3 or word.lower() in NOT_NOUNS:
            return False
        counts = self._words.counts(word)
        return 2 * counts["noun"] > sum(counts.values())

    def label(self, text: str) -> LabelledText:
        """A text with the labels ``semantic``, ``synset`` and ``same``; the first two of nouns in one sentence."""
        words = find_words(text)
        written = [text[start:stop] for start, stop in words]
        groups = [-1] * len(words)
        for number, (begin, end) in enumerate(find_sentences(text)):
            for word, (start, _) in enumerate(words):
                if begin <= start < end and self.is_noun(written[word]):
                    groups[word] = number
        senses = [frozenset(self._nouns.synsets(word)) for word in written]
        shared = unordered((i, j) for i in range(len(words)) for j in range(i) if senses[i] & senses[j])
        forms = [self._words.base_forms(word) | {word.lower()} for word in written]
        same = unordered((i, j) for i in range(len(words)) for j in range(i) if forms[i] & forms[j])
        kinds = pairs_of_equal([self._nouns.lexname(word) for word in written])
        pairs = {SEMANTIC: kinds | shared, SYNONYMS: shared, "same": same}
        return LabelledText(text, words, pairs, {SEMANTIC: tuple(groups), SYNONYMS: tuple(groups)})


def merge_labels(first: LabelledText, other: LabelledText) -> LabelledText:
    """One text with the labels of two labellers; ``ValueError`` if text or words differ."""
    if (other.text, other.words) != (first.text, first.words):
        raise ValueError("other: expected the same text and words as those of first, got others")
    return LabelledText(first.text, first.words, {**first.pairs, **other.pairs}, {**first.groups, **other.groups})


@dataclass(frozen=True)
class Passages:
    """Labelled passages, taking turns among documents.

    Attributes:
        tokens: int64 ``(B, N + 1)``; the last one is predicted, and not read.
        documents: number of each passage's document, int64 ``(B,)``.
        labels: boolean ``(B, N, N)`` by name: pairs with the label, the later word receiving.
        masks: likewise: the pairs about which it says something.
        distances: stratum of each pair's distance, int64 ``(N, N)``.
        strata: of distance and of both words' frequencies, int64 ``(B, N, N)``.
    """

    tokens: Tensor
    documents: Tensor
    labels: Mapping[str, Tensor]
    masks: Mapping[str, Tensor]
    distances: Tensor
    strata: Tensor

    @property
    def partners(self) -> Tensor:
        """For each passage the next one of another document, int64 ``(B,)``; of the last ones, from the beginning."""
        count = len(self.documents)
        own = self.documents.tolist()
        found = [
            next((j % count for j in range(i + 1, i + count) if own[j % count] != own[i]), -1) for i in range(count)
        ]
        if -1 in found:
            raise ValueError(f"documents: expected passages of at least two, got {len(set(own))}")
        return torch.tensor(found)


def label_passages(
    documents: Sequence[str],
    tokenizer: Tokenizer,
    frequencies: Mapping[str, int],
    *,
    meanings: Callable[[str], LabelledText],
    links: Callable[[str], LabelledText],
    length: int = LENGTH,
    most: int = MOST,
) -> Passages:
    """Find the passages of documents, and label their pairs of words.

    Args:
        frequencies: occurrences of words in lower case; others have none.
        meanings, links: label a text, as :meth:`Meanings.label` and :meth:`.LinkGrammar.label`.
        length, most: see :func:`find_passages`.

    Raises:
        ValueError: if no passage is found.
    """
    found = [find_passages(document, tokenizer, length=length, most=most) for document in documents]
    turns = [(number, text) for row in zip_longest(*found) for number, text in enumerate(row) if text is not None]
    if not turns:
        raise ValueError(f"documents: expected prose of at least {length} tokens, got none in {len(documents)}")
    texts = [merge_labels(meanings(text), links(text)) for _, text in turns]
    n = length - 1
    of = {name: label_tokens(texts, name, tokenizer, n) for name in (SEMANTIC, SYNONYMS, "link", "same")}
    apart = ~of["same"].labels & (distance_strata(n) < DISTANCES[-1])
    named = {SEMANTIC: of[SEMANTIC], SYNONYMS: of[SYNONYMS], SYNTACTIC: of["link"]}
    distances = distance_strata(n, DISTANCES)
    bins = _frequency_bins(texts, tokenizer, frequencies, n)
    return Passages(
        tokens=torch.tensor([tokenizer.encode(text.text)[:length] for text in texts]),
        documents=torch.tensor([number for number, _ in turns]),
        labels={name: pairs.labels & apart for name, pairs in named.items()},
        masks={name: pairs.mask & apart for name, pairs in named.items()},
        distances=distances,
        strata=combine_strata(distances, bins[:, :, None], bins[:, None, :]),
    )


def _frequency_bins(
    texts: Sequence[LabelledText], tokenizer: Tokenizer, frequencies: Mapping[str, int], length: int
) -> Tensor:
    """Order of magnitude of the frequency of the word at each token, int64 ``(B, N)``; -1 where none ends."""
    bins = torch.full((len(texts), length), -1)
    for row, text in zip(bins, texts, strict=True):
        for (start, stop), place in zip(text.words, last_tokens(text, tokenizer), strict=True):
            if place is not None and place < length:
                row[place] = (frequencies.get(text.text[start:stop].lower(), 0) + 1).bit_length() // OCTAVES
    return bins
