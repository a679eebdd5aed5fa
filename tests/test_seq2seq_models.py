"""Sequence-to-sequence models. Their agreement with the published package is in test_golden.py."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from dual_attention.symbol_retrieval import PositionalSymbolRetriever, SymbolicAttention

from .golden.loading import load
from .layers import assert_later_tokens_do_not_matter, float64, normal

WIDTH, SOURCE, TARGET = 8, 9, 7
TOKENS = {
    "input_spec": {"type": "token", "vocab_size": 11},
    "output_spec": {"type": "token", "vocab_size": 6},
    "out_dim": 6,
}
VECTORS = {"input_spec": {"type": "vector", "dim": 3}, "output_spec": {"type": "vector", "dim": 2}, "out_dim": 2}
SIZES = {"d_model": WIDTH, "n_layers_enc": 2, "n_layers_dec": 2, "in_block_size": SOURCE, "out_block_size": TARGET}
BLOCK = {"dff": 12, "activation": "gelu", "dropout_rate": 0.0, "norm_first": True}
SYMBOLS = {
    "symbolic_attention": {"d_model": WIDTH, "n_heads": 2, "n_symbols": 5},
    "rel_sym_attn": {
        "d_model": WIDTH,
        "rel_n_heads": 2,
        "symbolic_attn_n_heads": 2,
        "n_symbols": 4,
        "nbhd_delta": 2,
    },
    "positional_symbols": {"symbol_dim": WIDTH, "max_length": SOURCE},
    "position_relative": {"symbol_dim": WIDTH, "max_rel_pos": 3},
}
KINDS = ["plain", *SYMBOLS]
COUNTED_BY_LENGTH = settings(max_examples=12)


def build(kind="plain", *, encoder=None, decoder=None, **arguments):
    """A model in float64: of plain Transformer blocks, or with the symbols of that name."""
    arguments = {**TOKENS, **SIZES, **arguments}
    if kind == "plain":
        heads, cls = {"n_heads": 2}, Seq2SeqTransformer
    else:
        ra_kwargs = {"n_relations": 3, "use_relative_positional_symbols": kind == "position_relative"}
        heads, cls = {"n_heads_sa": 1, "n_heads_ra": 1, "ra_kwargs": ra_kwargs}, Seq2SeqDualAttnTransformer
        arguments = {"symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind], **arguments}
    encoder_kwargs = {**BLOCK, **heads, **(encoder or {})}
    decoder_kwargs = {**BLOCK, **heads, "n_heads_cross": 2, **(decoder or {})}
    return float64(cls(encoder_kwargs=encoder_kwargs, decoder_kwargs=decoder_kwargs, **arguments))


def words(batch=3, source=SOURCE, target=TARGET):
    return torch.randint(11, (batch, source)), torch.randint(6, (batch, target))


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=0)


# ---------------------------------------------------------------------------------------------------------------------
# What is calculated
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns(kind):
    model = build(kind)
    x, y = words()
    _, loss = model(x, y, torch.randint(6, y.shape))
    loss.backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not missing
    silent = [name for name, p in model.named_parameters() if not p.grad.any() and "rel_pos" not in name]
    assert not silent


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
def test_steps_of_the_model(pos_enc):
    model, (x, y) = build(pos_enc=pos_enc, tie_weights=False), words()
    layers = model.layers
    memory, hidden = layers.source_embedder(x), layers.target_embedder(y)
    if pos_enc != "none":
        tables = [layers.source_pos_embedder, layers.target_pos_embedder]
        of_source, of_target = (t.pe if pos_enc == "sinusoidal" else t.position_embeddings.weight for t in tables)
        assert of_source.shape == (SOURCE, WIDTH) and of_target.shape == (TARGET, WIDTH)
        memory = math.sqrt(WIDTH) * memory + of_source
        hidden = math.sqrt(WIDTH) * hidden + of_target
    for block in layers.encoder_blocks:
        memory = block(memory)
    for block in layers.decoder_blocks:
        hidden = block(hidden, memory)
    close(model.decode(y, model.encode(x)), layers.final_out(hidden))


def test_symbols_are_of_what_enters_each_block_and_one_retriever_serves_both_sides():
    model, (x, y) = build("symbolic_attention"), words()
    retrieved, given = [], []
    model.layers.symbol_retriever.register_forward_hook(lambda _, inputs, output: retrieved.append((*inputs, output)))
    for side, place in (("encoder", 1), ("decoder", 2)):
        for block in model.layers[f"{side}_blocks"]:
            block.register_forward_pre_hook(lambda _, inputs, place=place: given.append((inputs[0], inputs[place])))
    model(x, y)
    assert len(retrieved) == len(given) == 4
    for (entered, symbols), (of, got) in zip(given, retrieved, strict=True):
        assert entered is of and symbols is got


def test_symbols_retrieved_once_on_each_side():
    model, (x, y) = build("symbolic_attention", update_symbols_each_layer=False), words()
    calls = []
    model.layers.symbol_retriever.register_forward_hook(lambda *_: calls.append(1))
    model(x, y)
    assert len(calls) == 2
    assert not torch.allclose(model(x, y)[0], like(model, "symbolic_attention")(x, y)[0])


def like(model, kind, **arguments):
    """Another model with the same weights."""
    other = build(kind, **arguments)
    other.load_state_dict(model.state_dict())
    return other


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
    own = {
        "decoder_symbol_retrieval": "positional_symbols",
        "decoder_symbol_retrieval_kwargs": SYMBOLS["positional_symbols"],
    }
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


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_checkpointing_changes_nothing_but_memory(kind):
    (x, y), kept, gradients = words(), [], []
    targets = torch.randint(6, y.shape)
    model = build(kind)
    for again in (False, True):
        model.gradient_checkpointing = again
        model.zero_grad()
        count = [0]

        def keep(tensor, count=count):
            count[0] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(x, y, targets)[1]
        kept.append(count[0])
        loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    close(gradients[1], gradients[0])
    assert kept[1] < kept[0] / 3


def test_one_graph():
    torch._dynamo.reset()
    model, (x, y) = build("position_relative"), words()
    targets = torch.randint(6, y.shape)
    mask = torch.arange(TARGET) < torch.tensor([[2], [5], [7]])
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    close(compiled(x, y, targets, target_padding_mask=mask), model(x, y, targets, target_padding_mask=mask))


# ---------------------------------------------------------------------------------------------------------------------
# Padding
# ---------------------------------------------------------------------------------------------------------------------

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
    anew=st.booleans(),
)
def test_padded_is_alone(kind, sources, targets, pos_enc, anew):
    more = {} if kind == "plain" else {"update_symbols_each_layer": anew}
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


# ---------------------------------------------------------------------------------------------------------------------
# Losses
# ---------------------------------------------------------------------------------------------------------------------


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


# ---------------------------------------------------------------------------------------------------------------------
# Tied weights, and state dicts
# ---------------------------------------------------------------------------------------------------------------------

EMBEDDING, OUTPUT = "layers.target_embedder.weight", "layers.final_out.weight"


def test_tied_weights_are_one():
    model, (x, y) = build(), words()
    embedding, output = model.get_parameter(EMBEDDING), model.get_parameter(OUTPUT)
    assert model.tie_weights and embedding is output
    assert build(tie_weights=False).get_num_params() - model.get_num_params() == embedding.numel()
    untied = build(tie_weights=False)
    untied.load_state_dict(model.state_dict())
    targets = torch.randint(6, y.shape)
    for net in (model, untied):
        net(x, y, targets)[1].backward()
    close(embedding.grad, untied.get_parameter(EMBEDDING).grad + untied.get_parameter(OUTPUT).grad)


@pytest.mark.parametrize(
    "tied, chosen, std",
    [
        (True, None, 1 / 8),
        (False, None, 1),
        (False, "scaled", 1 / 8),
        (True, "published", 1),
    ],
)
def test_how_large_embeddings_begin(tied, chosen, std):
    spec = {"type": "token", "vocab_size": 500}
    model = Seq2SeqTransformer(
        **{**SIZES, "d_model": 64}, input_spec=spec, output_spec=spec, out_dim=500, tie_weights=tied,
        embedding_init=chosen, encoder_kwargs={**BLOCK, "n_heads": 2},
        decoder_kwargs={**BLOCK, "n_heads": 2, "n_heads_cross": 2},
    )  # fmt: skip
    for side in ("source", "target"):
        assert model.layers[f"{side}_embedder"].weight.std().item() == pytest.approx(std, rel=0.05)
    assert (model.get_parameter(OUTPUT).std().item() < 0.2) is (std < 1 or not tied)


def test_untying():
    model, (x, y) = build(), words()
    before = model(x, y)[0]
    model.untie_weights()
    assert not model.tie_weights and model.get_parameter(EMBEDDING) is not model.get_parameter(OUTPUT)
    close(model(x, y)[0], before)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("left_out", [None, EMBEDDING, OUTPUT])
def test_state_dicts_of_tied_models(assign, left_out):
    model, other, (x, y) = build(), build(), words()
    state = copy.deepcopy(model.state_dict())
    assert EMBEDDING in state and OUTPUT in state
    state.pop(left_out, None)
    other.load_state_dict(state, assign=assign)
    assert other.get_parameter(EMBEDDING) is other.get_parameter(OUTPUT)
    close(other(x, y)[0], model(x, y)[0])
    assert (left_out in state) is (False if left_out else None in state)  # the caller's dict is as it was


def test_off_the_meta_device_tied_weights_are_one():
    with torch.device("meta"):
        model = Seq2SeqTransformer(
            **TOKENS, **SIZES, encoder_kwargs={**BLOCK, "n_heads": 2},
            decoder_kwargs={**BLOCK, "n_heads": 2, "n_heads_cross": 2},
        )  # fmt: skip
    model = model.to_empty(device="cpu")
    assert model.get_parameter(EMBEDDING) is model.get_parameter(OUTPUT)


def test_two_weights_are_not_loaded_as_one():
    state = build(tie_weights=False).state_dict()
    with pytest.raises(
        RuntimeError, match=r"target_embedder.weight and layers.final_out.weight differ.*tie_weights=False"
    ):
        build().load_state_dict(state)
    build(tie_weights=False).load_state_dict(state)


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_published_state_dicts_say_that_they_are_not_tied(tie_weights, nested):
    golden = load("seq2seq", "seq2seq_words")
    assert "tie_weights" not in golden.kwargs  # so it was True, and in effect False
    model = Seq2SeqTransformer(**golden.kwargs, tie_weights=tie_weights).double()
    extra = {name for name in golden.state_dict if name.startswith("layers.target_embedder.weights.")}
    assert len(extra) == 2
    if nested:
        holder = nn.ModuleDict({"model": model})
        holder.load_state_dict({f"model.{name}": tensor for name, tensor in golden.state_dict.items()})
    else:
        model.load_state_dict(golden.state_dict)
    assert not model.tie_weights
    assert model.state_dict().keys() == golden.state_dict.keys() - extra
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, golden.state_dict[name])


def test_a_published_weight_under_its_extra_name_alone():
    """Those who save each tensor once may have kept that name."""
    golden = load("seq2seq", "seq2seq_words")
    state = {name: tensor for name, tensor in golden.state_dict.items() if not name.startswith("layers.final_out.")}
    model = Seq2SeqTransformer(**golden.kwargs).double()
    model.load_state_dict(state)
    assert torch.equal(model.get_parameter(OUTPUT), golden.state_dict[OUTPUT])


def test_other_keys_are_still_unexpected():
    state = build().state_dict()
    state["layers.source_embedder.weights.weight"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*source_embedder.weights.weight"):
        build().load_state_dict(state)


# ---------------------------------------------------------------------------------------------------------------------
# Cached decoding
# ---------------------------------------------------------------------------------------------------------------------

chunks = st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= TARGET)


@pytest.mark.parametrize("kind", KINDS)
@COUNTED_BY_LENGTH
@given(
    sizes=chunks,
    pos_enc=st.sampled_from(["sinusoidal", "learned", "none"]),
    anew=st.booleans(),
    reserve=st.booleans(),
    lefts=st.none() | st.lists(st.integers(0, 2), min_size=3, max_size=3),
    vectors=st.booleans(),
)
def test_cached_is_uncached(kind, sizes, pos_enc, anew, reserve, lefts, vectors):
    more = {} if kind == "plain" else {"update_symbols_each_layer": anew}
    model = build(kind, pos_enc=pos_enc, **more, **(VECTORS if vectors else {}))
    length = sum(sizes)
    x, y = (normal(3, SOURCE, 3), normal(3, length, 2)) if vectors else words(target=length)
    source_mask = torch.arange(SOURCE) < torch.tensor([[2], [9], [5]])
    target_mask = None if lefts is None else torch.arange(length) >= torch.tensor(lefts)[:, None]
    with torch.no_grad():
        memory = model.encode(x, source_padding_mask=source_mask)
        masks = {"source_padding_mask": source_mask, "target_padding_mask": target_mask}
        wanted = model.decode(y, memory, **masks)
        cache, outs = model.new_cache(length if reserve else None), []
        for chunk in y.split(sizes, dim=1):
            seen = cache.length + chunk.shape[1]
            masks["target_padding_mask"] = None if target_mask is None else target_mask[:, :seen]
            outs.append(model.decode(chunk, memory, **masks, cache=cache))
            assert cache.length == seen and cache.batch == 3
    got = torch.cat(outs, dim=1)
    where = slice(None) if target_mask is None else target_mask
    close(got[where], wanted[where])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_can_be_reordered_and_cropped(kind):
    model, (x, y) = build(kind), words()
    chosen = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        memory = model.encode(x)
        cache = model.new_cache()
        model.decode(y[:, :4], memory, cache=cache)
        cache.reorder(chosen)
        later = torch.randint(6, (4, 2))
        got = model.decode(later, memory[chosen], cache=cache)
        close(got, model.decode(torch.cat([y[chosen, :4], later], dim=1), memory[chosen])[:, 4:])
        if kind == "rel_sym_attn":
            return  # its neighbourhoods keep a window
        cache.crop(3)
        close(
            model.decode(later, memory[chosen], cache=cache),
            model.decode(torch.cat([y[chosen, :3], later], dim=1), memory[chosen])[:, 3:],
        )


def test_a_failed_call_leaves_the_cache_as_it_was():
    model, (x, y) = build("rel_sym_attn"), words()
    with torch.no_grad():
        memory, cache = model.encode(x), model.new_cache()
        first = model.decode(y[:, :3], memory, cache=cache)
        numbers = cache.numel()
        with pytest.raises(ValueError, match="y: expected at most out_block_size=7 positions, got 5 after 3"):
            model.decode(y[:, :5], memory, cache=cache)
        model.layers.final_out.register_forward_pre_hook(fails := lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.decode(y[:, 3:5], memory, cache=cache)
        assert fails and (cache.length, cache.numel()) == (3, numbers)
        model.layers.final_out._forward_pre_hooks.clear()
        close(torch.cat([first, model.decode(y[:, 3:], memory, cache=cache)], 1), model.decode(y, memory))


# ---------------------------------------------------------------------------------------------------------------------
# Generation
# ---------------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def greedy_by_hand(model, x, steps, start, stop=None, **masks):
    rows = []
    for i in range(len(x)):
        y, own = torch.tensor([[start]]), {name: mask[i : i + 1] for name, mask in masks.items()}
        for _ in range(steps):
            logits, _ = model(x[i : i + 1], y, **own)
            y = torch.cat([y, logits[:, -1].argmax(-1)[:, None]], dim=1)
            if y[0, -1] == stop:
                break
        rows.append(y[0, 1:].tolist())
    return rows


def rows_until(tokens, stop):
    """Lists of tokens up to and including the first stop token."""
    rows = tokens.tolist()
    return [row[: row.index(stop) + 1] if stop in row else row for row in rows]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_generation_is_the_model_again_and_again(kind, use_cache):
    model, (x, _) = build(kind), words(batch=5)
    masks = {"source_padding_mask": torch.arange(SOURCE) < torch.tensor([[2], [9], [5], [7], [1]])}
    got = model.generate(x, TARGET, start_token=1, use_cache=use_cache, **masks)
    assert got.dtype == torch.int64
    assert got.tolist() == greedy_by_hand(model, x, TARGET, 1, **masks)
    stop = int(got[0, 2])
    ended = model.generate(x, TARGET, start_token=1, stop_token=stop, use_cache=use_cache, **masks)
    assert rows_until(ended, stop) == greedy_by_hand(model, x, TARGET, 1, stop, **masks)
    first = ended[0].tolist().index(stop)
    assert set(ended[0, first:].tolist()) == {stop}  # padded with the stop token, unless another is named
    padded = model.generate(x, TARGET, start_token=1, stop_token=stop, pad_token=0, use_cache=use_cache, **masks)
    assert set(padded[0, first + 1 :].tolist()) <= {0} and padded[0, first] == stop


@torch.no_grad()
def best_by_trying_all(model, x, length, start):
    """The likeliest target of ``length`` tokens, and its log-probability."""
    all_targets = torch.cartesian_prod(*[torch.arange(6)] * length)
    y = torch.cat([torch.full((len(all_targets), 1), start), all_targets[:, :-1]], dim=1)
    logits = model.decode(y, model.encode(x).expand(len(y), -1, -1))
    scores = logits.log_softmax(-1).gather(2, all_targets[..., None]).sum((1, 2))
    return all_targets[scores.argmax()], scores.max()


@pytest.mark.parametrize("kind", KINDS)
def test_wide_beams_find_the_likeliest_target(kind):
    model, (x, _) = build(kind), words(batch=2)
    for use_cache in (True, False):
        tokens, scores = model.beam_search(x, 3, 36, start_token=2, length_penalty=0.0, use_cache=use_cache)
        assert tokens.shape == (2, 1, 3)
        for i in range(2):
            wanted, score = best_by_trying_all(model, x[i : i + 1], 3, 2)
            assert torch.equal(tokens[i, 0], wanted)
            close(scores[i, 0], score)
    assert torch.equal(model.generate(x, 3, start_token=2, num_beams=36, length_penalty=0.0), tokens[:, 0])


@pytest.mark.parametrize("kind", KINDS)
@COUNTED_BY_LENGTH
@given(
    num_beams=st.integers(1, 4),
    penalty=st.sampled_from([0.0, 1.0, 2.0]),
    stop=st.none() | st.integers(0, 5),
    early=st.booleans(),
    masked=st.booleans(),
)
def test_beams_with_and_without_a_cache(kind, num_beams, penalty, stop, early, masked):
    model, (x, _) = build(kind), words()
    arguments = {"start_token": 3, "stop_token": stop, "length_penalty": penalty, "early_stopping": early}
    if masked:
        arguments["source_padding_mask"] = torch.arange(SOURCE) < torch.tensor([[2], [9], [5]])
    searches = [
        model.beam_search(x, 6, num_beams, num_return=num_beams, use_cache=use_cache, **arguments)
        for use_cache in (True, False)
    ]
    close(searches[0].scores, searches[1].scores)
    assert torch.equal(searches[0].tokens, searches[1].tokens)
    assert (searches[0].scores.diff(dim=1) <= 0).all()
    if num_beams == 1 and stop is None:
        del arguments["early_stopping"]
        assert torch.equal(searches[0].tokens[:, 0], model.generate(x, 6, **arguments))


def test_sampling_is_seeded_and_spread_as_the_model_says():
    model, (x, _) = build(), words(batch=1)
    many = x.expand(4000, -1)
    one, other = (model.generate(many, 2, start_token=0, temperature=1.0, seed=5) for _ in range(2))
    assert torch.equal(one, other)
    wanted = model(x, torch.tensor([[0]]))[0][0, -1].softmax(-1)
    found = torch.bincount(one[:, 0], minlength=6) / len(one)
    assert (found - wanted).abs().max() < 0.04
    drawn = model.generate(many, 1, start_token=0, temperature=1.0, top_k=2, seed=5)
    assert set(drawn.flatten().tolist()) == set(wanted.topk(2).indices.tolist())


def test_processors_see_the_prefix_and_what_was_made():
    model, (x, y) = build(), words()
    seen = []

    def never_again(tokens, logits):
        seen.append(tokens)
        return logits.scatter(1, tokens, -torch.inf)

    got = model.generate(x, 3, start_token=y[:, :2], logits_processors=[never_again])
    assert torch.equal(seen[-1], torch.cat([y[:, :2], got[:, :2]], dim=1))
    assert all(len(set(row)) == 3 for row in got.tolist())


def test_a_prefix_for_each_source():
    model, (x, y) = build("positional_symbols"), words()
    got = model.generate(x, 4, start_token=y[:, :3])
    for i in range(3):
        close(got[i : i + 1], model.generate(x[i : i + 1], 4, start_token=y[i : i + 1, :3]))
    assert torch.equal(got[:, 0], model(x, y[:, :3])[0][:, -1].argmax(-1))
    same = model.generate(x, 4, start_token=y[:1, :2])
    assert torch.equal(same, model.generate(x, 4, start_token=y[:1, :2].expand(3, -1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_vectors_are_fed_back(kind, use_cache):
    model, x, start = build(kind, **VECTORS), normal(3, SOURCE, 3), normal(3, 2, 2)
    mask = torch.arange(SOURCE) < torch.tensor([[2], [9], [5]])
    got = model.generate_vectors(x, 5, start=start, source_padding_mask=mask, use_cache=use_cache)
    y = start
    for _ in range(5):
        with torch.no_grad():
            y = torch.cat([y, model(x, y, source_padding_mask=mask)[0]], dim=1)
    close(got, y[:, 2:])
    assert model.generate_vectors(x, 0, start=start).shape == (3, 0, 2)


def test_generation_leaves_the_mode_and_asks_for_no_gradients():
    model, (x, _) = build(embedding_dropout=0.5), words()
    wanted = model.generate(x, 5, start_token=0)
    model.train()
    model.layers.encoder_blocks[0].eval()
    modes = [module.training for module in model.modules()]
    for _ in range(2):
        assert torch.equal(model.generate(x, 5, start_token=0), wanted)
    model.generate(x, 5, start_token=0, num_beams=3)
    assert [module.training for module in model.modules()] == modes and torch.is_grad_enabled()


def test_no_new_tokens_and_no_sources():
    model, (x, _) = build(), words()
    assert model.generate(x, 0, start_token=0).shape == (3, 0)
    assert model.generate(x, 0, start_token=0, num_beams=2).shape == (3, 0)
    assert len(model.generate(x[:0], 4, start_token=0)) == 0


@pytest.mark.parametrize("kind", ["plain", "position_relative"])
def test_learns_to_reverse(kind):
    """A small model fits a batch of reversed sequences, and then writes them by itself."""
    torch.manual_seed(1)
    sizes = {"d_model": 32, "n_layers_enc": 1, "n_layers_dec": 1}
    retrieval = {} if kind == "plain" else {"symbol_retrieval_kwargs": {"symbol_dim": 32, "max_rel_pos": 8}}
    model = build(kind, **sizes, **retrieval, input_spec={"type": "token", "vocab_size": 6}).float().train()
    x = torch.randint(1, 5, (12, 5))
    targets = torch.cat([x.flip(1), torch.full((12, 1), 5)], dim=1)
    y = torch.cat([torch.zeros(12, 1, dtype=torch.long), x.flip(1)], dim=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimiser.zero_grad()
        model(x, y, targets)[1].backward()
        optimiser.step()
    for num_beams in (1, 3):
        got = model.generate(x, 7, start_token=0, stop_token=5, num_beams=num_beams)
        assert torch.equal(got[:, :6], targets)


# ---------------------------------------------------------------------------------------------------------------------
# Parameter counts of the paper's mathematics models
# ---------------------------------------------------------------------------------------------------------------------

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


# ---------------------------------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, arguments, message",
    [
        ("plain", {"input_spec": {"type": "image"}}, "input_spec: expected 'type' to be .* got 'image'"),
        ("plain", {"input_spec": {}}, "input_spec: expected 'type'"),
        ("plain", {"output_spec": {"type": "token"}}, "output_spec: expected 'vocab_size' .* got None"),
        ("plain", {"output_spec": {"type": "vector", "dim": 0}}, "output_spec: expected 'dim' .* got 0"),
        ("plain", {"output_spec": {"type": "vector", "dim": 2.0}}, "output_spec: expected 'dim' .* got 2.0"),
        ("plain", {"out_dim": 7}, "tie_weights: .*out_dim=7 and vocab_size=6"),
        ("plain", {"out_dim": 0}, "out_dim: .*got 0"),
        ("plain", {"n_layers_enc": 0}, "n_layers_enc: .*got 0"),
        ("plain", {"n_layers_dec": -1}, "n_layers_dec: .*got 0"),
        ("plain", {"in_block_size": 0}, "in_block_size: .*got 0"),
        ("plain", {"pos_enc": "rope"}, "pos_enc: .*got 'rope'"),
        ("plain", {"loss_type": "l1"}, "loss_type: .*got 'l1'"),
        ("plain", {"embedding_init": "small"}, "embedding_init: .*got 'small'"),
        ("plain", {"embedding_dropout": 1.0}, "dropout: .*got 1.0"),
        ("plain", {"embedding_dropout": 1.0, "pos_enc": "none"}, "embedding_dropout: .*got 1.0"),
        ("symbolic_attention", {"symbol_retrieval": "sym"}, "symbol_retrieval: .*got 'sym'"),
        (
            "position_relative",
            {"encoder": {"ra_kwargs": {}}},
            r"encoder_kwargs\['ra_kwargs'\]: .*use_relative_positional_symbols=True",
        ),
        (
            "symbolic_attention",
            {"decoder": {"ra_kwargs": {"use_relative_positional_symbols": True}}},
            r"decoder_kwargs\['ra_kwargs'\]: .*use_relative_positional_symbols=False",
        ),
        (
            "rel_sym_attn",
            {"symbol_retrieval_kwargs": {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}},
            "symbol_retrieval_kwargs: with causal_nbhd=False .*later tokens",
        ),
        (
            "positional_symbols",
            {"symbol_retrieval_kwargs": {"symbol_dim": 4, "max_length": 9}},
            "symbol_retrieval_kwargs: expected symbol_dim=8, the width of the model, got 4",
        ),
        (
            "symbolic_attention",
            {
                "decoder_symbol_retrieval": "symbolic_attention",
                "decoder_symbol_retrieval_kwargs": {"d_model": 4, "n_heads": 2, "n_symbols": 5},
            },
            "decoder_symbol_retrieval_kwargs: expected d_model=8, the width of the model, got 4",
        ),
        ("symbolic_attention", {"decoder_symbol_retrieval_kwargs": {}}, "needs decoder_symbol_retrieval"),
    ],
)
def test_bad_constructions_are_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(kind, **arguments)


def test_a_specification_is_a_mapping():
    with pytest.raises(TypeError, match=r"input_spec: expected a mapping .* got 'token'"):
        build(input_spec="token")


def test_arguments_are_not_changed():
    arguments = {
        **copy.deepcopy({**TOKENS, **SIZES}),
        "encoder_kwargs": {**BLOCK, "n_heads": 2},
        "decoder_kwargs": {**BLOCK, "n_heads": 2, "n_heads_cross": 2},
    }
    before = copy.deepcopy(arguments)
    Seq2SeqTransformer(**arguments)
    assert arguments == before


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"x": torch.full((3, 4), 11)}, ValueError, "x: expected token ids from 0 to 10, got 11 to 11"),
        ({"x": torch.full((3, 4), -1)}, ValueError, "x: expected token ids from 0 to 10, got -1"),
        ({"y": torch.full((3, 4), 6)}, ValueError, "y: expected token ids from 0 to 5"),
        ({"x": torch.zeros(3, 4)}, TypeError, "x: expected integer token ids, got dtype torch.float32"),
        ({"x": torch.zeros(4, dtype=torch.long)}, ValueError, "x: expected token ids of shape"),
        ({"x": torch.zeros(3, 10, dtype=torch.long)}, ValueError, "x: expected at most in_block_size=9 .*got 10"),
        ({"y": torch.zeros(3, 8, dtype=torch.long)}, ValueError, "y: expected at most out_block_size=7 .*got 8"),
        ({"y": torch.zeros(2, 4, dtype=torch.long)}, ValueError, "as many sources as there are targets"),
        ({"y": torch.zeros(3, 0, dtype=torch.long), "targets": None}, ValueError, "y: expected at least one position"),
        ({"targets": torch.zeros(3, 3, dtype=torch.long)}, ValueError, "targets: expected shape"),
        ({"targets": torch.zeros(3, 4)}, TypeError, "targets: expected integers"),
        ({"targets": torch.full((3, 4), 6)}, ValueError, "targets: expected 0 to 5"),
        ({"source_padding_mask": torch.ones(3, 4)}, TypeError, "source_padding_mask: expected a boolean"),
        ({"source_padding_mask": torch.ones(3, 5).bool()}, ValueError, "source_padding_mask: expected shape"),
        ({"target_padding_mask": torch.ones(1, 4).bool()}, ValueError, "target_padding_mask: expected shape"),
        ({"loss_mask": torch.ones(3, 4)}, TypeError, "loss_mask: expected a boolean"),
        ({"loss_mask": torch.ones(3, 5).bool()}, ValueError, "loss_mask: expected shape"),
    ],
)
def test_bad_calls_are_refused(arguments, error, message):
    tokens = torch.zeros(3, 4, dtype=torch.long)
    with pytest.raises(error, match=message):
        build()(**{"x": tokens, "y": tokens, "targets": tokens, **arguments})


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"x": torch.zeros(3, 4, 2)}, ValueError, r"x: expected shape \(batch, length, 3\)"),
        ({"x": torch.zeros(3, 4, 3).long()}, TypeError, "x: expected floating-point vectors"),
        ({"targets": torch.zeros(3, 4, 2).long()}, TypeError, "targets: .*loss_type='cross_entropy'"),
        ({"targets": torch.zeros(3, 4)}, ValueError, "targets: expected shape"),
    ],
)
def test_bad_vectors_are_refused(arguments, error, message):
    vectors = torch.zeros(3, 4, 2)
    with pytest.raises(error, match=message):
        build(**VECTORS).float()(**{"x": torch.zeros(3, 4, 3), "y": vectors, "targets": vectors, **arguments})


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"max_new_tokens": 8}, ValueError, "max_new_tokens: expected at most 7 .*out_block_size=7; got 8"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens: .*got -1"),
        ({"start_token": 6}, ValueError, "start_token: .*from 0 to 5, got 6"),
        ({"start_token": torch.zeros(2, 1).long()}, ValueError, "prefix .*3 sources"),
        ({"start_token": torch.zeros(3, 0).long()}, ValueError, "start_token: expected at least one"),
        ({"start_token": 0.5}, TypeError, "start_token: expected an integer"),
        ({"stop_token": 6}, ValueError, "stop_token.*from 0 to 5, got 6"),
        ({"num_beams": 0}, ValueError, "num_beams: .*got 0"),
        ({"num_beams": 2, "temperature": 1.0}, ValueError, "beam search samples nothing"),
        ({"num_beams": 2, "logits_processors": [lambda _, logits: logits]}, ValueError, "beam search samples nothing"),
        ({"num_beams": 2, "top_k": 3}, ValueError, "beam search samples nothing"),
        ({"temperature": -1.0}, ValueError, "temperature"),
        ({"seed": 0, "generator": torch.Generator()}, ValueError, "seed"),
    ],
)
def test_bad_generations_are_refused(arguments, error, message):
    x = torch.zeros(3, 4, dtype=torch.long)
    with pytest.raises(error, match=message):
        build().generate(x, **{"max_new_tokens": 3, "start_token": 0, **arguments})


def test_models_that_cannot_generate_say_so():
    x, vectors = torch.zeros(3, 4, dtype=torch.long), normal(3, 4, 3)
    with pytest.raises(ValueError, match="needs a causal decoder"):
        build(decoder={"causal": False}).generate(x, 3, start_token=0)
    with pytest.raises(ValueError, match="generate_vectors is for vectors"):
        build(**VECTORS).generate(vectors, 3, start_token=0)
    with pytest.raises(ValueError, match="out_dim=9 classes are more than the tokens"):
        build(out_dim=9, tie_weights=False).generate(x, 3, start_token=0)
    with pytest.raises(ValueError, match="generate_vectors: needs a decoder that reads vectors"):
        build().generate_vectors(x, 3, start=normal(3, 1, 2))
    with pytest.raises(ValueError, match=r"generate_vectors: needs .*out_dim=4"):
        build(**{**VECTORS, "out_dim": 4}).generate_vectors(vectors, 3, start=normal(3, 1, 2))
    with pytest.raises(ValueError, match="length: expected at most 7"):
        build(**VECTORS).generate_vectors(vectors, 8, start=normal(3, 1, 2))
    with pytest.raises(ValueError, match=r"start: expected shape \(batch, length, 2\)"):
        build(**VECTORS).generate_vectors(vectors, 2, start=normal(3, 1, 3))


def test_a_cache_of_a_decoder_that_is_not_causal_is_refused():
    model, (x, y) = build(decoder={"causal": False}), words()
    with torch.no_grad(), pytest.raises(ValueError, match="cache: needs is_causal=True"):
        model.decode(y, model.encode(x), cache=model.new_cache())


def test_a_cache_of_another_model_is_refused():
    model, (x, y) = build(), words()
    with torch.no_grad(), pytest.raises(ValueError, match="cache: expected the parts"):
        model.decode(y, model.encode(x), cache=build("positional_symbols").new_cache())
