"""The view of a page, as the fragment of its address says it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dual_attention._base.words import suggestion
from dual_attention.model_analysis.sites import KINDS

from .recording import RecordedHeads, Recording
from .requests import TEXT_BYTES

PAGES = (
    "relations",
    "attention",
    "vision",
    "symbols",
    "effects",
    "writes",
    "card",
    "interventions",
    "patching",
    "dictionary",
    "generate",
    "model",
)

_ADDRESS = json.loads((Path(__file__).parent / "page" / "view.json").read_text(encoding="utf-8"))  # as pages read it
_INITIAL: dict[str, Any] = _ADDRESS["initial"]


@dataclass(frozen=True)
class View:
    """View of a page; the names are those of the address, and so are the defaults.

    Attributes:
        page: one of :data:`PAGES`.
        layer: its number in a model with one stack, or its name, such as ``decoder.0.cross``; empty takes the first.
        kind: of heads, ``sensory`` or ``relational``, where a layer has both on the page; otherwise the first is taken.
        relation, head: numbers.
        view: ``raw``, ``attended`` or ``contribution`` of relations, ``attention`` or ``contribution`` of heads; one
            that a map does not have takes the first.
        i, j: receiver and sender.
        part, symbol: numbers, on the page of symbols.
        off: switches, see :data:`SWITCH_CODES`, such as ``r1.3_sa0.1``.
        change, factor, place: what switches do, and the token after which predictions are compared.
        by, target, chosen: of what parts write: parts, one of :data:`~.writes.BY`; the id of the token that effects are
            of; and the number of the part whose tokens are shown.
        other, each, answer, foil: of patching: the second text; 1 for each head and relation; and ids of two tokens.
        draws, measure: of ablations, random directions and ``kl`` or ``loss``.
        corpus: 1 for effects over the corpus, if there is one.
        maps: ``relations`` or ``attention``, on the page of an image.
        tokens, temperature, top_k, seed: of generation.
        map, step: number of a map, and of a step of generation.
        end: ``high`` or ``low``, of a dictionary.
        text: what the model read: a text, or the sample of an image; empty for whatever is shown.
        weights: digest of the model, see :func:`~dual_attention.model_analysis.dictionaries.weights_digest`; empty for
            any.
        model: of two models, 1 for the second, and 2 for its maps less those of the first.
        beside: digest of the second model.
        own: 1 if what was seen is an image from a file, which no address holds.
        rest: what only a browser shows: colours, size, what is pinned.
    """

    page: str = _INITIAL["page"]
    layer: str = _INITIAL["layer"]
    kind: str = _INITIAL["kind"]
    relation: int = _INITIAL["relation"]
    head: int = _INITIAL["head"]
    view: str = _INITIAL["view"]
    i: int | None = _INITIAL["i"]
    j: int | None = _INITIAL["j"]
    part: int = _INITIAL["part"]
    symbol: int | None = _INITIAL["symbol"]
    off: str = _INITIAL["off"]
    change: str = _INITIAL["change"]
    factor: float = _INITIAL["factor"]
    place: int | None = _INITIAL["place"]
    by: str = _INITIAL["by"]
    target: int | None = _INITIAL["target"]
    chosen: int | None = _INITIAL["chosen"]
    other: str = _INITIAL["other"]
    each: int = _INITIAL["each"]
    answer: int | None = _INITIAL["answer"]
    foil: int | None = _INITIAL["foil"]
    draws: int = _INITIAL["draws"]
    measure: str = _INITIAL["measure"]
    corpus: int = _INITIAL["corpus"]
    maps: str = _INITIAL["maps"]
    tokens: int = _INITIAL["tokens"]
    temperature: float = _INITIAL["temperature"]
    top_k: int = _INITIAL["top_k"]
    seed: int = _INITIAL["seed"]
    map: int = _INITIAL["map"]
    step: int | None = _INITIAL["step"]
    end: str = _INITIAL["end"]
    text: str = _INITIAL["text"]
    weights: str = _INITIAL["weights"]
    model: int = _INITIAL["model"]
    beside: str = _INITIAL["beside"]
    own: int = _INITIAL["own"]
    rest: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> View:
        """The view of an address, of its fragment, or of a page's name.

        Switches alone (``off=r1.3``, no address) are of the page that shows what they do.

        Raises:
            ValueError: for a page that is none, a name that no view has, or a number that is none.
        """
        fragment = text.rpartition("#")[2]
        named = [("page", fragment)] if fragment and "=" not in fragment else []
        parts = named or parse_qsl(fragment, keep_blank_values=True)
        own = {one.name for one in fields(cls)} - {"rest"}
        found: dict[str, Any] = {}
        rest = []
        for name, value in parts:
            if name == "heads":  # of addresses of older versions, which counted through layers and kinds
                raise ValueError("view: expected layer and kind in place of heads, as in layer=1&kind=sensory")
            elif name not in _INITIAL:
                raise ValueError(f"view: there is no {name!r} in a view{suggestion(name, _INITIAL)}")
            elif name not in own:
                rest.append((name, value))
            else:
                found[name] = unpacked_text(value) if name == "text" else _read(name, value)
        if "off" in found and "#" not in text:
            found.setdefault("page", "interventions")
        if found.get("page", "relations") not in PAGES:
            raise ValueError(f"view: expected a page of {', '.join(PAGES)}, got {found['page']!r}")
        return cls(**found, rest=tuple(rest))

    @property
    def fragment(self) -> str:
        """The fragment of the address of this view, without ``#``."""
        plain = View()
        own = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name != "rest" and getattr(self, one.name) != getattr(plain, one.name)
        }
        if self.text:
            own["text"] = packed_text(self.text)
        return urlencode({**own, **dict(self.rest)})

    def check_weights(self, digest: str | None, beside: str | None = None) -> None:
        """Raise ``ValueError`` if this is the view of a model, or of two, with other weights than those of digests."""
        if digest and self.weights not in ("", digest):
            raise ValueError(f"view: it is of a model with weights {self.weights}, but this one has {digest}")
        if self.beside not in ("", beside):
            has = f"but that one has {beside}" if beside else "which --beside opens"
            raise ValueError(f"view: beside, it shows a model with weights {self.beside}, {has}")


def packed_text(text: str) -> str:
    """A text as addresses hold it: deflated, in the letters of base64 that addresses allow."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    data = deflate.compress(text.encode()) + deflate.flush()
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def unpacked_text(packed: str) -> str:
    """The text that :func:`packed_text`, or a page, packed; ``ValueError`` for another one, or one too large."""
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        found = inflate.decompress(data, TEXT_BYTES)
        if not packed or inflate.eof:
            return found.decode()
    except (ValueError, zlib.error) as error:
        raise ValueError("view: the text of the address is damaged") from error
    raise ValueError(f"view: expected a whole text of at most {TEXT_BYTES:,} bytes in the address")


SWITCH_CODES = (
    "rL.N (relation N of layer L), saL.N (sensory head N of layer L), raL.N (relational head N of layer L), "
    "sL.N (symbols of relational head N of layer L)"
)
"""Forms of a switch: letters, a layer L, as of :class:`View`, and a number N, such as ``r1.3``."""

VIEW_GRAMMAR = (
    f"A page ({', '.join(PAGES)}), the address of a view, or what stands behind # in it, such as "
    "page=relations&layer=1&relation=3&view=attended&head=0, page=attention&layer=1&kind=sensory&head=2, or "
    "page=interventions&off=r1.3_sa0.1&change=mean, whose switches, with _ between them, are "
    f"{SWITCH_CODES}."
)
"""Form in which a view is written."""


def _read(name: str, value: str) -> Any:
    counted, least, most = name in _ADDRESS["counts"], *_ADDRESS["ranges"].get(name, (None, None))
    if not counted and least is None:
        return value
    try:
        number = int(value) if counted else float(value)
    except ValueError as error:
        raise ValueError(f"view: expected a number as {name}, got {value!r}") from error
    if counted and number < 0:
        raise ValueError(f"view: expected a number of 0 or more as {name}, got {value!r}")
    if not counted and not least <= number <= most:
        raise ValueError(f"view: expected a number from {least} to {most} as {name}, got {value!r}")
    return number


def heads_of(recording: Recording, view: View, *, relational: bool) -> RecordedHeads:
    """The heads that a view shows.

    Args:
        relational: of those with relations only; otherwise of those that attend.

    Raises:
        ValueError: if there are no such heads.
    """
    able = [heads for heads in recording.heads if (heads.relations if relational else heads.weights) is not None]
    if not able:
        kind, other = ("relations", "attention") if relational else ("attention", "relations")
        raise ValueError(f"view: this model computes no {kind}; see its page {other}")
    return named_heads(able, view)


def named_heads(able: Sequence[RecordedHeads], view: View) -> RecordedHeads:
    """The first of these heads that are of the layer of a view, and of its kind if the layer has some.

    Raises:
        ValueError: if the layer has none of them, or there is no such kind.
    """
    within = [heads for heads in able if view.layer in ("", heads.layer, short_layer(heads.layer))]
    if not within:
        known = dict.fromkeys(short_layer(heads.layer) for heads in able)
        raise ValueError(f"view: expected a layer of {', '.join(known)}, got {view.layer!r}")
    if view.kind not in ("", *KINDS):
        raise ValueError(f"view: expected kind {' or '.join(KINDS)}, got {view.kind!r}")
    # In an address the kind may be one that was chosen on another page.
    return next((heads for heads in within if heads.kind == view.kind), within[0])


def short_layer(name: str) -> str:
    """A layer as addresses name it: by number where a model has one stack."""
    number = name.removeprefix("blocks.")
    return number if number.isdecimal() else name


def within(name: str, number: int, count: int) -> int:
    """A number of a view, if there are more than that; else ``ValueError``."""
    if number >= count:
        raise ValueError(f"view: expected {name} from 0 to {count - 1}, got {number}")
    return number
