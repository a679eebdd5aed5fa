"""Measures of what was captured: of each layer's relations and messages, and three readings of its relations.

Shapes: B examples, H heads, N receivers, M senders, R relations, d width of the layer's output.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...functional.checks import MaybeNone
from ...relational_attention import RelationalAttention
from ..maps import CallMaps, HeadMaps, Maps
from ..padding import real_pairs, real_receivers
from ..sites import choose_sites
from .relations import message_share, relation_asymmetry, relation_contributions, relation_rank


@dataclass(frozen=True)
class LayerMeasures:
    """Measures of the relational heads of a layer.

    Attributes:
        layer: its name.
        share: of relations in the message of each head, ``(H,)``, mean over objects; see :func:`.message_share`.
        rank: of the relations, over pairs that may be attended; see :func:`.relation_rank`.
        scaled_rank: the same of relations that were divided by their standard deviations.
        asymmetry: of each relation, ``(R,)``, over all pairs of objects, masked or not; see
            :func:`.relation_asymmetry`. None where receivers and senders are not the same objects.

    Padding is no object; see ``dual_attention.model_analysis.padding``.

    >>> from dual_attention.model_analysis.capture import capture
    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), capture(lm) as maps:
    ...     _ = lm(torch.randint(50, (2, 9)))
    >>> measure_layers(maps)[0].layer
    'blocks.0'
    """

    layer: str
    share: tuple[float, ...]
    rank: float
    scaled_rank: float
    asymmetry: tuple[float, ...] | MaybeNone


def measure_layers(maps: Maps | CallMaps) -> list[LayerMeasures]:
    """Measures of every layer with relations, from a capture that kept relations, visible pairs and both messages.

    >>> from dual_attention.model_analysis.capture import capture
    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), capture(lm) as maps:
    ...     _ = lm(torch.randint(50, (2, 9)))
    >>> [(layer.layer, len(layer.share)) for layer in measure_layers(maps)]
    [('blocks.0', 1)]
    """
    layers = [heads for heads in maps.heads("relational") if heads.relations is not None]
    if not layers:
        raise ValueError("maps: expected a layer with relations, got none")
    return [_measure(heads) for heads in layers]


def _measure(heads: HeadMaps) -> LayerMeasures:
    relations, visible = heads.get("relations"), heads.get("visible")
    pairs, objects = real_pairs(visible, heads.crosses), real_receivers(visible, heads.crosses)
    share = message_share(heads.get("relational_message"), heads.get("symbol_message"))
    share = share.masked_fill(~objects[:, None], torch.nan)
    spread = relations[pairs.expand(relations.shape[:3])].std(0, correction=0)
    scaled = relations / torch.where(spread > 0, spread, 1.0)
    square = not heads.crosses and relations.shape[1] == relations.shape[2]
    return LayerMeasures(
        layer=heads.layer,
        share=tuple(share.nanmean((0, 2)).tolist()),
        rank=float(relation_rank(relations, pairs)),
        scaled_rank=float(relation_rank(scaled, pairs)),
        asymmetry=tuple(relation_asymmetry(relations, objects[:, None] & objects[..., None]).tolist())
        if square
        else None,
    )


@dataclass(frozen=True)
class RelationReadings:
    """Three readings of the relations of a layer, ``(B, N, M, R)`` each; zero where a pair may not be attended.

    Attributes:
        raw: r_ij.
        attended: α_ij r_ij, with the mean of the heads' weights.
        contribution: norm of what arrives in the residual stream, see :func:`.relation_contributions`.
        visible: pairs that may be attended by some head, boolean ``(B, N, M)``.

    >>> from dual_attention.model_analysis.capture import capture
    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), capture(lm) as maps:
    ...     _ = lm(torch.randint(50, (2, 9)))
    >>> read_relations(lm, maps["blocks.0"].relational).contribution.shape
    torch.Size([2, 9, 9, 1])
    """

    raw: Tensor
    attended: Tensor
    contribution: Tensor
    visible: Tensor


def read_relations(model: nn.Module, heads: HeadMaps) -> RelationReadings:
    """Relations as they are, as heads select them, and as they arrive in the residual stream.

    Args:
        model: that was captured.
        heads: of one of its layers of relational attention, with ``relations``, ``weights`` and ``visible`` kept, of
            all its relational heads.

    >>> from dual_attention.model_analysis.capture import capture
    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), capture(lm) as maps:
    ...     _ = lm(torch.randint(50, (2, 9)))
    >>> read_relations(lm, maps["blocks.0"].relational).raw.shape
    torch.Size([2, 9, 9, 1])
    """
    relations, weights, visible = heads.get("relations"), heads.get("weights"), heads.get("visible")
    written = written_by(model, heads.layer)
    if weights.shape[1] != len(written):
        raise ValueError(f"heads: expected all {len(written)} relational heads, got {heads.head_numbers}")
    seen = visible.any(1).expand(relations.shape[:3])
    relations = relations.masked_fill(~seen[..., None], 0.0)
    written = written[:, list(heads.relation_numbers)]
    return RelationReadings(
        raw=relations,
        attended=relations * weights.mean(1)[..., None],
        contribution=relation_contributions(relations, weights, written.to(relations)),
        visible=seen,
    )


def written_by(model: nn.Module, layer: str | int) -> Tensor:
    """Direction in which a head writes each relation into the residual stream, W_o^h W_r^h[:, ℓ]: ``(H, R, d)``.

    The layer, given by its name, or its number in a model with one stack, has the paper's relational attention.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> written_by(lm, 0).shape
    torch.Size([1, 1, 32])
    """
    (choice,) = choose_sites(model, layer, "relational")
    module = choice.site.module
    if not isinstance(module, RelationalAttention):
        raise ValueError(f"layer: expected one with RelationalAttention, got {type(module).__name__} in {layer}")
    with torch.no_grad():
        return choice.site.contributions(module.wr.mT[None], choice.heads)[0]
