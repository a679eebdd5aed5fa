"""A pattern that is built once says the same to every layer as the masks that it is made of."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.functional import MaskPattern, attention, mask_pattern
from dual_attention.relational_attention import (
    RelationalAttention,
)
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock
from tests.library._layers.test_heads import RELATIONAL, build
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

B, N, WIDTH = 2, 5, 8
SEEDS = st.integers(0, 9)
BLOCK = {"dff": 6, "activation": "gelu", "dropout_rate": 0.0, "norm_first": True}


@pytest.mark.parametrize("kind", ["sensory", *RELATIONAL, "dual"])
@settings(max_examples=8)
@given(
    drawn=st.lists(st.booleans(), min_size=5, max_size=5), window=st.sampled_from([None, 1, 3]), seed=st.integers(0, 9)
)
def test_a_pattern_is_the_masks_that_it_is_made_of(kind, drawn, window, seed):
    torch.manual_seed(seed)
    masked, padded, packed, causal, in_part = drawn
    _, run = build(kind, window=window)
    x = normal(B, N, WIDTH)
    masks = {
        "attn_mask": torch.rand(B, 1, N, N) < 0.7 if masked else None,
        "padding_mask": torch.rand(B, N) < 0.7 if padded else None,
        "segments": torch.tensor([[0, 0, 1, 1, 1]]) if packed else None,
        "is_causal": causal,
    }
    wanted = run(x, **masks)
    sizes = {"batch": B, "heads": 2, "n": N, "m": N}
    if in_part:  # a pattern of some, narrowed by the others at the call
        pattern = mask_pattern(masks.pop("attn_mask"), is_causal=masks["is_causal"], **sizes)
        found = run(x, attn_mask=pattern, **masks)
    else:
        found = run(x, attn_mask=mask_pattern(**masks, **sizes))
    assert torch.equal(found, wanted)


def test_blocks_take_patterns_of_both_their_inputs():
    x, context = normal(B, N, WIDTH), normal(B, 3, WIDTH)
    real, real_context = torch.rand(B, N) < 0.7, torch.tensor([[True, True, False], [False, True, True]])
    own, cross = MaskPattern(N, N, padding=real), MaskPattern(N, 3, padding=real_context)
    plain = {"padding_mask": real, "context_padding_mask": real_context}
    patterns = {"attn_mask": own, "context_mask": cross}
    encoder = float64(EncoderBlock(WIDTH, 2, **BLOCK, causal=True))
    assert torch.equal(encoder(x, attn_mask=own), encoder(x, padding_mask=real))
    encoder = float64(DualAttnEncoderBlock(WIDTH, 1, 1, **BLOCK))
    assert torch.equal(encoder(x, x, attn_mask=own), encoder(x, x, padding_mask=real))
    decoder = float64(DecoderBlock(WIDTH, 2, 2, **BLOCK))
    assert torch.equal(decoder(x, context, **patterns), decoder(x, context, **plain))
    decoder = float64(DualAttnDecoderBlock(WIDTH, 1, 1, 2, **BLOCK))
    assert torch.equal(decoder(x, context, x, **patterns), decoder(x, context, x, **plain))
    some = torch.rand(N, 3) < 0.6
    with_mask = decoder(x, context, x, context_mask=some, context_padding_mask=real_context)
    cross = mask_pattern(some, real_context, batch=B, heads=2, n=N, m=3)
    assert torch.equal(with_mask, decoder(x, context, x, context_mask=cross))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("chunks", [(1,) * 7, (3, 1, 3), (6, 1)])
def test_kinds_of_head_with_other_windows_continue_from_one_pattern(chunks, ordered):
    """Their caches hold different numbers of earlier senders; a pattern without order is given one by the call."""
    layer = float64(DualAttention(WIDTH, 2, 2, sa_kwargs={"window": 4}, ra_kwargs={"window": 2}))
    x, length = normal(B, 7, WIDTH), 7
    real = torch.tensor([[False, False, True, True, True, True, True], [True] * 7])
    wanted = layer(x, x, is_causal=True, padding_mask=real).output
    outputs, cache, seen = [], layer.new_cache(), 0
    with torch.no_grad():
        for n in chunks:
            order = {"causal": True, "offset": seen} if ordered else {}
            pattern = MaskPattern(n, seen + n, padding=real[:, : seen + n], **order)
            new = x[:, seen : seen + n]
            outputs.append(layer(new, new, pattern, is_causal=not ordered, cache=cache).output)
            seen += n
    assert seen == length and cache["self_attention"].held == 3 and cache["relational_attention"].held == 1
    torch.testing.assert_close(torch.cat(outputs, dim=1), wanted, atol=1e-12, rtol=0)


def test_what_is_built_of_a_pattern_is_built_once():
    pattern = MaskPattern(N, N, padding=torch.ones(B, N, dtype=torch.bool))
    narrow = pattern.narrow(causal=True, window=3)
    assert pattern.narrow() is pattern and narrow.narrow(causal=True, window=4) is narrow
    assert pattern.narrow(causal=True, window=3) is narrow
    assert narrow.dense("cpu") is narrow.dense("cpu")
    assert narrow.last_senders(2) is narrow.last_senders(2)
    assert mask_pattern(narrow, is_causal=True, window=3, batch=B, heads=1, n=N, m=N) is narrow


@pytest.mark.parametrize("first", ["fake", "real"])
def test_a_pattern_serves_fake_tensors_and_real_ones(first):
    pattern, q = MaskPattern(4, 4, causal=True, window=2), torch.randn(1, 2, 4, 4)

    def run(kind):
        with FakeTensorMode(allow_non_fake_inputs=False) if kind == "fake" else nullcontext():
            x = torch.ones(1, 2, 4, 4) if kind == "fake" else q
            return [attention(x, x, x, scale=0.5, mask=pattern, need_weights=need)[0] for need in (False, True)]

    results = {kind: run(kind) for kind in (first, *{"fake", "real"} - {first}, first)}
    assert all(isinstance(x, FakeTensor) for x in results["fake"])
    torch.testing.assert_close(*results["real"])


def test_a_mask_built_in_inference_mode_serves_training():
    pattern = MaskPattern(N, N, padding=torch.ones(B, N, dtype=torch.bool), causal=True)
    layer, x = RelationalAttention(WIDTH, 2).double(), normal(B, N, WIDTH)
    with torch.inference_mode():
        layer(x, x, attn_mask=pattern)
    layer(x, x, attn_mask=pattern).output.sum().backward()
    assert layer.wr.grad is not None and layer.wr.grad.isfinite().all()


SEGMENTS = torch.zeros(1, N, dtype=torch.long)


test_patterns_that_do_not_fit = refused(
    (lambda layer, x: layer(x, x, attn_mask=MaskPattern(N, N + 1)),
     r"attn_mask: expected a pattern of .*\(5, 5\), got one of \(5, 6\)"),
    (lambda layer, x: layer(x, x, attn_mask=MaskPattern(N, N, causal=True, offset=1), is_causal=True),
     "attn_mask: .* offset=0, .* offset=1"),
    (lambda layer, x: layer(x, x, attn_mask=MaskPattern(N, N, None, None, SEGMENTS, SEGMENTS), segments=SEGMENTS),
     "segments: the pattern given as attn_mask has segments already"),
    (lambda layer, x: layer(x, x, attn_mask=MaskPattern(N, N, padding=torch.ones(3, N, dtype=torch.bool))),
     "padding_mask: expected shape"),
    (lambda layer, x: layer(x, x, MaskPattern(N, N), cache=layer.new_cache()), "cache: needs is_causal=True"),
    (lambda layer, x: layer(x, x, MaskPattern(N, N, None, None, *[SEGMENTS] * 2, causal=True), cache=layer.new_cache()),
     "segments: .* cannot be continued"),
    by=lambda call: call(float64(DualAttention(WIDTH, 2, 2)), normal(B, N, WIDTH)),
)  # fmt: skip
