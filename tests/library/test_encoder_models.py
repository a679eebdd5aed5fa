"""Bidirectional encoders. Their heads are in `test_encoder_heads.py`."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification, TransformerEncoder
from dual_attention.functional import segments_from_cu_seqlens
from dual_attention.relational_attention import RelationalAttention
from tests.support.encoders import (
    FEW,
    KINDS,
    LONGEST,
    POSITIONS,
    SYMBOLS,
    VOCABULARY,
    WIDTH,
    build,
    close,
    create,
    tokens,
)
from tests.support.refusals import refused
from tests.support.tensors import float64

# ---- The encoder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_every_parameter_learns_and_every_token_is_seen(kind, pos_enc_type):
    model, x = build(kind, pos_enc_type=pos_enc_type, n_token_types=2), tokens()
    types = torch.randint(2, x.shape)
    out = model(x, token_types=types)
    assert out.shape == (3, LONGEST, WIDTH)
    (out * torch.randn_like(out)).sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent
    for at in (0, LONGEST - 1):
        changed = x.clone()
        changed[:, at] = (x[:, at] + 1) % VOCABULARY
        assert (model(changed, token_types=types) != out).any(dim=-1).all()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("embedding_norm", [True, False])
def test_steps_of_the_model(norm_first, embedding_norm):
    model = build(norm_first=norm_first, embedding_norm=embedding_norm, n_token_types=3, final_norm=None)
    x = tokens()
    types = torch.randint(3, x.shape)
    hidden = model.token_embedder.weight[x] + model.positional_embedder.weight + model.token_type_embedder.weight[types]
    if embedding_norm:
        hidden = F.layer_norm(hidden, (WIDTH,), model.embedding_norm.weight, model.embedding_norm.bias)
    for block in model.blocks:
        hidden = block(hidden)
    assert isinstance(model.norm, nn.LayerNorm) is norm_first
    close(model(x, token_types=types), model.norm(hidden))
    close(model(x), model(x, token_types=torch.zeros_like(x)))


def test_rope_turns_queries_and_keys():
    model, x = build(pos_enc_type="RoPE"), tokens()
    hidden = model.embedding_norm(model.token_embedder(x))
    for block in model.blocks:
        hidden = block(hidden, *model.rope.tables(LONGEST))
    close(model(x), model.norm(hidden))
    assert not any("freqs" in name for name in model.state_dict())


def test_a_retriever_for_each_block():
    model, called = build("symbolic_attention", shared_symbol_retriever=False), []
    for retriever in model.symbol_retrievers:
        retriever.register_forward_hook(lambda module, *_: called.append(module))
    model(tokens())
    assert called == [*model.symbol_retrievers] and len(called) == 2


def test_without_relational_heads_there_are_no_symbols_and_the_models_agree():
    """What the two models share is one code: with sensory heads alone, dual attention is a Transformer."""
    dual = build("symbolic_attention", n_heads_sa=2, n_heads_ra=0, bias=True)
    plain = build(attn_kwargs={"add_bias_out": False})
    assert not len(dual.symbol_retrievers)
    state = {name.replace("dual_attn.self_attention", "self_attn"): t for name, t in dual.state_dict().items()}
    plain.load_state_dict(state)
    x = tokens()
    close(dual(x), plain(x))


def test_initial_parameters():
    model = create("symbolic_attention", d_model=64, n_layers=8, symbol_retrieval_kwargs={
        "d_model": 64, "n_heads": 2, "n_symbols": 50,
    })  # fmt: skip
    assert model.token_embedder.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.symbol_retrievers[0].symbol_library.std().item() == pytest.approx(1, rel=0.1)
    block = model.blocks[3]
    assert isinstance(block.dual_attn.relational_attention, RelationalAttention)
    for residual in (block.ff_block.linear2, block.dual_attn.self_attention.wo):
        assert residual.weight.std().item() == pytest.approx(0.02 / 4, rel=0.1)
    assert block.ff_block.linear1.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not block.ff_block.linear1.bias.any()


# ---- Padding and packing

real = st.tuples(st.integers(1, LONGEST), st.booleans())  # real tokens, and whether padding is on the left


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(
    examples=st.lists(real, min_size=3, max_size=3),
    pos_enc_type=st.sampled_from(POSITIONS),
    anew=st.booleans(),
    pool=st.sampled_from(["cls", "mean"]),
)
def test_padded_is_alone(kind, examples, pos_enc_type, anew, pool):
    more = {} if kind == "plain" else {"update_symbols_each_layer": anew}
    model = float64(EncoderForSequenceClassification(build(kind, pos_enc_type=pos_enc_type, **more), 4, pool=pool))
    x, places = tokens(), torch.arange(LONGEST)
    mask = torch.stack([(places >= LONGEST - n) if left else (places < n) for n, left in examples])
    hidden, (logits, _) = model.encoder(x, padding_mask=mask), model(x, padding_mask=mask)
    for i in range(3):
        alone = x[i : i + 1, mask[i]]
        close(hidden[i : i + 1, mask[i]], model.encoder(alone))
        close(logits[i : i + 1], model(alone).logits)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    pos_enc_type=st.sampled_from(POSITIONS),
    for_each=st.booleans(),
    padding=st.integers(0, 2),
)
def test_packed_is_alone(kind, lengths, pos_enc_type, for_each, padding):
    """A packed row may be longer than the longest sequence."""
    own = {"symbol_retrieval_kwargs": {"symbol_dim": WIDTH, "max_length": 6}}
    retrieval = own if kind == "positional_symbols" else {}
    model = build(kind, pos_enc_type=pos_enc_type, max_block_size=6, **retrieval)
    ends = torch.tensor([0, *lengths]).cumsum(0)
    length = int(ends[-1]) + padding
    x, segments = tokens(2, length), segments_from_cu_seqlens(ends, length)
    mask = (torch.arange(length) < ends[-1]).expand(2, -1) if padding else None
    out = model(x, segments=segments.expand(2, -1) if for_each else segments, padding_mask=mask)
    for start, stop in itertools.pairwise(ends):
        close(out[:, start:stop], model(x[:, start:stop]))


REACHING_ON = {"symbol_retrieval_kwargs": {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}}


def test_neighbourhoods_that_reach_on_are_finite():
    assert build("rel_sym_attn", **REACHING_ON)(tokens()).isfinite().all()


def test_an_example_of_padding_alone_is_finite():
    model = EncoderForSequenceClassification(build("symbolic_attention"), 2, pool="mean").double()
    x, mask = tokens(2), torch.tensor([[True] * LONGEST, [False] * LONGEST])
    logits, loss = model(x, torch.tensor([0, 1]), padding_mask=mask)
    loss.backward()
    assert logits.isfinite().all() and all(p.grad.isfinite().all() for p in model.parameters())
    close(logits[1], model.classifier.bias)


# ---- Counts and bad input


def test_parameter_counts():
    """BERT-base without its pooler and segments: 12 (12 d^2 + 13 d) + embeddings + their norm, see arXiv 1810.04805."""
    d, vocabulary, length, layers = 768, 30_522, 512, 12
    with torch.device("meta"):
        model = TransformerEncoder(
            vocabulary, d, layers, 12, 4 * d, 0.1, "gelu", False, length, attn_kwargs={"add_bias_kv": True}
        )
    # Queries have no bias here: d fewer in each layer than BERT has.
    assert model.get_num_params() == layers * (12 * d**2 + 13 * d - d) + (vocabulary + length + 2) * d
    with torch.device("meta"):
        head = EncoderForMaskedLM(model)
    assert head.get_num_params() == model.get_num_params() + d**2 + d + 2 * d + vocabulary


X = torch.zeros(2, 4, dtype=torch.long)


def called(**more):
    return create()(**{"x": X, **more})


test_what_is_refused = refused(
    (lambda: create(vocab_size=0), "vocab_size: .*got 0"),
    (lambda: create(n_layers=0), "n_layers: .*got 0"),
    (lambda: create(max_block_size=0), "max_block_size: .*got 0"),
    (lambda: create(pos_enc_type="rope"), "pos_enc_type: .*got 'rope'"),
    (lambda: create(n_token_types=-1), "n_token_types: .*got -1"),
    (lambda: create(norm_type="batchnorm"), "norm_type: .*'batchnorm'"),
    (lambda: create("symbolic_attention", shared_symbol_retriever=False, update_symbols_each_layer=False),
     "shared_symbol_retriever: False needs update_symbols_each_layer=True"),
    (lambda: called(x=torch.full((2, 4), VOCABULARY)), "x: expected token ids from 0 to 12, got 13"),
    (lambda: called(x=torch.zeros(2, 11).long()), "x: a sequence of 11 tokens is longer than the context"),
    (lambda: called(padding_mask=torch.ones(2, 4)), TypeError, "padding_mask: expected a boolean"),
    (lambda: called(padding_mask=torch.ones(2, 5).bool()), "padding_mask: expected shape"),
    (lambda: called(segments=torch.zeros(2, 4)), "segments: expected integers"),
    (lambda: called(segments=torch.zeros(3, 4).long()), "segments: expected integers"),
    (lambda: called(x=torch.zeros(2, 11).long(), segments=torch.zeros(1, 11).long()),
     r"positions: expected 0 to 9 \(the context, max_block_size=10\), got 0 to 10"),
    (lambda: called(token_types=torch.zeros(2, 4).long()), "token_types: this model has none"),
    (lambda: create(n_token_types=2)(X, token_types=torch.full((2, 4), 2)),
     "token_types: expected token ids from 0 to 1, got 2"),
    (lambda: create(n_token_types=2)(X, token_types=torch.zeros(1, 4).long()), "token_types: expected shape"),
    (lambda: build("rel_sym_attn", **REACHING_ON)(X, padding_mask=torch.ones_like(X, dtype=torch.bool)),
     r"padding masks and segments: .*causal_nbhd=True"),
    (lambda: build("rel_sym_attn", **REACHING_ON)(X, segments=torch.zeros_like(X)),
     r"padding masks and segments: .*causal_nbhd=True"),
)  # fmt: skip
