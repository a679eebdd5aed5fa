"""Minimal pairs, as BLiMP has them (arXiv 1912.00582): of two sentences the model should find the good one likelier."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dual_attention._base.extras import require
from dual_attention.generation.tokenizer import Tokenizer
from dual_attention.language_models import LanguageModel

from ...data.text.corpus import read_text
from ...data.text.files import JSON_LINES, find_files
from ...training.tables import numbers_table

IGNORED = -1
"""Target where there is nothing to predict."""

SENTENCES = ("sentence_good", "sentence_bad")


class Pair(NamedTuple):
    """A minimal pair.

    Attributes:
        good, bad: the sentences.
        source: file and line.
        file: the file's name without its ending, which in BLiMP names the phenomenon.
        field: key of that name in the file, the field of linguistics; empty if there is none.
    """

    good: str
    bad: str
    source: str
    file: str
    field: str


def read_minimal_pairs(paths: Sequence[str]) -> list[Pair]:
    """The pairs of files of JSON Lines, of folders (those files in them) and of patterns.

    Raises:
        FileNotFoundError: naming what stands for no file.
        ValueError: naming file and line that hold no pair, or if there is no file of JSON Lines.
    """
    files = [path for path in find_files(paths, "pairs").files if path.suffix in JSON_LINES]
    if not files:
        raise ValueError(f"pairs: expected files of JSON Lines ({', '.join(JSON_LINES)}), got {', '.join(paths)}")
    pairs = [pair for path in files for pair in _pairs_in(path)]
    if not pairs:
        raise ValueError(f"pairs: expected at least one pair, got none in {', '.join(map(str, files))}")
    return pairs


def _pairs_in(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        source = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{source}: not JSON ({error})") from error
        good, bad = (values.get(name) if isinstance(values, dict) else None for name in SENTENCES)
        if not (isinstance(good, str) and isinstance(bad, str) and good.strip() and bad.strip()):
            raise ValueError(f"{source}: expected an object with texts {' and '.join(SENTENCES)}")
        yield Pair(good, bad, source, path.stem, str(values.get("field") or ""))


@torch.no_grad()
def log_probabilities(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[tuple[str, str]],
    *,
    device: Any = "cpu",
    batch_size: int = 16,
) -> tuple[Tensor, Tensor]:
    """Sum of the log-probabilities (nats) of the tokens of each text, after the token that a text begins with.

    Args:
        texts: each with where it comes from, for errors.

    Returns:
        Sums, float64 ``(n,)``, and numbers of tokens, int64 ``(n,)``.

    Raises:
        ValueError: naming where a text comes from that is longer than the context, or has no tokens.
    """
    rows = [[tokenizer.begin, *tokenizer.encode(text)] for text, _ in texts]
    lengths = torch.tensor([len(row) - 1 for row in rows])
    for (_, source), length in zip(texts, lengths.tolist(), strict=True):
        if not 1 <= length <= model.block_size:
            raise ValueError(f"{source}: expected 1 to {model.block_size} tokens, the context, got {length}")
    sums = torch.zeros(len(rows), dtype=torch.float64)
    for batch in lengths.argsort(stable=True).split(batch_size):  # of about one length
        longest = int(lengths[batch].max())
        tokens = torch.full((len(batch), longest + 1), IGNORED)
        for place, number in enumerate(batch.tolist()):
            tokens[place, : len(rows[number])] = torch.tensor(rows[number])
        x, targets = tokens[:, :-1].clamp_min(0).to(device), tokens[:, 1:].to(device)
        logits = model(x)[0].float()  # what fills a row comes last, where no token sees it
        losses = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        sums[batch] = -losses.double().sum(1).cpu()
    return sums, lengths


def evaluate_pairs(
    model: LanguageModel, tokenizer: Tokenizer, pairs: Sequence[Pair], *, device: Any = "cpu", batch_size: int = 16
) -> dict[str, dict[str, dict[str, Any]]]:
    """Accuracy on minimal pairs: the share in which the good sentence has the larger log-probability.

    Returns:
        For ``"files"``, ``"fields"`` and ``"all"``, by name: ``pairs``; ``accuracy``, and ``low`` and ``high``, its
        exact (Clopper-Pearson) 95 % interval; ``by_token``, accuracy by the mean log-probability of a token.

    Raises:
        ValueError: naming file and line of a sentence that is longer than the context.
    """
    texts = [(text, pair.source) for pair in pairs for text in (pair.good, pair.bad)]
    sums, lengths = log_probabilities(model, tokenizer, texts, device=device, batch_size=batch_size)
    right = (sums[::2] > sums[1::2]).tolist()
    by_token = (sums / lengths).view(-1, 2)
    right_by_token = (by_token[:, 0] > by_token[:, 1]).tolist()
    found: dict[str, dict[str, list[tuple[bool, bool]]]] = {"files": {}, "fields": {}, "all": {}}
    for pair, *both in zip(pairs, right, right_by_token, strict=True):
        for kind, name in (("files", pair.file), ("fields", pair.field), ("all", "all")):
            if name:
                found[kind].setdefault(name, []).append((both[0], both[1]))
    return {kind: {name: _numbers(which) for name, which in groups.items()} for kind, groups in found.items()}


def _numbers(right: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    count, n = sum(first for first, _ in right), len(right)
    interval = require("scipy.stats", extra="train").binomtest(count, n).proportion_ci(0.95, method="exact")
    by_token = sum(second for _, second in right) / n
    return {
        "pairs": n,
        "accuracy": count / n,
        "low": float(interval.low),
        "high": float(interval.high),
        "by_token": by_token,
    }


def table_of_pairs(title: str, numbers: dict[str, dict[str, dict[str, Any]]]) -> Any:
    """A rich table of files, fields if there are any, and all pairs."""
    kinds = {"files": "", "fields": " (field)", "all": ""}
    rows = {name + told: row for kind, told in kinds.items() for name, row in numbers[kind].items()}
    columns = ("pairs", "accuracy", "low", "high", "by_token")
    return numbers_table(title, "file or field", columns, rows, shares=columns[1:])
