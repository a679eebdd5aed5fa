"""Image classifiers whose heads are put together from the toolbox of attention.

Shapes: B batch, T tokens (a class token and the patches), H heads, d width of the model, d_h width of a head.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._layers.cache import Cache
from dual_attention._layers.config import config_of
from dual_attention._layers.heads import merge_heads, split_heads
from dual_attention._layers.inputs import check_sequence
from dual_attention._layers.options import SymbolOptions
from dual_attention._layers.symbols import Symbols
from dual_attention._layers.taps import Taps, observer_of
from dual_attention._models.config import VisionConfig
from dual_attention._models.retrievers import create_symbol_retriever, retrieve_symbols
from dual_attention._models.stack import BlockInputs
from dual_attention._models.vision import VisionModel
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

from ..heads import HeadsBlock, rival_heads
from .config import GamesModelConfig
from .toolbox_config import ToolboxConfig
from .toolbox_relations import DetachedRelation, RelationWithNorms, StandardisedRelation


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
        self.taps = Taps(("visible", "weights"))

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Any = None, *, need_weights: bool = False
    ) -> GeneralAttentionOutput:
        """Self-attention ``(B, T, d) -> (B, T, d)``; of the tokens ``query`` only, whatever the other two are."""
        x = query
        check_sequence("query", x, self.wq.in_features, layer=self.wq)
        whole = x[:, None].expand(-1, self.n_heads, -1, -1)
        q, k, v = (split_heads(layer(x), self.n_heads) for layer in (self.wq, self.wk, self.wv))
        q = torch.cat((q, self.compare[:, None, None] * whole), -1)
        k, v = torch.cat((k, whole), -1), torch.cat((v, whole), -1)
        scale = 1 / math.sqrt(x.shape[-1] / self.n_heads)
        rate = self.dropout if self.training else 0.0
        attended, weights = attention(
            q, k, v, scale=scale, dropout=rate, need_weights=need_weights, observe=observer_of(self)
        )
        mixed, copied = attended.split((x.shape[-1] // self.n_heads, x.shape[-1]), -1)
        context = self.wo(merge_heads(mixed)) + torch.einsum("bhtd,h->btd", copied, self.copy)
        return GeneralAttentionOutput(context, weights)


def toolbox_relation(model: GamesModelConfig, config: ToolboxConfig) -> Relation:
    """The relation that a configuration describes."""
    n_relations = model.n_heads_ra if model.n_relations is None else model.n_relations
    width = model.d_model // n_relations if model.rel_proj_dim is None else model.rel_proj_dim
    if config.relation == "hadamard":
        width = 1
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


def toolbox_heads(model: GamesModelConfig, config: ToolboxConfig, layer: int) -> nn.Module:
    """The heads that a configuration describes, of a layer from 1."""
    d_model, heads, dropout = model.d_model, model.n_heads_ra, model.dropout_rate
    if config.heads is not None:
        return rival_heads(config.heads, d_model, heads, layer, dropout)
    if config.identities:
        return IdentityHeads(d_model, heads, dropout)
    message = None
    if config.carries == "relations":
        relation = toolbox_relation(model, config)
        bound = 1 / math.sqrt(relation.n_relations) if model.wr_init == "large" else None
        sizes: dict[str, Any] = {"wr_init": bound, "rel_init_size": model.rel_init_size}
        message = RelationalMessage(relation, d_model // heads, heads=heads, d_symbol=d_model, **sizes)
    attend = GeneralAttention(Dot(), message=message, dropout=dropout)
    gate = None if config.gate == "none" else config.gate
    return MultiHead(attend, d_model, heads, gate=gate)


class VisionToolbox(VisionModel):
    """A vision model of the shape of a ViDAT with other heads.

    With the default :class:`ToolboxConfig` and the weights of a
    :class:`~dual_attention.vision_models.VisionDualAttnTransformer` without sensory heads it computes the same.

    Args:
        model: of the architecture ``"toolbox"``.
        symbols: arguments of its symbol mechanism, unused by heads that carry features of the senders.
        image_shape, num_classes: as :class:`~dual_attention.vision_models.VisionDualAttnTransformer`.
    """

    def __init__(
        self, model: GamesModelConfig, symbols: SymbolOptions, *, image_shape: tuple[int, int, int], num_classes: int
    ) -> None:
        toolbox = model.toolbox
        if toolbox is None:
            raise ValueError(f"model: expected one of the toolbox, got architecture {model.architecture!r}")
        images = {"image_shape": image_shape, "num_classes": num_classes}
        config = config_of(VisionConfig, {**vars(model), **images})
        super().__init__(config)
        takes_symbols = toolbox.carries != "objects"
        self.update_symbols_each_layer = takes_symbols
        self.symbol_retriever = create_symbol_retriever(model.symbols, symbols) if takes_symbols else None
        for layer in range(1, model.n_layers + 1):
            heads = toolbox_heads(model, toolbox, layer)
            takes = takes_symbols or (toolbox.heads == "value_residual" and layer > 1)
            self.encoder_blocks.append(HeadsBlock(heads, config, takes_symbols=takes))
        self._shares_values = toolbox.heads == "value_residual"

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols | None:
        if self._shares_values:
            return self.encoder_blocks[0].values(x)
        return None if self.symbol_retriever is None else retrieve_symbols(self.symbol_retriever, x)
