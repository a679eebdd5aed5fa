"""Language models: their interface, options and initialisation, and what surrounds training.

Agreement with the published package is tested in `test_golden.py`, what they compute in `test_language_forward.py`,
decoding with a cache in `test_language_decoding.py`.
"""

import copy
import math
import pickle

import pytest
import torch

from dual_attention.language_models import configure_optimizers
from dual_attention.language_presets import language_preset
from tests.support.language import (
    CONTEXT,
    DAT_KINDS,
    KINDS,
    LAYERS,
    POSITIONS,
    SYMBOLS,
    VOCAB,
    WIDTH,
    assert_causal,
    build,
    close,
    lm,
    record,
    tokens,
    with_attention,
)

# ---- the published interface


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
    assert model.symbol_retriever_config["shared_symbol_retriever"] is False
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


def test_without_relational_heads_no_symbols_are_retrieved():
    model = lm("symbolic_attention", n_heads_sa=4, n_heads_ra=0)
    assert "symbol_retrievers" not in model.layers
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
        options["ra_kwargs"] = {"symmetric_rels": True, "rel_score": "squared_distance"}
    real, empty = build(kind, **options), build(kind, **options, device="meta")
    assert all(tensor.is_meta for tensor in [*empty.parameters(), *empty.buffers()])
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in build(kind, **options).parameters())
    x = tokens(2, 6)
    for _ in range(2):  # the second time its tables have values, which are lost
        empty.to_empty(device="cpu")
        assert empty.get_num_params(False) == real.get_num_params(False)
        empty.load_state_dict(real.state_dict(), strict=True)
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
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert (decayed["lr"], decayed["betas"]) == (6e-4, (0.9, 0.95))
    assert all(p.dim() >= 2 for p in decayed["params"]) and all(p.dim() < 2 for p in plain["params"])
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == trained
    assert len(trained) == len(list(model.parameters())) - 1  # the library


@pytest.mark.sweep(3)
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
