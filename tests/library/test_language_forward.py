"""Language models: what they compute, whatever way the tokens are given."""

import pytest
import torch
from torch import nn

from tests.support.combinations import each_once
from tests.support.language import (
    CONTEXT,
    KINDS,
    POSITIONS,
    VOCAB,
    assert_causal,
    build,
    close,
    lm,
    tokens,
    with_attention,
)
from tests.support.refusals import refused

pytestmark = pytest.mark.sweep(4)

# ---- forward


def test_forward_returns_logits_and_loss_as_published():
    model, x, targets = lm("symbolic_attention"), tokens(2, 7), tokens(2, 7)
    targets[0, :3] = -1
    logits, loss = model(x)
    assert logits.shape == (2, 7, VOCAB) and loss is None
    again, loss = model(x, targets)
    close(again, logits)
    wanted = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    close(loss, wanted)


def test_less_than_all_logits():
    model, x, targets = lm("transformer"), tokens(2, 7), tokens(2, 7)
    logits, loss = model(x, targets)
    last, same = model(x, targets, all_logits=False)
    close(last, logits[:, -1:])
    close(same, loss)
    nothing, same = model(x, targets, loss_only=True)
    assert nothing is None
    close(same, loss)
    close(model.loss(x, targets), loss)
    close(model.layers.final_out(model.hidden(x)), logits)


@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
def test_the_loss_alone_has_the_same_gradients(kind):
    model, x, targets = lm(kind, output_bias=True), tokens(2, 7), tokens(2, 7)
    wanted = torch.autograd.grad(model(x, targets).loss, list(model.parameters()))
    found = torch.autograd.grad(model.loss(x, targets), list(model.parameters()))
    close(found, wanted)


def test_a_wrapped_output_layer_is_called():
    """An adapter around the output layer takes part in the loss, fused or not."""

    class Doubled(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.weight, self.bias = layer, layer.weight, layer.bias

        def forward(self, x):
            return 2 * self.layer(x)

    model, x = lm("transformer"), tokens(2, 5)
    before = model.loss(x, x)
    model.layers.final_out = Doubled(model.layers.final_out)
    after = model.loss(x, x)
    assert abs(after - before) > 1e-3
    close(after, model(x, x).loss)


def test_nothing_to_score():
    model, x = lm("transformer"), tokens(2, 4)
    nothing = torch.full((2, 4), -1)
    for options in ({}, {"loss_only": True}):
        loss = model(x, nothing, **options).loss
        assert loss.item() == 0.0
        assert not any(grad.any() for grad in torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("kind", KINDS)
def test_empty_input(kind):
    model = lm(kind, pos_enc_type="RoPE")
    assert model(tokens(0, 5)).logits.shape == (0, 5, VOCAB)
    logits, loss = model(tokens(2, 0), tokens(2, 0))
    assert logits.shape == (2, 0, VOCAB) and loss == 0
    assert model(tokens(2, 0), all_logits=False).logits.shape == (2, 0, VOCAB)


# ---- which tokens matter


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_no_token_sees_a_later_one(kind, pos_enc_type):
    assert_causal(lm(kind, pos_enc_type=pos_enc_type))


@pytest.mark.parametrize("kind", KINDS)
def test_a_window(kind):
    """With a window of two, two layers see two tokens back; `rel_sym_attn` has neighbours of its own."""
    model = lm(kind, pos_enc_type="RoPE", **with_attention(kind, window=2))
    assert_causal(model)
    x = tokens(2, 9)
    changed = x.clone()
    changed[:, 0] = (changed[:, 0] + 1) % VOCAB
    difference = (model(x).logits - model(changed).logits).abs().amax((0, 2))
    assert (difference[:3] > 1e-8).all() and (difference[8:] < 1e-12).all()


def pack(examples, batch=1):
    """Sequences end to end in one row, and their numbers."""
    x = torch.cat(examples)[None].expand(batch, -1)
    return x, torch.cat([torch.full((len(e),), i) for i, e in enumerate(examples)])[None]


def pad(examples, side, width):
    """Sequences in rows, and which tokens are real."""
    x = torch.full((len(examples), width), VOCAB - 1)
    real = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, example in enumerate(examples):
        place = slice(0, len(example)) if side == "right" else slice(width - len(example), width)
        x[row, place], real[row, place] = example, True
    return x, real


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
@pytest.mark.parametrize("shaw", [None, 2])
def test_padded_and_packed_are_as_one_by_one(kind, pos_enc_type, shaw):
    """Packed rows may be longer than the context."""
    model = lm(kind, pos_enc_type=pos_enc_type, **with_attention(kind, shaw_max_rel_pos=shaw))
    examples = [tokens(n) for n in (3, CONTEXT, 1)]
    alone = [model(example[None]).logits[0] for example in examples]
    for side in ("left", "right"):
        x, real = pad(examples, side, CONTEXT)
        logits = model(x, padding_mask=real).logits
        assert torch.isfinite(logits).all()
        close(logits[real], torch.cat(alone))
    assert torch.isfinite(model(x, padding_mask=torch.zeros_like(real)).logits).all()
    x, segments = pack(examples, batch=2)
    for rows in (segments, segments.expand(2, -1)):
        close(model(x, segments=rows).logits, torch.cat(alone).expand(2, -1, -1))
    x, real = pad([torch.cat(examples)], "left", CONTEXT + 7)
    rows = nn.functional.pad(segments, (3, 0))
    close(model(x, padding_mask=real, segments=rows).logits[real], torch.cat(alone))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_padded_and_packed_are_as_one_by_one(kind):
    model = lm(kind, pos_enc_type="RoPE")
    examples, targets = [tokens(n) for n in (3, 6)], [tokens(n) for n in (3, 6)]

    def gradients(loss):
        return torch.autograd.grad(loss, list(model.parameters()))

    # The mean over all tokens is the mean over examples, each weighed by its length.
    alone = [gradients(model.loss(x[None], y[None])) for x, y in zip(examples, targets, strict=True)]
    wanted = [(3 * a + 6 * b) / 9 for a, b in zip(*alone, strict=True)]
    x, real = pad(examples, "left", 8)
    y, _ = pad(targets, "left", 8)  # padding is not scored, whatever the target
    packed, segments = pack(examples)
    for found in (
        gradients(model.loss(x, y, padding_mask=real)),
        gradients(model(x, y, padding_mask=real).loss),
        gradients(model.loss(packed, pack(targets)[0], segments=segments)),
    ):
        close(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_positions_may_be_given(kind, pos_enc_type):
    model, x = lm(kind, pos_enc_type=pos_enc_type), tokens(2, 6)
    counted = torch.arange(6)[None]
    wanted = model(x).logits
    for positions in (counted, counted.expand(2, -1)):
        close(model(x, positions=positions).logits, wanted)
    for integers in (torch.uint8, torch.int16, torch.int32):
        close(model(x.to(integers), positions=counted.to(integers)).logits, wanted)
    if kind == "rel_sym_attn":
        return  # whose neighbourhoods are counted from the first token
    if pos_enc_type == "pos_emb" or kind == "positional_symbols":
        assert (model(x, positions=counted + 3).logits - wanted).abs().max() > 1e-3
    else:  # rotary positions are relative, but for the rounding of their tables to float32
        close(model(x, positions=counted + 3).logits, wanted, 1e-5)


LONG = {"x": tokens(1, CONTEXT + 5), "segments": torch.zeros(1, CONTEXT + 5, dtype=torch.long)}


test_positions_that_there_are_not = pytest.mark.parametrize("pos_enc_type", POSITIONS)(refused(
    *((kind, LONG, r"positions: expected 0 to 23 \(the context, max_block_size=24\), got 0 to 28") for kind in KINDS),
    ("rel_sym_attn", {"x": tokens(2, 6), "positions": torch.arange(6)[None] + 3}, "positions: expected 0 to 5"),
    by=lambda kind, arguments, *, pos_enc_type: lm(kind, pos_enc_type=pos_enc_type)(**arguments),
))  # fmt: skip


# ---- where values cannot be read


@pytest.mark.parametrize("options", each_once({"kind": KINDS, "pos_enc_type": POSITIONS}))
def test_no_value_is_read_off_the_cpu(options):
    """On a GPU, that would wait for it. The meta device has no values at all."""
    model = build(**options, device="meta")
    x = torch.empty(2, 6, dtype=torch.long, device="meta")
    real = torch.empty(2, 6, dtype=torch.bool, device="meta")
    for masks in ({}, {"padding_mask": real}, {"segments": x}, {"segments": x[:1], "padding_mask": real}):
        assert model(x, x, **masks).logits.shape == (2, 6, VOCAB)
        assert model.loss(x, x, **masks).shape == ()
    assert model(x, positions=x).logits.shape == (2, 6, VOCAB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "masked"),
    [("symbolic_attention", False), ("rel_sym_attn", True), ("position_relative", True), ("transformer", True)],
)
def test_compiles_as_one_graph(kind, masked):
    """With masks too; `rel_sym_attn` has symbolic attention in it, and symbols of positions are only looked up."""
    model = build(kind, pos_enc_type="RoPE", n_layers=1)
    x, targets = tokens(2, 12), tokens(2, 12)
    given = {}
    if masked:
        given["padding_mask"] = torch.arange(12) >= torch.tensor([[0], [4]])
        given["segments"] = (torch.arange(12) // 5)[None]
    torch._dynamo.reset()
    compiled = torch.compile(lambda: model(x, targets, all_logits=False, **given), fullgraph=True, backend="aot_eager")
    found, wanted = compiled(), model(x, targets, **given)
    close(found.logits, wanted.logits[:, -1:], 1e-5)
    close(found.loss, wanted.loss, 1e-5)
    close(*(torch.autograd.grad(output.loss, list(model.parameters())) for output in (found, wanted)), 1e-5)


@pytest.mark.slow
def test_gradient_checkpointing_compiles_as_one_graph():
    model = build("symbolic_attention", pos_enc_type="RoPE", n_layers=1)
    x = tokens(2, 12)
    wanted = torch.autograd.grad(model.loss(x, x), list(model.parameters()))
    model.gradient_checkpointing = True
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: model(x, x, loss_only=True).loss, fullgraph=True, backend="aot_eager")
    loss = compiled(x)
    close(torch.autograd.grad(loss, list(model.parameters())), wanted, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_exports(kind):
    model = build(kind, pos_enc_type="RoPE", n_layers=1).eval()
    x = tokens(2, 7)
    exported = torch.export.export(model, (x,)).module()
    close(exported(x)[0], model(x).logits, 1e-5)
