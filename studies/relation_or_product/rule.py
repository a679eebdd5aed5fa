"""Rules without training in the three families: counts, and what stands in the question.

python -m studies.relation_or_product.rule english.jsonl
"""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dat.data.mathematics import PAD, encode_answers
from dat.experiments.language.data import load_data, make_tokenizer
from dat.experiments.mathematics.config import MathematicsConfig
from dat.experiments.mathematics.problem import find_questions
from dat.experiments.sequences.tasks import TASKS, draw_task
from studies.relation_or_product import mathematics, sequences
from studies.relation_or_product.study import ALL, RULES

CACHE = Path("runs") / "rules"
CONTEXT, KEPT = 256, 5.0
"""Tokens of a sequence of text; and the counts that the next shorter context is worth."""


def of_language(config: Any, context: int = CONTEXT) -> dict[str, float]:
    """Bits per byte of the next byte after one and after two others, by counts in the text to train on."""
    tokenizer = make_tokenizer(config)
    size = tokenizer.vocab_size
    data = load_data(config, tokenizer, context=context, vocab_size=size, seed=0, cache=CACHE)
    tokens = np.concatenate([np.asarray(array[:], dtype=np.int64) for array in data.train.arrays])
    counts = [np.bincount(tokens, minlength=size).astype(float)]
    after = tokens
    for longer in (1, 2):
        after = after[:-1] * size + tokens[longer:]
        counts.append(np.bincount(after, minlength=size ** (longer + 1)).astype(float))
    shares = [(counts[0] + 1) / (counts[0] + 1).sum()]
    for table in counts[1:]:
        table, shorter = (
            table.reshape(-1, size),
            np.tile(shares[-1].reshape(-1, size), (table.size // shares[-1].size, 1)),
        )
        shares.append((table + KEPT * shorter) / (table.sum(1, keepdims=True) + KEPT))
    x, y = (part.numpy() for part in data.val.batch(torch.arange(len(data.val))))
    pairs = shares[1][x, y]
    triples = np.concatenate([pairs[:, :1], shares[2][x[:, :-1] * size + x[:, 1:], y[:, 1:]]], axis=1)
    names = ("pairs of bytes", "triples of bytes")
    return {name: -np.log2(p).sum() / data.val_bytes for name, p in zip(names, (pairs, triples), strict=True)}


def of_sequences() -> dict[str, float]:
    """Percent of states that are right, by the most frequent one at a place; and there after the last permutation."""
    (grid,) = sequences.GRIDS.values()
    name, _, size = grid.tasks[0].rpartition("-")
    vocabulary = TASKS[name].vocab_size
    drawn = [draw_task(name, n, int(size), vocabulary, seed=seed) for seed, n in ((0, 20_000), (1, grid.data.n_test))]
    place = torch.arange(drawn[0].tokens.shape[1]) * vocabulary
    found = {}
    for words, keys in (
        ("most frequent state", [place.expand(one.tokens.shape) for one in drawn]),
        ("most frequent state after the last permutation", [place + one.tokens for one in drawn]),
    ):
        counts = torch.zeros(int(place[-1]) + vocabulary, vocabulary)
        counts.index_put_((keys[0], drawn[0].targets), torch.ones(()), accumulate=True)
        found[words] = 100 * float((counts.argmax(1)[keys[1]] == drawn[1].targets).float().mean())
    return found


def of_mathematics() -> dict[str, float]:
    """Percent of characters that are right, by the most frequent one at a place, and by the last term again."""
    config = MathematicsConfig(module=mathematics.MODULE, data=mathematics.DATA)
    sets = find_questions(config, CACHE).sets
    train, asked = (encode_answers([answer for _, answer in sets[name]])[:, 1:] for name in ("train", "interpolate"))
    last = [re.findall(r"-?\d+", question)[-1] for question, _ in sets["interpolate"]]
    guesses = {
        "most frequent character": train.mode(0).values.expand(asked.shape),
        "the last term again": encode_answers(last)[:, 1:],
    }
    there = asked != PAD
    return {words: 100 * float((guess == asked)[there].float().mean()) for words, guess in guesses.items()}


def main() -> None:
    """Write ``results/rule.csv``."""
    families = {
        ("English", "bits per byte"): of_language(replace(ALL.data, path=(sys.argv[1],))),
        ("permutations", "% of states"): of_sequences(),
        ("next term", "% of characters"): of_mathematics(),
    }
    lines = [
        {"family": family, "untrained rule": rule, "measure": measure, "value": round(value, 3)}
        for (family, measure), rules in families.items()
        for rule, value in rules.items()
    ]
    RULES.parent.mkdir(exist_ok=True)
    pd.DataFrame(lines).to_csv(RULES, index=False)


if __name__ == "__main__":
    main()
