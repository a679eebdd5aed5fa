"""Sequence-to-sequence models: what they calculate. Their agreement with the published package is in
`test_golden.py`, decoding and generation in `test_seq2seq_decoding.py`.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from dat.estimate import counter_formulas
from dual_attention.functional import rotary_tables
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from dual_attention.symbol_retrieval import PositionalSymbolRetriever, SymbolicAttention
from tests.support.seq2seq import (
    ABSTRACTORS,
    COUNTED_BY_LENGTH,
    KINDS,
    SOURCE,
    SYMBOLS,
    TARGET,
    TOKENS,
    VECTORS,
    WIDTH,
    build,
    close,
    words,
)
from tests.support.tensors import assert_later_tokens_do_not_matter, normal

pytestmark = pytest.mark.sweep(4)

# ---- What is calculated


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_is_causal_unless_told_otherwise(kind):
    """The published Transformer, not the published DAT, lets each target position see all, if nothing is said."""
    x, _ = words()
    vectors = normal(3, TARGET, 2)
    model = build(kind, output_spec={"type": "vector", "dim": 2})
    assert model.is_causal
    assert_later_tokens_do_not_matter(lambda v: model.decode(v, model.encode(x)), vectors, at=4)
    other = build(kind, output_spec={"type": "vector", "dim": 2}, decoder={"causal": False})
    assert not other.is_causal
    changed = vectors.clone()
    changed[:, -1] += 1
    memory = other.encode(x)
    assert not torch.allclose(other.decode(vectors, memory)[:, 0], other.decode(changed, memory)[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_sees_all(kind):
    model, (x, _) = build(kind), words(batch=1)
    changed = x.clone()
    changed[:, -1] = (x[:, -1] + 1) % 11
    assert (model.encode(x) != model.encode(changed)).any(dim=-1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_without_targets_the_last_position_alone(kind):
    model, (x, y) = build(kind), words()
    everything = model.decode(y, model.encode(x))
    logits, loss = model(x, y)
    assert loss is None and logits.shape == (3, 1, 6)
    close(logits, everything[:, -1:])
    close(model(x, y, torch.zeros_like(y))[0], everything)
    mask = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1], [1] * 7], dtype=torch.bool)
    logits, _ = model(x, y, target_padding_mask=mask)
    everything = model.decode(y, model.encode(x), target_padding_mask=mask)
    close(logits, torch.stack([everything[0, 2:3], everything[1, 6:], everything[2, 6:]]))


@pytest.mark.parametrize("pos_enc", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize("theta", [None, 100.0])
def test_steps_of_the_model(pos_enc, theta):
    model, (x, y) = build(pos_enc=pos_enc, rope_theta=theta, tie_weights=False), words()
    layers = model.layers
    memory, hidden = layers.source_embedder(x), layers.target_embedder(y)
    if pos_enc != "none":
        tables = [layers.source_pos_embedder, layers.target_pos_embedder]
        of_source, of_target = (t.pe if pos_enc == "sinusoidal" else t.position_embeddings.weight for t in tables)
        assert of_source.shape == (SOURCE, WIDTH) and of_target.shape == (TARGET, WIDTH)
        memory = math.sqrt(WIDTH) * memory + of_source
        hidden = math.sqrt(WIDTH) * hidden + of_target
    of_source, of_target = ([] if theta is None else rotary_tables(4, n, theta=theta) for n in (SOURCE, TARGET))
    for block in layers.encoder_blocks:
        memory = block(memory, *of_source)
    for block in layers.decoder_blocks:
        hidden = block(hidden, memory, *of_target)
    close(model.decode(y, model.encode(x)), layers.final_out(hidden))


def test_a_side_without_relational_heads_retrieves_no_symbols():
    """As in the paper's mathematics models: a retriever too short for the targets does not matter."""
    short = {"symbol_retrieval_kwargs": {"symbol_dim": WIDTH, "max_length": 4}}
    model = build("positional_symbols", decoder={"n_heads_sa": 2, "n_heads_ra": 0}, **short)
    x, y = words(source=4)
    calls = []
    model.layers.symbol_retriever.register_forward_hook(lambda *_: calls.append(1))
    model(x, y)
    assert len(calls) == 2
    assert set(model.new_cache().caches) == {"block0", "block1"}


def test_the_decoder_may_have_a_retriever_of_its_own():
    kind = "positional_symbols"
    own = {"decoder_symbol_retrieval": kind, "decoder_symbol_retrieval_kwargs": SYMBOLS[kind]}
    model = build("symbolic_attention", **own)
    kinds = [type(model.layers[name]) for name in ("symbol_retriever", "decoder_symbol_retriever")]
    assert kinds == [SymbolicAttention, PositionalSymbolRetriever]
    around = {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}
    model = build("rel_sym_attn", symbol_retrieval_kwargs=around, **own)  # refused without, see below
    x, y = words()
    outs = []
    for name in ("symbol_retriever", "decoder_symbol_retriever"):
        model.layers[name].register_forward_hook(lambda _m, _i, output, name=name: outs.append(name))
    model(x, y)
    assert outs == ["symbol_retriever"] * 2 + ["decoder_symbol_retriever"] * 2


def test_depths_are_those_asked_for():
    """In the published DAT the decoder is as deep as the encoder."""
    for kind in ("plain", "symbolic_attention"):
        model = build(kind, n_layers_enc=1, n_layers_dec=3)
        assert [len(model.layers[f"{side}_blocks"]) for side in ("encoder", "decoder")] == [1, 3]
        assert (model.n_layers_enc, model.n_layers_dec) == (1, 3)


def test_embedding_dropout():
    model, (x, _) = build(embedding_dropout=0.5).train(), words()
    assert not torch.equal(model.encode(x), model.encode(x))
    model.eval()
    assert torch.equal(model.encode(x), model.encode(x))


# ---- Padding

real = st.tuples(st.integers(1, 5), st.booleans())  # real positions, and whether padding is on the left


def mask_of(examples, length):
    """Boolean ``(B, length)``, and where each example is real."""
    places = torch.arange(length)
    rows = [(places >= length - n) if left else (places < n) for n, left in examples]
    return torch.stack(rows), [slice(length - n, None) if left else slice(0, n) for n, left in examples]


@pytest.mark.parametrize("kind", KINDS)
@COUNTED_BY_LENGTH
@given(
    sources=st.lists(real, min_size=3, max_size=3),
    targets=st.lists(real, min_size=3, max_size=3),
    pos_enc=st.sampled_from(["sinusoidal", "learned", "none"]),
    theta=st.sampled_from([None, 100.0]),
    anew=st.booleans(),
)
def test_padded_is_alone(kind, sources, targets, pos_enc, theta, anew):
    more = {} if kind in ABSTRACTORS else {"rope_theta": theta}
    more |= {"update_symbols_each_layer": anew} if kind in SYMBOLS else {}
    model, (x, y) = build(kind, pos_enc=pos_enc, **more), words(source=6, target=6)
    labels = torch.randint(6, y.shape)
    source_mask, source_rows = mask_of(sources, 6)
    target_mask, target_rows = mask_of(targets, 6)
    masks = {"source_padding_mask": source_mask, "target_padding_mask": target_mask}
    logits, loss = model(x, y, labels, **masks)
    last, _ = model(x, y, **masks)
    losses = []
    for i, (of_source, of_target) in enumerate(zip(source_rows, target_rows, strict=True)):
        own = x[i : i + 1, of_source], y[i : i + 1, of_target], labels[i : i + 1, of_target]
        alone, own_loss = model(*own)
        close(logits[i : i + 1, of_target], alone)
        close(last[i : i + 1], alone[:, -1:])
        losses.append((own_loss, own[2].numel()))
    close(loss, sum(own * n for own, n in losses) / sum(n for _, n in losses))


def test_neighbourhoods_that_reach_on_are_refused_with_padding():
    around = {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}
    model = build("rel_sym_attn", symbol_retrieval_kwargs=around, decoder={"n_heads_sa": 2, "n_heads_ra": 0})
    x, y = words()
    assert model(x, y)[0].isfinite().all()
    with pytest.raises(ValueError, match=r"padding masks and segments: .*causal_nbhd=True"):
        model(x, y, source_padding_mask=torch.ones_like(x, dtype=torch.bool))


# ---- Losses


@pytest.mark.parametrize("ignored", [-1, 0])
def test_cross_entropy_of_what_is_scored(ignored):
    model, (x, y) = build(loss_ignore_idx=ignored), words()
    targets = torch.randint(1, 6, y.shape)
    targets[:, 4:] = ignored
    loss_mask = torch.rand(y.shape) < 0.7
    logits, loss = model(x, y, targets)
    close(loss, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=ignored))
    _, loss = model(x, y, targets, loss_mask=loss_mask)
    scored = loss_mask & (targets != ignored)
    close(loss, F.cross_entropy(logits[scored], targets[scored]))


def test_squared_error_of_what_is_scored():
    model = build(**VECTORS)
    x, y, targets = normal(3, SOURCE, 3), normal(3, TARGET, 2), normal(3, TARGET, 2)
    assert model.loss_type == "mse" and not model.tie_weights
    logits, loss = model(x, y, targets)
    close(loss, F.mse_loss(logits, targets))
    mask = torch.arange(TARGET) < torch.tensor([[2], [5], [7]])
    chosen = torch.rand(3, TARGET) < 0.8
    targets[~(mask & chosen)] = torch.nan
    logits, loss = model(x, y, targets, target_padding_mask=mask, loss_mask=chosen)
    close(loss, F.mse_loss(logits[mask & chosen], targets[mask & chosen]))
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("spec", [TOKENS, VECTORS])
def test_nothing_to_score_costs_nothing(spec):
    model = build(**spec)
    if spec is TOKENS:
        (x, y), targets = words(), torch.full((3, TARGET), -1)
    else:
        x, y, targets = normal(3, SOURCE, 3), normal(3, TARGET, 2), normal(3, TARGET, 2)
    _, loss = model(x, y, targets, loss_mask=torch.zeros(3, TARGET, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and not any(p.grad.any() for p in model.parameters())


def test_classes_of_vectors():
    model = build(**{**VECTORS, "out_dim": 5}, loss_type="cross_entropy")
    targets = torch.randint(5, (3, TARGET))
    logits, loss = model(normal(3, SOURCE, 3), normal(3, TARGET, 2), targets)
    close(loss, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


# ---- Arithmetic of training


def test_flops_of_the_transformer_are_what_is_counted():
    """Each weight counts for the positions that pass through it; lengths differ, so that none is taken for another."""
    for specs in (TOKENS, VECTORS):
        model = build(**specs)
        x, y = words(batch=2, source=5, target=3) if specs is TOKENS else (normal(2, 5, 3), normal(2, 3, 2))
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as counter:
            model(x, y, y)
        assert model.flops_per_pair(5, 3) * 2 == 3 * counter.get_total_flops()


def test_flops_of_dual_attention():
    """One head of each kind, of width 4; symbols are retrieved for every block, or once on each side."""
    model = build("symbolic_attention")
    attention = 3 * WIDTH * 4 + 4 * 4, 3 * WIDTH * 4 + 4 * 4 + 2 * WIDTH * 3 + 4 * 3
    block, cross, symbols = sum(attention) + 2 * WIDTH * 12, 2 * WIDTH**2, WIDTH**2 + 2 * 5 * WIDTH
    pairs = (4 + 4) + (4 + 4) + 3 * (1 + 1)
    for s, t in ((SOURCE, TARGET), (4, 2)):
        weights = 2 * (block + symbols) * s + 2 * cross * s + (2 * (block + cross + symbols) + WIDTH * 6) * t
        wanted = 6 * (weights + 2 * pairs * (s * s + t * t) + 2 * 2 * WIDTH * s * t)
        assert model.flops_per_pair(s, t) == wanted
    once = build("symbolic_attention", update_symbols_each_layer=False)
    assert model.flops_per_pair() - once.flops_per_pair() == 6 * symbols * (SOURCE + TARGET)


def test_model_flops_utilisation():
    model = build()
    assert model.estimate_mfu(3, 2.0) == pytest.approx(model.flops_per_pair(SOURCE, TARGET) * 3 / 2.0 / 312e12)
    assert model.estimate_mfu(3, 2.0, flops_promised=1e9) == pytest.approx(model.flops_per_pair() * 3 / 2.0 / 1e9)


# ---- Parameter counts of the paper's mathematics models

MATHEMATICS = {
    "input_spec": {"type": "token", "vocab_size": 85},
    "output_spec": {"type": "token", "vocab_size": 85},
    "out_dim": 85,
    "in_block_size": 161,
    "out_block_size": 31,
}


@pytest.mark.parametrize(
    "layers, width, of_encoder, of_decoder, rel_proj_dim, parameters",
    [
        (2, 128, None, None, None, 692_949),
        (2, 128, (4, 4), (8, 0), None, 750_421),
        (2, 128, (4, 4), (8, 0), 32, 783_189),
        (2, 128, (4, 4), (4, 4), None, 767_317),
        (2, 128, (4, 4), (4, 4), 32, 832_853),
        (2, 144, None, None, None, 871_717),
        (3, 128, None, None, None, 1_023_061),
        (3, 128, (4, 4), (8, 0), None, 1_088_597),
        (3, 128, (4, 4), (4, 4), None, 1_113_941),
        (3, 144, None, None, None, 1_289_173),
        (4, 128, None, None, None, 1_353_173),
        (4, 128, (4, 4), (8, 0), None, 1_426_773),
        (4, 128, (4, 4), (4, 4), None, 1_460_565),
        (4, 144, None, None, None, 1_706_629),
    ],
)
def test_published_parameter_counts(layers, width, of_encoder, of_decoder, rel_proj_dim, parameters):
    block = {"dff": 2 * width, "activation": "relu", "norm_first": False, "dropout_rate": 0.1}
    sizes = {**MATHEMATICS, "d_model": width, "n_layers_enc": layers, "n_layers_dec": layers}

    def heads(sensory, relational):
        ra_kwargs = {"use_relative_positional_symbols": True}
        if rel_proj_dim is not None:
            ra_kwargs["rel_proj_dim"] = rel_proj_dim
        return {**block, "n_heads_sa": sensory, "n_heads_ra": relational, "ra_kwargs": ra_kwargs}

    with torch.device("meta"):
        for tied in (False, True):
            if of_encoder is None:
                decoder = {**block, "n_heads": 8, "n_heads_cross": 8}
                model = Seq2SeqTransformer(
                    **sizes, encoder_kwargs={**block, "n_heads": 8}, decoder_kwargs=decoder, tie_weights=tied
                )
            else:
                model = Seq2SeqDualAttnTransformer(
                    **sizes,
                    symbol_retrieval="position_relative",
                    symbol_retrieval_kwargs={"symbol_dim": width, "max_rel_pos": 161},
                    encoder_kwargs=heads(*of_encoder),
                    decoder_kwargs={**heads(*of_decoder), "n_heads_cross": 8},
                    tie_weights=tied,
                )
            # The paper's models were not tied in effect.
            assert model.get_num_params() == parameters - (85 * width if tied else 0)
