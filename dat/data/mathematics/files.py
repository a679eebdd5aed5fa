"""Questions and answers in the layout of the official archive: question and answer on alternating lines."""

import hashlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Module = Literal[
    "algebra__linear_1d",
    "algebra__sequence_next_term",
    "calculus__differentiate",
    "polynomials__add",
    "polynomials__expand",
]
MODULES: tuple[Module, ...] = get_args(Module)
"""The five modules of the paper, of the 56 of the data set."""

Split = Literal["train-easy", "train-medium", "train-hard", "interpolate", "extrapolate"]
LEVELS: tuple[Split, ...] = ("train-easy", "train-medium", "train-hard")
"""Folders of what is trained on, in equal shares."""
TESTS: tuple[Split, ...] = ("interpolate", "extrapolate")

HOME = "https://github.com/google-deepmind/mathematics_dataset"
"""Page that says where the official archive is to be had."""

Pair = tuple[str, str]
"""A question and its answer."""


class QuestionSets(NamedTuple):
    """The questions of a run.

    Attributes:
        sets: pairs of ``train``, and of ``val``, ``interpolate`` and ``extrapolate`` as far as there are any.
        left_out: for each of the other sets, questions of it that were left out of ``train``, counted as often as they
            occurred there.
        repeated: training questions that occur before in ``train``; they stay, as in the official files.
        sha256: of all questions and answers in their order.
    """

    sets: dict[str, list[Pair]]
    left_out: dict[str, int]
    repeated: int
    sha256: str

    @property
    def origin(self) -> dict[str, Any]:
        """Sizes, counts and the checksum, as JSON that identifies the questions."""
        sizes = {name: len(pairs) for name, pairs in self.sets.items()}
        left_out = {"left out of train, being in": self.left_out, "repeated in train": self.repeated}
        return {"questions": sizes, **left_out, "sha256": self.sha256}


def read_pairs(path: Path, n: int | None = None) -> list[Pair]:
    """The first ``n`` questions of a file with their answers, or all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file ends before so many, or after a question without an answer, or is no text.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.rstrip("\n") for line in islice(file, None if n is None else 2 * n)]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text, question and answer on alternating lines ({error})") from error
    if len(lines) % 2:
        raise ValueError(f"{path}: cut short: expected an answer after each question, got none after line {len(lines)}")
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    if n is not None and len(pairs) < n:
        raise ValueError(f"{path}: expected at least {n:,} questions, found {len(pairs):,}")
    return pairs


def shares(n: int) -> list[int]:
    """``n`` questions as equal shares of the three levels, the first ones larger by one where they must be."""
    return [n // len(LEVELS) + (level < n % len(LEVELS)) for level in range(len(LEVELS))]


def load_questions(folder: Path, module: str, *, n_train: int, n_val: int, n_test: int) -> QuestionSets:
    """The sets of a run from the files of one module.

    Training and validation questions are equal shares of the three levels (to one), from the top of their files, the
    latter after the former. A training question that is in another set, too, is left out, so ``train`` has a few less.

    Args:
        folder: holds ``train-easy``, ``train-medium``, ``train-hard``, ``interpolate`` and perhaps ``extrapolate``.
        n_val: 0 for no such set.
        n_test: questions of ``interpolate`` and, if there is such a file, of ``extrapolate``.

    Raises:
        FileNotFoundError: naming the file that is missing.
        ValueError: naming a file that is cut short or has too few questions.
    """
    train: list[Pair] = []
    sets: dict[str, list[Pair]] = {"val": []} if n_val else {}
    for level, of_train, of_both in zip(LEVELS, shares(n_train), shares(n_train + n_val), strict=True):
        pairs = read_pairs(_existing(folder, level, module), of_both)
        train += pairs[:of_train]
        if n_val:
            sets["val"] += pairs[of_train:]
    sets["interpolate"] = read_pairs(_existing(folder, "interpolate", module), n_test)
    extrapolate = path_of(folder, "extrapolate", module)
    if extrapolate.is_file():
        sets["extrapolate"] = read_pairs(extrapolate, n_test)
    return _separated(train, sets)


def _separated(train: Sequence[Pair], sets: dict[str, list[Pair]]) -> QuestionSets:
    """The sets, with what is in another one left out of ``train``."""
    members = {name: {question for question, _ in pairs} for name, pairs in sets.items()}
    held = set().union(*members.values())
    found = [question for question, _ in train if question in held]
    kept = [pair for pair in train if pair[0] not in held]
    every = {"train": kept, **sets}
    digest = hashlib.sha256()
    for pairs in every.values():
        digest.update("".join(f"{question}\n{answer}\n" for question, answer in pairs).encode())
    left_out = {name: sum(question in own for question in found) for name, own in members.items()}
    return QuestionSets(every, left_out, len(kept) - len({question for question, _ in kept}), digest.hexdigest())


def path_of(folder: Path, split: str, module: str) -> Path:
    """File of a module in a split."""
    return folder / split / f"{module}.txt"


def _existing(folder: Path, split: str, module: str) -> Path:
    path = path_of(folder, split, module)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file; expected the unpacked archive mathematics_dataset-v1.0, which {HOME} "
            "names, or another folder of that layout (train-easy/MODULE.txt, interpolate/MODULE.txt ...)"
        )
    return path
