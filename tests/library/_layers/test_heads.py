"""Laws of every kind of heads: order, padding, packing, windows and dropout."""

from functools import partial

import pytest
import torch

from dual_attention.attention import Attention
from dual_attention.dual_attention import DualAttention
from dual_attention.functional import padding_mask, segments_from_cu_seqlens
from dual_attention.positional_encoding import RotaryPositionalEncoding
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.symbol_retrieval import PositionRelativeSymbolRetriever
from tests.support.tensors import assert_later_tokens_do_not_matter, float64, normal

RELATIONAL = {
    "relational": RelationalAttention,
    "rca": RelationalCrossAttention,
    "disrca": DisentangledRelationalCrossAttention,
}
SENSORY = {
    "sensory": {},
    "Shaw": {"shaw_max_rel_pos": 2},
    "Shaw's values": {"shaw_max_rel_pos": 2, "shaw_values": True},
    "gated": {"output_gate": "sigmoid"},
}
RELATIVE = [f"relative {name}" for name in RELATIONAL]
KINDS = [*SENSORY, *RELATIONAL, *RELATIVE]


def build(kind: str, **options):
    """A layer, and its output as a function of its objects, of which symbols are functions, too."""
    options = {"n_kv_heads": 1, **options}
    if kind == "dual":
        layer = float64(DualAttention(8, 2, 2, sa_kwargs=options, ra_kwargs=options))
        return layer, lambda x, **masks: layer(x, 0.5 * x, **masks).output
    if kind in SENSORY:
        layer = float64(Attention(8, 2, **SENSORY[kind], **options))
        return layer, lambda x, **masks: layer(x, x, x, **masks).output
    relative = kind.startswith("relative")
    layer = RELATIONAL[kind.removeprefix("relative ")](8, 2, use_relative_positional_symbols=relative, **options)
    symbols = float64(PositionRelativeSymbolRetriever(8, 2)) if relative else partial(torch.mul, 0.5)
    return float64(layer), lambda x, **masks: layer(x, symbols(x), **masks).output


@pytest.mark.parametrize("rope", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "dual"])
def test_no_receiver_sees_a_later_sender(kind, rope):
    _, run = build(kind)
    tables = dict(
        zip(("freqs_cos", "freqs_sin"), RotaryPositionalEncoding(2 if kind == "dual" else 4, 6).tables(6), strict=True)
    )
    how = {"is_causal": True, **(tables if rope else {})}
    assert_later_tokens_do_not_matter(lambda x: run(x, **how), normal(2, 6, 8), at=3)


@pytest.mark.parametrize("kind", [*KINDS, "dual"])
def test_padded_is_one_by_one(kind):
    _, run = build(kind, add_bias_kv=True)
    x, lengths = normal(3, 5, 8), torch.tensor([2, 5, 1])
    out = run(x, padding_mask=padding_mask(lengths))
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(out[row : row + 1, :length], run(x[row : row + 1, :length]))


@pytest.mark.parametrize("kind", [*KINDS, "dual"])
def test_packed_is_one_by_one(kind):
    (_, run), x = build(kind), normal(1, 7, 8)
    packed = run(x, is_causal=True, segments=segments_from_cu_seqlens(torch.tensor([0, 2, 3, 7])))
    alone = [run(part, is_causal=True) for part in x.split([2, 1, 4], dim=1)]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1))


@pytest.mark.parametrize("kind", [*SENSORY, *RELATIONAL, "dual"])
def test_a_window_is_a_mask(kind):
    (windowed, run), (full, run_full), x = build(kind, window=3), build(kind), normal(1, 9, 8)
    full.load_state_dict(windowed.state_dict())
    places = torch.arange(9)
    torch.testing.assert_close(run(x), run_full(x, attn_mask=(places[:, None] - places).abs() < 3))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_acts_in_training_alone_and_on_the_output_as_an_option(kind):
    x = normal(2, 40, 8)
    (layer, run), (weights_alone, run_without) = build(kind, dropout=0.9), build(kind, dropout=0.9, out_dropout=0.0)
    assert torch.equal(run(x), run(x))
    layer.train(), weights_alone.train()
    assert (run(x) == 0).double().mean() > 0.8  # with it, nine in ten are zero
    assert (run_without(x) != 0).double().mean() > 0.5
    assert not torch.equal(run_without(x), run_without(x))


@pytest.mark.parametrize("kind", [Attention, *RELATIONAL.values()])
def test_dropout_of_the_output_is_called_in_evaluation_where_it_does_something(kind):
    layer, x = kind(16, 2, dropout=0.5).eval(), torch.randn(2, 5, 16)
    call = partial(layer, *[x] * (3 if kind is Attention else 2))
    plain, seen = call().output, []
    layer.resid_dropout.train()  # as for samples of a trained model's answers
    assert (call().output == 0).any() and not (plain == 0).any()
    layer.resid_dropout.eval()
    handle = layer.resid_dropout.register_forward_hook(lambda module, args, output: seen.append(output))
    assert torch.equal(call().output, plain) and torch.equal(seen[0], plain)
    handle.remove()
    layer.resid_dropout = torch.nn.Flatten(0, 1).eval()
    assert torch.equal(call().output, plain.flatten(0, 1))
