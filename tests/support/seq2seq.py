"""The sequence-to-sequence models that the tests build."""

import torch

from dual_attention.baselines import Seq2SeqAbstractor
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from tests.support.combinations import examples
from tests.support.symbols import symbols
from tests.support.tensors import float64

WIDTH, SOURCE, TARGET = 8, 9, 7
IN, OUT = ({"type": "token", "vocab_size": size} for size in (11, 6))
TOKENS = {"input_spec": IN, "output_spec": OUT, "out_dim": 6}
VECTORS = {"input_spec": {"type": "vector", "dim": 3}, "output_spec": {"type": "vector", "dim": 2}, "out_dim": 2}
SIZES = {"d_model": WIDTH, "n_layers_enc": 2, "n_layers_dec": 2, "in_block_size": SOURCE, "out_block_size": TARGET}
BLOCK = {"dff": 12, "activation": "gelu", "dropout_rate": 0.0, "norm_first": True}
SYMBOLS = symbols(WIDTH, SOURCE)
ABSTRACTORS = {
    "source, abstractor": "positional_symbols",
    "encoder, abstractor": "symbolic_attention",
    "source, both": "rel_sym_attn",
    "encoder, both": "symbolic_attention",
}
"""What the abstractor and the decoder of a baseline read, and its symbols."""
KINDS = ["plain", *SYMBOLS, *ABSTRACTORS]
COUNTED_BY_LENGTH = examples(6)


def build(kind="plain", *, encoder=None, decoder=None, **arguments):
    """A model in float64: of plain Transformer blocks, with those symbols, or an arrangement of abstractors."""
    heads, cls, defaults = {"n_heads": 2}, Seq2SeqTransformer, {**TOKENS, **SIZES}
    if kind in ABSTRACTORS:
        cls, reads = Seq2SeqAbstractor, dict(zip(("abstractor_reads", "decoder_reads"), kind.split(", "), strict=True))
        defaults |= {**reads, "n_layers_abs": 1, "abstractor_kwargs": {**BLOCK, **heads}}
        defaults["n_layers_enc"] = 0 if kind == "source, abstractor" else 2
    elif kind in SYMBOLS:
        ra_kwargs = {"n_relations": 3, "use_relative_positional_symbols": kind == "position_relative"}
        heads, cls = {"n_heads_sa": 1, "n_heads_ra": 1, "ra_kwargs": ra_kwargs}, Seq2SeqDualAttnTransformer
    if kind != "plain":
        name = ABSTRACTORS.get(kind, kind)
        defaults |= {"symbol_retrieval": name, "symbol_retrieval_kwargs": SYMBOLS[name]}
    encoder_kwargs = {**BLOCK, **heads, **(encoder or {})}
    decoder_kwargs = {**BLOCK, **heads, "n_heads_cross": 2, **(decoder or {})}
    return float64(cls(encoder_kwargs=encoder_kwargs, decoder_kwargs=decoder_kwargs, **defaults | arguments))


def words(batch=3, source=SOURCE, target=TARGET):
    return torch.randint(11, (batch, source)), torch.randint(6, (batch, target))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=0)
