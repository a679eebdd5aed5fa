"""What matters over a corpus, text by text: effects of every part, and where relations fire.

Finished texts are lines of a file, so that a run goes on where it was stopped.

Shapes: N receivers, M senders, P pairs that count, R relations.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dual_attention._base.files import json_text, write_atomically
from dual_attention._base.words import counted, listed
from dual_attention.generation import evaluating
from dual_attention.generation.tokenizer import fingerprint
from dual_attention.model_analysis.dictionaries import weights_digest
from dual_attention.model_analysis.interventions import PartEffect

from ..data.images.folders import SUFFIXES
from ..data.text.files import JSON_LINES, find_files, read_json_lines, read_pieces
from ..sweeps.results import to_csv
from .ablations import ablated, subject_of, subject_of_tokens, switched_parts
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

STRONGEST = 100
"""Pairs of a text of which one fires: the strongest."""

_NAMES = 20  # tokens of a text of which it is said how often they fire, and of a corpus half as many
_CONTEXT = 6
_SHARES = ("distances", "receivers", "senders")


@dataclass(frozen=True)
class CorpusText:
    """A text, question or picture of a corpus.

    Attributes:
        name: file, and number of a line of it.
        digest: of what is in it.
        text: of texts and questions.
        path: of a picture.
    """

    name: str
    digest: str
    text: str = ""
    path: str = ""

    @classmethod
    def of(cls, name: str, text: str) -> "CorpusText":
        """A text."""
        return cls(name, _digest(text.encode()), text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def read_corpus(session: Explored, name: str) -> list[CorpusText]:
    """The texts of a folder, a file each, or of a file, a line each; or the pictures of a folder.

    Raises:
        OSError, ValueError: naming what cannot be read, is empty, or cannot be predicted.
    """
    root = Path(os.path.expanduser(name))
    if isinstance(session, ImageSession):
        files = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES) if root.is_dir() else []
        if not files:
            raise FileNotFoundError(f"corpus: expected a folder with pictures, got none in {name}")
        for path in files:
            _naming(path, session.pixels, str(path))
        return [CorpusText(f"{one.relative_to(root)}", _digest(one.read_bytes()), path=f"{one}") for one in files]
    found: list[CorpusText] = []
    for path in find_files([name], "corpus").files:
        lines = path.suffix in JSON_LINES or path == root
        pieces = read_json_lines(path, "text") if path.suffix in JSON_LINES else read_pieces(path, "\n" * lines)
        label = path.name if path == root else f"{path.relative_to(root)}"
        texts = [piece.text for piece in pieces]
        texts = texts if lines else ["".join(texts)]
        found += [CorpusText.of(f"{label}:{n}" if lines else label, text) for n, text in enumerate(texts, 1)]
    if empty := [one.name for one in found if not one.text.strip()]:
        raise ValueError(f"corpus: expected text in each file, got none in {listed(empty)}")
    for one in found:
        if isinstance(session, Session):
            if len(session.tokenizer.encode(one.text)) < 2:
                raise ValueError(f"corpus: {one.name}: expected two tokens or more, of which one is predicted")
        else:
            _naming(one.name, session.check, one.text)
    return found


def _naming(name: Any, check: Any, what: str) -> None:
    try:
        check(what)
    except ValueError as error:
        raise ValueError(f"corpus: {name}: {error}") from error


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

    def __post_init__(self) -> None:
        """Read what is finished; ``ValueError`` if it is of another model, or of other settings."""
        self.parts = switched_parts(self.session)
        file = self.folder / FINISHED
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        for number, line in enumerate(lines):
            try:
                one = json.loads(line)
            except ValueError as error:
                if number == len(lines) - 1:  # it was stopped while it wrote
                    write_atomically(file, "".join(f"{whole}\n" for whole in lines[:-1]))
                    break
                raise ValueError(f"results: {file}, line {number + 1}: not JSON ({error})") from error
            if number:
                self.found[one["digest"]] = one
            elif other := [name for name, value in self.settings.items() if one.get(name) != value]:
                raise ValueError(
                    f"results: {self.folder} holds those of other {' and '.join(other)}; give another folder"
                )

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
    def passes(self) -> int:
        """Forward passes of a text, or of each piece of a long one."""
        return 1 + len(self.parts) * (1 + self.draws)

    def seconds(self) -> float:
        """Time for what is left, about: by a forward pass of the first piece of one."""
        if not (left := self.left):
            return 0.0
        pieces = [self._pieces(one) for one in left]
        subject = self._subject(left[0], pieces[0][0])
        with self.session.reserved() as model, evaluating(model):
            subject.logits(model, 1)
            begin = time.perf_counter()
            subject.logits(model, 1)
        of_token = (time.perf_counter() - begin) / max(1, len(pieces[0][0]))
        return of_token * self.passes * sum(len(piece) for some in pieces for piece in some)

    def measure(self) -> Iterator[CorpusText]:
        """Measure what is left; each text once it is kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / FINISHED
        if not file.is_file():
            write_atomically(file, json_text(self.settings) + "\n")
        for one in self.left:
            found = self._measured(one)
            with open(file, "a", encoding="utf-8") as lines:
                lines.write(json_text(found) + "\n")
            self.found[one.digest] = found
            yield one
        write_atomically(self.folder / TABLE, to_csv([one.row for one in self.effects]))

    def _pieces(self, one: CorpusText) -> list[list[int]]:
        """Tokens of a text in windows of what the model reads; a picture or question is one of no tokens."""
        if not isinstance(self.session, Session):
            return [[]]
        cut = windows(self.session.tokenizer.encode(one.text), self.session.context)
        return [piece.tolist() for piece in cut if len(piece) > 1]

    def _subject(self, one: CorpusText, piece: list[int]) -> Any:
        if isinstance(self.session, Session):
            return subject_of_tokens(self.session, piece)
        return subject_of(self.session, self._request(one))

    def _request(self, one: CorpusText) -> Json:
        if isinstance(self.session, ImageSession):
            pixels = self.session.pixels(one.path)[0]
            return {"pixels": packed_array(pixels.permute(1, 2, 0).contiguous())}
        return {"text": one.text}

    def _measured(self, one: CorpusText) -> Json:
        pieces, asked = self._pieces(one), {**self._request(one), "draws": self.draws}
        found = [ablated(self.session, asked, self.parts, self._subject(one, piece)) for piece in pieces]
        weights = torch.tensor([max(1.0, len(piece)) for piece in pieces], dtype=torch.float64)

        def mean(values: Sequence[Any]) -> Any:
            stacked = torch.tensor(values, dtype=torch.float64)
            return ((weights / weights.sum()) @ stacked.reshape(len(stacked), -1)).view(stacked.shape[1:]).tolist()

        if isinstance(self.session, ImageSession):
            recording, _ = self.session.record(self.session.pixels(one.path)[0])
        elif isinstance(self.session, Session):
            recording = self.session.record_tokens(pieces[0][:MOST_TOKENS])
        else:
            recording = self.session.record(one.text)
        return {
            "digest": one.digest,
            "name": one.name,
            "pieces": len(pieces),
            "tokens": sum(map(len, pieces)),
            "scored": found[0]["scored"],
            **{name: mean([piece[name] for piece in found]) for name in ("loss", "effects", "controls")},
            "fires": fires(recording),
        }

    @property
    def effects(self) -> list[PartEffect]:
        """Effects of all parts by loss and divergence, over the texts."""
        found = [self.found[one.digest] for one in self.texts]
        rows = []
        for place, part in enumerate(self.parts):
            mediator, layer, kind, number = part.switch
            for which, metric in enumerate(("loss", "kl")):
                values = [one["effects"][place][which] for one in found]
                draws = [[one["controls"][place][draw][which] for one in found] for draw in range(self.draws)]
                rows.append(PartEffect.of(layer, kind, mediator, number, metric, values, draws))
        return rows

    @property
    def json(self) -> Json:
        """What a page shows: as :func:`~.ablations.ablated` has it, with intervals, and where relations ``fires``."""
        found, rows = [self.found[one.digest] for one in self.texts], self.effects
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        cut = sum(one["pieces"] > 1 for one in found)
        kind = "picture" if isinstance(self.session, ImageSession) else "text"
        note = f"; {counted(cut, kind)} longer than the model reads, in pieces" if cut else ""
        return {
            "source": f"{self.name}: {counted(len(found), kind)}{note}",
            "texts": len(found),
            "parts": [part.switch._asdict() for part in self.parts],
            "change": "zero",
            "draws": self.draws,
            "passes": self.passes,
            "scored": found[0]["scored"],
            "loss": sum(one["loss"] for one in found) / len(found),
            "effects": [[one.mean for one in pair] for pair in pairs],
            "controls": [[list(draw) for draw in zip(*(one.random for one in pair), strict=True)] for pair in pairs],
            "intervals": [[[one.low, one.high] for one in pair] for pair in pairs],
            "random_intervals": [[[one.random_low, one.random_high] for one in pair] for pair in pairs],
            "beyond": [[one.beyond for one in pair] for pair in pairs],
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
        i, j = seen.nonzero(as_tuple=True)
        if not len(i):
            continue
        names = recording.sequences[heads.receivers], recording.sequences[heads.senders]
        distance = (i - j).abs()
        found["all"][heads.layer] = _counts(i, j, names, None)
        for relation, row in enumerate(heads.relations.values(0, n, heads.visible)[:, i, j]):
            strongest = row.topk(max(1, len(row) // STRONGEST)).indices
            about = {"layer": heads.layer, "relation": relation}
            entries = []
            for end, place in (("high", int(strongest[0])), ("low", int(row.argmin()))):
                others = ((distance == distance[place]) & (torch.arange(len(row)) != place)).nonzero()[:, 0]
                beside = others[len(others) // 2 :][:1].tolist()  # one that has nothing to do with the relation
                example, *like_it = [_pair(row, one, i, j, names) for one in (place, *beside)]
                entries.append({**about, "end": end, "example": example, "counterexamples": like_it})
            own = _counts(i[strongest], j[strongest], names, _NAMES)
            found["relations"][f"{heads.layer} {relation}"] = {"pairs": entries, "strongest": own}
    return found


def _counts(i: Tensor, j: Tensor, names: tuple[Sequence[str], Sequence[str]], most: int | None) -> Json:
    """How often there are distances, to a factor of two, and receivers and senders by name."""
    steps = (i - j).abs().clamp_min(1).log2().long()
    counted_as = [f"{1 << step}" for step in steps.tolist()], *_named(i, j, names)
    whole = [dict(Counter(some).most_common(most)) for some in counted_as]
    return {"pairs": len(i), **dict(zip(_SHARES, whole, strict=True))}


def _named(i: Tensor, j: Tensor, names: tuple[Sequence[str], Sequence[str]]) -> tuple[list[str], ...]:
    return tuple([f"{labels[place]}" for place in some.tolist()] for labels, some in zip(names, (i, j), strict=True))


def _pair(row: Tensor, place: int, i: Tensor, j: Tensor, names: tuple[Sequence[str], Sequence[str]]) -> Json:
    """A pair as the entries of a dictionary have it."""

    def described(at: int, labels: Sequence[str]) -> Json:
        first = max(0, at - _CONTEXT)
        return {"place": at, "labels": list(labels[first : at + _CONTEXT + 1]), "at": at - first}

    receiver, sender = (described(int(some[place]), labels) for some, labels in zip((i, j), names, strict=True))
    return {"value": float(row[place]), "document": 0, "receiver": receiver, "sender": sender}


def fires_over(texts: Sequence[Mapping[str, Json]]) -> Json:
    """Where each relation fires in many texts: the strongest of their pairs, and shares of distances and names.

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
            labels = [label for label, _ in strongest.most_common(_NAMES // 2)]
            labels = sorted(of_all, key=int) if name == "distances" else labels
            shares[name] = [[label, strongest[label] / ours, of_all[label] / all_pairs] for label in labels]
        found[key] = {"pairs": entries, **shares}
    return found
