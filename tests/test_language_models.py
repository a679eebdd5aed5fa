"""Language models: what they compute, whatever way the tokens are given, and what they are made of.

Agreement with the published package is tested in `test_golden.py`, decoding with a cache in
`test_language_decoding.py`.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import pytest
import torch
from torch import nn

from dual_attention import DualAttnTransformerLM, TransformerLM
from dual_attention.dual_attention import DualAttentionOutput
from dual_attention.language_models import configure_optimizers
from dual_attention.language_presets import language_preset
from tests.language import CONTEXT, KINDS, LAYERS, SYMBOLS, VOCAB, WIDTH, build, lm, tokens, with_attention

DAT_KINDS = tuple(SYMBOLS)
POSITIONS = ("pos_emb", "RoPE", "none")


def close(found, wanted, tolerance=1e-10):
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=0)


# ---- the published interface


def test_published_arguments_are_kept_in_their_order():
    required = inspect.Parameter.empty

    def positional(model):
        parameters = list(inspect.signature(model.__init__).parameters.values())[1:]
        return {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}

    assert list(positional(TransformerLM).items()) == [
        *((name, required) for name in ("vocab_size", "d_model", "n_layers", "n_heads", "dff", "dropout_rate")),
        *((name, required) for name in ("activation", "norm_first", "max_block_size")),
        ("norm_type", "layernorm"),
        ("bias", True),
        ("pos_enc_type", "pos_emb"),
        ("use_flash_attention", True),
        ("block_kwargs", None),
    ]
    assert list(positional(DualAttnTransformerLM).items()) == [
        *((name, required) for name in ("vocab_size", "d_model", "n_layers", "n_heads_sa", "n_heads_ra")),
        *((name, required) for name in ("symbol_retrieval_kwargs", "dff", "dropout_rate", "activation")),
        *((name, required) for name in ("norm_first", "max_block_size")),
        ("norm_type", "layernorm"),
        ("sa_kwargs", None),
        ("ra_kwargs", None),
        ("ra_type", "relational_attention"),
        ("share_attn_params", False),
        ("symbol_retrieval", "symbolic_attention"),
        ("symbol_retriever_config", None),
        ("pos_enc_type", "pos_emb"),
        ("bias", True),
    ]


def test_published_attributes_are_kept():
    model = build("symbolic_attention", pos_enc_type="RoPE")
    for name in ("vocab_size", "d_model", "n_layers", "dff", "dropout_rate", "activation", "norm_first", "norm_type"):
        assert hasattr(model, name) and hasattr(build("transformer"), name)
    assert model.bias and build("transformer").bias
    assert (model.block_size, model.n_heads, model.n_heads_sa, model.n_heads_ra) == (CONTEXT, 4, 2, 2)
    assert (model.ra_type, model.share_attn_params) == ("relational_attention", False)
    assert (model.symbol_retriever, model.pos_enc_type) == ("symbolic_attention", "RoPE")
    assert model.freqs_cos.shape == model.freqs_sin.shape == (CONTEXT, 2)
    assert not hasattr(build("transformer"), "freqs_cos")
    assert build("transformer").n_heads == 4


def test_state_dict_has_the_published_names_and_shapes():
    """Those of the published checkpoint of 343M with 64 relations, made with bias=False."""
    state = language_preset("DAT-343M-nr64").build(device="meta").state_dict()
    layer = {"norm1.weight": (1024,), "norm1.bias": (1024,), "norm2.weight": (1024,), "norm2.bias": (1024,)}
    layer |= {f"dual_attn.self_attention.{name}.weight": (256, 1024) for name in ("wk", "wv")}
    layer |= {f"dual_attn.{kind}_attention.wo.weight": (512, 512) for kind in ("self", "relational")}
    layer |= {"dual_attn.self_attention.wq.weight": (512, 1024), "dual_attn.relational_attention.wr": (8, 64, 64)}
    layer |= {f"dual_attn.relational_attention.{n}.weight": (512, 1024) for n in ("wq_attn", "wq_rel", "wk_rel")}
    layer |= {f"dual_attn.relational_attention.{n}.weight": (256, 1024) for n in ("wk_attn", "wv")}
    layer |= {"ff_block.linear1.weight": (4096, 1024), "ff_block.linear1.bias": (4096,)}
    layer |= {"ff_block.linear2.weight": (1024, 4096), "ff_block.linear2.bias": (1024,)}
    symbols = {name: (1024, 1024) for name in ("template_features", "symbol_library", "q_proj.weight")}
    symbols |= {"q_proj.bias": (1024,)}
    wanted = {"layers.token_embedder.weight": (50304, 1024), "layers.final_out.weight": (50304, 1024)}
    wanted |= {"layers.norm.weight": (1024,), "layers.norm.bias": (1024,)}
    for i in range(24):
        wanted |= {f"layers.blocks.{i}.{name}": shape for name, shape in layer.items()}
        wanted |= {f"layers.symbol_retrievers.{i}.{name}": shape for name, shape in symbols.items()}
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == wanted


def test_learned_positions_have_their_published_name():
    assert build("transformer").state_dict()["layers.positional_embedder.weight"].shape == (CONTEXT, WIDTH)
    rotary = build("transformer", pos_enc_type="RoPE").state_dict()
    assert not [name for name in rotary if "pos" in name or "freq" in name]


def test_the_callers_arguments_are_not_changed():
    given = {
        "symbol_retrieval_kwargs": dict(SYMBOLS["symbolic_attention"]),
        "sa_kwargs": {"n_kv_heads": 1},
        "ra_kwargs": {"n_kv_heads": 1},
        "symbol_retriever_config": {"shared_symbol_retriever": False},
    }
    before = copy.deepcopy(given)
    model = build("symbolic_attention", **given)
    assert given == before
    assert model.symbol_retriever_config == {"shared_symbol_retriever": False, "weight_tie_symbol_library": False}
    attn = {"attn_kwargs": {"n_kv_heads": 2}}
    assert build("transformer", block_kwargs=attn).layers.blocks[0].self_attn.n_kv_heads == 2
    assert attn == {"attn_kwargs": {"n_kv_heads": 2}}


# ---- options


def test_feed_forward_biases_of_the_dat():
    """As published there are some whatever `bias` says; `ff_bias=None` lets it decide."""

    def biased(**options):
        return build("symbolic_attention", **options).layers.blocks[0].ff_block.linear1.bias is not None

    assert biased() and biased(bias=False) and biased(bias=True, ff_bias=None)
    assert not biased(bias=False, ff_bias=None) and not biased(bias=True, ff_bias=False)


def test_biases_of_the_transformer():
    for bias in (True, False):
        block = build("transformer", bias=bias).layers.blocks[0]
        assert (block.ff_block.linear1.bias is not None) == (block.self_attn.wo.bias is not None) == bias


def test_dropout_acts_on_embeddings():
    model = build("transformer", dropout_rate=0.5, n_layers=1).train()
    (entered,) = record(model.layers.blocks[0], lambda: model(tokens(2, 8)))
    assert 0.3 < (entered == 0).double().mean() < 0.7
    (entered,) = record(model.eval().layers.blocks[0], lambda: model(tokens(2, 8)))
    assert (entered != 0).all()


def record(module, run):
    """The first arguments that a module is called with."""
    seen = []
    handle = module.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    run()
    handle.remove()
    return seen


def test_use_flash_attention_changes_nothing_but_the_way():
    model = lm("transformer")
    x = tokens(2, 7)
    fused = model(x).logits
    model.use_flash_attention = False
    close(model(x).logits, fused)


@pytest.mark.parametrize("kind", KINDS)
def test_tied_and_untied_output(kind):
    tied, untied = build(kind), build(kind, tie_weights=False, output_bias=True, final_norm=False)
    assert tied.layers.token_embedder.weight is tied.layers.final_out.weight
    assert untied.layers.token_embedder.weight is not untied.layers.final_out.weight
    assert untied.get_num_params() == tied.get_num_params() + VOCAB - 2 * WIDTH  # a bias, no norm
    assert untied.get_num_params(False) == untied.get_num_params() + (VOCAB + CONTEXT) * WIDTH
    assert tied.get_num_params(False) == tied.get_num_params() + CONTEXT * WIDTH
    tied(tokens(1, 4), tokens(1, 4)).loss.backward()
    assert tied.layers.token_embedder.weight.grad is tied.layers.final_out.weight.grad


@pytest.mark.parametrize("kind", DAT_KINDS)
@pytest.mark.parametrize("tie", [False, True])
def test_a_retriever_for_each_layer(kind, tie):
    config = {"shared_symbol_retriever": False, "weight_tie_symbol_library": tie}
    model = lm(kind, symbol_retriever_config=config)
    first, second = model.layers.symbol_retrievers
    assert first is not second
    libraries = [n for n, _ in first.named_parameters() if "symbol_library" in n or "rel_pos_embeddings" in n]
    assert len(libraries) == 1
    for name, parameter in first.named_parameters():
        assert (parameter is second.get_parameter(name)) == (tie and name in libraries), name
    again = build(kind, symbol_retriever_config=config).double()
    again.load_state_dict(model.state_dict(), strict=True)
    x = tokens(2, 6)
    close(again.eval()(x).logits, model(x).logits)
    again.load_state_dict(model.state_dict(), strict=True, assign=True)
    assert again.get_num_params() == model.get_num_params()


def test_tied_sinusoidal_symbols():
    kwargs = {"symbol_dim": WIDTH, "max_length": CONTEXT, "sinusoidal": True}
    config = {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}
    model = build("positional_symbols", symbol_retrieval_kwargs=kwargs, symbol_retriever_config=config)
    assert model(tokens(2, 5)).logits.shape == (2, 5, VOCAB)


@pytest.mark.parametrize("kind", DAT_KINDS)
def test_one_retriever_for_all_layers(kind):
    retrievers = build(kind).layers.symbol_retrievers
    assert len(retrievers) == LAYERS and retrievers[0] is retrievers[1]


@pytest.mark.parametrize("kind", DAT_KINDS)
def test_symbols_are_retrieved_for_each_layer_or_once(kind):
    for anew, times in ((True, LAYERS), (False, 1)):
        model = lm(kind, update_symbols_each_layer=anew)
        entered = record(model.layers.symbol_retrievers[0], lambda model=model: model(tokens(2, 5)))
        assert len(entered) == times
        blocks = [record(block, lambda model=model: model(tokens(2, 5))) for block in model.layers.blocks]
        assert all(len(calls) == 1 for calls in blocks)


def test_without_relational_heads_no_symbols_are_retrieved():
    model = lm("symbolic_attention", n_heads_sa=4, n_heads_ra=0)
    assert not record(model.layers.symbol_retrievers[0], lambda: model(tokens(2, 5)))
    plain = lm("transformer")
    assert "symbols" in lm("symbolic_attention").new_cache().caches
    assert set(model.new_cache().caches) == set(plain.new_cache().caches) == {"blocks"}


@pytest.mark.parametrize("ra_type", ["rca", "disrca"])
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_other_relational_heads(ra_type, pos_enc_type):
    model = lm("symbolic_attention", ra_type=ra_type, pos_enc_type=pos_enc_type, ra_kwargs={"n_kv_heads": 1})
    assert_causal(model)


@pytest.mark.parametrize("kind", KINDS)
def test_swiglu_grouped_heads_and_post_norm(kind):
    options = {"activation": "swiglu", "norm_first": False, "norm_type": "rmsnorm", "pos_enc_type": "RoPE"}
    assert_causal(lm(kind, **options, **with_attention(kind, n_kv_heads=1)))


# ---- initialisation


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_initialisation(activation):
    torch.manual_seed(1)
    options = {"d_model": 64, "dff": 256, "activation": activation, "vocab_size": 500, "pos_enc_type": "pos_emb"}
    kwargs = {"symbol_retrieval_kwargs": {"d_model": 64, "n_heads": 4, "n_symbols": 64}}
    for model in (build("symbolic_attention", **options, **kwargs), build("transformer", **options)):
        check_initial_weights(model)


def check_initial_weights(model):
    scaled = 0.02 / math.sqrt(2 * LAYERS)
    for name, parameter in model.named_parameters():
        last = name.split(".", 1)[1]
        if last.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in last:
            assert (parameter == 1).all(), name
        else:
            residual = last.endswith(("wo.weight", "linear2.weight"))
            wanted = scaled if residual else 1.0 if last.endswith(("template_features", "symbol_library")) else 0.02
            # Three standard errors of the standard deviation of so many numbers, and a little for the maximum of many.
            assert abs(parameter.std() / wanted - 1) < 5 / math.sqrt(2 * parameter.numel()), (name, parameter.std())


def test_large_wr_is_left_as_it_is():
    model = build("symbolic_attention", ra_kwargs={"wr_init": "large"})
    assert model.layers.blocks[0].dual_attn.relational_attention.wr.abs().max() > 0.2
    model = build("symbolic_attention")
    assert model.layers.blocks[0].dual_attn.relational_attention.wr.abs().max() < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_meta_device(kind):
    """Built without storage, a model gets its ties and tables back when it is given some."""
    options = {"pos_enc_type": "RoPE", "norm_type": "rmsnorm"}
    if kind in DAT_KINDS:
        options["symbol_retriever_config"] = {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}
        options["ra_kwargs"] = {"symmetric_rels": True}
    real, empty = build(kind, **options), build(kind, **options, device="meta")
    assert all(tensor.is_meta for tensor in [*empty.parameters(), *empty.buffers()])
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in build(kind, **options).parameters())
    empty.to_empty(device="cpu")
    assert empty.get_num_params(False) == real.get_num_params(False)
    empty.load_state_dict(real.state_dict(), strict=True)
    x = tokens(2, 6)
    close(empty.eval()(x).logits, real.eval()(x).logits)
    with torch.no_grad():
        for parameter in empty.parameters():
            parameter.fill_(torch.nan)
    empty.init_weights()
    assert torch.isfinite(empty(x).logits).all()


def test_sinusoidal_symbols_from_the_meta_device():
    kwargs = {"symbol_dim": WIDTH, "max_length": CONTEXT, "sinusoidal": True}
    model = build("positional_symbols", symbol_retrieval_kwargs=kwargs, device="meta")
    table = build("positional_symbols", symbol_retrieval_kwargs=kwargs).layers.symbol_retrievers[0].sinusoids
    close(model.to_empty(device="cpu").layers.symbol_retrievers[0].sinusoids, table)


@pytest.mark.parametrize("kind", KINDS)
def test_dtype_and_device(kind):
    model = build(kind, pos_enc_type="RoPE", dtype=torch.bfloat16, device="cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.freqs_cos.dtype == torch.float32
    x, real = tokens(2, 5), torch.arange(5) >= torch.tensor([[0], [3]])
    logits, loss = model(x, x, padding_mask=real)
    assert logits.dtype == torch.bfloat16 and loss.dtype == torch.float32
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, list(model.parameters())))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert build(kind)(x, x).logits.dtype == torch.bfloat16


def test_copies_and_pickles_keep_ties():
    model, x = lm("symbolic_attention"), tokens(2, 5)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        close(other(x).logits, model(x).logits)
        assert other.get_num_params(False) == model.get_num_params(False)


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
    for ours, theirs in zip(found, wanted, strict=True):
        close(ours, theirs)


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


def assert_causal(model, length=9):
    x = tokens(3, length)
    changed = x.clone()
    changed[:, 5:] = (changed[:, 5:] + 1 + torch.randint(VOCAB - 1, (3, length - 5))) % VOCAB
    before, after = model(x).logits, model(changed).logits
    close(after[:, :5], before[:, :5], 1e-12)
    assert ((after[:, 5:] - before[:, 5:]).abs().amax(-1) > 1e-6).all()


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
    model = lm(kind, pos_enc_type=pos_enc_type, **with_attention(kind, shaw_max_rel_pos=shaw))
    examples = [tokens(n) for n in (3, 7, 1)]
    alone = [model(example[None]).logits[0] for example in examples]
    for side in ("left", "right"):
        x, real = pad(examples, side, 9)
        logits = model(x, padding_mask=real).logits
        assert torch.isfinite(logits).all()
        close(logits[real], torch.cat(alone))
    assert torch.isfinite(model(x, padding_mask=torch.zeros_like(real)).logits).all()
    x, segments = pack(examples, batch=2)
    for rows in (segments, segments.expand(2, -1)):
        close(model(x, segments=rows).logits, torch.cat(alone).expand(2, -1, -1))
    x, real = pad([torch.cat(examples)], "left", 14)
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
        for ours, theirs in zip(found, wanted, strict=True):
            close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_packed_rows_may_be_longer_than_the_context(kind, pos_enc_type):
    model = lm(kind, pos_enc_type=pos_enc_type)
    examples = [tokens(CONTEXT), tokens(5)]
    x, segments = pack(examples)
    alone = torch.cat([model(example[None]).logits[0] for example in examples])
    close(model(x, segments=segments).logits[0], alone)
    with pytest.raises(
        ValueError, match=r"positions: expected 0 to 23 \(the context, max_block_size=24\), got 0 to 28"
    ):
        model(x, segments=torch.zeros_like(segments))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_positions_may_be_given(kind, pos_enc_type):
    model, x = lm(kind, pos_enc_type=pos_enc_type), tokens(2, 6)
    counted = torch.arange(6)[None]
    wanted = model(x).logits
    for positions in (counted, counted.expand(2, -1)):
        close(model(x, positions=positions).logits, wanted)
    if kind == "rel_sym_attn":
        with pytest.raises(ValueError, match="positions: expected 0 to 5"):
            model(x, positions=counted + 3)
    elif pos_enc_type == "pos_emb" or kind == "positional_symbols":
        assert (model(x, positions=counted + 3).logits - wanted).abs().max() > 1e-3
    else:  # rotary positions are relative, but for the rounding of their tables to float32
        close(model(x, positions=counted + 3).logits, wanted, 1e-5)


# ---- inside


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anew", [True, False])
def test_trace_is_what_forward_does(kind, anew):
    options = {} if kind == "transformer" else {"update_symbols_each_layer": anew}
    model, x = lm(kind, pos_enc_type="RoPE", **options), tokens(2, 6)
    real = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    hidden, states, maps = model.trace(x, padding_mask=real)
    close(hidden, model.hidden(x, padding_mask=real))
    assert len(states) == LAYERS + 1 and len(maps) == LAYERS
    entered = record(model.layers.blocks[1], lambda: model(x, padding_mask=real))
    close(states[1], entered[0])
    close(model.layers.norm(states[-1]), hidden)
    sensory = maps[0] if kind == "transformer" else maps[0].sa_weights
    assert sensory.shape == (2, 4 if kind == "transformer" else 2, 6, 6)
    assert not sensory.triu(1).any() and not sensory[1, :, :, :2].any()
    if kind != "transformer":
        assert isinstance(maps[0], DualAttentionOutput)
        assert [tuple(found.shape) for found in maps[0].ra_maps] == [(2, 2, 6, 6), (2, 6, 6, 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anew", [True, False])
def test_gradient_checkpointing_changes_no_gradient(kind, anew):
    options = {} if kind == "transformer" else {"update_symbols_each_layer": anew}
    model = lm(kind, dropout_rate=0.3, pos_enc_type="RoPE", **options).train()
    x, targets = tokens(2, 6), tokens(2, 6)
    calls = [0]
    model.layers.blocks[0].register_forward_pre_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))

    def gradients(again):
        model.gradient_checkpointing = again
        calls[0] = 0
        torch.manual_seed(5)
        found = torch.autograd.grad(model.loss(x, targets), list(model.parameters()))
        return found, calls[0]

    (plain, once), (again, twice) = gradients(False), gradients(True)
    assert (once, twice) == (1, 2)
    for ours, theirs in zip(again, plain, strict=True):
        close(ours, theirs, 1e-12)


def test_only_the_numbers_of_a_block_are_kept_with_gradient_checkpointing():
    model = build("symbolic_attention", n_layers=4)
    x = tokens(2, CONTEXT)

    def kept(again):
        model.gradient_checkpointing = again
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.numel()), t)[1], lambda t: t):
            model(x, x)
        return sum(sizes)

    assert kept(True) < kept(False) / 2


# ---- where values cannot be read


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_no_value_is_read_off_the_cpu(kind, pos_enc_type):
    """On a GPU, that would wait for it. The meta device has no values at all."""
    model = build(kind, pos_enc_type=pos_enc_type, device="meta")
    x = torch.empty(2, 6, dtype=torch.long, device="meta")
    real = torch.empty(2, 6, dtype=torch.bool, device="meta")
    for options in ({}, {"padding_mask": real}, {"segments": x}, {"segments": x[:1], "padding_mask": real}):
        assert model(x, x, **options).logits.shape == (2, 6, VOCAB)
        assert model.loss(x, x, **options).shape == ()
    assert model(x, positions=x).logits.shape == (2, 6, VOCAB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "masked"), [("symbolic_attention", False), ("transformer", False), *((kind, True) for kind in KINDS)]
)
def test_compiles_as_one_graph(kind, masked):
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
    for ours, theirs in zip(
        torch.autograd.grad(found.loss, list(model.parameters())),
        torch.autograd.grad(wanted.loss, list(model.parameters())),
        strict=True,
    ):
        close(ours, theirs, 1e-5)


@pytest.mark.slow
def test_gradient_checkpointing_compiles_as_one_graph():
    model = build("symbolic_attention", pos_enc_type="RoPE", n_layers=1)
    x = tokens(2, 12)
    wanted = torch.autograd.grad(model.loss(x, x), list(model.parameters()))
    model.gradient_checkpointing = True
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: model(x, x, loss_only=True).loss, fullgraph=True, backend="aot_eager")
    loss = compiled(x)
    for ours, theirs in zip(torch.autograd.grad(loss, list(model.parameters())), wanted, strict=True):
        close(ours, theirs, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_exports(kind):
    model = build(kind, pos_enc_type="RoPE", n_layers=1).eval()
    x = tokens(2, 7)
    exported = torch.export.export(model, (x,)).module()
    close(exported(x)[0], model(x).logits, 1e-5)


# ---- around training


def test_flops_and_mfu():
    """The Transformer's are those of PaLM; a shared retriever is used by every layer, so its weights count for each."""
    model = build("transformer", pos_enc_type="RoPE", bias=False)
    matrices = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * 20) + WIDTH * VOCAB
    assert model.flops_per_token() == 6 * matrices + 12 * LAYERS * WIDTH * CONTEXT
    assert model.flops_per_token(10) == 6 * matrices + 12 * LAYERS * WIDTH * 10
    flops = model.flops_per_token() * CONTEXT * 3
    assert model.estimate_mfu(3, 2.0) == pytest.approx(flops / 2.0 / 312e12)
    assert model.estimate_mfu(3, 2.0, flops_promised=1e9) == pytest.approx(flops / 2.0 / 1e9)

    # Two heads of each kind, of width 4; two relations as wide as the relational heads together.
    model = build("symbolic_attention", pos_enc_type="RoPE")
    sensory = 3 * WIDTH * 8 + 64
    relational = 5 * WIDTH * 8 + 64 + 2 * 4 * 2
    matrices = LAYERS * (sensory + relational + 2 * WIDTH * 20 + WIDTH**2 + 2 * 5 * WIDTH) + WIDTH * VOCAB
    pairs = 2 * (4 + 4) + 2 * (4 + 4) + 2 * (4 + 2)
    assert model.flops_per_token() == 6 * matrices + 6 * LAYERS * CONTEXT * pairs
    once = build("symbolic_attention", update_symbols_each_layer=False)
    assert model.flops_per_token() - once.flops_per_token() == 6 * (LAYERS - 1) * (WIDTH**2 + 2 * 5 * WIDTH)


@pytest.mark.parametrize(("ra_type", "pair"), [("rca", 2), ("disrca", 3)])
def test_flops_of_other_relational_heads(ra_type, pair):
    models = [build("symbolic_attention", ra_type=ra_type, max_block_size=n) for n in (10, 20)]
    short, long = (model.flops_per_token() for model in models)
    assert long - short == 6 * LAYERS * 10 * (2 * (4 + 4) + 2 * pair * 4)


def test_optimizer_decays_matrices_alone():
    kwargs = {**SYMBOLS["symbolic_attention"], "trainable_symbols": False}
    model = build("symbolic_attention", symbol_retrieval_kwargs=kwargs)
    optimizer = configure_optimizers(model, 0.1, 6e-4, (0.9, 0.95), "cpu")
    decayed, plain = optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"], decayed["lr"], decayed["betas"]) == (
        0.1,
        0.0,
        6e-4,
        (0.9, 0.95),
    )
    assert all(p.dim() >= 2 for p in decayed["params"]) and all(p.dim() < 2 for p in plain["params"])
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == trained
    assert len(trained) == len(list(model.parameters())) - 1  # the library


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_steps_learn(kind):
    model = build(kind, pos_enc_type="RoPE", d_model=16)
    optimizer = configure_optimizers(model, 0.0, 1e-2, (0.9, 0.95), "cpu")
    x = tokens(4, 12)
    losses = []
    for _ in range(25):
        loss = model.loss(x[:, :-1], x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(VOCAB), abs=0.1)
    assert losses[-1] < 0.75 * losses[0]


# ---- bad input


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("transformer", {"pos_enc_type": "rope"}, "pos_enc_type: expected 'pos_emb', 'RoPE' or 'none', got 'rope'"),
        ("transformer", {"n_layers": 0}, "n_layers: expected a positive number, got 0"),
        ("transformer", {"vocab_size": 0}, "vocab_size: expected a positive number, got 0"),
        ("transformer", {"max_block_size": 0}, "max_block_size: expected a positive number, got 0"),
        ("transformer", {"dropout_rate": 1.5}, r"dropout.*: expected a rate in \[0, 1\), got 1.5"),
        ("transformer", {"n_heads": 3}, "d_model: 16 is not divisible by the total number of heads, 3"),
        ("transformer", {"norm_type": "batch"}, "norm_type: expected"),
        ("transformer", {"activation": "step"}, "activation: expected one of"),
        ("symbolic_attention", {"symbol_retrieval": "magic"}, "symbol_retrieval: expected one of"),
        ("symbolic_attention", {"symbol_retrieval": "position_relative_2d"}, "needs use_relative_positional_symbols"),
        ("symbolic_attention", {"n_layers": 0}, "n_layers: expected a positive number, got 0"),
        ("symbolic_attention", {"n_heads_sa": 0, "n_heads_ra": 0}, "n_heads_sa, n_heads_ra: expected"),
        ("symbolic_attention", {"ra_type": "ra"}, "ra_type: expected one of"),
        (
            "symbolic_attention",
            {"symbol_retriever_config": {"shared": True}},
            "symbol_retriever_config: expected the keys shared_symbol_retriever, .*, got 'shared'",
        ),
        (
            "symbolic_attention",
            {"symbol_retriever_config": {"shared_symbol_retriever": False}, "update_symbols_each_layer": False},
            "update_symbols_each_layer: symbols that are retrieved once need",
        ),
        (
            "symbolic_attention",
            {"symbol_retrieval_kwargs": {"d_model": 8, "n_heads": 2, "n_symbols": 5}},
            "symbol_retrieval_kwargs: expected d_model=16, the width of the model, got 8",
        ),
        (
            "positional_symbols",
            {"symbol_retrieval_kwargs": {"symbol_dim": 8, "max_length": 5}},
            "symbol_retrieval_kwargs: expected symbol_dim=16, the width of the model, got 8",
        ),
        (
            "rel_sym_attn",
            {"symbol_retrieval_kwargs": {**SYMBOLS["rel_sym_attn"], "causal_nbhd": False}},
            "symbol_retrieval_kwargs: a causal model needs causal_nbhd=True",
        ),
        (
            "symbolic_attention",
            {"ra_kwargs": {"use_relative_positional_symbols": True}},
            "ra_kwargs: symbol_retrieval='symbolic_attention' needs use_relative_positional_symbols=False",
        ),
        (
            "symbolic_attention",
            {"pos_enc_type": "RoPE", "ra_kwargs": {"key_dim": 8}},
            r"sa_kwargs, ra_kwargs: pos_enc_type='RoPE' needs one key_dim in both kinds of head, got \[4, 8\]",
        ),
        ("transformer", {"pos_enc_type": "RoPE", "n_heads": 16}, "dim: rotary embedding turns pairs of features"),
    ],
)
def test_bad_arguments(kind, options, message):
    with pytest.raises(ValueError, match=message):
        build(kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_further_arguments_of_blocks(kind):
    block = build(kind, block_kwargs={"post_norm_dropout": False}).layers.blocks[0]
    assert not block.post_norm_dropout
    with pytest.raises(TypeError, match="causal"):  # which they must be
        build(kind, block_kwargs={"causal": False})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pos_enc_type", POSITIONS)
def test_a_sequence_longer_than_the_context(kind, pos_enc_type):
    model = build(kind, pos_enc_type=pos_enc_type)
    message = "x: a sequence of 25 tokens is longer than the context, max_block_size=24"
    with pytest.raises(ValueError, match=message):
        model(tokens(2, CONTEXT + 1))
    with pytest.raises(ValueError, match=message):
        model(tokens(2, CONTEXT + 1), padding_mask=torch.ones(2, CONTEXT + 1, dtype=torch.bool))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"x": torch.zeros(2, 4)}, TypeError, "x: expected integer token ids, got dtype torch.float32"),
        (
            {"x": torch.zeros(4).long()},
            ValueError,
            r"x: expected token ids of shape \(batch, length\), got shape \(4,\)",
        ),
        ({"x": torch.full((2, 4), VOCAB)}, ValueError, r"x: expected token ids from 0 to 10, got 11 to 11"),
        ({"x": torch.full((2, 4), -1)}, ValueError, r"x: expected token ids from 0 to 10, got -1 to -1"),
        ({"targets": torch.zeros(2, 4)}, TypeError, "targets: expected integers, got dtype torch.float32"),
        (
            {"targets": torch.zeros(2, 3).long()},
            ValueError,
            r"targets: expected the shape of x, \(2, 4\), got \(2, 3\)",
        ),
        ({"targets": torch.full((2, 4), VOCAB)}, ValueError, "targets: expected 0 to 10, or -1 to be ignored, got 11"),
        ({"loss_only": True, "targets": None}, ValueError, "loss_only: needs targets"),
        ({"padding_mask": torch.ones(2, 4)}, TypeError, "padding_mask: expected a boolean tensor"),
        ({"padding_mask": torch.ones(2, 3).bool()}, ValueError, r"padding_mask: expected shape \(batch, length\) = "),
        ({"segments": torch.zeros(4).long()}, ValueError, r"segments: expected integers of shape .* got shape \(4,\)"),
        ({"segments": torch.zeros(2, 4)}, ValueError, "segments: expected integers of shape"),
        ({"positions": torch.arange(4)}, ValueError, "positions: expected integers of shape"),
        ({"positions": torch.arange(4)[None] + 21}, ValueError, r"positions: expected 0 to 23 .*, got 21 to 24"),
        ({"cache": "none"}, TypeError, "cache: expected a cache, as new_cache"),
    ],
)
@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
def test_bad_input(kind, changes, error, message):
    arguments = {"x": tokens(2, 4), "targets": tokens(2, 4)} | changes
    with pytest.raises(error, match=message):
        build(kind)(**arguments)
