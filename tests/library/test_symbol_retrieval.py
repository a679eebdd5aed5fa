import math

import pytest
import torch

from dual_attention import RelationalAttention
from dual_attention.functional import positions_from_segments, segments_from_lengths, symbol_assignment
from dual_attention.functional.relational import tiles as relational_tiles
from dual_attention.part_trials import LargestTensor
from dual_attention.positional_encoding import SinusoidalPositionalEncoding, sinusoidal_table
from dual_attention.symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


@pytest.mark.parametrize("scale", [None, 0.3])
def test_symbolic_attention_by_hand(scale):
    layer = float64(SymbolicAttention(8, 2, 5, scale=scale))
    x = normal(3, 4, 8)
    q = layer.q_proj(x).unflatten(-1, (2, 4))
    templates, library = (t.unflatten(-1, (2, 4)) for t in (layer.template_features, layer.symbol_library))
    scores = torch.einsum("bnhd,khd->bhnk", q, templates) * (0.5 if scale is None else scale)
    weights = torch.softmax(scores, dim=-1)
    torch.testing.assert_close(layer(x), torch.einsum("bhnk,khd->bnhd", weights, library).flatten(2))
    torch.testing.assert_close(layer.weights(x), weights)


def test_a_library_spread_over_examples_gives_the_same(monkeypatch):
    """As on a GPU, where gradients of one example that holds all objects would leave multiprocessors idle."""
    layer, x = float64(SymbolicAttention(8, 2, 5)), normal(3, 4, 8).requires_grad_()

    def results():
        symbols = layer(x)
        return symbols, *torch.autograd.grad(symbols.sin().sum(), (x, *layer.parameters()))

    expected = results()
    monkeypatch.setattr("dual_attention.symbol_retrieval.spreads_over_examples", lambda x: True)
    torch.testing.assert_close(results(), expected)


@pytest.mark.parametrize("rows", [1, 3, 12])
def test_symbolic_attention_in_blocks(rows, monkeypatch):
    """Symbols and every gradient, first and second, are those of fused attention, and no tensor has all weights."""
    layer, x = float64(SymbolicAttention(8, 2, 50, scale=0.3)), normal(3, 4, 8).requires_grad_()
    inputs = (x, *layer.parameters())

    def results():
        symbols = layer(x)
        first = torch.autograd.grad(symbols.square().sum(), inputs, create_graph=True)
        return symbols, *first, *torch.autograd.grad(first[0].square().sum(), inputs)

    expected = results()
    monkeypatch.setattr(symbol_assignment, "suits_blocks", lambda *_: True)
    monkeypatch.setattr(symbol_assignment, "SMALLEST_BLOCK", rows)
    monkeypatch.setattr(symbol_assignment, "WEIGHTS_OF_BLOCK", 0)
    torch.testing.assert_close(results(), expected)
    with LargestTensor() as seen:
        layer(x).sum().backward()
    assert seen.numel == max(rows * 2 * 50, 50 * 8)


@pytest.mark.parametrize("by_role", [False, True])
@pytest.mark.parametrize(("rows", "captured"), [(None, False), (None, True), (3, False), (12, False)])
def test_each_object_drops_other_weights_and_the_same_in_both_passes(rows, captured, by_role, monkeypatch):
    """Equal objects draw different symbols, linear in the library as long as the backward pass drops the same.

    In evaluation mode, in which the published package's module is random, they have the same.
    """
    monkeypatch.setattr(symbol_assignment, "suits_blocks", lambda *_: rows is not None)
    monkeypatch.setattr(symbol_assignment, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(symbol_assignment, "WEIGHTS_OF_BLOCK", (rows or 1) * 2 * 50)
    kind, sizes = (RelationalSymbolicAttention, (8, 2, 2, 50, 2)) if by_role else (SymbolicAttention, (8, 2, 50))
    layer, x, g = float64(kind(*sizes, dropout=0.5)).train(), normal(1, 1, 8).expand(3, 4, 8), normal(3, 4, 8)
    features = layer.symbolic_attention if by_role else layer
    if captured:
        features.taps.assignment.register_forward_hook(lambda *_: None)
    symbols = layer(x)
    symbols.backward(g)
    torch.testing.assert_close((features.symbol_library.grad * features.symbol_library).sum(), (symbols * g).sum())
    assert torch.pdist(torch.cat([symbols, layer(x)]).flatten(0, 1)).min() > 0.01
    still = layer.eval()(x)
    torch.testing.assert_close(still, still[:1, :1].expand_as(still))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize(("products", "tiles"), [(False, False), (True, False), (True, True)])
def test_blocks_are_for_bfloat16_without_matrix_units(dtype, width, products, tiles, monkeypatch):
    monkeypatch.setattr(relational_tiles, "_HAS_BFLOAT16", products)
    monkeypatch.setattr(relational_tiles, "_HAS_TILES", tiles)
    monkeypatch.setattr(symbol_assignment, "SMALLEST_BLOCK", 3)
    monkeypatch.setattr(symbol_assignment, "FEWEST_WEIGHTS", 2 * 12 * 5)
    monkeypatch.setattr(symbol_assignment, "WEIGHTS_OF_BLOCK", 0)
    taken = []
    in_blocks = symbol_assignment.attend_in_blocks
    monkeypatch.setattr(symbol_assignment, "attend_in_blocks", lambda *given: (taken.append(1), in_blocks(*given))[1])
    layer, x = SymbolicAttention(2 * width, 2, 5).to(dtype), normal(3, 4, 2 * width).to(dtype)
    symbols = layer(x)
    layer(x[:2])
    assert len(taken) == (dtype == torch.bfloat16 and width == 64 and products and not tiles)
    traced = torch.jit.trace(layer, (x,), check_trace=False)  # one program for all lengths
    assert traced(x.repeat(1, 9, 1)).shape == (3, 36, 2 * width)
    tolerance = {} if dtype == torch.float32 else {"atol": 0.05, "rtol": 0.05}
    torch.testing.assert_close(symbols.float(), layer.float()(x.float()), **tolerance)


def test_blocks_take_what_autocast_makes_one_type(monkeypatch):
    monkeypatch.setattr(symbol_assignment, "multiplies_bfloat16_in_vectors", lambda q: q.dtype == torch.bfloat16)
    monkeypatch.setattr(symbol_assignment, "FEWEST_WEIGHTS", 1)
    layer, x = SymbolicAttention(128, 2, 5), normal(3, 40, 128).float()
    with torch.autocast("cpu", torch.bfloat16):
        symbols = layer(x)
    symbols.float().sum().backward()
    assert symbols.dtype == torch.bfloat16 and layer.template_features.grad.dtype == torch.float32
    torch.testing.assert_close(symbols.float(), layer(x), atol=0.05, rtol=0.05)
    layer.q_proj.to(torch.bfloat16)
    with pytest.raises(TypeError, match=r"k: expected dtype torch\.bfloat16 as q, got torch\.float32"):
        layer(x.bfloat16())


def test_all_examples_share_one_library():
    """No copy for each example, forward and backward."""
    batch, n_symbols, width = 64, 100, 8
    layer = SymbolicAttention(width, 1, n_symbols)
    with LargestTensor() as seen:
        layer(torch.randn(batch, 1, width)).sum().backward()
    assert n_symbols * width <= seen.numel < batch * n_symbols * width


@pytest.mark.parametrize("trainable", [True, False])
def test_the_library_can_be_frozen(trainable):
    layer = SymbolicAttention(8, 2, 5, trainable_symbols=trainable)
    layer(torch.randn(2, 3, 8)).sum().backward()
    assert (layer.symbol_library.grad is not None) == trainable
    assert layer.template_features.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_sinusoids_have_the_dtype_of_what_is_made_beside_them(dtype):
    torch.set_default_dtype(dtype)
    try:
        x = PositionalSymbolRetriever(6, 5, sinusoidal=True)(torch.randn(1, 4, 6))
        y = SinusoidalPositionalEncoding(6, dropout=0.0)(torch.randn(1, 4, 6))
    finally:
        torch.set_default_dtype(torch.float32)
    assert x.dtype == y.dtype == dtype


@pytest.mark.parametrize("sinusoidal", [False, True])
def test_positional_symbols(sinusoidal):
    layer = PositionalSymbolRetriever(6, 5, sinusoidal=sinusoidal)
    symbols = layer(torch.randn(2, 4, 3))
    assert symbols.shape == (2, 4, 6) and torch.equal(symbols[0], symbols[1])
    wanted = sinusoidal_table(5, 6) if sinusoidal else layer.symbol_library.weight
    assert torch.equal(symbols[0], wanted[:4])
    assert len(list(layer.parameters())) == (0 if sinusoidal else 1)


def test_position_relative_symbols_of_receivers_and_senders():
    layer = PositionRelativeSymbolRetriever(3, 2)
    symbols = layer(torch.randn(2, 4, 7), torch.randn(2, 6, 7))
    assert symbols.shape == (4, 6, 3)
    torch.testing.assert_close(symbols.dense(), layer.rel_pos_enc(4, 6))
    assert layer(torch.randn(2, 4, 7)).shape == (4, 4, 3)


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("reach", [None, 0, 2, 50])
def test_sinusoidal_symbols_of_offsets_are_their_closed_form(reach, width):
    layer, x = PositionRelativeSymbolRetriever(width, reach, sinusoidal=True, theta=100.0), normal(2, 9, 7)
    offsets = torch.arange(9.0, dtype=torch.float64) - torch.arange(9.0, dtype=torch.float64)[:, None]
    clipped = offsets if reach is None else offsets.clamp(-reach, reach)
    angles = clipped[..., None] * 100.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    wanted = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(2)[..., :width]
    torch.testing.assert_close(layer(x).dense(), wanted)
    torch.testing.assert_close(layer(x[:, 4:], x).dense(), wanted[:5])
    torch.testing.assert_close(layer(x, x[:, :4]).dense(), wanted[:, :4])
    for cache in (layer.new_cache(), layer.new_cache(max_length=9)):
        parts = [layer(chunk, cache=cache).dense() for chunk in x.split([3, 1, 5], dim=1)]
        for part, start in zip(parts, (0, 3, 4), strict=True):
            torch.testing.assert_close(part, wanted[start : start + len(part), : start + len(part)])
    assert not layer.state_dict() and not list(layer.parameters())
    assert layer(x.bfloat16()).library.dtype == torch.bfloat16
    assert layer(torch.empty(2, 0, 7)).shape == (0, 0, width)


def test_sinusoidal_symbols_of_offsets_are_exact_far_away():
    """An angle in float32 would be off by 0.06 at a million tokens."""
    layer = PositionRelativeSymbolRetriever(2, sinusoidal=True)
    cache = layer.new_cache()
    layer(torch.empty(1, 1_000_000, 1), cache=cache)
    symbols = layer(torch.empty(1, 1, 1), cache=cache)
    assert symbols.library[symbols.index[0, 0]][0].item() == pytest.approx(math.sin(-1e6), abs=1e-6)


def test_a_cache_without_tokens_holds_no_sinusoids_of_an_old_dtype():
    retriever = PositionRelativeSymbolRetriever(8, sinusoidal=True)
    cache, x = retriever.new_cache(), torch.zeros(1, 3, 8)
    for dtype in (torch.float32, torch.float64):
        symbols = retriever(x.to(dtype), cache=cache)
        torch.testing.assert_close(symbols.dense(), retriever(x.to(dtype)).dense())  # of that dtype, too
        cache.crop(0)


def test_sinusoidal_symbols_in_a_cache_are_projected_a_few_times_only():
    retriever = PositionRelativeSymbolRetriever(8, sinusoidal=True)
    layer = float64(RelationalAttention(8, 2, use_relative_positional_symbols=True)).eval()
    x, calls = normal(2, 40, 8), []
    handle = layer.wv.register_forward_hook(lambda *_: calls.append(1))
    whole = layer(x, retriever(x), is_causal=True).output
    calls.clear()
    caches = retriever.new_cache(), layer.new_cache()
    with torch.no_grad():
        step = {"is_causal": True, "cache": caches[1]}
        parts = [layer(token, retriever(token, cache=caches[0]), **step).output for token in x.split(1, dim=1)]
    handle.remove()
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)
    assert len(calls) <= 8  # as the table doubles


def test_position_relative_symbols_after_tokens_in_a_cache():
    layer, x = PositionRelativeSymbolRetriever(3, 2), torch.randn(2, 6, 7)
    cache = layer.new_cache()
    parts = [layer(chunk, cache=cache) for chunk in x.split([3, 1, 2], dim=1)]
    assert [(part.shape[:2], part.offset) for part in parts] == [((3, 3), 0), ((1, 4), 3), ((2, 6), 4)]
    for part, start in zip(parts, (0, 3, 4), strict=True):
        n, m = part.shape[:2]
        torch.testing.assert_close(part.dense(), layer(x).dense()[start : start + n, :m])


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("reach", [1, (2, 1), 5])
def test_two_dimensional_offsets(prefix, reach):
    layer = PositionRelativeSymbolRetriever2D(4, reach, n_prefix_tokens=prefix)
    height, width = 3, 4
    reach_y, reach_x = (reach, reach) if isinstance(reach, int) else reach
    symbols = layer(torch.randn(2, prefix + height * width, 4), (height, width)).dense()

    def row(receiver, sender):
        if receiver < prefix or sender < prefix:
            special = {(True, True): 0, (False, True): 1, (True, False): 2}
            return layer.n_offsets + special[receiver < prefix, sender < prefix]
        (i, k), (j, n) = divmod(receiver - prefix, width), divmod(sender - prefix, width)
        dy, dx = max(-reach_y, min(reach_y, j - i)), max(-reach_x, min(reach_x, n - k))
        return (dy + reach_y) * (2 * reach_x + 1) + dx + reach_x

    for receiver in range(symbols.shape[0]):
        for sender in range(symbols.shape[1]):
            assert torch.equal(symbols[receiver, sender], layer.symbol_library[row(receiver, sender)])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_relational_symbolic_attention_by_hand(causal, include_self, normalize):
    options = {"causal_nbhd": causal, "include_self": include_self, "normalize_rels": normalize}
    layer = float64(RelationalSymbolicAttention(8, 2, 4, 5, 2, **options))
    x = normal(1, 5, 8)
    q, k = layer.q_proj(x)[0].unflatten(-1, (2, 4)), layer.k_proj(x)[0].unflatten(-1, (2, 4))
    if causal:
        steps = [0, -1, -2] if include_self else [-1, -2]
    else:
        steps = [-2, -1, 0, 1, 2] if include_self else [-2, -1, 1, 2]
    rows = []
    for i in range(5):
        relations = torch.stack([(q[i] * k[min(4, max(0, i + step))]).sum(-1) for step in steps])  # (neighbours, heads)
        rows.append((torch.softmax(relations / 2.0, dim=0) if normalize else relations).flatten())
    wanted = layer.symbolic_attention(layer.model_dim_proj(torch.stack(rows))[None])
    torch.testing.assert_close(layer(x), wanted)


RETRIEVERS = {
    "features": lambda: SymbolicAttention(8, 2, 5),
    "positions": lambda: PositionalSymbolRetriever(8, 6),
    "sinusoids": lambda: PositionalSymbolRetriever(8, 6, sinusoidal=True),
    "offsets": lambda: PositionRelativeSymbolRetriever(8, 2),
    "sinusoids of offsets": lambda: PositionRelativeSymbolRetriever(8, sinusoidal=True),
    "roles": lambda: RelationalSymbolicAttention(8, 2, 2, 5, 2),
    "roles on both sides": lambda: RelationalSymbolicAttention(8, 2, 2, 5, 3, causal_nbhd=False, include_self=True),
}


@pytest.mark.parametrize("name", RETRIEVERS)
@pytest.mark.parametrize("lengths", [[4, 1, 6, 2], [5]])
def test_packed_is_one_by_one(name, lengths):
    retriever = float64(RETRIEVERS[name]())
    layer = float64(RelationalAttention(8, 2, use_relative_positional_symbols="offsets" in name))
    x = normal(2, sum(lengths), 8)
    segments = segments_from_lengths(torch.tensor([0, *lengths]).cumsum(0))
    packed = layer(x, retriever(x, segments=segments), segments=segments).output
    alone = [layer(part, retriever(part)).output for part in x.split(lengths, dim=1)]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1))
    torch.testing.assert_close(layer(x, retriever(x, segments=9 - segments), segments=segments).output, packed)


def test_each_example_may_have_segments_of_its_own():
    segments = torch.tensor([[0, 0, 0, 1, 1], [3, 7, 7, 7, 7]])
    for build in (RETRIEVERS["positions"], RETRIEVERS["roles on both sides"]):
        retriever, x = float64(build()), normal(2, 5, 8)
        symbols = retriever(x, segments=segments)
        torch.testing.assert_close(symbols[:1, 3:], retriever(x[:1, 3:]))
        torch.testing.assert_close(symbols[1:, 1:], retriever(x[1:, 1:]))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["positions", "sinusoids", "roles", "roles on both sides"])
def test_packed_behind_padding_is_one_by_one(name):
    """Positions that come with segments count."""
    retriever, x = float64(RETRIEVERS[name]()), normal(1, 7, 8)
    segments, real = torch.tensor([[0, 0, 0, 1, 1, 1, 1]]), torch.tensor([[False, True, True, False, True, True, True]])
    symbols = retriever(x, segments=segments, positions=positions_from_segments(segments, real))
    torch.testing.assert_close(symbols[:, 1:3], retriever(x[:, 1:3]))
    torch.testing.assert_close(symbols[:, 4:], retriever(x[:, 4:]))


@pytest.mark.parametrize("name", ["positions", "roles"])
def test_segments_are_checked(name):
    retriever, x = RETRIEVERS[name](), torch.randn(2, 4, 8)
    with pytest.raises(ValueError, match="segments: expected integers"):
        retriever(x, segments=torch.zeros(2, 3, dtype=torch.long))
    with torch.no_grad(), pytest.raises(ValueError, match="segments: packed sequences cannot be continued"):
        retriever(x, segments=torch.zeros(2, 4, dtype=torch.long), cache=retriever.new_cache())


test_bad_arguments_are_refused = refused(
    (lambda: PositionalSymbolRetriever(6, 5)(torch.randn(1, 6, 3)), "length 6 exceeds max_length=5"),
    (lambda: PositionalSymbolRetriever(6, 5, sinusoidal=True)(torch.randn(1, 6, 3)), "length 6 exceeds max_length=5"),
    (lambda: PositionRelativeSymbolRetriever2D(4, 2)(torch.zeros(1, 12, 4), (3, 4)), "expected 13 tokens"),
    (lambda: SymbolicAttention(8, 3, 4), "d_model: 8 is not divisible"),
    (lambda: SymbolicAttention(8, 2, 4, dropout=1.0), "dropout: .*got 1.0"),
    (lambda: PositionRelativeSymbolRetriever(8, -1), "max_rel_pos: .*got -1"),
    (lambda: PositionRelativeSymbolRetriever(8), "max_rel_pos: expected an integer"),
    (lambda: PositionRelativeSymbolRetriever(8, -1, sinusoidal=True), "max_rel_pos: .*got -1"),
    (lambda: PositionRelativeSymbolRetriever(8, 2, sinusoidal=True, theta=0.0), "theta: .*got 0.0"),
    (lambda: PositionRelativeSymbolRetriever2D(8, (2, -1)), "max_rel_pos: .*-1"),
    (lambda: RelationalSymbolicAttention(8, 2, 2, 4, 0), "nbhd_delta: .*got 0"),
    (lambda: SymbolicAttention(8, 2, 4)(torch.zeros(1, 3, 7)), r"x: .*got \(1, 3, 7\)"),
)
