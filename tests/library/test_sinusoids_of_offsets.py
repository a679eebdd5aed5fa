"""Sinusoidal symbols of relative positions in layers, models and what is made of them: one closed form everywhere."""

import pytest
import torch

from dual_attention import PositionRelativeSymbolRetriever
from dual_attention.functional import RelativeSymbols, relational_attention, relational_cross_attention
from dual_attention.model_analysis.capture import capture
from tests.support import families, language
from tests.support.tensors import normal

pytestmark = pytest.mark.sweep(3)

SINUSOIDS = {"sinusoidal": True}


def lm(**more):
    return language.lm("position_relative", symbol_retrieval_kwargs=SINUSOIDS, pos_enc_type="none", **more).eval()


@pytest.mark.parametrize("impl", ["reference", "dense", "blockwise", "linear"])
@pytest.mark.parametrize("n, m", [(7, 7), (3, 9)])
def test_every_implementation_gives_the_symbols_of_all_pairs(impl, n, m):
    kind = torch.float32 if impl == "linear" else torch.float64
    q, k = normal(2, 2, n, 4, dtype=kind), normal(2, 2, m, 4, dtype=kind)
    u, w, w_r = normal(2, n, 3, 4, dtype=kind), normal(2, m, 3, 4, dtype=kind), normal(2, 4, 3, dtype=kind)
    symbols = PositionRelativeSymbolRetriever(8, sinusoidal=True)(
        normal(1, n, 1, dtype=kind), normal(1, m, 1, dtype=kind)
    )
    heads = symbols.with_library(symbols.library.unflatten(-1, (2, 4)))
    per_pair = RelativeSymbols(heads.dense().flatten(0, 1), torch.arange(n * m).view(n, m))
    how = {"scale": 0.5, "rel_scale": 0.5}
    found = relational_attention(q, k, u, w, heads, w_r, **how, impl=impl).output
    torch.testing.assert_close(found, relational_attention(q, k, u, w, per_pair, w_r, **how, impl="reference").output)


@pytest.mark.parametrize("ra_type", ["relational_attention", "rca", "disrca"])
@pytest.mark.parametrize("window", [None, 4])
def test_decoding_goes_on_at_any_length(ra_type, window):
    """No ``max_rel_pos``; with a window, clipping beyond it changes nothing."""
    how = {"ra_type": ra_type, "max_block_size": 40, **language.with_attention("dat", window=window)}
    model, x = lm(**how), language.tokens(2, 33)
    whole, cache = model(x).logits, model.new_cache()
    with torch.no_grad():
        parts = [model(chunk, cache=cache).logits for chunk in x.split([5, 1, 1, 17, 1, 8], dim=1)]
    language.close(torch.cat(parts, dim=1), whole)
    if window is not None:
        clipped = lm(**how)
        clipped.load_state_dict(model.state_dict())
        (retriever,) = (part for part in clipped.modules() if isinstance(part, PositionRelativeSymbolRetriever))
        retriever.max_rel_pos = window - 1
        language.close(clipped(x).logits, whole)


def test_a_model_has_no_weights_for_them_and_is_causal():
    model = lm()
    assert not [name for name in model.state_dict() if "symbol_retriever" in name]
    language.assert_causal(model)


@pytest.mark.parametrize("padded", [0, 3])
def test_left_padding_and_packing_move_nothing(padded):
    model, x = lm(), language.tokens(1, 8)
    mask = torch.arange(8 + padded)[None] >= padded
    found = model(torch.cat((language.tokens(1, padded), x), dim=1), padding_mask=mask).logits[:, padded:]
    language.close(found, model(x).logits)
    segments = torch.tensor([[0] * 3 + [1] * 5])
    language.close(model(x, segments=segments).logits[:, 3:], model(x[:, 3:]).logits)


@pytest.mark.parametrize("family", ["text", "pairs", "images"])
def test_other_models_take_them(family):
    model, inputs, _ = families.build(family, "position_relative", symbol_retrieval_kwargs=SINUSOIDS)
    assert not [name for name, _ in model.named_parameters() if "symbol_retriever" in name]
    out = model(*inputs)
    (out[0] if isinstance(out, tuple) else out).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for name, p in model.named_parameters() if ".wv." in name)


@pytest.mark.slow
def test_compiled_and_exported_with_open_lengths():
    model, x = lm(n_layers=1).float(), language.tokens(2, 9)
    wanted = model(x).logits
    torch.testing.assert_close(torch.compile(model, backend="eager", dynamic=True)(x).logits, wanted)
    length = torch.export.Dim("length", max=language.CONTEXT)
    program = torch.export.export(model, (language.tokens(2, 5),), dynamic_shapes={"x": {1: length}}, strict=False)
    torch.testing.assert_close(program.module()(x).logits, wanted)


def test_they_are_seen_where_symbols_are_looked_at():
    model, x = lm(), language.tokens(1, 6)
    with capture(model, ["symbols"]) as seen:
        model(x)
    assert seen


def test_relational_cross_attention_in_its_reference():
    q, k = normal(1, 2, 5, 4), normal(1, 2, 5, 4)
    symbols = PositionRelativeSymbolRetriever(8, sinusoidal=True)(normal(1, 5, 1))
    heads = symbols.with_library(symbols.library.unflatten(-1, (2, 4)))
    found, _ = relational_cross_attention(q, k, heads, scale=0.5)
    weights = torch.softmax(0.5 * q @ k.mT, dim=-1)
    wanted = torch.einsum("bhnm,nmhd->bhnd", weights, heads.dense())
    torch.testing.assert_close(found, wanted)
