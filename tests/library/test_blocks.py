"""Encoder and decoder blocks of both architectures."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dual_attention.baselines import AbstractorBlock
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock, FeedForwardBlock, RMSNorm, create_norm
from tests.support.refusals import refused
from tests.support.tensors import assert_later_tokens_do_not_matter, float64, normal

COMMON = {"dff": 12, "activation": "gelu", "dropout_rate": 0.0}


def build(kind, **arguments):
    arguments = {"norm_first": True, **COMMON, **arguments}
    if kind == "encoder":
        return float64(EncoderBlock(8, 2, **arguments))
    if kind == "decoder":
        return float64(DecoderBlock(8, 2, 4, **arguments))
    if kind == "dual encoder":
        return float64(DualAttnEncoderBlock(8, 1, 1, **arguments))
    return float64(DualAttnDecoderBlock(8, 1, 1, 4, **arguments))


def inputs(kind, length=5, batch=2):
    extra = [normal(batch, 3, 8)] if "decoder" in kind else []
    return extra + ([normal(batch, length, 8)] if "dual" in kind else [])


KINDS = ["encoder", "decoder", "dual encoder", "dual decoder"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm_first", [True, False])
def test_residual_steps_in_the_order_of_the_norms(kind, norm_first):
    block, x, rest = build(kind, norm_first=norm_first, causal=False), normal(2, 5, 8), inputs(kind)
    if "dual" in kind:
        attend = lambda z: block.dual_attn(z, rest[-1]).output  # noqa: E731
    else:
        attend = lambda z: block.self_attn(z, z, z).output  # noqa: E731
    steps = [attend]
    if "decoder" in kind:
        steps.append(lambda z: block.cross_attn(z, rest[0], rest[0]).output)
    steps.append(block.ff_block)
    wanted = x
    for step, norm in zip(steps, (block.norm1, block.norm2, getattr(block, "norm3", None)), strict=False):
        wanted = wanted + step(norm(wanted)) if norm_first else norm(wanted + step(wanted))
    torch.testing.assert_close(block(x, *rest), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_causal_blocks(kind):
    block, rest = build(kind, causal=True), inputs(kind, length=6)
    assert_later_tokens_do_not_matter(lambda x: block(x, *rest), normal(2, 6, 8), at=3)


@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_returned_when_asked_for(kind):
    block, x, rest = build(kind), normal(2, 5, 8), inputs(kind)
    out, *maps = block(x, *rest, need_weights=True)
    torch.testing.assert_close(out, block(x, *rest))
    if "dual" in kind:
        assert maps[0].sa_weights.shape == (2, 1, 5, 5) and maps[0].ra_maps[1].shape == (2, 5, 5, 1)
    else:
        assert maps[0].shape == (2, 2, 5, 5)
    assert [m.shape for m in maps[1:]] == ([(2, 4, 5, 3)] if "decoder" in kind else [])


def test_cross_attention_has_its_own_number_of_heads():
    """The published decoder block of the Transformer gives its cross-attention the heads of its self-attention."""
    block = DecoderBlock(8, 2, 4, norm_first=True, **COMMON)
    assert (block.self_attn.n_heads, block.cross_attn.n_heads) == (2, 4)


@pytest.mark.parametrize("cls", ["encoder", "dual encoder"])
def test_extra_dropout_of_post_norm_is_an_option(cls):
    x = normal(1, 200, 8)
    arguments = {"norm_first": False, "dropout_rate": 0.5, "norm_type": "none", "dff": 1}
    rest = inputs(cls, length=200, batch=1)
    for extra in (True, False):
        block = build(cls, **{**COMMON, **arguments}, post_norm_dropout=extra).train()
        nn.init.zeros_(block.ff_block.linear2.weight)
        nn.init.zeros_(block.ff_block.linear2.bias)
        zeros = (block(x, *rest) == 0).double().mean()
        assert zeros > 0.4 if extra else zeros == 0


@pytest.mark.parametrize("cls", ["decoder", "dual decoder"])
def test_dropout_after_the_decoders_feed_forward_block_is_an_option(cls):
    x, rest = normal(1, 5, 8), inputs(cls, batch=1)
    for wanted in (True, False):
        block = build(cls, dropout_rate=0.5, ff_dropout=wanted).train()
        calls = []
        block.dropout.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        block(x, *rest)
        assert len(calls) == (3 if wanted else 2)


def test_swiglu_by_hand():
    block = FeedForwardBlock(6, 4, "swiglu", use_bias=True)
    x = torch.randn(2, 3, 6)
    wanted = block.linear2(F.silu(block.linear1(x)) * block.linear3(x))
    torch.testing.assert_close(block(x), wanted)


@pytest.mark.parametrize("activation, dff", [("relu", 24), ("swiglu", 16)])
def test_default_width_of_the_feed_forward_block(activation, dff):
    assert FeedForwardBlock(6, None, activation).linear1.out_features == dff


def test_rms_norm_is_torchs():
    x, ours, theirs = normal(3, 6), float64(RMSNorm(6)), nn.RMSNorm(6, eps=1e-5).double()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))


def test_rms_norm_of_half_precision_does_not_overflow():
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # its square is beyond float16
    torch.testing.assert_close(RMSNorm(4).half()(x), torch.ones(1, 4, dtype=torch.float16))


def test_norms_by_name():
    assert isinstance(create_norm(4, "layernorm"), nn.LayerNorm)
    assert isinstance(create_norm(4, "none"), nn.Identity)


test_bad_input = refused(
    (lambda: create_norm(4, "batchnorm"), r"norm_type: .*'batchnorm'"),
    (lambda: EncoderBlock(8, 2, 8, 1.0, "relu", True), r"dropout_rate: .*got 1.0"),
)


@pytest.mark.parametrize("cls", [EncoderBlock, DecoderBlock, DualAttnEncoderBlock, DualAttnDecoderBlock])
def test_a_block_needs_only_its_width_and_its_heads(cls):
    heads = {"EncoderBlock": (2,), "DecoderBlock": (2, 2), "DualAttnEncoderBlock": (1, 1)}.get(cls.__name__, (1, 1, 2))
    torch.manual_seed(0)
    block = cls(8, *heads).eval()
    torch.manual_seed(0)
    told = cls(8, *heads, dff=32, dropout_rate=0.0, activation="gelu", norm_first=True).eval()
    assert repr(block) == repr(told)
    given = [torch.randn(2, 5, 8)] * (1 + ("Decoder" in cls.__name__) + ("Dual" in cls.__name__))
    assert torch.equal(block(*given), told(*given))


def test_so_do_the_blocks_of_an_abstractor_and_norms():
    x = torch.randn(2, 5, 8)
    assert AbstractorBlock(8, 2)(x, x).shape == x.shape
    assert create_norm(8).normalized_shape == (8,)


def test_only_relational_heads_need_symbols():
    x = normal(2, 5, 8)
    for kind, given in (("dual encoder", (x,)), ("dual decoder", (x, normal(2, 3, 8)))):
        with pytest.raises(TypeError, match="symbols: expected a tensor or RelativeSymbols for the relational heads"):
            build(kind)(*given)
    block = float64(DualAttnEncoderBlock(8, 2, 0))
    torch.testing.assert_close(block(x), block(x, normal(2, 5, 8)))
    assert float64(DualAttnDecoderBlock(8, 2, 0, 4))(x, normal(2, 3, 8)).shape == x.shape
