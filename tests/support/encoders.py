"""The bidirectional encoders that the tests build."""

import torch

from dual_attention.encoder_models import DualAttnTransformerEncoder, TransformerEncoder
from tests.support.combinations import examples
from tests.support.symbols import symbols
from tests.support.tensors import float64

WIDTH, VOCABULARY, LONGEST = 8, 13, 10
BLOCK = {"dff": 12, "dropout_rate": 0.0, "activation": "gelu", "norm_first": True, "max_block_size": LONGEST}
SYMBOLS = symbols(WIDTH, LONGEST)
KINDS = ["plain", *SYMBOLS]
FEW = examples(6)
POSITIONS = ["pos_emb", "RoPE", "none"]


def create(kind="plain", **arguments):
    """A freshly initialised encoder: of plain Transformer blocks, or with the symbols of that name."""
    sizes = {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layers": 2, **BLOCK}
    if kind == "plain":
        return TransformerEncoder(**{**sizes, "n_heads": 2, **arguments})
    ra_kwargs = {"n_relations": 3, "use_relative_positional_symbols": kind == "position_relative"}
    dual = {"n_heads_sa": 1, "n_heads_ra": 1, "symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind]}
    return DualAttnTransformerEncoder(**{**sizes, **dual, "ra_kwargs": ra_kwargs, **arguments})


def build(kind="plain", **arguments):
    return float64(create(kind, **arguments))


def tokens(batch=3, length=LONGEST):
    return torch.randint(VOCABULARY, (batch, length))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=0)
