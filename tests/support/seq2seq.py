"""The sequence-to-sequence models that the tests build."""

import torch

from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from tests.support.combinations import examples
from tests.support.symbols import symbols
from tests.support.tensors import float64

WIDTH, SOURCE, TARGET = 8, 9, 7
TOKENS = {
    "input_spec": {"type": "token", "vocab_size": 11},
    "output_spec": {"type": "token", "vocab_size": 6},
    "out_dim": 6,
}
VECTORS = {"input_spec": {"type": "vector", "dim": 3}, "output_spec": {"type": "vector", "dim": 2}, "out_dim": 2}
SIZES = {"d_model": WIDTH, "n_layers_enc": 2, "n_layers_dec": 2, "in_block_size": SOURCE, "out_block_size": TARGET}
BLOCK = {"dff": 12, "activation": "gelu", "dropout_rate": 0.0, "norm_first": True}
SYMBOLS = symbols(WIDTH, SOURCE)
KINDS = ["plain", *SYMBOLS]
COUNTED_BY_LENGTH = examples(6)


def build(kind="plain", *, encoder=None, decoder=None, **arguments):
    """A model in float64: of plain Transformer blocks, or with the symbols of that name."""
    arguments = {**TOKENS, **SIZES, **arguments}
    if kind == "plain":
        heads, cls = {"n_heads": 2}, Seq2SeqTransformer
    else:
        ra_kwargs = {"n_relations": 3, "use_relative_positional_symbols": kind == "position_relative"}
        heads, cls = {"n_heads_sa": 1, "n_heads_ra": 1, "ra_kwargs": ra_kwargs}, Seq2SeqDualAttnTransformer
        arguments = {"symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind], **arguments}
    encoder_kwargs = {**BLOCK, **heads, **(encoder or {})}
    decoder_kwargs = {**BLOCK, **heads, "n_heads_cross": 2, **(decoder or {})}
    return float64(cls(encoder_kwargs=encoder_kwargs, decoder_kwargs=decoder_kwargs, **arguments))


def words(batch=3, source=SOURCE, target=TARGET):
    return torch.randint(11, (batch, source)), torch.randint(6, (batch, target))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=0)
