"""Kinds of interventions, against computations of another kind."""

from itertools import product

import pytest
import torch

from dual_attention import RelationalAttention
from dual_attention.baselines import ESBN, CoRelNet, PrediNet
from dual_attention.mechanisms import BoundedAdditive, GeneralAttention, MultiHead
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Patch, Scale, Steer, Target, intervene
from dual_attention.model_analysis.interventions.kinds import Situation
from dual_attention.model_analysis.interventions.targets import TAPS
from dual_attention.model_analysis.maps import CallMaps
from dual_attention.model_analysis.measures import measure_layers, message_share, relation_rank
from tests.library.model_analysis.interventions.support import MEDIATORS, captured, every, logits
from tests.library.model_analysis.models import FAMILIES, call, hooks
from tests.support import seq2seq
from tests.support.language import close, lm, tokens

pytestmark = pytest.mark.sweep(4)


@pytest.mark.parametrize("mediator", MEDIATORS)
def test_strength_zero_changes_nothing_and_strength_is_linear(mediator):
    model, x = lm("symbolic_attention"), tokens(3, 9)
    before = model(x).logits
    with capture(model) as source:
        model(x.flip(1))
    with capture(model, layers=0) as unchanged:
        model(x)
    for nothing, half, whole in zip(*(every(mediator, s) for s in (0.0, 0.5, 1.0)), strict=True):
        with intervene(model, nothing, source=source), capture(model, layers=0) as maps:
            close(model(x).logits, before, 1e-12)
        for one, other in zip(maps.heads(), unchanged.heads(), strict=True):
            for name, values in one.kept.items():
                assert torch.equal(values, other.get(name))
        tap, kind = TAPS[mediator], "sensory" if mediator == "value" else "relational"
        found = []
        for intervention in (half, whole):
            with intervene(model, intervention, source=source), capture(model, tap, layers=0) as maps:
                assert (model(x).logits - before).abs().max() > 1e-4
            found.append(getattr(maps[0], kind).get(tap))
        close(2 * found[0], found[1] + getattr(unchanged[0], kind).get(tap))
    assert not hooks(model)


LACKING = {
    ("language rca", "relation"),
    *((name, mediator) for name in FAMILIES if "transformer" in name for mediator in ("relation", "symbol")),
}


@pytest.mark.parametrize(("name", "mediator"), sorted(LACKING))
def test_families_that_lack_a_mediator(name, mediator):
    message = f"target: expected layers with relational heads that have a {mediator}"
    with pytest.raises(ValueError, match=message), intervene(FAMILIES[name](), Ablate(Target(mediator))):
        pass


@pytest.mark.parametrize(("name", "mediator"), sorted({*product(FAMILIES, MEDIATORS)} - LACKING))
def test_every_family(name, mediator):
    """Zero strength leaves the output, and ablation changes it, wherever there is such a mediator."""
    model = FAMILIES[name]()
    run = call(name, model)
    before = run()
    for how in ("zero", "mean", "resample"):
        with intervene(model, Ablate(Target(mediator), how, strength=0.0)):
            close(run(), before, 1e-12)
        with intervene(model, Ablate(Target(mediator), how)):
            same_for_all = (
                mediator == "symbol" and how == "resample" and name in ("language position_relative", "vision")
            )
            assert bool((run() - before).abs().max() > 1e-6) != same_for_all
    assert torch.equal(run(), before)
    assert not hooks(model)


@pytest.mark.parametrize("name", FAMILIES)
def test_ablating_a_head_equals_zeroing_its_columns_of_the_output_projection(name):
    model = FAMILIES[name]()
    run = call(name, model)
    layer = "decoder.1" if name.startswith("seq2seq") else "blocks.1"
    kinds = ["sensory"] if "transformer" in name else ["sensory", "relational"]
    head = 0 if name == "seq2seq" else 1
    for kind in kinds:
        with intervene(model, Ablate(Target("head", layers=layer, heads={kind: head}))):
            ablated = run()
        with capture(model, "weights", layers=layer, heads=kind) as maps:
            run()
        assert maps.layers == (layer,)
        paths = {"sensory": ("self_attn", "self_attention"), "relational": ("relational_attention",)}[kind]
        stack = "decoder_blocks.1." if name.startswith("seq2seq") else "blocks.1."
        (heads,) = (m for path, m in model.named_modules() if stack in path and path.endswith(paths))
        weight, width = heads.wo.weight, heads.head_dim
        kept = weight.detach().clone()
        with torch.no_grad():
            weight[:, head * width : (head + 1) * width] = 0
        close(run(), ablated, 1e-12)
        with torch.no_grad():
            weight.copy_(kept)


def test_ablating_a_relation_equals_zeroing_its_column_of_w_r():
    model, x = lm("symbolic_attention", ra_kwargs={"n_relations": 3}), tokens(3, 9)
    found = logits(model, x, Ablate(Target("relation", layers=1, relations=2)))
    with torch.no_grad():
        model.layers.blocks[1].dual_attn.relational_attention.wr[..., 2] = 0
    close(model(x).logits, found)


def test_baselines_that_compare_objects():
    x = torch.randn(3, 5, 6).double()
    with torch.no_grad():
        corelnet = CoRelNet(6, 5).double()
        with intervene(corelnet, Scale(Target("relation", pairs=[(1, 2)]), 3.0)):
            changed = corelnet(x).view(3, 5, 5)
        wanted = corelnet.relations(x)
        wanted[:, 1, 2] *= 3
        close(changed, wanted)
        predinet = PrediNet(6, 5, 3, 2, 5).double()
        with intervene(predinet, Ablate(Target("head", heads=1))):
            changed = predinet(x).view(3, 3, -1)
        close(changed[:, [0, 2]], predinet(x).view(3, 3, -1)[:, [0, 2]])
        assert not changed[:, 1].any()
        esbn = ESBN(6, 4, 7).double()
        with intervene(esbn, Ablate(Target("selection"))):  # nothing retrieved, whatever the objects
            changed = esbn(x)
        close(changed, changed[:1].expand(3, -1))
        assert (esbn(x) - changed).abs().max() > 1e-4


def test_symbols_of_grouped_heads_are_changed_by_head():
    """Though heads of a group share symbols."""
    model, x = lm("symbolic_attention", ra_kwargs={"n_kv_heads": 1}), tokens(3, 9)
    with intervene(model, Ablate(Target("symbol", layers=0, heads=1))), capture(model, layers=0) as maps:
        model(x)
    message = maps[0].relational.symbol_message
    assert not message[:, 1].any() and message[:, 0].all()


def test_uniform_attention():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[0, :2] = False
    with intervene(model, Ablate(Target("selection"), "mean")), capture(model, ["weights", "visible"]) as maps:
        model(x, padding_mask=mask)
    for heads in maps.heads():
        visible = heads.get("visible").double().expand(heads.get("weights").shape)
        close(heads.get("weights"), visible / visible.sum(-1, keepdim=True).clamp_min(1))


@pytest.mark.parametrize("cached", [2, 0])
@pytest.mark.parametrize("padded", [slice(0, 4), slice(5, 9)], ids=["left", "right"])
def test_mean_ablation_leaves_the_mean_of_real_places(padded: slice, cached: int):
    """Heads are averaged over tokens, relations over visible pairs; no chunk counts what padding holds."""
    model, x = lm("symbolic_attention"), tokens(3, 9)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[0, padded] = False

    @torch.no_grad()
    def run(interventions=()):
        cache = model.new_cache()
        if cached:
            model(x[:, :cached], padding_mask=mask[:, :cached], cache=cache)
        with intervene(model, interventions), capture(model, layers=0) as maps:
            model(x[:, cached:], padding_mask=mask, cache=cache)
        return maps[0].relational

    before = run()
    for mediator, tap in (("head", "head_output"), ("relation", "relations"), ("symbol", "symbol_values")):
        values, found = before.get(tap), run(Ablate(Target(mediator, layers=0), "mean")).get(tap)
        if mediator == "relation":
            wanted = values[before.visible[:, 0] & mask[:, cached:, None]].mean(0)
            close(found, wanted.expand(found.shape))
        else:
            wanted = values.transpose(1, 2)[mask[:, -values.shape[2] :]].mean(0)
            close(found, wanted[None, :, None].expand(found.shape))


@pytest.mark.parametrize("senders", [4, 3, 6])
def test_receivers_of_other_objects_are_real(senders):
    """All count in means and measures: padding belongs to the senders, be they fewer, as many or more."""
    layer = RelationalAttention(8, 2, n_relations=3)
    x, y, symbols = (torch.randn(2, n, 8) for n in (4, senders, senders))
    padding = torch.ones(2, senders, dtype=torch.bool)
    padding[0, 2:] = False

    def run(interventions=()):
        with intervene(layer, interventions), capture(layer) as maps, torch.no_grad():
            layer(x, symbols, y=y, padding_mask=padding)
        return maps.heads()[0]

    before, pairs = run(), padding[:, None].expand(2, 4, senders)
    wanted = {"head_output": before.head_output.mean((0, 2))[:, None], "relations": before.relations[pairs].mean(0)}
    for mediator, tap in (("head", "head_output"), ("relation", "relations")):
        found = run(Ablate(Target(mediator), "mean")).get(tap)
        close(found, wanted[tap].expand(found.shape), 1e-6)
    (measures,) = measure_layers(CallMaps([before]))
    share = message_share(before.relational_message, before.symbol_message)
    assert measures.share == pytest.approx(share.mean((0, 2)).tolist())
    assert measures.rank == pytest.approx(float(relation_rank(before.relations, pairs)))
    assert measures.asymmetry is None


@pytest.mark.parametrize("sourced", [False, True])
@pytest.mark.parametrize("name", ["seq2seq", "seq2seq transformer"])
def test_padding_of_targets_is_in_no_mean_of_cross_attention(name, sourced):
    """Though that is told of the padding of sources only."""
    model, layer, mask = FAMILIES[name](), "decoder.0.cross", torch.ones(3, 7, dtype=torch.bool)
    mask[0, 3:] = False

    def run(words, interventions=(), source=None):
        with torch.no_grad(), intervene(model, interventions, source=source), capture(model) as maps:
            model(*words, words[1], target_padding_mask=mask)
        return maps

    means, (words, others) = Ablate(Target("head", layers=layer), "mean"), (seq2seq.words(), seq2seq.words())
    source = run(others if sourced else words)
    found = run(words, means, source if sourced else None)[layer].sensory.head_output
    wanted = source[layer].sensory.head_output.transpose(1, 2)[mask].mean(0)
    close(found, wanted[None, :, None].expand(found.shape))


def test_the_mean_of_relative_symbols_is_that_of_their_library():
    model, x = lm("position_relative"), tokens(2, 5)
    maps = captured(model, x, [], "symbol_values", layers=0)
    wanted = maps[0].relational.symbol_values.mean(2, keepdim=True)
    maps = captured(model, x, Ablate(Target("symbol", layers=0), "mean"), "symbol_values", layers=0)
    close(maps[0].relational.symbol_values, wanted.expand_as(maps[0].relational.symbol_values))


def test_means_and_samples_of_other_inputs():
    """Means may come from inputs of any length; samples are those of the same places."""
    model, x = lm("symbolic_attention"), tokens(3, 9)
    with capture(model, layers=0) as source:
        model(tokens(5, 7))
    maps = captured(model, x, Ablate(Target("head", layers=0), "mean"), "head_output", layers=0, source=source)
    wanted = source[0].relational.head_output.mean((0, 2), keepdim=True)
    close(maps[0].relational.head_output, wanted.expand(3, -1, 9, -1))
    with capture(model, layers=0) as source:
        model(tokens(2, 9))
    for mediator, tap in (("relation", "relations"), ("selection", "weights"), ("symbol", "symbol_values")):
        intervention = Ablate(Target(mediator, layers=0), "resample", seed=1)
        with intervene(model, intervention, source=source), capture(model, tap, layers=0) as maps:
            model(x)
        assert torch.equal(maps[0].relational.get(tap), source[0].relational.get(tap)[[1, 0, 1]])


@pytest.mark.parametrize("mediator", ["head", "relation", "symbol"])
def test_means_of_other_inputs_that_kept_no_visible_pairs_are_of_all_places(mediator):
    model, x, tap = lm("symbolic_attention"), tokens(3, 9), TAPS[mediator]
    with capture(model, tap, layers=0) as source:
        model(tokens(2, 7), padding_mask=torch.arange(7).expand(2, 7) > 1)
    maps = captured(model, x, Ablate(Target(mediator, layers=0), "mean"), tap, layers=0, source=source)
    values, found = source[0].relational.get(tap), maps[0].relational.get(tap)
    wanted = values.mean((0, 1, 2) if mediator == "relation" else (0, 2), keepdim=True)
    close(found, wanted.expand(found.shape))


def test_heads_with_weights_of_features_take_means_of_a_source():
    """They do not tell which places are real."""
    model, x = MultiHead(GeneralAttention(BoundedAdditive(4, 4)), 8, 2).double(), torch.randn(3, 5, 8).double()
    mean = Ablate(Target("head"), "mean")
    with pytest.raises(ValueError, match=r"source: Ablate .* attention does not tell"), intervene(model, mean):
        model(x)
    assert not hooks(model)
    with capture(model) as source:
        model(x)
    maps = captured(model, torch.randn(2, 4, 8).double(), mean, "head_output", source=source)
    wanted = source["attention"].sensory.head_output.mean((0, 2), keepdim=True)
    close(maps["attention"].sensory.head_output, wanted.expand(2, -1, 4, -1))


def test_samples_of_the_batch_are_of_another_example():
    model, x = lm("symbolic_attention"), tokens(4, 9)
    with capture(model, "relations", layers=0) as before:
        model(x)
    for seed in range(6):
        maps = captured(model, x, Ablate(Target("relation", layers=0), "resample", seed=seed), "relations", layers=0)
        wanted = [(example + 1 + seed % 3) % 4 for example in range(4)]
        assert torch.equal(maps[0].relational.relations, before[0].relational.relations[wanted])
        assert all(other != example for example, other in enumerate(wanted))


def test_patching_a_pair_changes_that_pair_only():
    model, clean, corrupt = lm("symbolic_attention", ra_kwargs={"n_relations": 3}), tokens(3, 9), tokens(3, 9)
    pairs, rest = [(5, 2), (7, 7)], torch.ones(9, 9, dtype=torch.bool)
    rest[[5, 7], [2, 7]] = False
    with capture(model) as source:
        model(clean)
    with capture(model) as before:
        model(corrupt)
    maps = captured(model, corrupt, Patch(Target("relation", layers=0, relations=[1], pairs=pairs)), source=source)
    new, old, other = (m[0].relational.relations for m in (maps, before, source))
    for i, j in pairs:
        assert torch.equal(new[:, i, j, 1], other[:, i, j, 1])
    assert torch.equal(new[:, rest], old[:, rest])
    assert torch.equal(new[..., [0, 2]], old[..., [0, 2]])
    target = Target("selection", layers=0, heads={"sensory": 0}, pairs=pairs)
    maps = captured(model, corrupt, Patch(target), source=source)
    new, old, other = (m[0].sensory.weights for m in (maps, before, source))
    assert torch.equal(new[:, 0, 5, 2], other[:, 0, 5, 2]) and torch.equal(new[:, 0, rest], old[:, 0, rest])
    assert torch.equal(new[:, 1], old[:, 1])


def test_patching_the_symbol_of_a_pair():
    """The receiver reads another symbol of that sender; other receivers read the sender's own."""
    for ra_type in ("relational_attention", "rca", "disrca"):
        model, clean, corrupt = lm("symbolic_attention", ra_type=ra_type), tokens(3, 9), tokens(3, 9)
        with capture(model) as source:
            model(clean)
        with capture(model, layers=0) as before:
            model(corrupt)
        target = Target("symbol", layers=0, heads=1, pairs=[(5, 2)])
        maps = captured(model, corrupt, Patch(target), layers=0, source=source)
        old, new = before[0].relational, maps[0].relational
        weights = old.get("weights")
        if ra_type == "disrca":
            weights = weights * old.get("relations").permute(0, 3, 1, 2)
        wanted = old.symbol_message.clone()
        change = source[0].relational.symbol_values[:, 1, 2] - old.symbol_values[:, 1, 2]
        wanted[:, 1, 5] += weights[:, 1, 5, 2, None] * change
        close(new.symbol_message, wanted)
        patch = Patch(Target("symbol", layers=0, senders=2), strength=1)
        maps = captured(model, corrupt, patch, layers=0, source=source)
        values = maps[0].relational.symbol_values
        assert torch.equal(values[:, :, 2], source[0].relational.symbol_values[:, :, 2])
        assert torch.equal(values[:, :, 3:], old.symbol_values[:, :, 3:])


def test_receivers_and_senders():
    model, x = lm("symbolic_attention"), tokens(3, 9)
    maps = captured(model, x, Ablate(Target("relation", receivers=[4, 8], senders=[1])), "relations", layers=0)
    zero = maps[0].relational.relations == 0
    assert zero[:, [4, 8], 1].all() and zero.sum() == 3 * 2 * 2
    with intervene(model, Ablate(Target("head", receivers=6))), capture(model, "head_output") as maps:
        model(x)
    for heads in maps.heads():
        assert (heads.head_output == 0).all((0, 1, 3)).tolist() == [place == 6 for place in range(9)]


def test_steering():
    model, x = lm("symbolic_attention", ra_kwargs={"n_relations": 3}), tokens(3, 9)
    with capture(model, layers=0) as before:
        model(x)
    direction = [3.0, 0.0, 4.0]
    maps = captured(model, x, [Steer(Target("relation", layers=0, relations=1), 2.0, strength=0.5)], layers=0)
    moved = maps[0].relational.relations - before[0].relational.relations
    close(moved, torch.tensor([0.0, 1.0, 0.0]).expand(3, 9, 9, 3).double())
    maps = captured(model, x, [Steer(Target("relation", layers=0), 10.0, direction)], layers=0)
    moved = maps[0].relational.relations - before[0].relational.relations
    close(moved, torch.tensor([6.0, 0.0, 8.0]).expand(3, 9, 9, 3).double())


def test_ablating_a_direction_takes_away_that_component_only():
    model, x = lm("symbolic_attention", ra_kwargs={"n_relations": 3}), tokens(3, 9)
    with capture(model, layers=0) as before:
        model(x)
    direction = torch.tensor([1.0, -2.0, 2.0]).double() / 3
    maps = captured(model, x, Ablate(Target("relation", layers=0), direction=(6 * direction).tolist()), layers=0)
    old, new = (m[0].relational.get("relations") for m in (before, maps))
    close(new @ direction, torch.zeros(3, 9, 9).double())
    close(new, old - (old @ direction)[..., None] * direction)
    along_one = Ablate(Target("relation", layers=0), direction=[0.0, 1.0, 0.0])
    close(logits(model, x, along_one), logits(model, x, Ablate(Target("relation", layers=0, relations=1))))


@pytest.mark.parametrize("length", [1e-300, 1e-30, 1e-8, 1e30, 1e300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("change", [Ablate, lambda target, direction: Steer(target, 2.0, direction=direction)])
def test_the_length_of_a_direction_does_not_matter(change, dtype, length):
    x, about = torch.randn(2, 4, 4, 3).to(dtype), Situation("relation", 2)
    of_length, of_one = (
        change(Target("relation"), direction=[3.0 * by, 0.0, -4.0 * by]).replacement(x, about) for by in (length, 1.0)
    )
    torch.testing.assert_close(of_length, of_one)
    assert not torch.equal(of_one, x)
