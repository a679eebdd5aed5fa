"""The three kinds of data: how each is read, split and scored, and what is said of it."""

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.words import counted, listed, shortened
from dual_attention.generation.tokenizer import ByteTokenizer

from ..._numpy import np
from ...data import tables
from ...data.images import LabelledImages, find_pictures, split_images
from ...data.images.folders import MEAN, STD, SUFFIXES
from ...data.images.splits import load_images
from ...data.tables import FEWEST, SHARE, TABLES, Column, row_key, split_by_hash
from ...data.text.tokens import TokenSource, tokenize
from ...training.problem import Batch, Derive, Examples, LossFunction, TensorExamples, classification_loss, nothing
from ..images.examples import NormalisedImages
from ..language.config import LanguageDataConfig
from ..language.data import TextSequences, count_bytes, first_tokens, split_off, text_named
from ..language.problem import language_loss, numbers_of_text
from .config import OwnSource
from .models import MISSING, NUMBER, PADDING, Build, Rule, picture_models, row_models, text_models

MOST_SCORED = 65_536
"""Bytes of text of an evaluation."""
ACCURACY, RMSE, BITS = "accuracy", "rmse", "bits_per_byte"
PLURALS = {"number": "numbers", "category": "categories", "sequence": "sequences"}


@dataclass(frozen=True)
class OwnData:
    """Data that are read and split.

    Attributes:
        sets: makes the examples to train, to validate and to test on, for a device.
        sizes: their numbers.
        build: makes the models.
        rule: answers without training.
        rule_in_words: what it answers.
        loss: of training and evaluation.
        derive: see :class:`~dat.training.problem.Problem`.
        measure: the metric that models are compared by.
        noun: of the examples.
        about: what was read, what is predicted and what is left out, in lines.
        parts: the part of each example, by its name.
        digest: of the contents.
    """

    sets: Callable[[torch.device], Mapping[str, Examples]]
    sizes: Mapping[str, int]
    build: Build
    rule: Callable[[], Rule]
    rule_in_words: str
    loss: LossFunction
    measure: str
    noun: str
    about: str
    parts: Sequence[tuple[str, str]]
    digest: str
    derive: Derive = nothing


def load_own(source: OwnSource) -> OwnData:
    """The data that a configuration names.

    Raises:
        FileNotFoundError, ValueError, ImportError: naming what is missing or wrong, and the way out.
    """
    data = _load(replace(source, n_train=None, contents=None))
    if source.contents not in (None, data.digest):
        raise ValueError(f"contents: {source.path} has changed, expected {source.contents}, got {data.digest}")
    most = data.sizes["train"]
    if not 1 <= (source.n_train or most) <= most:
        raise ValueError(f"n_train: expected from 1 to {most:,}, what is left to train on, got {source.n_train:,}")
    return data


@lru_cache(maxsize=2)
def _load(source: OwnSource) -> OwnData:
    path = Path(source.path).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"{source.path}: no such file or folder")
    if path.suffix in TABLES:
        return _load_table(source, path)
    for name in ("target", "task", "categories", "leave_out"):
        if getattr(source, name) is not None:
            raise ValueError(
                f"{name}: expected null without a table ({', '.join(TABLES)}), got {getattr(source, name)}"
            )
    pictures = path.is_dir() and any(file.suffix.lower() in SUFFIXES for file in path.rglob("*"))
    try:
        return _load_pictures(source, path) if pictures else _load_texts(source)
    except ValueError as error:  # of readers that also serve keys of other commands
        raise ValueError(str(error).removeprefix("data.folder: ").removeprefix("data: ")) from error


def forget_data() -> None:
    """Let data that were read before be read anew."""
    _load.cache_clear()
    load_images.cache_clear()


def _classes(labels: Tensor, names: Sequence[str]) -> tuple[Callable[[], Rule], str]:
    """The rule that answers with the frequencies of classes, and the one that is most frequent."""
    counts = torch.bincount(labels, minlength=len(names)).float()
    if empty := [name for name, count in zip(names, counts.tolist(), strict=True) if not count]:
        raise ValueError(
            f"target: expected each class among what is trained on, got none of {listed(empty)}; collect more of it, "
            "leave it out, or try another --split_seed"
        )
    return lambda: Rule(counts.log()), f"always {shortened(names[int(counts.argmax())])}"


def _split_in_words(sizes: Mapping[str, int], noun: str, way: str) -> str:
    train, val, test = (sizes[part] for part in ("train", "val", "test"))
    return f"split: {counted(train, noun)} to train on, {val:,} to validate on, {test:,} to test on, {way}"


# Tables --------------------------------------------------------------------------------------------------------------


def _load_table(source: OwnSource, path: Path) -> OwnData:
    cells, target = tables.read_cells(path), source.target or ""
    names = [name for name in cells if name not in (target, *(source.leave_out or ()))]
    own = len(tables.column_named("target", cells, source.target, path))
    for key in ("categories", "leave_out"):
        for name in getattr(source, key) or ():
            tables.column_named(key, cells, name, path)
    if source.test is not None:
        given = tables.read_cells(Path(source.test).expanduser())
        if missing := [name for name in (*names, target) if name not in given]:
            raise ValueError(f"test: expected the columns of {path} in {source.test}, which has no {listed(missing)}")
        cells = {name: [*cells[name], *given[name]] for name in (*names, target)}
    known = [row for row, value in enumerate(cells[target]) if value is not None]
    if not known:
        raise ValueError(f"target: expected values in {target!r}, got only empty cells")
    answers = [cells[target][row] for row in known]
    task = tables.task_of(target, answers, source.task)
    keys = [row_key(*(cells[name][row] for name in names)) for row in known]
    if source.test is None:
        parts = split_by_hash(keys, ("test", "val"), source.split_seed)
    else:
        parts = _own_test(source, keys, answers, sum(row < own for row in known), known)
    found = [tables.typed_column(name, cells[name], category=name in (source.categories or ())) for name in names]
    columns = [column._replace(values=[column.values[row] for row in known]) for column in found if column]
    if not columns:
        raise ValueError(f"{path}: expected a column beside the target {target!r} that is not empty, got none")
    left_out = [name for name, column in zip(names, found, strict=True) if column is None]
    return _table(source, columns, answers, task, parts, keys, [f"row {row + 1}" for row in known], left_out)


def _own_test(
    source: OwnSource, keys: Sequence[str], answers: Sequence[Any], own: int, rows: Sequence[int]
) -> list[str]:
    """The parts of rows where those behind the first ``own`` are tested on; ``ValueError`` if one is in both."""
    first = {(key, answer): row + 1 for key, answer, row in zip(keys[:own], answers, rows, strict=False)}
    for number, row in enumerate(zip(keys[own:], answers[own:], strict=True), 1):
        if row in first:
            raise ValueError(
                f"test: row {number} of {source.test} is row {first[row]} of {source.path}, so a model would be tested "
                "on what it was trained on; remove one of them, or give all rows without --test, to be split"
            )
    return [*split_by_hash(keys[:own], ("val",), source.split_seed), *["test"] * (len(keys) - own)]


def _table(
    source: OwnSource,
    columns: Sequence[Column],
    answers: Sequence[Any],
    task: str,
    parts: Sequence[str],
    keys: Sequence[str],
    rows: Sequence[str],
    left_out: Sequence[str],
) -> OwnData:
    """A table whose columns and rows are known."""
    order = sorted(range(len(keys)), key=lambda row: keys[row])  # a mixed one, whatever that of the file is
    places = {part: torch.tensor([row for row in order if parts[row] == part]) for part in ("train", "val", "test")}
    train = places["train"].tolist()
    tokens, values, slots, n_tokens = encode_rows(columns, train, source.context)
    named = [tables.category_text(answer) for answer in answers]
    if task == "classes":
        names = sorted({*named})
        targets = torch.tensor([names.index(name) for name in named])
        rule, words = _classes(targets[places["train"]], names)
        told: dict[str, Any] = {"loss": _class_loss, "measure": ACCURACY}
        what = f"{len(names)} classes ({listed(names, most=5)})"
    else:
        exact = torch.tensor(answers, dtype=torch.float64)
        mean, spread = _mean_and_spread(exact[places["train"]])
        targets, names = ((exact - mean) / spread).float(), [""]
        rule, words, what = lambda: Rule(torch.zeros(1)), f"always {mean:.4g}, the mean", "a number (regression)"
        told = {"loss": number_loss, "measure": RMSE, "derive": lambda row: _rooted(row, spread)}
    number = Counter(column.kind for column in columns)
    kinds = ", ".join(counted(number[kind], kind, plural) for kind, plural in PLURALS.items() if number[kind])
    doubles = len(keys) - len({*keys})
    equal = f"; {counted(doubles, 'row')} that {'is' if doubles == 1 else 'are'} there twice" if doubles else ""
    dropped = f"; left out: {listed(left_out)}, which {'is' if len(left_out) == 1 else 'are'} empty" if left_out else ""
    sizes = {part: len(where) for part, where in places.items()}
    way = f"by a hash of each row and --split_seed {source.split_seed}, equal rows on one side"
    about = f"data: {counted(len(rows), 'row')} of {kinds}{equal}{dropped}; {source.target} is predicted as {what}\n"
    return OwnData(
        sets=lambda device: {
            part: TensorExamples(tokens[where], values[where], targets[where], device=device)
            for part, where in places.items()
        },
        sizes=sizes,
        build=row_models(slots, n_tokens, len(names), bool((tokens == PADDING).any())),
        rule=rule,
        rule_in_words=words,
        noun="row",
        about=about + _split_in_words(sizes, "row", way),
        parts=[*zip(rows, parts, strict=True)],
        digest=row_key(task, [(column.name, column.kind) for column in columns], keys, named, parts),
        **told,
    )


def _mean_and_spread(values: Tensor) -> tuple[float, float]:
    """Mean and deviation, 1 where there is none."""
    return float(values.mean()), float(values.std(correction=0)) or 1.0


def encode_rows(columns: Sequence[Column], train: Sequence[int], longest: int) -> tuple[Tensor, Tensor, list[int], int]:
    """Tokens and numbers of all rows, ``(n, S)``, the column of each slot, and how many tokens there are.

    Numbers have mean 0 and deviation 1 over the rows ``train``, the only ones whose categories are known. A sequence
    takes as many slots as the longest one has items, at most ``longest``.
    """
    n_tokens, slots, tokens, values = NUMBER + 1, [], [], []
    for number, column in enumerate(columns):
        wide = column.kind == "sequence"
        rows = [row[:longest] if wide and row else (row,) for row in column.values]
        seen = [item for place in train for item in rows[place] if item not in (None, ())]
        known: dict[Any, int] = {}
        mean, spread = 0.0, 1.0
        if all(isinstance(item, float) for item in seen):
            mean, spread = _mean_and_spread(torch.tensor(seen or [0.0], dtype=torch.float64))
        else:
            known = {item: n_tokens + place for place, item in enumerate(sorted({*map(str, seen)}))}
            n_tokens += len(known)
        width = max(map(len, rows))
        slots += [number] * width
        for row in range(width):
            items = [items[row] if row < len(items) else PADDING for items in rows]
            tokens.append([_token(item, known) for item in items])
            values.append([(item - mean) / spread if isinstance(item, float) and not known else 0.0 for item in items])
    return torch.tensor(tokens).T.contiguous(), torch.tensor(values).T.contiguous().float(), slots, n_tokens


def _token(item: Any, known: Mapping[str, int]) -> int:
    """The token of an item; of one that was never trained on it is that of a missing value."""
    if item is PADDING:
        return PADDING
    if isinstance(item, float) and not known:
        return NUMBER
    return known.get(str(item), MISSING)


def _class_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    return classification_loss(lambda inputs: model(*inputs), (batch[:-1], batch[-1]))  # pyright: ignore


def number_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean squared error of one number for each example."""
    *inputs, targets = batch
    return nn.functional.mse_loss(model(*inputs)[:, 0], targets), {}


def _rooted(row: Mapping[str, Any], spread: float) -> dict[str, float | None]:
    """Root mean squared errors in the unit of the target."""
    losses = {part: row[f"{part}_loss"] for part in ("val", "test") if f"{part}_loss" in row}
    return {f"{part}_{RMSE}": spread * math.sqrt(loss) for part, loss in losses.items()}


# Pictures ------------------------------------------------------------------------------------------------------------


def _load_pictures(source: OwnSource, path: Path) -> OwnData:
    if source.test is not None:
        raise ValueError(f"test: expected null; pictures to test on are in {path / 'train'} and {path / 'test'}")
    found = find_pictures(str(path))
    n = found.image_set(source.image_size).train
    n_test = sum(map(len, found.test.values())) if found.test else round(SHARE * n)
    if n < FEWEST:
        raise ValueError(f"{path}: expected at least {FEWEST} pictures to split, got {n}; collect more")
    n_val = round(SHARE * n)
    sizes = {"train": n - n_val - (0 if found.test else n_test), "val": n_val, "test": n_test}
    counts = {f"n_{part}": size for part, size in sizes.items()}
    where = {"folder": str(path), "size": source.image_size}
    splits: dict[str, LabelledImages] = split_images("folder", seed=source.split_seed, **counts, **where)
    rule, words = _classes(splits["train"].labels, found.classes)
    apart = "in a folder of their own; those to validate on are drawn " if found.test else ""
    other = f"; left out: {counted(found.left_out, 'other file')}" if found.left_out else ""
    about = f"data: pictures of {len(found.classes)} classes ({listed(found.classes, most=5)}){other}\n"
    return OwnData(
        sets=lambda device: {part: NormalisedImages(*images, MEAN, STD, device) for part, images in splits.items()},
        sizes=sizes,
        build=picture_models(source.image_size, len(found.classes)),
        rule=rule,
        rule_in_words=words,
        loss=_class_loss,
        measure=ACCURACY,
        noun="picture",
        about=about + _split_in_words(sizes, "picture", f"{apart}by --split_seed {source.split_seed}"),
        parts=[],
        digest=row_key(
            found.classes, *((part, one.images.numpy().tobytes(), one.labels.tolist()) for part, one in splits.items())
        ),
    )


# Texts ---------------------------------------------------------------------------------------------------------------


def _load_texts(source: OwnSource) -> OwnData:
    reading, tokenizer, context = LanguageDataConfig(), ByteTokenizer(), source.context
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:

        def read(path: str, argument: str) -> TokenSource:
            found = text_named(path, argument, reading)
            if isinstance(found, TokenSource):
                raise ValueError(f"{argument}: expected texts, got files of tokens")
            kept = tokenize(found, tokenizer, Path(cache))
            return kept._replace(arrays=tuple(np.array(array[:]) for array in kept.arrays))

        whole = read(source.path, "DATA")
        if source.test is None:
            rest, test = split_off(whole, SHARE / 2, context, tokenizer.end)
        else:
            rest, test = whole, read(source.test, "test")
            if {*_hashes(whole)} & {*_hashes(test)}:
                raise ValueError(f"test: {source.test} holds a document that is also in {source.path}; remove one")
        train, val = split_off(rest._replace(documents=None), SHARE / 2, context, tokenizer.end)
    splits = {"train": train, "val": val, "test": test}
    arrays = {part: [array[:] for array in own.arrays] for part, own in splits.items()}
    arrays |= {part: first_tokens(arrays[part], MOST_SCORED, context) for part in ("val", "test")}

    def sets(device: torch.device) -> dict[str, TextSequences]:
        of: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "device": device}
        return {part: TextSequences(own, context, name=part, **of) for part, own in arrays.items()}

    on_cpu = sets(torch.device("cpu"))
    counts = np.bincount(np.concatenate(arrays["train"]), minlength=257)
    sizes = {part: len(own) for part, own in on_cpu.items()}
    n_bytes = {part: count_bytes(on_cpu[part], tokenizer) for part in ("val", "test")}

    def derive(row: Mapping[str, Any]) -> dict[str, float | None]:
        losses = {part: row[f"{part}_loss"] for part in n_bytes if f"{part}_loss" in row}
        return {
            f"{part}_{BITS}": numbers_of_text(loss, sizes[part] * context, n_bytes[part])[BITS]
            for part, loss in losses.items()
        }

    read_of = counted(len(whole.origin.get("files", ())), "file")
    about = f"data: {read_of}, {whole.characters or 0:,} characters; the next byte of {context} is predicted\n"
    way = "by hashes of documents, each of them once" if len(_hashes(whole)) > 1 else "in parts"
    return OwnData(
        sets=sets,
        sizes=sizes,
        build=text_models(tokenizer.vocab_size, context),
        rule=lambda: Rule(torch.from_numpy((counts + 1) / (counts + 1).sum()).log(), axes=2),
        rule_in_words="frequencies of bytes",
        loss=language_loss(),
        derive=derive,
        measure=BITS,
        noun="sequence",
        about=about + _split_in_words(sizes, "sequence", way),
        parts=[],
        digest=row_key(*((part, [array.tobytes() for array in own]) for part, own in arrays.items())),
    )


def _hashes(source: TokenSource) -> list[int]:
    return [] if source.documents is None else source.documents.hashes.tolist()
