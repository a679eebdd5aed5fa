"""Captures: what they hold, and what they refuse."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import profile

from dual_attention import Attention, DualAttention, with_parts
from dual_attention.baselines import ESBN, Abstractor, CoRelNet, PrediNet
from dual_attention.functional.reference import repeat_heads
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
from dual_attention.mechanisms import Additive, Cosine, Dot, Euclidean, GeneralAttention, MultiHead, Sparsemax, recipes
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.maps import QUANTITIES, Maps
from dual_attention.model_analysis.sites import find_sites
from tests.library.hf.models import IMAGES, causal, classifier, masked, vision
from tests.library.model_analysis.models import FAMILIES, call, hooks
from tests.support.language import close, lm, tokens
from tests.support.refusals import refusals
from tests.support.seq2seq import build as seq2seq


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


@pytest.mark.parametrize("output", ["wide", "narrow", "adapted", "none"])
def test_lengths_of_contributions(output):
    layer: Any = Attention(16, 4, out_dim=3 if output == "narrow" else None).double()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    [site] = find_sites(layer)
    if output == "adapted":
        layer.wo = nn.Sequential(layer.wo)
    if output == "none":
        layer.wo = None
    heads = x.unflatten(-1, (4, 4)).transpose(1, 2)
    close(site.contribution_norms(heads), site.contributions(heads, range(4)).norm(dim=-1), 1e-6)


def test_watching_what_goes_into_the_output_builds_no_map():
    """It is outside of the operation, which computes as if nobody watched."""
    layer, x = Attention(16, 4), torch.randn(1, 5, 16)
    with torch.no_grad(), capture(layer, ["head_output"]) as maps, profile() as profiled:
        out = layer(x, x, x).output
    steps = {event.key for event in profiled.key_averages()}
    assert any("scaled_dot_product" in step for step in steps)
    close(layer.wo(maps["attention"].kinds[0].head_output.transpose(1, 2).flatten(2)), out, 1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_contributions_add_up_to_the_output_of_the_layer(name):
    model = FAMILIES[name]()
    run = call(name, model)
    outputs = {}
    layers = [m for m in model.modules() if isinstance(m, DualAttention)]
    layers += [
        m for m in model.modules() if isinstance(m, Attention) and not any(m in set(d.modules()) for d in layers)
    ]
    handles = [x.register_forward_hook(lambda m, _, out: outputs.__setitem__(m, out[0].detach())) for x in layers]
    with capture(model, "contribution") as maps:
        run()
    for handle in handles:
        handle.remove()
    assert len(maps.only) == len(layers)
    found = [torch.stack([h.get("contribution").sum(1) for h in layer.kinds]).sum(0) for layer in maps.only.values()]
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


@pytest.mark.parametrize("name", ["symbolic_attention", "disrca", "transformer"])
def test_maps_that_a_call_returns_are_the_same_under_capture_and_what_it_keeps(name):
    """Also of padded senders, whose relations only what is kept still has."""
    model, x = FAMILIES[f"language {name}"](), tokens(3, 9)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[0, :4] = False
    before = model.trace(x, padding_mask=mask).maps
    with capture(model) as maps:
        after = model.trace(x, padding_mask=mask).maps
    for old, new, layer in zip(before, after, maps.only.values(), strict=True):
        if name == "transformer":
            returned, kept = [(old, new)], [layer.sensory.weights]
        else:
            returned = list(zip((old.sa_weights, *old.ra_maps), (new.sa_weights, *new.ra_maps), strict=True))
            r = layer.relational.relations
            kept = [layer.sensory.weights, layer.relational.weights, r.movedim(3, 1) if name == "disrca" else r]
        for (one, other), values in zip(returned, kept, strict=True):
            close(other, one)
            close(values[1:], one[1:])


@pytest.mark.parametrize("own", [{}, {"relation": Euclidean}])
def test_the_assignment_is_that_of_the_layer_s_own_symbols(own):
    for options in ({}, {"symbol_retriever_config": {"shared_symbol_retriever": False}}):
        model, x = with_parts(lm("symbolic_attention", **options), **own).eval(), tokens(3, 9)
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
    places = tuple(range(9))
    labels = {"example": (0, 1, 2), "receiver": places, "sender": places, "relation": (4, 2)}
    assert part.labels("relations") == labels


def test_labels_of_one_head_and_one_example():
    """An axis of length one is that head or example, unless there are more of them, which share it."""
    model, x = lm("symbolic_attention"), tokens(3, 9)
    with capture(model, heads=[0], layers=0) as maps:
        model(x)
    record = maps[0].relational
    for quantity in ("weights", "visible"):
        with pytest.raises(ValueError, match=r"head: expected one of \(0,\), got 1"):
            record.select(quantity, head=1)
    assert torch.equal(record.select("visible", example=2, head=0), record.visible[0, 0])
    with pytest.raises(ValueError, match=r"example: expected one of \(0, 1, 2\), got 3"):
        record.select("visible", example=3)
    with capture(model, layers=0) as maps, capture(model, "visible", layers=0) as untold:
        model(x[:1])
    assert torch.equal(untold[0].relational.select("visible", example=7), record.visible[0])
    for quantity in ("weights", "visible", "symbol_values"):
        with pytest.raises(ValueError, match=r"example: expected one of \(0,\), got 7"):
            maps[0].relational.select(quantity, example=7)


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


OBJECTS = {
    "PrediNet": lambda: PrediNet(6, 5, 3, 2, 5),
    "ESBN": lambda: ESBN(6, 4, 7),
    "CoRelNet": lambda: CoRelNet(6, 5),
    "CoRelNet, asymmetric": lambda: CoRelNet(6, 5, activation="identity", symmetric_rels=False, context_norm=True),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", OBJECTS)
def test_baselines_that_compare_objects(name, padded):
    model, x = OBJECTS[name]().double(), torch.randn(2, 5, 6).double()
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]]) if padded else None
    before = model(x, padding_mask=mask)
    with capture(model) as maps:
        close(model(x, padding_mask=mask), before, 1e-12)
    assert torch.equal(model(x, padding_mask=mask), before)
    (record,) = maps.heads()
    there = torch.ones(2, 5, dtype=torch.bool) if mask is None else mask
    if "CoRelNet" in name:
        assert record.kind == "relational" and set(record.kept) == {"visible", "relations"}
        both = there[:, :, None] & there[:, None]
        close(record.relations[..., 0].masked_fill(~both, 0.0), model.relations(x, padding_mask=mask))
        seen = there[:, None, None].expand(2, 1, 5, 5)
    else:
        quantities = {"visible", "weights", "head_output"} if name == "PrediNet" else {"visible", "weights"}
        assert record.kind == "sensory" and set(record.kept) == quantities
        weights = model(x, padding_mask=mask, need_weights=True).weights
        close(record.weights.view_as(weights), weights)
        seen = there[:, None, None].expand(2, 1, 2, 5)
        if name == "ESBN":
            seen = there[:, None, None] & torch.ones(5, 5, dtype=torch.bool).tril(-1)
    assert torch.equal(record.visible.expand_as(seen), seen)


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
        relations = message.relations(mask=mask[:, None, None]).masked_fill(~mask[:, None, :, None], 0)  # hidden keys
        close(record.get("relations"), relations)
        attended = torch.einsum("bhnm,bnmr,hdr->bhnd", record.get("weights"), relations, heads.message.wr)
        close(record.get("relational_message"), attended)
        assert record.relation_numbers == tuple(range(relations.shape[-1]))
    assert record.kind == ("relational" if "relation" in name or name == "without symbols" else "sensory")


def test_generation_by_transformers():
    config = DualAttnConfig(vocab_size=11, d_model=16, n_layers=2, n_heads_sa=2, n_heads_ra=2, dff=20)
    model = DualAttnForCausalLM(config).eval()
    with capture(model, "weights") as maps:
        model.generate(tokens(2, 7), max_new_tokens=3, do_sample=False, pad_token_id=0)
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


# ---- bad input


@refusals(
    ({"layers": 2}, r"layers: expected some of blocks.0, blocks.1, got 2"),
    ({"layers": "decoder"}, "layers: expected some of blocks.0"),
    ({"layers": []}, "layers: expected at least one"),
    ({"layers": 1.5}, TypeError, "layers: expected a number or several"),
    ({"layers": [None]}, TypeError, "layers: expected names or numbers"),
    ({"heads": 2}, "heads: expected numbers from 0 to 1, the sensory heads of blocks.0, got 2"),
    ({"heads": [-1]}, "heads: .* got -1"),
    ({"heads": {"relational": [3]}}, "heads: expected .*, the relational heads of blocks.0, got 3"),
    ({"heads": "both"}, "heads: expected the kinds 'sensory' and 'relational', got 'both'"),
    ({"heads": [0.5]}, TypeError, "heads: expected numbers, got 0.5"),
    ({"heads": {}}, "heads: expected at least one kind"),
    ({"heads": []}, "heads: expected at least one of the sensory heads of blocks.0, got none"),
    ({"relations": []}, "relations: expected at least one of the relations of blocks.0, got none"),
    ({"relations": 2}, "relations: expected numbers from 0 to 1, the relations of blocks.0, got 2"),
    ({"relations": 0, "heads": "sensory"}, "relations: the chosen layers and heads have no relations"),
    ({"quantities": "keys"}, "quantities: expected some of visible"),
    ({"quantities": []}, "quantities: expected at least one"),
    ({"quantities": "relations", "heads": "sensory"}, "quantities: .* compute no relations"),
    ({"model": nn.Linear(2, 2)}, "model: expected one with attention layers"),
    ({"model": lm}, TypeError, "model: expected a module, got function"),
    ({"model": lm("transformer"), "heads": "relational"}, r"heads: expected kinds .* got 'relational'"),
    ({"model": lm("transformer"), "relations": 0}, "relations: the chosen layers and heads have no relations"),
    of="arguments",
)
def test_wrong_choices(arguments, error, message):
    model = lm("symbolic_attention")
    with pytest.raises(error, match=message), capture(**{"model": model, **arguments}):
        pass
    assert not hooks(model)


@refusals(
    (lambda maps: Maps()[0], "nothing was captured"),
    (lambda maps: Maps().joined("example"), "nothing was captured"),
    (lambda maps: maps["blocks.2"], KeyError, r"expected one of blocks\.0, blocks\.1"),
    (lambda maps: maps[0].relational.get("relations"), "kept of its relational heads weights, got 'relations'"),
    (lambda maps: maps[0].relational.get("value"), "expected one of visible"),
    (lambda maps: maps[0].relational.select("weights", head=5), "head: expected one of"),
    (lambda maps: maps[0].relational.select("weights", relation=0), "axis: weights has example, head"),
    (lambda maps: maps.joined("sender"), "'example' or 'receiver'"),
    (lambda maps: maps.heads("cross"), "kind: expected"),
)
def test_maps_without_what_is_asked_for(call, error, message):
    model = lm("symbolic_attention")
    with capture(model, "weights", heads="relational") as maps:
        model(tokens(2, 9))
    assert set(QUANTITIES) >= set(maps[0].relational.kept)
    with pytest.raises(error, match=message):
        call(maps)


@pytest.mark.parametrize("name", OBJECTS)
def test_baselines_compute_no_contribution(name):
    with pytest.raises(ValueError, match="compute no contribution"), capture(OBJECTS[name](), "contribution"):
        pass
