"""Abstractors: their steps, what passes the relational bottleneck, masks."""

import pytest
import torch
from torch import nn

from dual_attention.baselines import Abstractor, AbstractorBlock, ObjectStreamAbstractorBlock
from dual_attention.functional import padding_mask
from tests.support.refusals import refused
from tests.support.tensors import assert_later_tokens_do_not_matter, float64, normal

SYMBOLS = {
    "positional_symbols": {"symbol_dim": 8, "max_length": 6},
    "symbolic_attention": {"d_model": 8, "n_heads": 2, "n_symbols": 3},
    "rel_sym_attn": {"d_model": 8, "rel_n_heads": 2, "symbolic_attn_n_heads": 2, "n_symbols": 3, "nbhd_delta": 2},
}
FORMS = {"symbols": AbstractorBlock, "objects": ObjectStreamAbstractorBlock}


def block(residual="symbols", **arguments):
    arguments = {"dff": 12, "dropout_rate": 0.0, "activation": "relu", "norm_first": True, **arguments}
    return float64(FORMS[residual](8, 2, **arguments))


def abstractor(symbols="positional_symbols", **arguments):
    block = {"dff": 12, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
    arguments = {"n_layers": 2, "n_heads": 2, **block, **arguments}
    return float64(Abstractor(8, symbol_retrieval=symbols, symbol_retrieval_kwargs=SYMBOLS[symbols], **arguments))


def test_symbols_of_later_neighbours_do_not_go_with_padding():
    """They would tell of what is no object."""
    kwargs = {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}
    model = float64(Abstractor(8, 1, 2, 12, 0.0, "relu", True, "rel_sym_attn", kwargs))
    x = normal(2, 5, 8)
    assert model(x).shape == x.shape
    with pytest.raises(ValueError, match="need causal_nbhd=True"):
        model(x, padding_mask=padding_mask(torch.tensor([5, 3])))


@pytest.mark.parametrize("symbol_self_attn", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_steps_on_the_stream_of_symbols(norm_first, symbol_self_attn):
    layer, x, s = block(norm_first=norm_first, symbol_self_attn=symbol_self_attn), normal(2, 5, 8), normal(2, 5, 8)
    steps = [(lambda z: layer.rel_attn(layer.norm_objects(x), z).output, layer.norm2), (layer.ff_block, layer.norm3)]
    if symbol_self_attn:
        steps.insert(0, (lambda z: layer.self_attn(z, z, z).output, layer.norm1))
    wanted = s
    for step, norm in steps:
        wanted = wanted + step(norm(wanted)) if norm_first else norm(wanted + step(wanted))
    torch.testing.assert_close(layer(x, s), wanted)
    assert isinstance(layer.norm_objects, nn.LayerNorm) == norm_first


@pytest.mark.parametrize("norm_first", [True, False])
def test_steps_of_the_form_that_was_run(norm_first):
    layer, x, s = block("objects", norm_first=norm_first), normal(2, 5, 8), normal(2, 5, 8)
    one, two = layer.norm1, layer.norm2
    if norm_first:
        z = one(s)
        s_ = s + layer.self_attn(z, z, z).output
        y = x + layer.rel_attn(one(x), s_).output
        wanted = y + layer.ff_block(two(y))
    else:
        s_ = one(s + layer.self_attn(s, s, s).output)
        y = one(x + layer.rel_attn(x, s_).output)
        wanted = two(y + layer.ff_block(y))
    torch.testing.assert_close(layer(x, s), wanted)


@pytest.mark.parametrize("symbols", ["positional_symbols", "symbolic_attention"])
def test_all_layers_see_the_same_objects(symbols):
    model, x = abstractor(symbols, n_layers=3), normal(2, 5, 8)
    a = model.symbol_retriever(x)
    for layer in model.blocks:
        a = layer(x, a)
    torch.testing.assert_close(model(x), a)


@pytest.mark.parametrize("residual", FORMS)
def test_only_relations_pass_the_bottleneck(residual):
    """When all objects compare alike, an Abstractor with positional symbols cannot tell one sequence from another."""
    model = abstractor(residual=residual)
    with torch.no_grad():
        for layer in model.blocks:
            layer.rel_attn.wq.weight.zero_()
    same = torch.allclose(model(normal(2, 5, 8)), model(normal(2, 5, 8)))
    assert same == (residual == "symbols")


@pytest.mark.parametrize("residual", FORMS)
def test_without_positions_the_order_of_objects_does_not_matter(residual):
    model, x = abstractor("symbolic_attention", residual=residual), normal(2, 5, 8)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(model(x[:, order]), model(x)[:, order])


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("residual", FORMS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_is_one_by_one(symbols, residual, side):
    model, x, lengths = abstractor(symbols, residual=residual), normal(3, 5, 8), torch.tensor([2, 5, 1])
    mask = padding_mask(lengths, 5) if side == "right" else padding_mask(lengths, 5).flip(1)
    out = model(x, padding_mask=mask)
    for row in range(3):
        alone = model(x[row : row + 1, mask[row]])
        torch.testing.assert_close(out[row : row + 1, mask[row]], alone)


def test_nothing_to_attend_is_finite_forwards_and_backwards():
    model, x = abstractor(), normal(2, 4, 8).requires_grad_()
    out = model(x, padding_mask=torch.zeros(2, 4, dtype=torch.bool))
    out.sum().backward()
    assert out.isfinite().all() and x.grad.isfinite().all()


@pytest.mark.parametrize("residual", FORMS)
def test_a_causal_mask(residual):
    # Post-norm: the change is the same in every feature, which a normalisation of the objects would undo.
    model, causal = abstractor(residual=residual, norm_first=False), torch.ones(6, 6, dtype=torch.bool).tril()
    assert_later_tokens_do_not_matter(lambda x: model(x, attn_mask=causal), normal(2, 6, 8), at=3)


@pytest.mark.parametrize("symbols", SYMBOLS)
def test_packed_is_one_by_one(symbols):
    model, x = abstractor(symbols), normal(1, 5, 8)
    packed = model(x, segments=torch.tensor([[0, 0, 1, 1, 1]]))
    torch.testing.assert_close(packed, torch.cat((model(x[:, :2]), model(x[:, 2:])), dim=1))


def test_maps_are_returned_when_asked_for():
    model, x = abstractor(), normal(2, 5, 8)
    mask = padding_mask(torch.tensor([5, 3]))
    out, maps = model(x, True, padding_mask=mask)
    torch.testing.assert_close(out, model(x, padding_mask=mask))
    assert len(maps) == 2
    for of_layer in maps:
        assert of_layer.relations.shape == of_layer.symbol_weights.shape == (2, 2, 5, 5)
        assert (of_layer.relations[1, :, :, 3:] == 0).all()
        torch.testing.assert_close(of_layer.relations.sum(-1), torch.ones(2, 2, 5).double())
    assert abstractor(symbol_self_attn=False)(x, True)[1][0].symbol_weights is None


def test_dtypes_can_be_changed():
    """`nn.Module` has methods of its own by which it does so."""
    model = abstractor().to(torch.bfloat16)
    assert model(normal(2, 5, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_sinusoidal_symbols_and_other_norms():
    arguments = {"symbol_retrieval": "positional_symbols", "norm_type": "rmsnorm"}
    kwargs = {"symbol_dim": 8, "max_length": 6, "sinusoidal": True}
    model = Abstractor(8, 1, 2, None, 0.1, "gelu", True, symbol_retrieval_kwargs=kwargs, **arguments)
    assert model(torch.randn(2, 6, 8)).shape == (2, 6, 8)
    assert not any("symbol" in name for name, _ in model.named_parameters())


test_bad_input = refused(
    (lambda: abstractor(residual="none"), "residual: expected 'symbols' or 'objects', got 'none'"),
    (lambda: abstractor(n_layers=0), "n_layers: expected a positive number, got 0"),
    (lambda: abstractor(rel_activation="step"), "activation: .*'step'"),
    (lambda: Abstractor(8, 1, 2, 8, 0.0, "relu", True, "position_relative", {}),
     "symbol_retrieval: expected 'positional_symbols', 'symbolic_attention' or 'rel_sym_attn', got"),
    (lambda: abstractor()(normal(2, 5, 7)), r"x: expected shape \(batch, length, 8\), got \(2, 5, 7\)"),
    (lambda: abstractor()(normal(2, 5, 8), padding_mask=torch.ones(2, 5)), TypeError, "padding_mask: .*boolean"),
    (lambda: block()(normal(2, 5, 8), normal(1, 5, 8)), r"symbols: expected shape \(2, length, 8\)"),
    (lambda: block()(normal(2, 5, 8), normal(2, 4, 8)), "symbols: expected one for each of 5 objects"),
)  # fmt: skip
