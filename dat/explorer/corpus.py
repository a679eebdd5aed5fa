"""Effects of every part of a model over a corpus, text by text, and the pairs for which its relations fire.

Finished texts are lines of a file, so that a run goes on where it was stopped.

Shapes: N receivers, M senders, P pairs that count, R relations.
"""

import hashlib
import json
import os
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from dual_attention._base.files import json_text, write_atomically
from dual_attention._base.words import counted, listed
from dual_attention.generation.tokenizer import fingerprint
from dual_attention.model_analysis.dictionaries import weights_digest
from dual_attention.model_analysis.interventions import Effect, PartEffect

from ..data.images.folders import SUFFIXES
from ..data.text.files import JSON_LINES, find_files, read_json_lines, read_pieces
from ..estimate.units import duration
from ..sweeps.results import to_csv
from .ablations import Subject, ablations, joined_batches, subject_of, subject_of_tokens, switched_parts
from .cards import MOST_TOKENS, PAIRS
from .dictionaries import windows
from .images import ImageSession
from .opening import Explored
from .packing import packed_array
from .recording import Recording
from .requests import Json
from .session import Session
from .switches import CONTROLS

FINISHED, TABLE = "finished.jsonl", "effects.csv"
"""Files of a folder of results."""

HELD_OUT = "held-out"
"""Name of the corpus that comes with a model."""


_NAMES = 10  # tokens of a corpus of which it is said how often they fire
_CONTEXT = 6
_SHARES = ("distances", "receivers", "senders")


class CorpusText(NamedTuple):
    """A text, question or picture of a corpus.

    Attributes:
        name: file, and number of a line of it.
        source: the text or question, or the file of the picture.
        digest: of what is in it.
        copies: how often the same is there again.
    """

    name: str
    source: str
    digest: str
    copies: int = 0


def read_corpus(session: Explored, name: str) -> list[CorpusText]:
    """The texts of a folder, a file each, or of a file, a line each; or the pictures of a folder; each of them once.

    Raises:
        OSError, ValueError: naming what cannot be read, is empty, or cannot be predicted.
    """
    root = Path(os.path.expanduser(name))
    if not root.exists() and set(name) & set("*?["):
        raise ValueError(f"corpus: expected a file or a folder, which stands for all in it, got the pattern {name}")
    found: list[CorpusText] = []
    if isinstance(session, ImageSession):
        for path in sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES):
            found.append(CorpusText(f"{path.relative_to(root)}", f"{path}", _digest(path.read_bytes())))
        if not found:
            raise FileNotFoundError(f"corpus: expected a folder with pictures, got none in {name}")
    else:
        for path in find_files([name], "corpus").files:
            lines = path.suffix in JSON_LINES or path == root
            pieces = read_json_lines(path, "text") if path.suffix in JSON_LINES else read_pieces(path, "\n" * lines)
            texts = [piece.text.removesuffix("\r" * lines) for piece in pieces] or [""]
            label = path.name if path == root else f"{path.relative_to(root)}"
            for number, text in enumerate(texts if lines else ["".join(texts)], 1):
                found.append(CorpusText(f"{label}:{number}" if lines else label, text, _digest(text.encode())))
    if empty := [one.name for one in found if not one.source.strip()]:
        raise ValueError(f"corpus: expected text in each file, got none in {listed(empty)}")
    for one in found:
        try:
            if not isinstance(session, Session):
                session.check(one.source)
            elif len(session.tokenizer.encode_alone(one.source)) < 2:
                raise ValueError("expected two tokens or more, of which one is predicted")
        except ValueError as error:
            raise ValueError(f"corpus: {one.name}: {error}") from error
    return _once(found)


def held_out(session: Explored, text: str = "") -> list[CorpusText]:
    """New pictures of the game that a model has learned, or passages of the text that comes with it.

    Args:
        text: one that the model was not trained on.

    Raises:
        ValueError: if there are none.
    """
    if isinstance(session, ImageSession):
        found = [CorpusText(one, one, _digest(session.pixels(one)[0].numpy().tobytes())) for one in session.held_out]
    else:
        passages = textwrap.wrap(text, 500)  # characters
        found = [CorpusText(f"passage {n}", one, _digest(one.encode())) for n, one in enumerate(passages, 1)]
    if not found:
        raise ValueError(f"corpus: no {HELD_OUT} texts or pictures come with this model; give a file or a folder")
    return _once(found)


def _once(found: Sequence[CorpusText]) -> list[CorpusText]:
    """Each of them once: equal ones would pass for independent ones."""
    times = Counter(one.digest for one in found)
    return [one._replace(copies=times.pop(one.digest) - 1) for one in found if one.digest in times]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class _Piece(NamedTuple):
    """As much as the model reads at a time: its size, its predictions, and how it is recorded."""

    tokens: int
    subject: Subject
    record: Callable[[], Recording]


@dataclass
class CorpusRun:
    """A run over a corpus.

    Attributes:
        session: of the model.
        name: of the corpus.
        texts: what it holds.
        folder: of results.
        draws: random directions.
        found: what has been measured, by the digest of a text.
    """

    session: Explored
    name: str
    texts: Sequence[CorpusText]
    folder: Path
    draws: int = CONTROLS
    found: dict[str, Json] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read what is finished; ``ValueError`` if it is of another model, or of other settings."""
        self.parts = switched_parts(self.session)
        file = self.folder / FINISHED
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        for number, line in enumerate(whole.splitlines()):
            try:
                one = json.loads(line)
            except ValueError as error:
                raise ValueError(f"results: {file}, line {number + 1}: not JSON ({error})") from error
            if number:
                self.found[one["digest"]] = one
            elif other := [name for name, value in self.settings.items() if one.get(name) != value]:
                raise ValueError(
                    f"results: {self.folder} holds those of other {' and '.join(other)}; give another folder"
                )
        if whole != text:  # it was stopped while it wrote
            write_atomically(file, whole)

    @property
    def settings(self) -> Json:
        """All on which numbers depend, but the texts."""
        tokenizer = getattr(self.session, "tokenizer", None)
        return {
            "weights": weights_digest(self.session.model),
            "tokenizer": None if tokenizer is None else fingerprint(tokenizer),
            "parts": [list(part.switch) for part in self.parts],
            "draws": self.draws,
        }

    @property
    def left(self) -> list[CorpusText]:
        """Texts that are not finished."""
        return [one for one in self.texts if one.digest not in self.found]

    @property
    def measured(self) -> list[Json]:
        """Results of each text; ``KeyError`` if some are not finished."""
        return [self.found[one.digest] for one in self.texts]

    @property
    def kind(self) -> str:
        """Word for one of them: picture or text."""
        return "picture" if isinstance(self.session, ImageSession) else "text"

    @property
    def passes(self) -> int:
        """Forward passes of a text, or of each piece of a long one."""
        return 1 + len(self.parts) * (1 + self.draws)

    def seconds(self) -> float:
        """Time for what is left, about: by a forward pass of the first of it."""
        return self.passes * sum(self._costs[one.digest] for one in self.left)

    @cached_property
    def _costs(self) -> dict[str, float]:
        """Seconds that a forward pass of each text takes, with a part taken away: by a few parts of the first."""
        first, sizes = self._pieces(self.left[0])[0], [1] * len(self.texts)
        if isinstance(self.session, Session):
            sizes = [len(self.session.tokenizer.encode_alone(one.source)) for one in self.texts]
        some, begin = self.parts[:4], time.perf_counter()  # which tell it well enough
        passes = joined_batches(ablations(self.session, {"draws": 1}, some, first.subject))["passes"]
        cost = (time.perf_counter() - begin) / passes / first.tokens
        return {one.digest: cost * size for one, size in zip(self.texts, sizes, strict=True)}

    @property
    def about(self) -> str:
        """Size of the run, and for what is left the time, about."""
        left, copies = len(self.left), sum(one.copies for one in self.texts)
        texts = counted(len(self.texts), self.kind)
        texts += f" without {counted(copies, 'copy', 'copies')} of them" * bool(copies)
        passes = counted(self.passes, "forward pass", "forward passes")
        time_left = f", about {duration(self.seconds())}" * bool(left)
        return f"{texts}, {left} to be measured: {passes} each{time_left}"

    def measure(self) -> Iterator[CorpusText]:
        """Measure what is left; each text once it is kept."""
        return (one for one in self.steps() if one is not None)

    def steps(self) -> Iterator[CorpusText | None]:
        """Measure what is left: None after each batch, and each text once it is kept; others who ask wait meanwhile."""
        with self._lock:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / FINISHED
            if not file.is_file() or not file.stat().st_size:
                write_atomically(file, json_text(self.settings) + "\n")
            for one in self.left:
                found = yield from self._measured(one)
                with open(file, "a", encoding="utf-8") as lines:
                    lines.write(json_text(found) + "\n")
                self.found[one.digest] = found
                yield one
            write_atomically(self.folder / TABLE, to_csv([one.row for one in self.effects]))

    def _pieces(self, one: CorpusText) -> list["_Piece"]:
        """A text in windows of what the model reads, which are seldom more than one; a picture or question as it is."""
        session, source = self.session, one.source
        if isinstance(session, Session):
            read = windows(session.tokenizer.encode_alone(source), session.context)
            cut = [ids.tolist() for ids in read if len(ids) > 1]
            return [
                _Piece(len(ids), subject_of_tokens(session, ids), partial(session.record_tokens, ids[:MOST_TOKENS]))
                for ids in cut
            ]
        if isinstance(session, ImageSession):
            pixels, _ = session.pixels(source)
            request = {"pixels": packed_array(pixels.permute(1, 2, 0).contiguous())}
            return [_Piece(1, subject_of(session, request), lambda: session.record(pixels)[0])]
        return [_Piece(1, subject_of(session, {"text": source}), partial(session.record, source))]

    def _measured(self, one: CorpusText) -> Generator[None, None, Json]:
        pieces, found = self._pieces(one), []
        for piece in pieces:
            batches = []
            for batch in ablations(self.session, {"draws": self.draws}, self.parts, piece.subject):
                batches.append(batch)
                yield
            found.append(joined_batches(batches))
        weights = torch.tensor([piece.tokens for piece in pieces], dtype=torch.float64)

        def mean(name: str) -> Any:
            values = torch.tensor([piece[name] for piece in found], dtype=torch.float64)
            if not values.isfinite().all():
                raise ValueError(f"corpus: {one.name}: expected finite predictions of the model, got nan or infinity")
            return (weights / weights.sum() @ values.reshape(len(pieces), -1)).view(values.shape[1:]).tolist()

        about = {"digest": one.digest, "name": one.name, "pieces": len(pieces), "scored": found[0]["scored"]}
        means = {name: mean(name) for name in ("loss", "effects", "controls")}
        return {**about, **means, "fires": fires(pieces[0].record())}

    @property
    def effects(self) -> list[PartEffect]:
        """Effects of all parts over the texts, by loss and by divergence."""
        effects = []
        for place, (mediator, layer, kind, number) in enumerate(part.switch for part in self.parts):
            pairs = [[one["effects"][place], *one["controls"][place]] for one in self.measured]
            for which, metric in enumerate(("loss", "kl")):
                values = [[pair[which] for pair in some] for some in pairs]
                own, *random = (Effect(layer, metric, some) for some in zip(*values, strict=True))
                effects.append(PartEffect(layer, kind, mediator, number, own, tuple(random)))
        return effects

    @property
    def json(self) -> Json:
        """The same for a page, as :func:`~.ablations.ablated` has it: with intervals, and where relations ``fires``."""
        found, effects = self.measured, self.effects
        rows = [one.row for one in effects]

        def by_part(values: Sequence[Any]) -> list[list[Any]]:
            return [list(pair) for pair in zip(values[::2], values[1::2], strict=True)]

        draws = by_part([[draw.mean for draw in one.random] for one in effects])
        cut = sum(one["pieces"] > 1 for one in found)
        note = f"; {counted(cut, self.kind)} longer than the model reads, in pieces" if cut else ""
        return {
            "source": f"{self.name}: {counted(len(found), self.kind)}{note}",
            "texts": len(found),
            "parts": [part.switch._asdict() for part in self.parts],
            "change": "zero",
            "draws": self.draws,
            "passes": self.passes,
            "scored": found[0]["scored"],
            "loss": fmean(one["loss"] for one in found),
            "effects": by_part([row["mean"] for row in rows]),
            "controls": [[list(draw) for draw in zip(*pair, strict=True)] for pair in draws],
            "intervals": by_part([[row["low"], row["high"]] for row in rows]),
            "beyond": by_part([row["beyond"] for row in rows]),
            "fires": fires_over([one["fires"] for one in found]),
        }


def fires(recording: Recording) -> Json:
    """Strongest pairs of one text, for each relation: one at either end beside another as far apart, and how often
    distances, receivers and senders are among its strongest hundredth; and how often among all pairs of a layer.
    """
    found: Json = {"all": {}, "relations": {}}
    for heads in recording.heads:
        if heads.relations is None:
            continue
        n = heads.visible.receivers
        seen = heads.visible.rows(0, n)
        if heads.receivers == heads.senders:
            seen &= ~torch.eye(n, dtype=torch.bool)
        i, j = places = seen.nonzero(as_tuple=True)
        if not len(i):
            continue
        labels = [list(recording.sequences[name]) for name in (heads.receivers, heads.senders)]
        distance = (i - j).abs()
        names = [[f"{1 << step}" for step in distance.clamp_min(1).log2().long().tolist()]]
        names += [[own[place] for place in some.tolist()] for own, some in zip(labels, places, strict=True)]
        found["all"][heads.layer] = _counts(names, range(len(i)))
        for relation, row in enumerate(heads.relations.values(0, n, heads.visible)[:, i, j]):
            strongest = row.topk(max(1, len(row) // 100)).indices.tolist()  # of which it fires
            entries = []
            for end, place in (("high", strongest[0]), ("low", int(row.argmin()))):
                others = ((distance == distance[place]) & (torch.arange(len(row)) != place)).nonzero()[:, 0]
                beside = others[len(others) // 2 :][:1].tolist()  # one that has nothing to do with the relation
                pairs = [
                    _pair(float(row[one]), [int(some[one]) for some in places], labels) for one in (place, *beside)
                ]
                about = {"layer": heads.layer, "relation": relation, "end": end}
                entries.append({**about, "example": pairs[0], "counterexamples": pairs[1:]})
            own = {"pairs": entries, "strongest": _counts(names, strongest)}
            found["relations"][f"{heads.layer} {relation}"] = own
    return found


def _counts(names: Sequence[Sequence[str]], chosen: Sequence[int]) -> Json:
    """Number of pairs, and of those of each distance, to a factor of two, receiver and sender."""
    counts = [dict(Counter(own[place] for place in chosen)) for own in names]
    return {"pairs": len(chosen), **dict(zip(_SHARES, counts, strict=True))}


def _pair(value: float, places: Sequence[int], labels: Sequence[Sequence[str]]) -> Json:
    """A pair as the entries of a dictionary have it."""
    found: Json = {"value": value, "document": 0}
    for name, at, own in zip(("receiver", "sender"), places, labels, strict=True):
        first = max(0, at - _CONTEXT)
        found[name] = {"place": at, "labels": list(own[first : at + _CONTEXT + 1]), "at": at - first}
    return found


def fires_over(texts: Sequence[Mapping[str, Json]]) -> Json:
    """Places where each relation fires in many texts: the strongest of their pairs, shares of distances and names.

    Each share is of the strongest hundredth of the pairs of each text, and then of all pairs: where the first is the
    larger, a relation fires more than by chance.
    """
    found: Json = {}
    for key in dict.fromkeys(key for one in texts for key in one["relations"]):
        layer = key.rpartition(" ")[0]
        own = [(one["relations"][key], one["all"][layer]) for one in texts if key in one["relations"]]
        entries = []
        for end, sign in (("high", -1), ("low", 1)):
            of_end = [entry for one, _ in own for entry in one["pairs"] if entry["end"] == end]
            of_end.sort(key=lambda entry, sign=sign: sign * entry["example"]["value"])
            entries += [{**entry, "rank": rank} for rank, entry in enumerate(of_end[:PAIRS], 1)]
        shares: Json = {}
        for name in _SHARES:
            strongest, of_all = Counter[str](), Counter[str]()
            for one, every in own:
                strongest.update(one["strongest"][name])
                of_all.update(every[name])
            ours, all_pairs = sum(one["strongest"]["pairs"] for one, _ in own), sum(every["pairs"] for _, every in own)
            labels = [label for label, _ in strongest.most_common(_NAMES)]
            labels = sorted(of_all, key=int) if name == "distances" else labels
            shares[name] = [[label, strongest[label] / ours, of_all[label] / all_pairs] for label in labels]
        found[key] = {"pairs": entries, **shares}
    return found
