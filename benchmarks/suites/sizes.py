"""The paper's language models of 343M and 353M parameters (arXiv 2405.16727, Table 5), as arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """Of a language model's layers.

    Attributes:
        d_model, dff: widths.
        heads: sensory heads, and as many relational ones.
        kv: key/value heads of each kind.
        symbols, symbol_heads: of symbolic attention.
        vocabulary: tokens.
        gated: width of Llama's gated feed-forward block with as many parameters, in steps of 16.
        relations: numbers of relations; all together are as wide as the relational heads.
    """

    d_model: int = 1024
    dff: int = 4096
    heads: int = 8
    kv: int = 4
    symbols: int = 1024
    symbol_heads: int = 8
    vocabulary: int = 50304
    gated: int = 2736
    relations: tuple[int, ...] = (64, 8)

    @property
    def width(self) -> int:
        """Of a head."""
        return self.d_model // (2 * self.heads)

    def relational(self, relations: int) -> dict[str, Any]:
        """Arguments of the relational heads."""
        width = self.width * self.heads // relations
        return {"n_relations": relations, "rel_proj_dim": width, "n_kv_heads": self.kv}

    def block(self, relations: int) -> dict[str, Any]:
        """Arguments of a block with dual attention."""
        return {
            "n_heads_sa": self.heads,
            "n_heads_ra": self.heads,
            "dff": self.dff,
            "activation": "gelu",
            "norm_first": True,
            "sa_kwargs": {"n_kv_heads": self.kv},
            "ra_kwargs": self.relational(relations),
        }

    def plain_block(self) -> dict[str, Any]:
        """Arguments of a standard block of the same width and depth; no biases and no grouping, as in the paper."""
        return {
            "n_heads": 2 * self.heads,
            "dff": self.dff,
            "activation": "gelu",
            "norm_first": True,
            "bias": False,
        }

    def retriever(self) -> dict[str, Any]:
        """Arguments of the symbolic attention that all layers share; the library of symbols is not trained."""
        return {
            "d_model": self.d_model,
            "n_heads": self.symbol_heads,
            "n_symbols": self.symbols,
            "trainable_symbols": False,
        }

    def llama(self, layers: int, length: int) -> dict[str, Any]:
        """Configuration of transformers' Llama of the same width and depth."""
        return {
            "hidden_size": self.d_model,
            "intermediate_size": self.gated,
            "num_hidden_layers": layers,
            "num_attention_heads": 2 * self.heads,
            "num_key_value_heads": 2 * self.heads,
            "max_position_embeddings": length,
        }


FULL = Size()
QUICK = Size(
    d_model=64,
    dff=128,
    heads=2,
    kv=1,
    symbols=16,
    symbol_heads=2,
    vocabulary=61,
    gated=96,
    relations=(4,),
)


def size(quick: bool) -> Size:
    """The paper's, or a small one of the same form."""
    return QUICK if quick else FULL
