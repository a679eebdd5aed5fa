"""Captures: what they hold, what they leave alone, and what they refuse."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from dual_attention import Attention, DualAttention
from dual_attention._layers.taps import Tap
from dual_attention.baselines import Abstractor
from dual_attention.functional.reference import repeat_heads
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
from dual_attention.mechanisms import Additive, Cosine, Dot, GeneralAttention, MultiHead, Sparsemax, recipes
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.maps import QUANTITIES, Maps
from tests.hf.models import IMAGES, causal, classifier, masked, vision
from tests.model_analysis.models import FAMILIES, call
from tests.support.language import close, lm, tokens
from tests.support.largest_tensor import LargestTensor
from tests.support.seq2seq import build as seq2seq

TAPS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooks(model):
    return sum(len(getattr(module, name)) for module in model.modules() for name in TAPS)


# ---- what is captured


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_are_the_same_to_rounding_and_bit_for_bit_without_capture(name):
    model = FAMILIES[name]()
    run = call(name, model)
    before = run()
    with capture(model) as maps:
        close(run(), before, 1e-12)
    assert torch.equal(run(), before)
    assert len(maps.calls) == 1
    assert not hooks(model)


@pytest.mark.parametrize("name", FAMILIES)
def test_contributions_add_up_to_the_output_of_the_layer(name):
    model = FAMILIES[name]()
    run = call(name, model)
    outputs = {}
    layers = [m for m in model.modules() if isinstance(m, DualAttention)]
    layers += [
        m for m in model.modules() if isinstance(m, Attention) and not any(m in set(d.modules()) for d in layers)
    ]
    handles = [
        layer.register_forward_hook(lambda m, _, out: outputs.__setitem__(m, out[0].detach())) for layer in layers
    ]
    with capture(model, "contribution") as maps:
        run()
    for handle in handles:
        handle.remove()
    assert len(maps.only) == len(layers)
    found = [
        torch.stack([heads.get("contribution").sum(1) for heads in layer.kinds]).sum(0) for layer in maps.only.values()
    ]
    for values in found:
        biases = [wanted - values for wanted in outputs.values() if wanted.shape == values.shape]
        flat = [bias.flatten(0, 1) for bias in biases]
        assert any((bias - bias[:1]).abs().max() < 1e-10 for bias in flat)  # one vector at all places


@pytest.mark.parametrize("name", [name for name in FAMILIES if "transformer" not in name])
def test_messages_are_what_their_parts_say(name):
    """Recomputed from weights, relations, symbols and the parameters of the layer."""
    model = FAMILIES[name]()
    run = call(name, model)
    with capture(model, heads="relational") as maps:
        run()
    sites = [m for m in model.modules() if type(m).__name__.endswith(("RelationalAttention", "CrossAttention"))]
    records = maps.heads("relational")
    assert len(records) == len(sites) > 0
    for record, layer in zip(records, sites, strict=True):
        weights = record.get("weights")
        assert not weights.masked_select(~record.visible.expand(weights.shape)).any()
        if record.relations is not None and record.relational_message is None:  # disentangled RCA
            weights = weights * record.relations.permute(0, 3, 1, 2)
        if record.relational_message is not None:
            attended = torch.einsum("bhnm,bnmr->bhnr", weights, record.relations)
            close(record.relational_message, torch.einsum("bhnr,hdr->bhnd", attended, layer.wr))
            close(record.head_output, record.relational_message + record.symbol_message)
        else:
            close(record.head_output, record.symbol_message)
        if not record.relative_symbols:
            values = layer.wv(record.symbols).unflatten(-1, (layer.n_kv_heads, -1)).transpose(1, 2)
            values = repeat_heads(values, layer.n_heads)
            real = record.visible.any(2)[..., None]
            close(record.symbol_values.where(real, 0.0), values.where(real, 0.0))
            close(record.symbol_message, weights @ record.symbol_values)


def test_relations_are_those_that_the_layer_computes():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    entering = []
    layer = model.layers.blocks[1].dual_attn.relational_attention
    handle = layer.register_forward_pre_hook(lambda _, args: entering.append(args[0].detach()))
    with capture(model, "relations", layers=1) as maps:
        model(x)
    handle.remove()
    close(maps[1].relational.relations, layer.relations(entering[0]))


def test_weights_are_those_that_a_trace_has():
    for kind in ("symbolic_attention", "transformer"):
        model, x = lm(kind), tokens(3, 9)
        traced = model.trace(x).maps
        with capture(model) as maps:
            model(x)
        for layer, wanted in zip(maps.only.values(), traced, strict=True):
            if kind == "transformer":
                close(layer.sensory.weights, wanted)
            else:
                close(layer.sensory.weights, wanted.sa_weights)
                close(layer.relational.weights, wanted.ra_maps[0])
                close(layer.relational.relations, wanted.ra_maps[1])


def test_maps_that_a_call_returns_are_the_same_under_capture():
    """Also of padded senders."""
    for name in ("language symbolic_attention", "language disrca"):
        model, x = FAMILIES[name](), tokens(3, 9)
        mask = torch.ones(3, 9, dtype=torch.bool)
        mask[0, :4] = False
        before = model.trace(x, padding_mask=mask).maps
        with capture(model):
            after = model.trace(x, padding_mask=mask).maps
        for old, new in zip(before, after, strict=True):
            for a, b in zip((old.sa_weights, *old.ra_maps), (new.sa_weights, *new.ra_maps), strict=True):
                close(b, a)


def test_the_assignment_is_that_of_the_layer_s_own_symbols():
    for options in ({}, {"symbol_retriever_config": {"shared_symbol_retriever": False}}):
        model, x = lm("symbolic_attention", **options), tokens(3, 9)
        with capture(model) as maps:
            model(x)
        retrievers = [*model.layers.symbol_retrievers] * 2
        for layer, retriever in zip(maps.only.values(), retrievers, strict=False):
            record = layer.relational
            library = retriever.symbol_library.unflatten(-1, (2, -1)).transpose(0, 1)
            close(record.symbols, (record.assignment @ library).transpose(1, 2).flatten(2))


def test_heads_and_relations_that_are_chosen():
    model, x = lm("symbolic_attention", ra_kwargs={"n_relations": 5}), tokens(3, 9)
    with capture(model) as everything, capture(model, layers=1, heads={"relational": [1]}, relations=[4, 2]) as maps:
        model(x)
    assert maps.layers == ("blocks.1",)
    whole, part = everything["blocks.1"].relational, maps["blocks.1"].relational
    assert maps["blocks.1"].sensory is None
    assert part.head_numbers == (1,) and part.relation_numbers == (4, 2)
    assert torch.equal(part.relations, whole.relations[..., [4, 2]])
    for name in ("weights", "relational_message", "symbol_message", "head_output", "contribution", "symbol_values"):
        assert torch.equal(part.get(name), whole.get(name)[:, 1:2])
    assert torch.equal(part.select("weights", head=1, example=2), whole.weights[2, 1])
    assert torch.equal(part.select("relations", relation=2, receiver=5), whole.relations[:, 5, :, 2])
    assert torch.equal(part.select("visible", head=1), whole.visible[:, 0])
    assert part.labels("relations") == {
        "example": (0, 1, 2),
        "receiver": tuple(range(9)),
        "sender": tuple(range(9)),
        "relation": (4, 2),
    }


def test_layers_by_name():
    model = seq2seq("symbolic_attention")
    source, target = torch.randint(11, (2, 9)), torch.randint(6, (2, 7))
    for layers, wanted in (
        ("decoder", ("decoder.0", "decoder.0.cross", "decoder.1", "decoder.1.cross")),
        (["encoder.1", "decoder.0.cross"], ("encoder.1", "decoder.0.cross")),
        ("decoder.1", ("decoder.1",)),
    ):
        with capture(model, "weights", layers=layers) as maps:
            model(source, target)
        assert maps.layers == wanted


def test_a_single_layer_and_a_baseline():
    layer = DualAttention(16, 2, 2)
    x = torch.randn(2, 5, 16)
    with capture(layer) as maps:
        out = layer(x, x).output
    assert maps.layers == ("attention",)
    contributions = [heads.contribution.sum(1) for heads in maps["attention"].kinds]
    torch.testing.assert_close(sum(contributions), out.detach())
    abstractor = Abstractor(16, 2, 2, 20, 0.0, "gelu", True, "positional_symbols", {"symbol_dim": 16, "max_length": 9})
    with capture(abstractor) as maps:
        abstractor(x)
    assert maps.layers == ("blocks.0", "blocks.1")
    assert maps["blocks.0"].sensory.weights.shape == maps["blocks.0"].relational.weights.shape == (2, 2, 5, 5)


TOOLBOX = {
    "self-attention": lambda: recipes.self_attention(16, 4),
    "gate": lambda: recipes.gated_self_attention(16, 4),
    "sigmoid": lambda: recipes.sigmoid_self_attention(16, 4),
    "relational": lambda: recipes.relational_heads(16, 4, 3),
    "softmax relations": lambda: recipes.relational_heads(16, 4, 3, rel_activation="softmax", gate="sigmoid"),
    "cosine relations": lambda: recipes.relational_heads(16, 4, relation=Cosine(), align=Sparsemax(), qk_norm=True),
    "without symbols": lambda: recipes.hadamard_attention(16, 4),
    "only concatenated": lambda: MultiHead(GeneralAttention(Dot()), 16, 4, out_proj=False),
    "weights of features": lambda: MultiHead(GeneralAttention(Additive(4, 4, 8, d_out=4, heads=4)), 16, 4),
}


@pytest.mark.parametrize("name", TOOLBOX)
def test_heads_of_the_toolbox(name):
    heads, x, symbols = TOOLBOX[name]().double(), torch.randn(2, 5, 16).double(), torch.randn(2, 5, 16).double()
    mask = torch.tensor([[True] * 5, [False, True, True, True, True]])
    inputs = (x, x, symbols) if "symbols" in heads.taps.names else (x,)
    before = heads(*inputs, padding_mask=mask).context
    with capture(heads) as maps:
        close(heads(*inputs, padding_mask=mask).context, before, 1e-12)
    assert torch.equal(heads(*inputs, padding_mask=mask).context, before)
    (record,) = maps.heads()
    close(record.get("contribution").sum(1), before)
    if name == "weights of features":
        assert set(record.kept) == {"head_output", "contribution"}
        return
    wanted = heads(*inputs, padding_mask=mask, need_weights=True).weights
    close(record.get("weights"), wanted)
    assert torch.equal(record.get("visible").expand(2, 1, 5, 5)[:, 0], mask[:, None].expand(2, 5, 5))
    if record.kind == "relational":
        message = heads.message(x, x, inputs[2] if len(inputs) == 3 else None)
        relations = message.relations(mask=mask[:, None, None])
        close(record.get("relations"), relations)
        attended = torch.einsum("bhnm,bnmr,hdr->bhnd", record.get("weights"), relations, heads.message.wr)
        close(record.get("relational_message"), attended)
        assert record.relation_numbers == tuple(range(relations.shape[-1]))
    assert record.kind == ("relational" if "relation" in name or name == "without symbols" else "sensory")


def test_transformers_classes():
    config = DualAttnConfig(vocab_size=11, d_model=16, n_layers=2, n_heads_sa=2, n_heads_ra=2, dff=20)
    model = DualAttnForCausalLM(config).eval()
    x = tokens(2, 7)
    before = model(x).logits
    with capture(model, layers=[0]) as maps:
        torch.testing.assert_close(model(x).logits, before)
    eager = model.model.trace(x).maps[0]
    torch.testing.assert_close(maps[0].relational.relations, eager.ra_maps[1].detach())
    with capture(model, "weights") as maps:
        model.generate(x, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert [call[0].sensory.weights.shape[2:] for call in maps.calls] == [(7, 7), (1, 8), (1, 9)]


@pytest.mark.parametrize("make", [causal, classifier, masked, vision], ids=lambda make: make.__name__)
def test_padded_batches_of_transformers_classes(make):
    """The same maps as those of the model within, whose layers have the same names."""
    model = make()
    if make is vision:
        inputs = {"pixel_values": torch.randn(IMAGES)}
        ours = inputs["pixel_values"]
        within, arguments = model.model, (ours,)
    else:
        mask = torch.ones(3, 7, dtype=torch.long)
        mask[1, :3] = 0
        inputs = {"input_ids": tokens(3, 7), "attention_mask": mask}
        within, arguments = model.model, (inputs["input_ids"],)
    padding = {} if make is vision else {"padding_mask": inputs["attention_mask"].bool()}
    with torch.no_grad(), capture(model) as maps:
        model(**inputs)
    with torch.no_grad(), capture(within) as wanted:
        within(*arguments, **padding)
    assert maps.layers == wanted.layers == ("blocks.0", "blocks.1")
    for one, other in zip(maps.heads(), wanted.heads(), strict=True):
        assert one.kept.keys() == other.kept.keys()
        for name, values in one.kept.items():
            torch.testing.assert_close(values, other.get(name))


# ---- several calls


def test_calls_are_kept_apart_and_joined():
    model, x = lm("symbolic_attention"), tokens(4, 9)
    with capture(model) as whole:
        model(x)
    with capture(model) as maps:
        model(x[:3])
        model(x[3:])
    assert len(maps.calls) == 2
    with pytest.raises(ValueError, match="2 calls were captured"):
        maps["blocks.0"]
    joined = maps.joined("example")
    for one, other in zip(whole.heads(), joined.heads(), strict=True):
        for name, values in one.kept.items():
            close(other.get(name).double(), values.expand(other.get(name).shape).double(), 1e-12)
    with capture(model) as maps:
        model(x)
        model(x[:, :5])
    with pytest.raises(ValueError, match="calls of one size"):
        maps.joined("example")


@pytest.mark.parametrize("kind", ["symbolic_attention", "rel_sym_attn", "positional_symbols", "transformer"])
@pytest.mark.parametrize("window", [None, 4])
def test_steps_of_decoding_join_to_the_whole(kind, window):
    attention = {"window": window}
    options = {"block_kwargs": {"attn_kwargs": attention}}
    if kind != "transformer":
        options = {"sa_kwargs": attention, "ra_kwargs": attention}
    model, x = lm(kind, **options), tokens(2, 9)
    with torch.no_grad(), capture(model) as whole:
        model(x)
    cache = model.new_cache()
    with torch.no_grad(), capture(model) as maps:
        for piece in x.split([4, 1, 1, 3], dim=1):
            model(piece, cache=cache)
    assert len(maps.calls) == 4
    joined = maps.joined("receiver")
    for one, other in zip(whole.heads(), joined.heads(), strict=True):
        seen = one.visible.expand(2, 2 if kind != "transformer" else 4, 9, 9)
        for name, values in one.kept.items():
            if name == "visible":
                assert torch.equal(other.visible.expand(2, 1, 9, 9), values.expand(2, 1, 9, 9))
            elif name == "relations":  # later senders have zeros
                mask = seen[:, 0, ..., None]
                close(other.relations.where(mask, 0.0), values.where(mask, 0.0))
            elif name == "symbol_values" and window:
                continue  # of the senders that are held
            else:
                close(*torch.broadcast_tensors(other.get(name), values))


def test_a_generation_s_steps_are_calls():
    model = lm("symbolic_attention")
    with capture(model, "weights", layers=0) as maps:
        model.generate(tokens(2, 4), max_new_tokens=3, temperature=0.0)
    assert [call[0].sensory.first_receiver for call in maps.calls] == [0, 4, 5]


def test_an_encoder_is_called_once_and_its_decoder_step_by_step():
    model = seq2seq("symbolic_attention")
    source, target = torch.randint(11, (2, 9)), torch.randint(6, (2, 5))
    with torch.no_grad(), capture(model) as whole:
        model(source, target)
    with torch.no_grad(), capture(model) as maps:
        memory, cache = model.encode(source), model.new_cache()
        for piece in target.split([1, 1, 3], dim=1):
            model.decode(piece, memory, cache=cache)
    assert [len(call) for call in maps.calls] == [6, 4, 4]
    joined = maps.joined("receiver")
    assert list(joined) == list(whole.only)
    for one, other in zip(whole.heads(), joined.heads(), strict=True):
        close(other.get("weights"), one.get("weights"))
        close(other.get("contribution"), one.get("contribution"))
    with pytest.raises(ValueError, match="call 1 has the layers"):
        maps.joined("example")


def test_recomputed_blocks_are_not_kept_again():
    model, x = lm("symbolic_attention").train(), tokens(2, 9)
    model.gradient_checkpointing = True
    with capture(model) as maps:
        model(x, x, loss_only=True).loss.backward()
    assert len(maps.calls) == 1
    with capture(model) as without:
        model.gradient_checkpointing = False
        model(x)
    for one, other in zip(maps.heads(), without.heads(), strict=True):
        for name, values in one.kept.items():
            assert torch.equal(values, other.get(name))


# ---- what is left alone


def test_memory_is_that_of_what_is_chosen():
    model, x = lm("symbolic_attention", ra_kwargs={"n_relations": 6}, max_block_size=64), tokens(4, 64)
    born = []

    def watch(_module, _args, out):
        born.append(weakref.ref(out))

    handles = [tap.register_forward_hook(watch) for tap in model.modules() if isinstance(tap, Tap)]
    with (
        torch.no_grad(),
        capture(model, ["weights", "relations"], layers=1, heads={"relational": [0]}, relations=3) as m,
    ):
        model(x)
    for handle in handles:
        handle.remove()
    gc.collect()
    assert born and all(ref() is None for ref in born)  # nothing that passed a tap is held
    assert m.memory == 8 * (4 * 64 * 64 + 4 * 64 * 64)
    kept = [values for heads in m.heads() for values in heads.kept.values()]
    assert sum(values.untyped_storage().nbytes() for values in kept) == m.memory  # no views of larger tensors


def test_relations_are_built_only_if_they_are_kept():
    model, x = (
        lm("symbolic_attention", ra_kwargs={"n_relations": 12, "rel_proj_dim": 2}, max_block_size=64),
        tokens(2, 64),
    )
    largest = {}
    for quantity in ("weights", "relations"):
        with torch.no_grad(), capture(model, quantity, layers=0, heads="relational"), LargestTensor() as watch:
            model(x)
        largest[quantity] = watch.numel
    assert largest["relations"] >= 2 * 64 * 64 * 12 > largest["weights"]


def test_mode_gradients_and_generators_are_left_alone():
    model, x = lm("symbolic_attention", dropout_rate=0.1), tokens(2, 9)
    model.train()
    model.layers.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    with capture(model) as maps:
        loss = model(x, x).loss
        state = torch.get_rng_state()
    assert torch.equal(state, torch.get_rng_state())
    loss.backward()
    assert modes == [module.training for module in model.modules()]
    assert all(parameter.grad is not None for parameter in model.layers.blocks.parameters())
    assert not any(values.requires_grad for heads in maps.heads() for values in heads.kept.values())
    torch.manual_seed(5)
    with capture(model):
        assert torch.equal(model(x, x).loss, loss)
    model.eval()
    state = torch.get_rng_state()
    with capture(model):
        model(x)
    assert torch.equal(state, torch.get_rng_state())


def test_gradients_are_the_same():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    model(x, x).loss.backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with capture(model):
        model(x, x).loss.backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        close(parameter.grad, gradient)


def test_no_hooks_are_left_after_an_error_within_or_before():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with pytest.raises(RuntimeError, match="within"), capture(model) as maps:
        model(x)
        raise RuntimeError("within")
    assert not hooks(model) and len(maps.calls) == 1
    with pytest.raises(ValueError, match=r"max_block_size|context|length"), capture(model):
        model(tokens(1, 99))
    with pytest.raises(ValueError, match="layers"), capture(model, layers=7):
        pass
    assert not hooks(model)


def test_captures_within_captures():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with capture(model, "weights") as outer:
        model(x)
        with capture(model, "relations") as inner:
            model(x)
        model(x)
    assert len(outer.calls) == 3 and len(inner.calls) == 1
    assert torch.equal(outer.calls[1][0].relational.weights, outer.calls[2][0].relational.weights)
    assert set(inner[0].relational.kept) == {"relations"}


def test_compiled_code_is_unaware_of_taps():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    before = model(x).logits
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    close(compiled(x).logits, before, 1e-12)
    with capture(compiled, layers=0) as maps:
        close(compiled(x).logits, before, 1e-12)
    assert maps[0].relational.relations.shape == (2, 9, 9, 2)
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(x)


def test_state_dicts_and_parameters_have_no_taps():
    model = lm("symbolic_attention")
    assert not [name for name in model.state_dict() if "taps" in name]
    assert not [name for name, _ in (*model.named_parameters(), *model.named_buffers()) if "taps" in name]


def test_copies_elsewhere():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with capture(model, "weights", layers=0, device="meta") as maps:
        model(x)
    assert maps[0].sensory.weights.is_meta


def test_an_adapter_s_contribution_counts():
    """Where another module has taken the place of the output projection."""
    model, x = lm("symbolic_attention"), tokens(2, 9)
    layer = model.layers.blocks[0].dual_attn.relational_attention

    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x) + 1

    with capture(model, "contribution", layers=0, heads={"relational": [1]}) as before:
        model(x)
    layer.wo = Doubled(layer.wo)
    with capture(model, "contribution", layers=0, heads={"relational": [1]}) as after:
        model(x)
    close(after[0].relational.contribution, 2 * before[0].relational.contribution)


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layers": 2}, ValueError, r"layers: expected some of blocks.0, blocks.1, got 2"),
        ({"layers": "decoder"}, ValueError, "layers: expected some of blocks.0"),
        ({"layers": []}, ValueError, "layers: expected at least one"),
        ({"layers": 1.5}, TypeError, "layers: expected a number or several"),
        ({"layers": [None]}, TypeError, "layers: expected names or numbers"),
        ({"heads": 2}, ValueError, "heads: expected numbers from 0 to 1, the sensory heads of blocks.0, got 2"),
        ({"heads": [-1]}, ValueError, "heads: .* got -1"),
        ({"heads": {"relational": [3]}}, ValueError, "heads: expected .*, the relational heads of blocks.0, got 3"),
        ({"heads": "both"}, ValueError, "heads: expected the kinds 'sensory' and 'relational', got 'both'"),
        ({"heads": [0.5]}, TypeError, "heads: expected numbers, got 0.5"),
        ({"heads": {}}, ValueError, "heads: expected at least one kind"),
        ({"relations": 2}, ValueError, "relations: expected numbers from 0 to 1, the relations of blocks.0, got 2"),
        ({"relations": 0, "heads": "sensory"}, ValueError, "relations: the chosen layers and heads have no relations"),
        ({"quantities": "values"}, ValueError, "quantities: expected some of visible"),
        ({"quantities": []}, ValueError, "quantities: expected at least one"),
        ({"quantities": "relations", "heads": "sensory"}, ValueError, "quantities: .* compute no relations"),
    ],
)
def test_wrong_choices(arguments, error, message):
    model = lm("symbolic_attention")
    with pytest.raises(error, match=message), capture(model, **arguments):
        pass
    assert not hooks(model)


def test_models_without_what_is_asked_for():
    with pytest.raises(ValueError, match="model: expected one with attention layers"), capture(nn.Linear(2, 2)):
        pass
    with pytest.raises(TypeError, match="model: expected a module, got function"), capture(lm):
        pass
    transformer = lm("transformer")
    for arguments, message in (
        ({"heads": "relational"}, r"heads: expected kinds .* got 'relational'"),
        ({"relations": 0}, "relations: the chosen layers and heads have no relations"),
    ):
        with pytest.raises(ValueError, match=message), capture(transformer, **arguments):
            pass


def test_maps_without_what_is_asked_for():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with capture(model, "weights", heads="relational") as maps:
        with pytest.raises(ValueError, match="nothing was captured"):
            maps[0]
        model(x)
    with pytest.raises(KeyError, match=r"expected one of blocks\.0, blocks\.1"):
        maps["blocks.2"]
    record = maps[0].relational
    with pytest.raises(ValueError, match="kept of its relational heads weights, got 'relations'"):
        record.get("relations")
    with pytest.raises(ValueError, match="expected one of visible"):
        record.get("value")
    with pytest.raises(ValueError, match="head: expected one of"):
        record.select("weights", head=5)
    with pytest.raises(ValueError, match="axis: weights has example, head"):
        record.select("weights", relation=0)
    with pytest.raises(ValueError, match="'example' or 'receiver'"):
        maps.joined("sender")
    with pytest.raises(ValueError, match="kind: expected"):
        maps.heads("cross")
    with pytest.raises(ValueError, match="nothing was captured"):
        Maps().joined("example")
    assert set(QUANTITIES) >= set(record.kept)
