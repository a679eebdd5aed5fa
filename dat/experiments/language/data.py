"""The data of a run: sequences of tokens to train on, and a fixed number of tokens to validate on.

Shapes: B sequences, T = the context length of the model.
"""

from __future__ import annotations  # numpy is imported when it is used

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dual_attention.generation.tokenizer import FOLDER, BytePairTokenizer, ByteTokenizer, Tokenizer, load_tokenizer

from ..._numpy import np
from ...data.text.documents import Tokens, find_documents, split_documents
from ...data.text.files import FoundFiles, find_files
from ...data.text.hub_datasets import CONTENTS, VALIDATION, open_dataset
from ...data.text.shards import Report
from ...data.text.tokens import (
    SourceText,
    TokenSource,
    documentation_of_python,
    holds_tokens,
    is_file_of,
    open_tokens,
    text_of_dataset,
    text_of_files,
    tokenize,
)
from ...sweeps.results import short_digest
from ...training.configs import check
from ...training.permutation import Permutation
from ...training.problem import Batch
from ...training.seeding import derive_seed
from .about import about_text, about_tokens
from .config import LanguageDataConfig

WHERE = (
    "give other text with --data.path or --data.dataset; docs/language-models.md says where that of "
    "examples/fineweb.yaml is to be had"
)
"""End of the message about files that are not there."""


class TextSequences:
    """Sequences of T tokens, each with the token after it, cut from vectors of tokens end to end.

    ``len(sequences)`` of them make a pass through all tokens. Indices go on beyond it: the next pass has the same
    number, in the same order or, with a seed, in another one, and then begun some tokens later or earlier, so that
    the cuts fall elsewhere.

    Args:
        arrays: vectors of integers, among them at least one of more than T.
        length: T.
        seed: of the order; None: as they come.
        listed: whether the order of a pass is drawn as a list of all its sequences; otherwise it is a
            :class:`~dat.training.permutation.Permutation`, another order.
        vocab_size: ids must be below it.
        name: of the text, for errors.
        device: of the batches.
    """

    def __init__(
        self,
        arrays: Sequence[Tokens],
        length: int,
        *,
        vocab_size: int,
        seed: int | None = None,
        listed: bool = True,
        name: str = "data",
        device: torch.device | str = "cpu",
    ) -> None:
        self.arrays = [array for array in arrays if len(array) > length]
        self.length, self.vocab_size, self.name, self.device = length, vocab_size, name, torch.device(device)
        self.seed, self.listed = seed, listed
        spare = 0 if seed is None else length - 1  # tokens that a pass may begin later
        self._counts = [max((len(array) - 1 - spare) // length, 1) for array in self.arrays]
        self._ends = list(accumulate(self._counts))
        if not self._ends:
            longest = max((len(array) for array in arrays), default=0)
            raise ValueError(f"{name}: expected more than {length:,} tokens, the context length, got {longest:,}")
        self._order = lru_cache(maxsize=2)(self._order_of_pass)

    def __len__(self) -> int:
        return self._ends[-1]

    @property
    def size(self) -> int:
        """Tokens that sequences are cut from."""
        return sum(map(len, self.arrays))

    def batch(self, indices: Tensor) -> Batch:
        """Tokens and the token after each, int64 ``(B, T)``."""
        rows = np.empty((len(indices), self.length + 1), dtype=np.int64)
        turns = torch.div(indices, len(self), rounding_mode="floor")
        for turn in turns.unique().tolist():
            where = (turns == turn).nonzero().flatten()
            places = indices[where] - turn * len(self)
            order, offsets = self._order(turn)
            numbers = places if order is None else order[places]
            for row, number in zip(where.tolist(), numbers.tolist(), strict=True):
                rows[row] = self._tokens(number, offsets)
        if int(rows.max()) >= self.vocab_size or int(rows.min()) < 0:
            found = f"{int(rows.min())} to {int(rows.max())}"
            raise ValueError(f"{self.name}: expected token ids from 0 to {self.vocab_size - 1}, got {found}")
        tokens = torch.from_numpy(rows).to(self.device)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def _tokens(self, number: int, offsets: Sequence[int]) -> np.ndarray:
        """A sequence and the token after it, integers ``(T + 1,)``, where a pass begins so far in each vector."""
        which = bisect_right(self._ends, number)
        first = (number - (self._ends[which] - self._counts[which])) * self.length + offsets[which]
        return np.asarray(self.arrays[which][first : first + self.length + 1])

    def _order_of_pass(self, turn: int) -> tuple[Tensor | Permutation | None, list[int]]:
        """The order of a pass, and where it begins in each vector."""
        if self.seed is None:
            return None, [0] * len(self.arrays)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "sequences", turn))
        if self.listed:
            order = torch.randperm(len(self), generator=generator)
        else:
            order = Permutation(len(self), self.seed, "sequences", turn)
        room = [len(a) - 1 - n * self.length for a, n in zip(self.arrays, self._counts, strict=True)]
        spread = torch.tensor([min(spare, self.length - 1) + 1 for spare in room])
        offsets = (torch.rand(len(room), generator=generator, dtype=torch.float64) * spread).long()
        return order, offsets.tolist()


class LanguageData(NamedTuple):
    """The data of a run.

    Attributes:
        train, val: sequences of the context length.
        val_bytes: bytes of text that the validated tokens stand for.
        origin: what identifies the tokens, as JSON.
        about: what was read and what of it is not used, in lines for people.
    """

    train: TextSequences
    val: TextSequences
    val_bytes: int
    origin: dict[str, Any]
    about: str


def make_tokenizer(config: LanguageDataConfig) -> Tokenizer:
    """The tokenizer of a configuration; that of kind ``bpe`` is learned from the text to train on.

    Documents that are then kept apart from this text for validation are in it, since their share is one of tokens.
    """
    given = config.tokenizer_folder
    fits = given is None or config.tokenizer != "bytes"
    check(fits, "data.tokenizer_folder", "null with data.tokenizer=bytes", given)
    if config.tokenizer == "bytes":
        return ByteTokenizer()
    if config.tokenizer == "bpe" and given is not None:
        folder = Path(given) / FOLDER
        tokenizer = load_tokenizer(folder if folder.is_dir() else Path(given))
        check(tokenizer.kind == "bpe", "data.tokenizer_folder", "byte pairs learned from a text", tokenizer.kind)
        return tokenizer
    if config.tokenizer == "bpe":
        text = _texts(config)["train"]
        if isinstance(text, TokenSource):
            raise ValueError("data.tokenizer: bpe is learned from text, and data.path has files of tokens")
        texts = (piece.text for piece in text.pieces() if not piece.empty)
        return BytePairTokenizer.train(texts, config.bpe_vocab_size)
    if given is None:
        return BytePairTokenizer.find_gpt2()
    folder = Path(given)
    if not any((folder / name).is_file() for name in ("encoder.json", "vocab.json")):
        raise FileNotFoundError(f"data.tokenizer_folder: {folder} holds neither encoder.json nor vocab.json")
    return BytePairTokenizer.find_gpt2(folder)


def _texts(config: LanguageDataConfig, begun: Mapping[str, Any] | None = None) -> dict[str, SourceText | TokenSource]:
    """The text to train on (``"train"``) and, unless it is to be split off, that to validate on (``"val"``)."""
    if config.dataset is not None:
        splits = open_dataset(config.dataset, streamed=config.streamed)
        names = {"train": "train", "val": next((name for name in VALIDATION if name in splits), None)}
        return {
            part: text_of_dataset(splits[name], config.dataset, config.field, config.rows)
            for part, name in names.items()
            if name is not None
        }
    origins = begun or {}
    texts = {"train": text_named(config.path, "data.path", config, origins.get("train"))}
    if config.val_path is not None:
        texts["val"] = text_named(config.val_path, "data.val_path", config, origins.get("val"))
    return texts


def text_named(
    paths: tuple[str, ...] | str | None, argument: str, config: LanguageDataConfig, origin: Any = None
) -> SourceText | TokenSource:
    """The text of files, or their tokens if they hold such; None: the documentation of Python.

    Args:
        argument: named in errors.
        origin: of a run that goes on; files that were not there when it began are left out.
    """
    if paths is None:
        return documentation_of_python()
    files, left_out = _begun_with(_files(paths, argument), origin)
    if holds_tokens(files, argument):
        return open_tokens(files)._replace(left_out=left_out)
    return text_of_files(files, config.separator, config.field, left_out)


def load_data(
    config: LanguageDataConfig,
    tokenizer: Tokenizer,
    *,
    context: int,
    vocab_size: int,
    seed: int,
    cache: Path,
    device: torch.device | str = "cpu",
    report: Report | None = None,
    begun: Mapping[str, Any] | None = None,
) -> LanguageData:
    """The data of a configuration; text is tokenized into ``cache``, unless it is there already.

    Args:
        report: told of the progress of that.
        begun: the origin of the data of a run that goes on; files that were not there when it began are left out.
    """
    texts = _texts(config, begun)
    tokens = {part: tokenize(text, tokenizer, cache, report=report) for part, text in texts.items()}
    source, given = tokens["train"], tokens.get("val")
    own_seed = None if config.order == "sequential" else seed
    order: dict[str, Any] = {"seed": own_seed, "listed": config.order == "shuffled"}
    common: dict[str, Any] = {"vocab_size": vocab_size, "device": device}
    train, val = (source, given) if given else split_off(source, config.val_fraction, context, tokenizer.end)
    origin = {"train": train.origin, "val": val.origin, "train_tokens": train.size}
    to_train = TextSequences(train.arrays, context, name=train.name, **order, **common)
    scored = first_tokens(val.arrays, config.val_tokens, context) or val.arrays  # which are too short, as it says
    to_val = TextSequences(scored, context, name=val.name, **common)
    origin["val_tokens"] = len(to_val) * context
    about = [about_text("text", train, context), *([about_text("validation", val, context)] if given else [])]
    ours, theirs = train.documents, given.documents if given else None
    if ours and theirs and (seen := np.isin(theirs.hashes, ours.hashes)).any():
        about.append(f"validation: {seen.sum():,} of its {len(seen):,} documents are also trained on")
    about.append(about_tokens(to_train.size, len(to_train), context, origin["val_tokens"]))
    return LanguageData(to_train, to_val, count_bytes(to_val, tokenizer), origin, "\n".join(about))


def _begun_with(found: FoundFiles, origin: Any) -> FoundFiles:
    """The files listed in an origin, found by name; files that share a name are told apart by their hashes."""
    try:
        left = [*origin["files"]]
        more = Counter(file.name for file in found.files) - Counter(entry["file"] for entry in left)
    except (KeyError, TypeError):  # there is no origin yet, or one without files
        return found
    kept, others = FoundFiles([], [])
    for file in found.files:
        ours = (e for e in left if (is_file_of(e, file) if file.name in more else e["file"] == file.name))
        entry = next(ours, None)
        if entry is not None:
            left.remove(entry)
        (others if entry is None else kept).append(file)
    return FoundFiles(kept, [*others, *found.left_out]) if kept else found


def text_origin(config: LanguageDataConfig) -> dict[str, Any]:
    """The origin of the text of a configuration, as :func:`load_data` gives it, without tokenizing the text."""
    origins = {part: text.origin for part, text in _texts(config).items()}
    return {"train": origins["train"], "val": origins.get("val", origins["train"])}


def same_text(begun: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a resumed run began with the text that is there now.

    Runs of earlier versions have no hash of the contents; theirs is not compared.
    """
    parts = {part: now[part] for part in ("train", "val")}
    for part in [part for part in parts if CONTENTS not in (begun.get(part) or ())]:
        parts[part] = {mark: value for mark, value in now[part].items() if mark != CONTENTS}
    return begun == {**now, **parts}


def text_digest(origin: Mapping[str, Any]) -> str:
    """A short digest of the text of an origin, whatever its files are called and how it is split and tokenized."""
    texts = []
    for part in (origin["train"], origin["val"]):
        text = {name: value for name, value in part.items() if name not in ("files", "split", "tokenizer")}
        files = [{name: value for name, value in file.items() if name != "file"} for file in part.get("files", ())]
        texts.append({**text, "files": files})
    return short_digest(texts)


def _files(paths: tuple[str, ...] | str, argument: str) -> FoundFiles:
    """The files that paths stand for; an error for a missing one says where text is to be had."""
    try:
        return find_files((paths,) if isinstance(paths, str) else paths, argument)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; {WHERE}" if argument.startswith("data.") else str(error)) from error


def split_off(source: TokenSource, fraction: float, context: int, end: int) -> tuple[TokenSource, TokenSource]:
    """All documents but some, and those: a share of the tokens, but at least one sequence; each document once."""
    documents = find_documents(source.arrays, end) if source.documents is None else source.documents
    try:
        train, val, about = split_documents(source.arrays, documents, fraction, least=context + 1)
    except ValueError as error:
        raise ValueError(f"{source.name}: {error}; the context length is {context:,}") from error
    origin = {**source.origin, "split": {"fraction": fraction, **about}}
    return source._replace(arrays=(train,), origin=origin), source._replace(arrays=(val,), origin=origin)


def first_tokens(arrays: Sequence[Tokens], tokens: int, context: int) -> list[np.ndarray]:
    """The beginning of the vectors that holds ``tokens`` to score, in whole sequences, at least one."""
    left = max(tokens // context, 1)
    found = []
    for array in arrays:
        n = min((len(array) - 1) // context, left)
        if n > 0:
            found.append(array[: n * context + 1])
            left -= n
    return found


MOST_AT_ONCE = 1 << 22
"""Tokens whose words are counted at once."""


def count_words(sequences: TextSequences, tokenizer: Tokenizer) -> int:
    """Words of the text that sequences are cut from, apart by white space of ASCII, end tokens and ends of files."""
    texts = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)] + [b""]
    opens = np.array([text != b"" and not text[:1].isspace() for text in texts])
    closes = np.array([text == b"" or text[-1:].isspace() for text in texts])
    inner = np.array([len(text.split()) for text in texts]) - opens
    total = 0
    for array in sequences.arrays:
        apart = True
        for first in range(0, len(array), MOST_AT_ONCE):
            tokens = np.minimum(array[first : first + MOST_AT_ONCE].astype(np.int64), tokenizer.vocab_size)
            begins = opens[tokens]
            begins[1:] &= closes[tokens[:-1]]
            begins[0] &= apart
            total += int(inner[tokens].sum() + begins.sum())
            apart = bool(closes[tokens[-1]])
    return total


def count_bytes(sequences: TextSequences, tokenizer: Tokenizer) -> int:
    """Bytes of text that the tokens to predict stand for, in one pass."""
    lengths = np.array([len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)] + [0])
    total = 0
    for indices in torch.arange(len(sequences)).split(256):
        targets = sequences.batch(indices)[1].cpu().numpy()
        total += int(lengths[np.minimum(targets, tokenizer.vocab_size)].sum())
    return total
