"""Views as numbers, and maps as figures for papers, without a browser.

Shapes: N receivers, M senders.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dual_attention._base.plots import house_style
from dual_attention.model_analysis.views.matrices import draw_matrices
from dual_attention.model_analysis.views.patches import draw_patch_relations

from ..sweeps.results import csv_of
from .factors import Visible
from .images import Shown
from .recording import RecordedHeads, Recording
from .requests import Json
from .view_state import View, heads_of, named_heads, within

PICTURES = (".png", ".svg", ".pdf")

MAPS = ("relations", "attention", "vision", "generate")
"""Pages whose maps are drawn."""

MOST_ROWS = 4_000_000
"""Lines of a table."""


@dataclass(frozen=True)
class Seen:
    """A view as numbers, and as a figure of matplotlib if it is a map.

    Attributes:
        title: in a few words.
        headings, rows: of a table.
        draw: draws the map.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    draw: Callable[[], Any] | None = None

    @property
    def csv(self) -> str:
        """The table, the same text as pages write."""
        return csv_of(map(_as_on_pages, line) for line in (self.headings, *self.rows))

    def picture(self, kind: str) -> bytes:
        """The map as a file of a kind of :data:`PICTURES`."""
        assert self.draw is not None
        file = io.BytesIO()
        with house_style():
            self.draw().savefig(file, format=kind.removeprefix("."), dpi=200, bbox_inches="tight", facecolor="white")
        return file.getvalue()


def _as_on_pages(value: Any) -> Any:
    """A cell as pages write it: of a number its shortest text, without ``.0`` and with few powers of ten."""
    if not isinstance(value, float):
        return value
    text = f"{Decimal(repr(value)):f}" if 1e-6 <= abs(value) < 1e21 else repr(value).replace("e-0", "e-")
    return "0" if value == 0 else text.removesuffix(".0")


def way_of(heads: RecordedHeads, view: View, *, relational: bool) -> str:
    """The way to see a map of these heads: that of the view if they have it, or else the first on pages.

    Raises:
        ValueError: if there is no such way.
    """
    if view.view not in ("raw", "attended", "contribution", "attention"):
        raise ValueError(f"view: expected raw, attended, contribution or attention, got {view.view!r}")
    first, more = ("raw", ["attended", "contribution"]) if relational else ("attention", ["contribution"])
    if (heads.relation_products if relational else heads.sender_norms) is None:
        more.remove("contribution")
    return view.view if heads.weights is not None and view.view in more else first


def pair_map(heads: RecordedHeads, view: View, *, relational: bool) -> tuple[str, Tensor]:
    """Title and values ``(N, M)`` of the map of a view; hidden pairs are zero.

    Raises:
        ValueError: if there is no such head, relation, or way to see it.
    """
    n, title = heads.visible.receivers, f"{heads.layer} · {heads.kind}"
    way = way_of(heads, view, relational=relational)
    if not relational:
        assert heads.weights is not None
        head = within("head", view.head, heads.n_heads)
        values = heads.weights.values(0, n, heads.visible)[head]
        if way == "attention":
            return f"{title} head {head}", values
        assert heads.sender_norms is not None
        return f"{title} head {head}, contribution of each sender", values * heads.sender_norms[head]
    assert heads.relations is not None
    relation = within("relation", view.relation, heads.relations.maps)
    values, title = heads.relations.values(0, n, heads.visible)[relation], f"{heads.layer} · relation {relation}"
    if way == "raw":
        return title, values
    assert heads.weights is not None
    head = relation if heads.relation_of_head else within("head", view.head, heads.n_heads)
    alpha = heads.weights.values(0, n, heads.visible)
    if way == "attended":
        return f"{title} under attention of head {head}", values * alpha[head]
    assert heads.relation_products is not None
    squared = torch.einsum("hij,hg,gij->ij", alpha, heads.relation_products[relation], alpha)
    return f"{title}, contribution through all heads", values.abs() * squared.clamp_min(0).sqrt()


def seen_pairs(recording: Recording, view: View, first: Recording | None = None) -> Seen:
    """A map of relations, or of attention; less the same map of a ``first`` recording, if there is one."""
    relational = view.page == "relations"
    heads = heads_of(recording, view, relational=relational)
    title, values = pair_map(heads, view, relational=relational)
    receivers, senders = recording.sequences[heads.receivers], recording.sequences[heads.senders]
    visible = heads.visible.rows(0, len(receivers))
    if first is not None:
        others = heads_of(first, view, relational=relational)
        name, less = pair_map(others, view, relational=relational)
        if title != name:
            raise ValueError(f"view: expected a map of both models, got {title} and {name}")
        title, values, visible = f"B − A, {title}", values - less, visible & others.visible.rows(0, len(receivers))
    count = int(visible.sum())
    if count > MOST_ROWS:
        raise ValueError(f"export: expected at most {MOST_ROWS:,} pairs, got {count:,}; export an .html")
    rows = [
        [i, receivers[i], j, senders[j], value]
        for (i, j), value in zip(visible.nonzero().tolist(), values[visible].tolist(), strict=True)
    ]
    signed = bool((values[visible] < 0).any())
    draw = partial(draw_matrices, values, receivers, senders, titles=[title], visible=visible, signed=signed)
    return Seen(title, ["receiver", "receiver_token", "sender", "sender_token", "value"], rows, draw)


def seen_patches(recording: Recording, shown: Shown, view: View) -> Seen:
    """The maps of a layer from one patch of an image, the class token, or all receivers that are no patches, as a view
    sees them.
    """
    attends = any(heads.weights is not None for heads in recording.heads)
    compares = any(heads.relations is not None for heads in recording.heads)
    relational = compares and not (attends and view.maps == "attention")
    heads = heads_of(recording, view, relational=relational)
    patches, n = recording.sequences[heads.senders], heads.visible.receivers
    i = shown.chosen if view.i is None else within("i", view.i, len(patches))
    word, factors = ("relation", heads.relations) if relational else ("head", heads.weights)
    assert factors is not None
    views = [replace(view, **{word: number}) for number in range(factors.maps)]
    drawn = [pair_map(heads, one, relational=relational) for one in views]
    maps = torch.stack([values for _, values in drawn])[:, :, shown.first :]  # (F, N, patches)
    if heads.receivers == heads.senders:
        receivers, whose = [i], f" of {patches[i]}"
    else:
        receivers, whose = list(range(n)), ""
    labels = recording.sequences[heads.receivers]
    table = [
        [name, labels[receiver], patches[shown.first + patch], value]
        for (name, _), of in zip(drawn, maps.tolist(), strict=True)
        for receiver in receivers
        for patch, value in enumerate(of[receiver])
    ]
    way = way_of(heads, view, relational=relational)
    title = f"{heads.layer} {heads.kind} {word}s{whose}{'' if way in ('raw', 'attention') else f', {way}'}"

    def draw() -> Any:
        if i < shown.first:
            raise ValueError("export: a picture is of a patch; expected i of one, got the class token")
        if whose:
            patch, pairs = i - shown.first, maps[:, shown.first :].permute(1, 2, 0)
            names = [f"{word} {number}" for number in range(len(maps))]
        else:
            patch, pairs = None, maps.flatten(0, 1).T[None]
            names = [f"{number}: {labels[receiver]}" for number in range(len(maps)) for receiver in receivers]
        return draw_patch_relations(shown.pixels, pairs, patch, shown.grid, titles=names, title=title)

    return Seen(title, ["map", "receiver", "sender", "value"], table, draw)


def seen_symbols(recording: Recording, view: View) -> Seen:
    """The symbols of a library that tokens receive, and how much each is used."""
    able = [heads for heads in recording.heads if heads.assignment is not None]
    if not able:
        raise ValueError("view: this model assigns no symbols from a library")
    heads = named_heads(able, view)
    assignment = heads.assignment
    assert assignment is not None
    part, labels = within("part", view.part, assignment.maps), recording.sequences[heads.senders]
    title, k = f"{heads.layer} symbols, part {part}", assignment.keys.shape[1]
    if len(labels) * k > MOST_ROWS:
        raise ValueError(f"export: expected at most {MOST_ROWS:,} weights, got {len(labels) * k:,}; export an .html")
    found = assignment.values(0, len(labels), Visible.whole(len(labels), k))[part]
    rows = [
        [place, labels[place], rank + 1, symbol, weight]
        for place, (weights, symbols) in enumerate(zip(*(x.tolist() for x in found.sort(descending=True)), strict=True))
        for rank, (symbol, weight) in enumerate(zip(symbols, weights, strict=True))
    ]
    return Seen(title, ["place", "token", "rank", "symbol", "weight"], rows)


def seen_effects(found: Json) -> Seen:
    """Effects of switches, as :func:`~.switches.switch_effects` returns them."""
    losses, tokens = found["losses"], found["tokens"]
    values = zip(*(losses[name] for name in ("before", "after", "control")), strict=True)
    rows = [[place, tokens[place], *some, found["switched"]] for place, some in enumerate(values, 1)]
    headings = ["place", "token", "loss", "loss_switched", "loss_random_direction", "switched"]
    return Seen(f"the effects of {found['switched']}", headings, rows)


def seen_ablations(found: Json, view: View) -> Seen:
    """Effects of every part, as :func:`~.ablations.ablated` returns them, the largest first."""
    by_loss = view.measure == "loss" and found["loss"] is not None
    which = 0 if by_loss else 1
    order = sorted(range(len(found["parts"])), key=lambda place: -abs(found["effects"][place][which]))
    rows = []
    for place in order:
        part, effect = found["parts"][place], found["effects"][place]
        loss, divergence = ([one[measure] for one in found["controls"][place]] for measure in (0, 1))
        controls = loss if by_loss else divergence
        beyond = int(abs(effect[which]) > max(map(abs, controls))) if controls else ""
        measured = effect[1], *_ends(divergence), effect[0], *_ends([] if effect[0] is None else loss)
        names = part["layer"], part["kind"], part["mediator"], part["number"]
        more = []
        if "intervals" in found:
            told, (of_loss, of_divergence) = found["beyond"][place][which], found["intervals"][place]
            beyond, more = "" if told is None else int(told), [found["texts"], *of_divergence, *of_loss]
        rows.append([*names, *measured, beyond, found["change"], *more])
    headings = ["layer", "kind", "part", "number"]
    for measure in ("divergence", "loss_change"):
        headings += [measure, f"{measure}_random_least", f"{measure}_random_largest"]
    headings += ["beyond_random", "change"]
    if "intervals" in found:
        headings += ["texts", *(f"{name}_{end}" for name in ("divergence", "loss_change") for end in ("low", "high"))]
    return Seen("the effects", headings, rows)


def seen_writes(found: Json) -> Seen:
    """Effects of parts on a logit, and the tokens that they write, as :func:`~.writes.written` returns them."""
    order = sorted(range(len(found["parts"])), key=lambda place: -abs(found["effects"][place]))
    rows = []
    for place in order:
        part, writes = found["parts"][place], found["writes"][place] or {}
        about = [part[name] if part[name] is not None else "" for name in ("layer", "what", "kind", "head", "relation")]
        rows.append([*about, "effect", found["target"]["token"], found["effects"][place]])
        rows += [[*about, end, token, value] for end, tokens in writes.items() for token, value in tokens]
    title = f"what parts write into “{found['target']['token']}” after {found['place']}"
    return Seen(title, ["layer", "part", "kind", "head", "relation", "measure", "token", "value"], rows)


def seen_patching(found: Json) -> Seen:
    """Recovery of the answer by mediator, as :func:`~.patching.patched` returns it, the largest first."""
    cells = sorted(found["cells"], key=lambda cell: -abs(cell["recovery"] or 0))
    tokens = found["answer"]["token"], found["foil"]["token"]
    names = ("layer", "kind", "mediator", "number", "recovery", "change", "kl")
    rows = [[*("" if cell[name] is None else cell[name] for name in names), *tokens] for cell in cells]
    title = f"recovery of “{tokens[0]}” against “{tokens[1]}” by each mediator of the second text"
    headings = ["layer", "kind", "mediator", "number", "recovery", "logit_difference_change", "divergence"]
    return Seen(title, [*headings, "answer", "foil"], rows)


def _ends(values: Sequence[float]) -> list[Any]:
    """The least and the largest."""
    return [min(values), max(values)] if values else ["", ""]


def seen_steps(found: Json, maps: Sequence[Tensor], title: str) -> Seen:
    """A map of every step of generation.

    Args:
        found: as :func:`~.streaming.collected` returns it.
        maps: the map of each step, of the tokens before.
        title: of the map.
    """
    labels, steps = found["labels"], found["steps"]
    prompt = len(labels) - len(steps)
    table = [
        [step, labels[prompt + step], steps[step]["probability"], place, labels[place], value]
        for step, row in enumerate(maps)
        for place, value in enumerate(row.tolist())
        if value == value
    ]
    values = torch.full((len(steps), len(labels) - 1), torch.nan)
    for step, row in enumerate(maps):
        values[step, : len(row)] = row
    about = {"visible": ~values.isnan(), "signed": bool((values < 0).any()), "titles": [title]}
    draw = partial(draw_matrices, values, labels[prompt:], labels[:-1], names=("new token", "sender"), **about)
    return Seen(title, ["step", "token", "probability", "sender", "sender_token", "value"], table, draw)


def seen_model(found: Json) -> Seen:
    """Sizes and costs, as :func:`~.answers.model_facts` returns them."""
    rows = [[heading, *(*row, "")[:3]] for heading, section in found["sections"].items() for row in section]
    return Seen("the model", ["section", "name", "value", "remark"], rows)


def seen_dictionary(found: Json, recording: Recording, view: View) -> Seen:
    """The pairs of a relation, and those like them."""
    heads = heads_of(recording, view, relational=True)
    headings = ["rank", "kind", "value", "document", "receiver", "receiver_token", "sender", "sender_token"]
    headings += ["receiver_context", "sender_context"]
    rows = []
    for entry in found["entries"]:
        if (entry["layer"], entry["relation"], entry["end"]) != (heads.layer, view.relation, view.end):
            continue
        rows.append([entry["rank"], "pair", *_pair(entry["example"])])
        rows += [[entry["rank"], "like it", *_pair(one)] for one in entry["counterexamples"]]
    return Seen(f"the dictionary of {heads.layer} relation {view.relation}", headings, rows)


def seen_card(found: Json) -> Seen:
    """The measures of a relation, as :func:`~.cards.card` returns it."""
    of = ("weights", "tokens", "pictures", "share", "asymmetry", "right")
    rows: list[list[Any]] = [[name, found[name]] for name in of if name in found]
    for which, name in enumerate(("loss_change", "divergence", "right_without")[: len(found["effect"])]):
        value, random = found["effect"][which], [one[which] for one in found["effects_random"]]
        rows.append([name, value, *(_ends(random) if value is not None else ())])
    for one in found["labels"]:
        name, controls = one["name"], one.get("controls", {})
        rows += [[f"AUC {name}", one.get("auc", "")], [f"pairs {name}", one["pairs"]], [f"p {name}", one.get("p", "")]]
        rows += [[f"AUC {name}, {kind}", "", *ends] for kind, ends in controls.items()]
    for one in found.get("answers", ()):
        rows.append([f"strongest pair, {one['name']}", one["median"], one["low"], one["high"]])
    for one in found["pairs"]:
        if "picture" in (example := one["example"]):
            rows.append([f"{one['end']} {one['rank']} picture {example['picture']}", example["value"]])
            continue
        receiver, sender = (one["example"][name] for name in ("receiver", "sender"))
        tokens = "” from “".join(other["labels"][other["at"]] for other in (receiver, sender))
        rows.append([f"{one['end']} {one['rank']} “{tokens}”", one["example"]["value"]])
    headings = ["layer", "relation", "measure", "value", "control_least", "control_largest"]
    whole = [[found["layer"], found["relation"], *row, *[""] * (4 - len(row))] for row in rows]
    return Seen(f"the card of {found['layer']} relation {found['relation']}", headings, whole)


def _pair(example: Json) -> list[Any]:
    both = [example[name] for name in ("receiver", "sender")]
    objects = [part for one in both for part in (one["place"], one["labels"][one["at"]])]
    return [example["value"], example["document"], *objects, *("".join(one["labels"]) for one in both)]


def ending_of(path: Path) -> str:
    """The kind of a file; ``ValueError`` for one that no view is written as."""
    known = (".html", ".csv", *PICTURES)
    if path.suffix.lower() not in known:
        raise ValueError(f"export: expected a name that ends in {', '.join(known)}, got {path.name!r}")
    return path.suffix.lower()
