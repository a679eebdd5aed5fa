"""Image classifiers whose heads are put together from the toolbox of attention: controls, and other relations.

Shapes: B batch, T tokens (a class token and the patches), H heads, d width of the model, d_h width of a head.
"""

import math
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dat.experiments.relational_games.config import GamesModelConfig
from dat.experiments.relational_games.presets import dat, variant
from dat.training.configs import check
from dual_attention.dual_attention import DualAttentionOutput
from dual_attention.functional import attention
from dual_attention.mechanisms import (
    Cosine,
    Dot,
    Euclidean,
    GeneralAttention,
    GeneralAttentionOutput,
    MultiHead,
    Relation,
    RelationalMessage,
)
from studies._lib.heads import HeadsOfTokens
from studies.relational_games.relations import DetachedRelation, RelationWithNorms, Relatum, StandardisedRelation

Carried = Literal["relations", "symbols", "objects"]
RelationKind = Literal["dot", "dot_and_norms", "hadamard", "cosine", "squared_distance"]
Normalisation = Literal["none", "softmax", "standardise"]
Gate = Literal["none", "identity", "sigmoid"]


@dataclass(frozen=True)
class ToolboxConfig:
    """Heads that differ from relational heads in one thing, or in more."""

    carries: Carried = "relations"
    """What heads carry from sender to receiver: relations beside symbols, as relational heads do; symbols only; or the
    sender's features, as sensory heads do."""
    relation: RelationKind = "dot"
    """Comparison: scaled inner product; the same with the squared norms of query and key as two further relations;
    products of single features, where every relation is one number of both sides; cosine; or negated squared distance.
    The last two have a learned strength."""
    of: Relatum = "pair"
    """What is compared: receiver and sender; the receiver with itself; the sender with itself; or the receiver with
    some sender, drawn anew for each image. The last three have the parameters of relations, and nothing of the pair."""
    normalise: Normalisation = "none"
    """Normalisation of a receiver's relations over its senders: none, softmax, or to mean 0 and variance 1."""
    sharpness: float | None = None
    """Factor of inner products before they are normalised, the inverse of a temperature; null takes
    1 / sqrt(rel_proj_dim)."""
    gate: Gate = "none"
    """Gate on what each head brings, computed from the receiver: none, linear, or a sigmoid."""
    identities: bool = False
    """Add a learned multiple of the identity to the product of query and key weights of each head, and another to that
    of value and output weights (arXiv 2310.09753); heads that carry features only."""

    def __post_init__(self) -> None:
        relations = self.carries == "relations"
        for name in ("relation", "of", "normalise", "sharpness"):
            default = type(self).__dataclass_fields__[name].default
            value = getattr(self, name)
            expected = f"{default!r} with model.toolbox.carries={self.carries}"
            check(relations or value == default, f"model.toolbox.{name}", expected, value)
        sharp = self.sharpness
        check(sharp is None or 0 < sharp < inf, "model.toolbox.sharpness", "a positive number or null", sharp)
        dot = self.relation == "dot"
        check(dot or sharp is None, "model.toolbox.sharpness", f"null with relation {self.relation}", sharp)
        check(dot or self.of == "pair", "model.toolbox.of", f"'pair' with relation {self.relation}", self.of)
        of_pair = self.of == "pair" or self.normalise == "none"
        check(of_pair, "model.toolbox.normalise", "'none' unless the relation is of the pair", self.normalise)
        plain = self.carries == "objects" and self.gate == "none"
        expected = "false unless heads carry objects, without a gate"
        check(plain or not self.identities, "model.toolbox.identities", expected, self.identities)


class IdentityHeads(nn.Module):
    """Self-attention with a learned multiple of the identity in the weights of each head.

    Math: output = sum_h softmax(x (W_q^h W_k^hT + a_h I) x^T / sqrt(d_h)) x (W_v^h W_o^h + b_h I)

    Boix-Adsera et al. 2023 (arXiv 2310.09753): a lets heads compare tokens as they are, b lets them copy. Both begin
    at 1, which is a choice.

    Args:
        d_model: d.
        n_heads: H, a divisor of d.
        dropout: rate on the weights.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.compare = nn.Parameter(torch.ones(n_heads))
        self.copy = nn.Parameter(torch.ones(n_heads))

    def forward(
        self, query: Tensor, key: Tensor, *, attn_mask: Any = None, need_weights: bool = False
    ) -> GeneralAttentionOutput:
        """Self-attention ``(B, T, d) -> (B, T, d)``; of the tokens ``query`` only, which are all seen."""
        x = query
        whole = x[:, None].expand(-1, self.n_heads, -1, -1)
        q, k, v = (layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv))
        q = torch.cat((q, self.compare[:, None, None] * whole), -1)
        k, v = torch.cat((k, whole), -1), torch.cat((v, whole), -1)
        scale = 1 / math.sqrt(x.shape[-1] / self.n_heads)
        rate = self.dropout if self.training else 0.0
        attended, weights = attention(q, k, v, scale=scale, dropout=rate, need_weights=need_weights)
        mixed, copied = attended.split((x.shape[-1] // self.n_heads, x.shape[-1]), -1)
        context = self.wo(mixed.transpose(1, 2).flatten(2)) + torch.einsum("bhtd,h->btd", copied, self.copy)
        return GeneralAttentionOutput(context, weights)


def toolbox_relation(model: GamesModelConfig, config: ToolboxConfig) -> Relation:
    """The relation that a configuration describes."""
    n_relations = model.n_relations or 1
    width = 1 if config.relation == "hadamard" else model.d_model // n_relations
    score = {
        "dot": lambda: Dot(config.sharpness),
        "dot_and_norms": Dot,
        "hadamard": Dot,
        "cosine": lambda: Cosine(learned=True, heads=n_relations),
        "squared_distance": lambda: Euclidean(squared=True, beta=1 / math.sqrt(width), learned=True, heads=n_relations),
    }[config.relation]()
    how: dict[str, Any] = {"proj_dim": width, "symmetric": model.symmetric_rels, "score": score}
    if config.relation == "dot_and_norms":
        return RelationWithNorms(model.d_model, n_relations, **how)
    if config.of != "pair":
        return DetachedRelation(model.d_model, n_relations, of=config.of, **how)
    if config.normalise == "standardise":
        return StandardisedRelation(model.d_model, n_relations, **how)
    activation = "softmax" if config.normalise == "softmax" else "identity"
    return Relation(model.d_model, n_relations, activation=activation, **how)


def toolbox_heads(model: GamesModelConfig, config: ToolboxConfig) -> nn.Module:
    """The heads that a configuration describes."""
    d_model, heads, dropout = model.d_model, model.n_heads_sa + model.n_heads_ra, model.dropout_rate
    if config.identities:
        return IdentityHeads(d_model, heads, dropout)
    message = None
    if config.carries == "relations":
        relation = toolbox_relation(model, config)
        bound = 1 / math.sqrt(relation.n_relations) if model.wr_init == "large" else None
        sizes: dict[str, Any] = {"wr_init": bound, "rel_init_size": model.rel_init_size}
        message = RelationalMessage(relation, d_model // heads, heads=heads, d_symbol=d_model, **sizes)
    attend = GeneralAttention(Dot(), message=message, dropout=dropout)
    return MultiHead(attend, d_model, heads, gate=None if config.gate == "none" else config.gate)


class HeadsOfSymbols(nn.Module):
    """Heads of the toolbox where a block has its dual attention, which it calls as it calls that."""

    def __init__(self, heads: nn.Module) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor, symbols: Tensor, *, need_weights: bool, **others: Any) -> DualAttentionOutput:
        """``(B, T, d)`` and symbols ``(B or 1, T, d)`` to ``(B, T, d)``."""
        found = self.heads(x, x, symbols, need_weights=need_weights)
        return DualAttentionOutput(found.context, None, (found.weights,))


@dataclass(frozen=True, kw_only=True)
class ToolboxModel(GamesModelConfig):
    """A DAT, or for heads that carry objects a Transformer, with heads of the toolbox in place of its own."""

    toolbox: ToolboxConfig = field(default_factory=ToolboxConfig)
    """Its heads."""

    def finished(self, model: Any) -> nn.Module:
        for block in model.encoder_blocks:
            heads = toolbox_heads(self, self.toolbox)
            if self.toolbox.carries == "objects":
                block.self_attn = HeadsOfTokens(self.name, heads)
            else:
                block.dual_attn = HeadsOfSymbols(heads)
        return model


def toolbox(name: str, dff: int = 256, n_relations: int = 2, **keys: Any) -> ToolboxModel:
    """DAT 0+2 with heads that differ in ``keys`` of the toolbox; ``dff`` makes up for parameters."""
    heads = {"n_heads_sa": 2, "n_heads_ra": 0} if keys.get("carries") == "objects" else {"n_heads_ra": 2}
    return ToolboxModel(name=name, dff=dff, n_relations=n_relations, toolbox=ToolboxConfig(**keys), **heads)


CONTROLS: tuple[GamesModelConfig, ...] = (
    toolbox("gated-objects", carries="objects", gate="identity"),
    toolbox("gated-symbols", carries="symbols", gate="identity"),
    toolbox("detached-receiver", of="receiver"),
    toolbox("detached-sender", of="sender"),
    toolbox("detached-shuffled", of="shuffled"),
    toolbox("identities", dff=301, carries="objects", identities=True),
    toolbox("hadamard", relation="hadamard", n_relations=64),
    toolbox("cosine", relation="cosine"),
    toolbox("squared-distance", relation="squared_distance"),
)
"""Models as large as DAT 0+2: heads that multiply without relating a pair, and heads with other relations."""

NORMALISED: tuple[GamesModelConfig, ...] = (
    variant(dat(0, 2, symmetric=True), "-softmax", rel_activation="softmax"),
    toolbox("dat-0+2-sym-softmax-sharp", normalise="softmax", sharpness=1.0),
    toolbox("dat-0+2-sym-softmax-cosine", normalise="softmax", relation="cosine"),
    toolbox("dat-0+2-sym-standardised", normalise="standardise"),
)
"""DAT 0+2 with relations normalised over senders."""
