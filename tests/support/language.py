"""Small language models for tests: float64, in evaluation mode, with parameters that matter."""

import torch

from dual_attention import DualAttnTransformerLM, TransformerLM
from tests.support.tensors import float64, moved

VOCAB, WIDTH, LAYERS, CONTEXT = 11, 16, 2, 24

COMMON = {
    "vocab_size": VOCAB,
    "d_model": WIDTH,
    "n_layers": LAYERS,
    "dff": 20,
    "dropout_rate": 0.0,
    "activation": "gelu",
    "norm_first": True,
    "max_block_size": CONTEXT,
}

SYMBOLS = {
    "symbolic_attention": {"d_model": WIDTH, "n_heads": 2, "n_symbols": 5},
    "rel_sym_attn": dict(
        d_model=WIDTH, rel_n_heads=2, symbolic_attn_n_heads=2, n_symbols=5, nbhd_delta=2, include_self=True
    ),
    "positional_symbols": {"symbol_dim": WIDTH, "max_length": CONTEXT},
    "position_relative": {"symbol_dim": WIDTH, "max_rel_pos": 3},
}

# Every symbol mechanism of the DAT, and the Transformer.
KINDS = (*SYMBOLS, "transformer")
DAT_KINDS = tuple(SYMBOLS)
POSITIONS = ("pos_emb", "RoPE", "none")


def build(kind, *, ra_kwargs=None, **more):
    """As the constructor leaves it: a DAT with that symbol mechanism, or a Transformer."""
    if kind == "transformer":
        return TransformerLM(**{**COMMON, "n_heads": 4, **more})
    if kind == "position_relative":
        ra_kwargs = {"use_relative_positional_symbols": True, **(ra_kwargs or {})}
    heads = {"n_heads_sa": 2, "n_heads_ra": 2}
    symbols = {"symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind]}
    return DualAttnTransformerLM(**{**COMMON, **heads, **symbols, "ra_kwargs": ra_kwargs, **more})


def lm(kind, **more):
    """The same in float64, all parameters drawn larger than they are initialised, so that nothing is near zero."""
    return float64(moved(build(kind, **more), 0.2))


def tokens(*shape):
    return torch.randint(VOCAB, shape)


def with_attention(kind, **attention):
    """Constructor arguments that reach the attention of every head."""
    if kind == "transformer":
        return {"block_kwargs": {"attn_kwargs": attention}}
    return {"sa_kwargs": attention, "ra_kwargs": attention}


def close(found, wanted, tolerance=1e-10):
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=0)


def assert_causal(model, length=9):
    x = tokens(3, length)
    changed = x.clone()
    changed[:, 5:] = (changed[:, 5:] + 1 + torch.randint(VOCAB - 1, (3, length - 5))) % VOCAB
    before, after = model(x).logits, model(changed).logits
    close(after[:, :5], before[:, :5], 1e-12)
    assert ((after[:, 5:] - before[:, 5:]).abs().amax(-1) > 1e-6).all()


def record(module, run):
    """The first arguments that a module is called with."""
    seen = []
    handle = module.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    run()
    handle.remove()
    return seen
