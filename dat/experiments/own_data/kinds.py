"""The three kinds of data: how each is read, split and scored, and what is said of it."""

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.words import counted, listed, shortened
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.language_models import DualAttnTransformerLM

from ..._numpy import np
from ...data import tables
from ...data.folders import files_below
from ...data.images import find_pictures, split_images
from ...data.images.folders import MEAN, STD, SUFFIXES
from ...data.images.splits import load_images
from ...data.tables import FEWEST, SHARE, TABLES, Column, row_key
from ...data.text.files import TEXTS
from ...data.text.tokens import TokenSource, tokenize
from ...training.configs import check
from ...training.metrics import Row
from ...training.problem import Batch, Examples, LossFunction, TensorExamples, classification_loss
from ..images.examples import NormalisedImages
from ..language.config import LanguageDataConfig
from ..language.data import TextSequences, count_bytes, first_tokens, split_off, text_named
from ..language.problem import language_loss, numbers_of_text
from .config import OwnSource
from .models import MISSING, NUMBER, PADDING, Build, RowModel, picture_models

ACCURACY, RMSE, BITS = "accuracy", "rmse", "bits_per_byte"
SCORED = 65_536
"""Bytes to which the texts to validate on are cut, and those to test on."""
PLURALS = {"number": "numbers", "category": "categories", "sequence": "sequences"}


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """Data that are read and split.

    Attributes:
        sets: the examples to train, to validate and to test on, on the device that was asked for.
        build: makes the models.
        answer: makes the logits that the rule answers with, always, once it has seen so many of the examples to train
            on, or all; ``in_words`` puts them in words.
        measure: the metric that models are compared by.
        score: that metric of ``"val"`` or ``"test"`` from a mean loss; None if the loss tells it itself.
        noun: of the examples.
        read: a description, for people, of the data, the target, and the rows left out.
        way: how the examples were split, in words.
        parts: a line for each row of a table, with its part.
        digest: of the contents.
    """

    sets: Mapping[str, Examples]
    build: Build
    answer: Callable[[int | None], Tensor]
    in_words: Callable[[Tensor], str]
    loss: LossFunction
    measure: str
    score: Callable[[str, float], float | None] | None = None
    noun: str
    read: str
    way: str
    parts: Sequence[Row] = ()
    digest: str

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of examples."""
        return {part: len(found) for part, found in self.sets.items()}

    @property
    def about(self) -> str:
        """Lines that say what was read, and how it was split."""
        train, val, test = (self.sizes[part] for part in ("train", "val", "test"))
        split = f"{counted(train, self.noun)} to train on, {val:,} to validate on, {test:,} to test on, {self.way}"
        return f"data: {self.read}\nsplit: {split}"

    def derive(self, row: Mapping[str, Any]) -> dict[str, float | None]:
        """The measures that follow from losses, see :class:`~dat.training.problem.Problem`."""
        parts = [part for part in ("val", "test") if self.score and f"{part}_loss" in row]
        return {f"{part}_{self.measure}": self.score(part, row[f"{part}_loss"]) for part in parts if self.score}


def load_own(source: OwnSource, device: torch.device | str = "cpu") -> OwnData:
    """The data that a configuration names.

    Raises:
        FileNotFoundError, ValueError, ImportError: naming what is missing or wrong, and the way out.
    """
    data = _load(replace(source, n_train=None, contents=None), str(device))
    if source.contents not in (None, data.digest):
        raise ValueError(f"contents: {source.path} has changed, expected {source.contents}, got {data.digest}")
    most = data.sizes["train"]
    if not 1 <= (source.n_train or most) <= most:
        raise ValueError(f"n_train: expected from 1 to {most:,}, the examples left to train on, got {source.n_train:,}")
    return data


@lru_cache(maxsize=2)
def _load(source: OwnSource, device: str) -> OwnData:
    path = Path(source.path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{source.path}: no such file or folder")
    if path.suffix.lower() in TABLES:
        return _load_table(source, path, device)
    for name in ("target", "task", "categories", "leave_out"):
        if (given := getattr(source, name)) is not None:
            raise ValueError(f"{name}: expected null without a table ({', '.join(TABLES)}), got {given}")
    pictures = path.is_dir() and _are_pictures(path)
    try:
        return _load_pictures(source, path, device) if pictures else _load_texts(source, device)
    except ValueError as error:  # of readers that also serve keys of other commands
        raise ValueError(str(error).removeprefix("data.folder: ").removeprefix("data: ")) from error


def _are_pictures(folder: Path) -> bool:
    """Whether more files of a folder are pictures than texts, by their names and without hidden ones."""
    number = Counter(path.suffix.lower() for path in files_below(folder))
    return sum(number[suffix] for suffix in SUFFIXES) > sum(number[suffix] for suffix in ("", *TEXTS))


def forget_data() -> None:
    """Let data that were read before be read anew."""
    _load.cache_clear()
    load_images.cache_clear()


def _classes(labels: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """Loss and measure of classes, and a rule that answers with their frequencies among what is trained on."""
    counts = torch.bincount(labels, minlength=len(names)).float()
    if empty := [name for name, count in zip(names, counts.tolist(), strict=True) if not count]:
        raise ValueError(
            f"target: expected each class among what is trained on, got none of {listed(empty)}; collect more of it, "
            "leave it out, or try another --split_seed"
        )
    return {
        "answer": lambda n: torch.bincount(labels[:n], minlength=len(names)).clamp(min=0.5).log(),
        "in_words": lambda answer: f"always {shortened(names[int(answer.argmax())])}",
        "loss": classification_loss,
        "measure": ACCURACY,
    }


# Tables --------------------------------------------------------------------------------------------------------------


def _load_table(source: OwnSource, path: Path, device: str) -> OwnData:
    categories, task = _named_categories(source)
    cells = tables.read_cells(path, categories)
    asked = {"target": [source.target], "categories": source.categories, "leave_out": source.leave_out}
    for key, named in asked.items():
        tables.check_columns(key, named or (), cells, path)
    target, own = source.target or "", len(cells[source.target or ""])
    names = [name for name in cells if name not in (target, *(source.leave_out or ()))]
    if source.test is not None:
        given = tables.read_cells(Path(source.test).expanduser(), categories)
        if missing := [name for name in (*names, target) if name not in given]:
            raise ValueError(f"test: expected the columns of {path} in {source.test}, which has no {listed(missing)}")
        if all(value is None for value in given[target]):
            raise ValueError(f"test: expected values in {target!r} of {source.test}, got only empty cells")
        cells = {name: [*cells[name], *given[name]] for name in (*names, target)}
    known = [row for row, value in enumerate(cells[target]) if value is not None]
    if not known:
        raise ValueError(f"target: expected values in {target!r}, got only empty cells")
    if not any(value is not None for name in names for value in cells[name]):
        raise ValueError(f"{path}: expected a column beside the target {target!r} that is not empty, got none")
    answers = [cells[target][row] for row in known]
    task = tables.task_of(target, answers, task)
    keys = [row_key(*(cells[name][row] for name in names)) for row in known]
    _check_apart(source, dict(zip(known, zip(keys, answers, strict=True), strict=True)), own)
    n_own = sum(row < own for row in known)
    apart = ("test", "val") if source.test is None else ("val",)
    parts = [*tables.split_by_hash(keys[:n_own], apart, source.split_seed), *["test"] * (len(keys) - n_own)]
    found = {name: tables.typed_column(name, cells[name], category=name in categories) for name in names}
    columns = [column._replace(values=[column.values[row] for row in known]) for column in found.values() if column]
    order = sorted(range(len(keys)), key=keys.__getitem__)  # a mixed one, whatever that of the file is
    places = {part: torch.tensor([row for row in order if parts[row] == part]) for part in ("train", "val", "test")}
    rows, slots, n_tokens = encode_rows(columns, places["train"].tolist(), source.context)
    targets, what, told = _predicted(answers, task, places["train"])
    number, doubles = Counter(column.kind for column in columns), len(keys) - len({*keys})
    kinds = ", ".join(counted(number[kind], kind, plural) for kind, plural in PLURALS.items() if number[kind])
    equal = f"; {counted(doubles, 'row')} that {'is' if doubles == 1 else 'are'} there twice" if doubles else ""
    left_out = [name for name, column in found.items() if column is None]
    dropped = f"; left out: {listed(left_out)}, which {'is' if len(left_out) == 1 else 'are'} empty" if left_out else ""
    gone = len(cells[target]) - len(known)
    bare = f"; {counted(gone, 'row')} without {target} left out" if gone else ""
    items = [value for column in columns if column.kind == "sequence" for value in column.values if value]
    long = sum(len(value) > source.context for value in items)
    cut = f"; {counted(long, 'sequence')} cut to --context {source.context}" if long else ""
    contents = [(column.name, column.kind) for column in columns], keys, [*map(tables.category_text, answers)], parts
    return OwnData(
        sets={part: TensorExamples(rows[where], targets[where], device=device) for part, where in places.items()},
        build=partial(RowModel, slots, n_tokens, len(told["answer"](1)), ragged=bool((rows[..., 0] == PADDING).any())),
        noun="row",
        read=f"{counted(len(keys), 'row')} of {kinds}{equal}{dropped}{bare}{cut}; {target} is predicted as {what}",
        way=f"by a hash of each row and --split_seed {source.split_seed}, equal rows on one side",
        parts=[{"row": f"row {row + 1}", "part": part} for row, part in zip(known, parts, strict=True)],
        digest=row_key(task, *contents),
        **told,
    )


def _named_categories(source: OwnSource) -> tuple[set[str], tables.Task | None]:
    """Columns that are read as categories, the target among them if its classes are asked for, and the task asked."""
    target, named, out = source.target or "", {*(source.categories or ())}, source.leave_out or ()
    check(target not in out, "leave_out", "other columns than the target", target)
    check(target not in named or source.task != "number", "task", "classes, as categories names the target", "number")
    task = "classes" if target in named else source.task
    return named | ({target} if task == "classes" else set()), task


def _check_apart(source: OwnSource, rows: Mapping[int, Any], own: int) -> None:
    """Raise ``ValueError`` if a row behind the first ``own`` ones, which is tested on, says the same as one of them."""
    first = {said: row + 1 for row, said in rows.items() if row < own}
    for row, said in rows.items():
        if row >= own and said in first:
            raise ValueError(
                f"test: row {row - own + 1} of {source.test} is row {first[said]} of {source.path}, so a model would "
                "be tested on what it was trained on; remove one of them, or give all rows without --test, to be split"
            )


def _predicted(answers: Sequence[Any], task: str, train: Tensor) -> tuple[Tensor, str, dict[str, Any]]:
    """Targets of rows, the same in words, and how they are scored."""
    if task == "classes":
        texts = [*map(tables.category_text, answers)]
        names = sorted({*texts})
        targets = torch.tensor([names.index(text) for text in texts])
        return targets, f"{len(names)} classes ({listed(names, most=5)})", _classes(targets[train], names)
    exact = torch.tensor(answers, dtype=torch.float64)
    mean, spread = _mean_and_spread(exact[train])
    told: dict[str, Any] = {"loss": number_loss, "measure": RMSE, "score": lambda _, loss: spread * math.sqrt(loss)}
    told["answer"] = lambda n: (exact[train[:n]].mean(0, keepdim=True) - mean) / spread
    told["in_words"] = lambda answer: f"always {mean + spread * float(answer):.4g}, the mean"
    return ((exact - mean) / spread).float(), "a number (regression)", told


def _mean_and_spread(values: Tensor) -> tuple[float, float]:
    """Mean and deviation, 1 where there is none."""
    return float(values.mean()), float(values.std(correction=0)) or 1.0


def encode_rows(columns: Sequence[Column], train: Sequence[int], longest: int) -> tuple[Tensor, list[int], int]:
    """A token and a number for each slot of all rows, ``(n, S, 2)``, the column of each slot, and how many tokens.

    Numbers have mean 0 and deviation 1 over the rows ``train``, the only ones whose categories are known. A sequence
    takes as many slots as the longest one has items, at most ``longest``.
    """
    n_tokens, slots, encoded = NUMBER + 1, [], []
    for number, column in enumerate(columns):
        wide = column.kind == "sequence"
        rows = [row[:longest] if wide and row else (row,) for row in column.values]
        seen = [item for place in train for item in rows[place] if item not in (None, ())]
        known: dict[str, int] = {}
        mean, spread = 0.0, 1.0
        if all(isinstance(item, float) for item in seen):
            mean, spread = _mean_and_spread(torch.tensor(seen or [0.0], dtype=torch.float64))
        else:
            known = {item: place for place, item in enumerate(sorted({*map(str, seen)}), n_tokens)}
            n_tokens += len(known)
        for items in zip_longest(*rows, fillvalue=PADDING):
            slots.append(number)
            encoded.append([_encoded(item, known, mean, spread) for item in items])
    return torch.tensor(encoded).transpose(0, 1).contiguous(), slots, n_tokens


def _encoded(item: Any, known: Mapping[str, int], mean: float, spread: float) -> tuple[int, float]:
    """Token and number of an item; the token of one that was never trained on is that of a missing value."""
    if item is PADDING:
        return PADDING, 0.0
    if isinstance(item, float) and not known:
        return NUMBER, (item - mean) / spread
    return known.get(str(item), MISSING), 0.0


def number_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean squared error of one number for each example."""
    inputs, targets = batch
    return nn.functional.mse_loss(model(inputs)[:, 0], targets), {}


# Pictures ------------------------------------------------------------------------------------------------------------


def _load_pictures(source: OwnSource, path: Path, device: str) -> OwnData:
    if source.test is not None:
        raise ValueError(f"test: expected null; pictures to test on are in {path / 'train'} and {path / 'test'}")
    found = find_pictures(str(path))
    facts = found.image_set(source.image_size)
    if facts.train < FEWEST:
        raise ValueError(f"{path}: expected at least {FEWEST} pictures to split, got {facts.train}; collect more")
    n_val = round(SHARE * facts.train)
    n_train = facts.train - n_val - (0 if facts.split else n_val)
    counts = {"n_train": n_train, "n_val": n_val, "n_test": facts.test or n_val}
    splits = split_images("folder", **counts, seed=source.split_seed, folder=str(path), size=source.image_size)
    apart = "in a folder of their own; those to validate on are drawn " if facts.split else ""
    other = f"; left out: {counted(found.left_out, 'other file')}" if found.left_out else ""
    contents = [(part, one.images.numpy().tobytes(), one.labels.tolist()) for part, one in splits.items()]
    return OwnData(
        sets={part: NormalisedImages(*images, MEAN, STD, device) for part, images in splits.items()},
        build=picture_models(source.image_size, len(found.classes)),
        noun="picture",
        read=f"pictures of {len(found.classes)} classes ({listed(found.classes, most=5)}){other}",
        way=f"{apart}by --split_seed {source.split_seed}",
        digest=row_key(found.classes, *contents),
        **_classes(splits["train"].labels, found.classes),
    )


# Texts ---------------------------------------------------------------------------------------------------------------


def _load_texts(source: OwnSource, device: str) -> OwnData:
    expected = "0 for texts, which are split by hashes of documents"
    check(source.split_seed == 0, "split_seed", expected, source.split_seed)
    tokenizer, context = ByteTokenizer(), source.context
    whole = _read_text(source.path, "DATA", tokenizer)
    if source.test is None:
        rest, test = split_off(whole, SHARE / 2, context, tokenizer.end)
    else:
        rest, test = whole, _read_text(source.test, "test", tokenizer)
        if _hashes(whole) & _hashes(test):
            raise ValueError(f"test: {source.test} holds a document that is also in {source.path}; remove one")
    train, val = split_off(rest._replace(documents=None), SHARE / 2, context, tokenizer.end)
    arrays = {"train": [array[:] for array in train.arrays]}
    arrays |= {part: first_tokens(own.arrays, SCORED, context) for part, own in (("val", val), ("test", test))}
    only = f"; of each part to validate or test on, the first {SCORED:,} bytes are scored"
    of: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "device": device}
    sets = {part: TextSequences(own, context, name=part, **of) for part, own in arrays.items()}
    n_bytes = {part: count_bytes(sets[part], tokenizer) for part in ("val", "test")}
    seen = partial(np.bincount, minlength=tokenizer.vocab_size)
    files, left_out = counted(len(whole.origin["files"]), "file"), {*whole.left_out, *test.left_out}
    other = f"; left out: {counted(len(left_out), 'other file')}" if left_out else ""
    return OwnData(
        sets=sets,
        build=partial(DualAttnTransformerLM, tokenizer.vocab_size, max_block_size=context, pos_enc_type="RoPE"),
        answer=lambda n: torch.from_numpy(seen(np.concatenate(arrays["train"])[: n and n * context + 1]) + 1).log(),
        in_words=lambda _: "frequencies of bytes",
        loss=language_loss(),
        measure=BITS,
        score=lambda part, loss: numbers_of_text(loss, len(sets[part]) * context, n_bytes[part])[BITS],
        noun="sequence",
        read=f"{files}, {whole.characters or 0:,} characters{other}; the next byte of {context} is predicted",
        way=("by hashes of documents, each of them once" if len(_hashes(whole)) > 1 else "in parts")
        + (only if max(val.size, test.size) > SCORED else ""),
        digest=row_key(*((part, [array.tobytes() for array in own]) for part, own in arrays.items())),
    )


def _read_text(path: str, argument: str, tokenizer: ByteTokenizer) -> TokenSource:
    """The bytes of a file or folder, in memory."""
    found = text_named(path, argument, LanguageDataConfig())
    if isinstance(found, TokenSource):
        raise ValueError(f"{argument}: expected texts, got files of tokens")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        kept = tokenize(found, tokenizer, Path(cache))
        return kept._replace(arrays=tuple(np.array(array[:]) for array in kept.arrays))


def _hashes(source: TokenSource) -> set[int]:
    return set() if source.documents is None else {*source.documents.hashes.tolist()}
