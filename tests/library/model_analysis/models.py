"""Models of every family, in float64 and evaluation mode, with a call of each."""

import torch

from dual_attention import (
    DualAttnTransformerEncoder,
    TransformerEncoder,
    VisionDualAttnTransformer,
    VisionTransformer,
    with_parts,
)
from dual_attention.mechanisms import Euclidean
from tests.support import language, seq2seq
from tests.support.tensors import float64, moved

COMMON = {"vocab_size": 11, "d_model": 16, "n_layers": 2, "dff": 20, "dropout_rate": 0.0, "activation": "gelu"}
HEADS = {"n_heads_sa": 2, "n_heads_ra": 2}
SYMBOLS = {"symbol_retrieval_kwargs": {"d_model": 16, "n_heads": 2, "n_symbols": 5}}
IMAGES = {"image_shape": (1, 8, 8), "patch_size": (4, 4), "num_classes": 3, "d_model": 16, "n_layers": 2, "dff": 20}
IMAGES |= {"dropout_rate": 0.0, "activation": "gelu", "norm_first": True, "norm_type": "layernorm", "bias": True}


def drawn(model):
    """In float64, with parameters far from zero."""
    return float64(moved(model, 0.2))


def encoder(dual=True):
    if dual:
        return drawn(DualAttnTransformerEncoder(**COMMON, **HEADS, **SYMBOLS, norm_first=True, max_block_size=24))
    return drawn(TransformerEncoder(**COMMON, n_heads=4, norm_first=True, max_block_size=24))


def vision(dual=True):
    if not dual:
        return drawn(VisionTransformer(**IMAGES, n_heads=4, pool="cls"))
    own = {"symbol_dim": 16, "max_rel_pos": 1}
    symbols = {"symbol_retrieval": "position_relative_2d", "symbol_retrieval_kwargs": own}
    ra_kwargs = {"use_relative_positional_symbols": True}
    return drawn(VisionDualAttnTransformer(**IMAGES, **HEADS, **symbols, ra_kwargs=ra_kwargs, pool="cls"))


FAMILIES = {
    **{f"language {kind}": (lambda kind=kind: language.lm(kind)) for kind in language.KINDS},
    "language rca": lambda: language.lm("symbolic_attention", ra_type="rca"),
    "language disrca": lambda: language.lm("symbolic_attention", ra_type="disrca"),
    "language grouped": lambda: language.lm("symbolic_attention", ra_kwargs={"n_kv_heads": 1, "n_relations": 3}),
    "language softmax": lambda: language.lm("symbolic_attention", ra_kwargs={"rel_activation": "softmax"}),
    "language distances": lambda: language.lm("symbolic_attention", ra_kwargs={"rel_score": "squared_distance"}),
    "language added": lambda: language.lm("symbolic_attention", sa_kwargs={"out_dim": 16}, ra_kwargs={"out_dim": 16}),
    "encoder": encoder,
    "encoder transformer": lambda: encoder(dual=False),
    "vision": vision,
    "vision transformer": lambda: vision(dual=False),
    "seq2seq": lambda: seq2seq.build("symbolic_attention"),
    "seq2seq transformer": seq2seq.build,
}

WITH_PARTS = {
    "language own relation": lambda: with_parts(language.lm("symbolic_attention"), relation=Euclidean).eval(),
    "language own heads": lambda: with_parts(language.lm("transformer"), heads=Euclidean).eval(),
}


def call(name, model):
    """Call of a model of that family, with new inputs, as a function without arguments."""
    if name.startswith("vision"):
        images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
        return lambda: model(images)
    if name.startswith("seq2seq"):
        source, target = seq2seq.words()
        mask = torch.ones(source.shape, dtype=torch.bool)
        mask[0, -3:] = False
        return lambda: model(source, target, target, source_padding_mask=mask)[0]
    tokens = language.tokens(3, 9)
    mask = torch.ones(tokens.shape, dtype=torch.bool)
    mask[0, :3] = False
    if name.startswith("encoder"):
        return lambda: model(tokens, padding_mask=mask)
    return lambda: model(tokens, padding_mask=mask).logits


TAPS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooks(model):
    return sum(len(getattr(module, name)) for module in model.modules() for name in TAPS)
