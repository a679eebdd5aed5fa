"""Image classifiers whose heads are put together from the toolbox of attention.

Shapes: B batch, T tokens (a class token and the patches), H heads, d width of the model, d_h width of a head.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..._layers.cache import Cache
from ..._layers.config import SequenceSymbolRetrieval, config_of
from ..._layers.dropout import Dropout
from ..._layers.heads import merge_heads, split_heads
from ..._layers.inputs import check_sequence
from ..._layers.linear import Linear
from ..._layers.options import NormType, SymbolOptions
from ..._layers.symbols import Symbols
from ..._models.config import Pool, VisionConfig
from ..._models.passing import BlockInputs
from ..._models.retrievers import create_symbol_retriever, retrieve_symbols
from ..._models.vision import VisionModel
from ...functional import attention
from ...functional.masks import MaskPattern
from ...mechanisms import (
    Cosine,
    Dot,
    Euclidean,
    GeneralAttention,
    GeneralAttentionOutput,
    MultiHead,
    Relation,
    RelationalMessage,
)
from ...transformer_blocks import EncoderSteps, FeedForwardBlock, create_norm
from .toolbox_config import Carried, Gate, Normalisation, RelationKind, Relatum, ToolboxConfig
from .toolbox_relations import DetachedRelation, StandardisedRelation


class IdentityHeads(nn.Module):
    """Self-attention with a learned multiple of the identity in the weights of each head.

    Math: output = sum_h softmax(x (W_q^h W_k^hT + a_h I) x^T / sqrt(d_h)) x (W_v^h W_o^h + b_h I)

    Boix-Adsera et al. 2023 (arXiv 2310.09753): a lets heads compare tokens as they are, b lets them copy. Both begin
    at 1, which is a choice.

    Args:
        d_model: d.
        n_heads: H, a divisor of d.
        dropout: rate on the weights and on the output.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.wq, self.wk, self.wv, self.wo = (Linear(d_model, d_model, bias=False) for _ in range(4))
        self.compare = nn.Parameter(torch.ones(n_heads))
        self.copy = nn.Parameter(torch.ones(n_heads))
        self.out_dropout = Dropout(dropout)

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
        attended, weights = attention(q, k, v, scale=scale, dropout=rate, need_weights=need_weights)
        mixed, copied = attended.split((x.shape[-1] // self.n_heads, x.shape[-1]), -1)
        context = self.wo(merge_heads(mixed)) + torch.einsum("bhtd,h->btd", copied, self.copy)
        return GeneralAttentionOutput(self.out_dropout(context), weights)


def toolbox_relation(config: ToolboxConfig, d_model: int, **sizes: Any) -> Relation:
    """The relation that a configuration describes; ``sizes``: of a :class:`~dual_attention.mechanisms.Relation`."""
    if config.relation == "hadamard":
        sizes["proj_dim"] = 1
    width = sizes["proj_dim"]
    score = {
        "dot": lambda: Dot(config.sharpness),
        "hadamard": Dot,
        "cosine": lambda: Cosine(learned=True, heads=sizes["n_relations"]),
        "squared_distance": lambda: Euclidean(
            squared=True, beta=1 / math.sqrt(width), learned=True, heads=sizes["n_relations"]
        ),
    }[config.relation]()
    if config.of != "pair":
        return DetachedRelation(d_model, of=config.of, score=score, **sizes)
    if config.normalise == "standardise":
        return StandardisedRelation(d_model, score=score, **sizes)
    activation = "softmax" if config.normalise == "softmax" else "identity"
    return Relation(d_model, score=score, activation=activation, **sizes)


def toolbox_heads(
    config: ToolboxConfig, d_model: int, n_heads: int, dropout: float, wr_init: str, **sizes: Any
) -> nn.Module:
    """The heads that a configuration describes; ``sizes``: of :func:`toolbox_relation`."""
    if config.identities:
        return IdentityHeads(d_model, n_heads, dropout)
    message, head_dim = None, d_model // n_heads
    if config.carries == "relations":
        relation = toolbox_relation(config, d_model, **sizes)
        bound = 1 / math.sqrt(relation.n_relations) if wr_init == "large" else None
        message = RelationalMessage(relation, head_dim, heads=n_heads, d_symbol=d_model, wr_init=bound)
    attend = GeneralAttention(Dot(), message=message, dropout=dropout)
    gate = None if config.gate == "none" else config.gate
    return MultiHead(attend, d_model, n_heads, gate=gate, out_dropout=dropout)


class ToolboxBlock(EncoderSteps):
    """Encoder block around any heads: these and feed-forward, each in a residual step.

    Args:
        heads: called with tokens, tokens, and symbols if ``takes_symbols``.
        others: as :class:`~dual_attention.transformer_blocks.EncoderBlock`.
    """

    _attention = "heads"

    def __init__(self, heads: nn.Module, config: VisionConfig, *, takes_symbols: bool) -> None:
        super().__init__(config.dropout_rate, config.norm_first)
        self.post_norm_dropout, self.takes_symbols = True, takes_symbols
        self.norm1 = create_norm(config.d_model, config.norm_type)
        self.heads = heads
        self.norm2 = create_norm(config.d_model, config.norm_type)
        self.ff_block = FeedForwardBlock(config.d_model, config.dff, config.activation, use_bias=config.bias)

    def forward(
        self,
        x: Tensor,
        symbols: Symbols | None = None,
        *,
        attn_mask: MaskPattern | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        """``(B, T, d) -> (B, T, d)``; with ``need_weights`` the pair of that and the weights ``(B, H, T, T)``.

        The mask of an image hides nothing, and is not looked at.
        """
        z = self.pre_norm(x, self.norm1)
        attended = self.heads(z, z, symbols if self.takes_symbols else None, need_weights=need_weights)
        x = self._finish(x, attended.context)
        return (x, attended.weights) if need_weights else x


class VisionToolbox(VisionModel):
    """A vision model of the shape of a ViDAT with other heads.

    With the default :class:`ToolboxConfig` and the weights of a
    :class:`~dual_attention.vision_models.VisionDualAttnTransformer` without sensory heads it computes the same.

    Args:
        n_heads_ra: H.
        n_relations, rel_proj_dim, symmetric_rels, wr_init: as
            :class:`~dual_attention.relational_attention.RelationalAttention`.
        carries, relation, of, normalise, sharpness, gate, identities: see :class:`ToolboxConfig`.
        others: as :class:`~dual_attention.vision_models.VisionDualAttnTransformer`.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        patch_size: tuple[int, int],
        num_classes: int,
        d_model: int,
        n_layers: int,
        n_heads_ra: int,
        dff: int | None,
        dropout_rate: float,
        activation: str,
        norm_first: bool,
        symbol_retrieval: SequenceSymbolRetrieval,
        symbol_retrieval_kwargs: SymbolOptions,
        norm_type: NormType = "layernorm",
        bias: bool = True,
        pool: Pool = "cls",
        *,
        final_norm: bool = False,
        n_relations: int | None = None,
        rel_proj_dim: int | None = None,
        symmetric_rels: bool = False,
        wr_init: Literal["published", "large"] = "published",
        carries: Carried = "relations",
        relation: RelationKind = "dot",
        of: Relatum = "pair",
        normalise: Normalisation = "none",
        sharpness: float | None = None,
        gate: Gate = "none",
        identities: bool = False,
    ) -> None:
        config = config_of(VisionConfig, locals())
        toolbox = ToolboxConfig(carries, relation, of, normalise, sharpness, gate, identities)
        super().__init__(config)
        takes_symbols = carries != "objects"
        self.symbol_retriever = None
        if takes_symbols:
            self.symbol_retriever = create_symbol_retriever(symbol_retrieval, symbol_retrieval_kwargs)
        n_relations = n_heads_ra if n_relations is None else n_relations
        sizes: dict[str, Any] = {
            "n_relations": n_relations,
            "proj_dim": d_model // n_relations if rel_proj_dim is None else rel_proj_dim,
            "symmetric": symmetric_rels,
        }
        for _ in range(n_layers):
            heads = toolbox_heads(toolbox, d_model, n_heads_ra, dropout_rate, wr_init, **sizes)
            self.encoder_blocks.append(ToolboxBlock(heads, config, takes_symbols=takes_symbols))

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Symbols | None:
        return None if self.symbol_retriever is None else retrieve_symbols(self.symbol_retriever, x)
