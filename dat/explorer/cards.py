"""Cards: what is known of one relation of a language model, on one page, each measure beside its controls.

Shapes: N tokens of the text, H heads, R relations, S scores of each pair, d width of the layer's output.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.dictionaries import PairExample, weights_digest
from dual_attention.model_analysis.dictionaries.dictionary import context_around
from dual_attention.model_analysis.labels import label_same_words, label_tokens, near, same_token
from dual_attention.model_analysis.maps import HeadMaps, Quantity
from dual_attention.model_analysis.measures import (
    RankedScores,
    attention_scores,
    combine_strata,
    cosine_scores,
    count_tokens,
    detect,
    distance_strata,
    frequency_strata,
    identity_strata,
    message_share,
    random_relations,
    relation_asymmetry,
    untrained_twin,
    written_by,
)
from dual_attention.model_analysis.sites import Site, choose_sites
from dual_attention.relational_attention import RelationalAttention

from .ablations import SwitchedPart, ablated
from .dictionaries import example_json
from .images import ImageSession
from .opening import relation_formula
from .requests import Json, Malformed, integer_of, text_of
from .session import Session
from .switches import Switch

MOST_TOKENS = 256
"""Tokens of a text in which pairs are measured, its first."""

NEAR = 4
"""Places between near tokens, at most."""


PAIRS = 6
"""Pairs at each end."""

LIKE_IT = 2
"""Pairs beside each."""

_CONTEXT = 6  # tokens on each side of an object
_KEPT: tuple[Quantity, ...] = ("relations", "weights", "visible", "contribution")


def card(session: Session, request: Mapping[str, Any]) -> Json:
    """The card of a relation.

    Args:
        request: ``text``, ``layer`` by its name, and the number of the ``relation``.

    Returns:
        ``card``, the number of this format; ``model`` and ``weights``, its title and digest; ``layer``, ``relation``,
        ``text``, ``tokens`` of it that were measured, and the ``formula``. ``pairs``: entries of a dictionary, and
        ``pairs_of`` what. ``labels``: see :func:`detected`. ``asymmetry`` and ``share`` of the message, see
        :func:`share_of_message`, None where they are not defined. ``effect`` of an ablation, change of the loss and
        divergence in nats, and those of random directions, ``effects_random``.

    Raises:
        ValueError: for a text that the model cannot read, or a layer or relation that it does not have; and for
            relations that are not finite.
    """
    text = text_of(request)
    tokens = session.tensor(session.tokens(text)[:MOST_TOKENS])
    site = site_of(session, request.get("layer"))
    number = integer_of(request, "relation", 0, site.n_relations - 1, 0)
    with session.reserved() as model, evaluating(model):
        maps, entered = captured(model, site, tokens)
        scores = scores_of(model, site, maps, entered, tokens)
        labels = detected(scores, number, _labels(session, text, tokens, maps))
        about = about_relation(session, site, maps, number)
    own = [one for one in (session.dictionary or {"entries": []})["entries"] if one["relation"] == number]
    own = [one for one in own if one["layer"] == site.layer and one["rank"] <= PAIRS]
    effects = ablated(session, {"text": text}, [SwitchedPart(Switch("relation", site.layer, site.kind, number), False)])
    return {
        **about,
        "text": text,
        "tokens": tokens.shape[1],
        "pairs": own or _pairs(session, tokens[0].cpu(), maps, number),
        "pairs_of": session.dictionary["source"] if session.dictionary and own else "the text",
        "labels": labels,
        "effect": effects["effects"][0],
        "effects_random": effects["controls"][0],
    }


def about_relation(session: Session | ImageSession, site: Site, maps: HeadMaps, number: int) -> Json:
    """The beginning of cards of texts and of images, while the model is reserved."""
    return {
        "card": 1,
        "model": session.title,
        "weights": session.facts.get("weights") or weights_digest(session.model),
        "layer": site.layer,
        "relation": number,
        "formula": relation_formula(site.module),
        "asymmetry": finite(relation_asymmetry(maps.get("relations"))[number]),
        "share": share_of_message(session.model, site, maps, number),
    }


def site_of(session: Session | ImageSession, layer: Any) -> Site:
    """The layer of a request, which computes relations."""
    if not isinstance(layer, str):
        raise Malformed("The request needs a layer.")
    with session.reserved() as model:
        sites = {
            choice.site.layer: choice.site
            for choice in choose_sites(model, session.layers)
            if choice.site.tap("relations") is not None
        }
    if layer not in sites:
        raise ValueError(f"layer: expected one with relations ({', '.join(sites) or 'there is none'}), got {layer!r}")
    return sites[layer]


def captured(model: nn.Module, site: Site, inputs: Tensor) -> tuple[HeadMaps, Tensor]:
    """Maps of the relational heads of a layer that reads tokens or images, and what enters it as its receivers."""
    names: list[Quantity] = [name for name in _KEPT if site.tap_of(name) is not None]
    entered: list[Tensor] = []

    def keep(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entered.append(args[0] if args else kwargs["x"])

    with (
        site.module.register_forward_pre_hook(keep, with_kwargs=True),
        capture(model, names, layers=[site.layer], heads="relational") as maps,
    ):
        model(inputs)
    return maps.heads()[0], entered[0]


def scores_of(model: nn.Module, site: Site, maps: HeadMaps, entered: Tensor, inputs: Tensor) -> dict[str, Tensor]:
    """The layer's relations, and the scores of the same pairs that they should beat, ``(B, N, N, S)`` each."""
    found = {"relations": maps.get("relations")}
    if maps.weights is not None:  # CoRelNet attends to nothing
        found["attention"] = attention_scores(maps.weights)
    found["cosine"] = cosine_scores(entered)
    module = site.module
    if isinstance(module, RelationalAttention):
        about: Any = {"symmetric": module.symmetric_rels, "rel_score": module.rel_score}
        about["activation"] = module.rel_activation
        found["random projections"] = random_relations(entered, 20, module.rel_proj_dim, **about)
    try:
        twin = untrained_twin(model)
    except ValueError:  # a module that cannot draw its parameters anew
        return found
    (site,) = [choice.site for choice in choose_sites(twin, [site.layer], "relational") if choice.site.tap("relations")]
    found["untrained"] = captured(twin, site, inputs)[0].get("relations")
    return found


def _labels(session: Session, text: str, tokens: Tensor, maps: HeadMaps) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Labels of pairs, the pairs that count, and their strata, ``(N, N)`` each, by name."""
    n = tokens.shape[1]
    ids = tokens.cpu()
    seen = maps.get("visible").any(1)[0].cpu() & ~torch.eye(n, dtype=torch.bool)
    distance, identity = distance_strata(n), identity_strata(ids)[0]
    words = label_tokens([label_same_words(text)], "same word", session.tokenizer, n, causal=False)
    return {
        "same token": (same_token(ids)[0], seen, distance),
        "same word": (words.labels[0], words.mask[0] & seen, distance),
        "previous token": (near(n, 1), seen, identity),
        "near": (near(n, NEAR), seen, identity),
    }


def detected(
    scores: Mapping[str, Tensor],
    number: int,
    labels: Mapping[str, tuple[Tensor, Tensor, Tensor]],
    permutations: int = 99,
) -> list[Json]:
    """Detection of labels by a relation, and by each control, among pairs of one stratum.

    Args:
        scores: see :func:`scores_of`.
        number: of the relation.
        labels: for each its pairs, the pairs that count, and their strata, ``(N, N)`` or ``(B, N, N)``.
        permutations: shuffles of the labels; without, there is no ``p``.

    Returns:
        For each label its ``name``; the number of ``pairs`` that were compared; ``auc``; ``p`` against the best of all
        relations of the layer for shuffled labels; the least and the largest AUC of each of the ``controls``; and
        whether the AUC is ``beyond`` all of these, further from 1/2. Of a label without pairs only the first two.

    Raises:
        ValueError: for scores that are not finite.
    """
    found = []
    pairs = scores["relations"].shape[:3]
    for name, about in labels.items():
        label, mask, strata = (one.expand(pairs) for one in about)
        ranked = {one: RankedScores(x.cpu()[mask], strata[mask]).auc(label[mask]) for one, x in scores.items()}
        if not ranked["relations"].positives:  # no pair without the label in the stratum of one with it
            found.append({"name": name, "pairs": 0})
            continue
        own = detect(scores["relations"].cpu(), label, mask, strata, permutations=permutations)
        controls = {one: measured.auc for one, measured in ranked.items() if one != "relations"}
        auc = float(own.auc[number])
        furthest = max(float((one - 0.5).abs().max()) for one in controls.values())
        found.append(
            {
                "name": name,
                "pairs": own.positives,
                "auc": auc,
                "p": finite(own.p[number]),
                "controls": {key: [float(one.min()), float(one.max())] for key, one in controls.items()},
                "beyond": abs(auc - 0.5) > furthest,
            }
        )
    return found


def share_of_message(model: nn.Module, site: Site, maps: HeadMaps, number: int) -> float | None:
    """Share of a relation in what relational heads write into the residual stream, the mean over receivers.

    Math: ‖m_i‖ / (‖m_i‖ + ‖a_i - m_i‖), m_i = Σ_h Σ_j α^h_ij r_ij W_o^h W_r^h and a_i all that the heads write
    """
    if not isinstance(site.module, RelationalAttention):
        return None
    received = torch.einsum("bhij,bij->bhi", maps.get("weights"), maps.get("relations")[..., number])
    own = torch.einsum("bhi,hd->bid", received, written_by(model, site.layer)[:, number])
    return finite(message_share(own, maps.get("contribution").sum(1) - own).nanmean())


def _pairs(session: Session, tokens: Tensor, maps: HeadMaps, number: int) -> list[Json]:
    """Entries of a dictionary of one text: the pairs at both ends of a relation, those of the same two tokens once."""
    values, n = maps.get("relations")[0, ..., number].cpu(), len(tokens)
    seen = maps.get("visible").any(1)[0].cpu() & ~torch.eye(n, dtype=torch.bool)
    counts = count_tokens([tokens], int(tokens.max()) + 1)
    octaves = distance_strata(n, [1 << step for step in range(n.bit_length())])
    strata = combine_strata(octaves, frequency_strata(tokens[None], counts)[0])
    generator = torch.Generator().manual_seed(0)
    document = tokens.tolist()

    def example(i: int, j: int) -> Json:
        contexts = (context_around(document, place, _CONTEXT) for place in (i, j))
        return example_json(PairExample(float(values[i, j]), 0, i, j, document[i], document[j], *contexts), session)

    found = []
    for end, rank, (i, j) in strongest(values, seen, lambda i, j: (document[i], document[j])):
        other = (tokens[:, None] != tokens[i]) | (tokens[None] != tokens[j])
        like = (seen & other & (strata == strata[i, j])).nonzero()
        like = like[torch.randperm(len(like), generator=generator)[:LIKE_IT]].tolist()
        entry = {"layer": maps.layer, "relation": number, "end": end, "rank": rank}
        found.append({**entry, "example": example(i, j), "counterexamples": [example(*pair) for pair in like]})
    return found


def strongest(values: Tensor, seen: Tensor, key: Callable[..., Any]) -> Iterator[tuple[str, int, list[int]]]:
    """End, rank and place of the largest and the smallest values that are seen, of places of one key the first."""
    for end, sign in (("high", -1), ("low", 1)):
        kept = set()
        for place in seen.nonzero()[(sign * values[seen]).argsort(stable=True)].tolist():
            if key(*place) not in kept:
                kept.add(key(*place))
                yield end, len(kept), place
            if len(kept) == PAIRS:
                break


def finite(value: Tensor) -> float | None:
    """A number, None where it is none."""
    return float(value) if math.isfinite(value) else None
