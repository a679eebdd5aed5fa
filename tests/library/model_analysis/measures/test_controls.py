"""Controls: scores without training, untrained twins, and comparisons on held-out examples."""

import pytest
import torch
from torch import nn

from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification, TransformerEncoder
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM, DualAttnLMForSequenceClassification
from dual_attention.model_analysis import measures
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Target, intervene
from dual_attention.relational_attention import RelationalAttention
from tests.library.hf.models import config
from tests.library.model_analysis.models import FAMILIES, call, hooks
from tests.support import language, seq2seq

from .test_detection import planted


def test_cosines_and_attention():
    x, y = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    wanted = torch.cosine_similarity(x[:, :, None], y[:, None], dim=-1)
    torch.testing.assert_close(measures.cosine_scores(x, y), wanted[..., None])
    weights = torch.rand(2, 6, 3, 4)
    assert measures.attention_scores(weights)[1, 2, 3, 5] == weights[1, 5, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_cosines_of_vectors_of_any_length(dtype):
    limits, direction = torch.finfo(dtype), torch.tensor([1.0, -1.0, 0.5], dtype=dtype)
    x = torch.stack([direction * length for length in (0.0, limits.tiny, 1.0, limits.max)])[None]
    found = measures.cosine_scores(x)[0, ..., 0]
    wanted = torch.ones(4, 4, dtype=dtype)
    wanted[0] = wanted[:, 0] = 0
    torch.testing.assert_close(found, wanted)


def test_random_relations_are_those_of_a_layer_with_random_projections():
    """The control has the form of the layer: with the layer's own weights, it is the layer."""
    x = torch.randn(2, 5, 16)
    found = measures.random_relations(x, 4, 3, seed=1)
    layer = RelationalAttention(16, 2, n_relations=4, rel_proj_dim=3)
    generator = torch.Generator().manual_seed(1)
    for linear in (layer.wq_rel, layer.wk_rel):
        linear.weight.data = torch.randn(16, 4, 3, generator=generator).flatten(1).T / 4
    torch.testing.assert_close(found, layer.relations(x))
    symmetric = measures.random_relations(x, 4, 3, symmetric=True)
    torch.testing.assert_close(symmetric, symmetric.transpose(1, 2))
    assert (measures.random_relations(x, 4, 3, activation="relu") >= 0).all()
    layer = RelationalAttention(16, 2, n_relations=4, rel_proj_dim=3, symmetric_rels=True, rel_score="squared_distance")
    distances = measures.random_relations(x, 4, 3, symmetric=True, rel_score="squared_distance", seed=1)
    assert distances.shape == layer.relations(x).shape and (distances.diagonal(dim1=1, dim2=2).abs() < 1e-5).all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = measures.random_relations(x, 4, 3, symmetric=True, rel_score="squared_distance")
    assert (narrow.diagonal(dim1=1, dim2=2).abs() < 1e-5).all()
    pairs = symmetric.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(
        measures.random_relations(x, 4, 3, symmetric=True, rel_score="squared_distance"),
        2 * symmetric - pairs.transpose(1, 2)[:, :, None] - pairs.transpose(1, 2)[:, None],
    )
    for relation in range(4):
        assert torch.linalg.matrix_rank(found[0, ..., relation]) == 3
    assert measures.random_relations(x, 4, 3, y=torch.randn(2, 7, 16)).shape == (2, 5, 7, 4)


def test_a_twin_is_untrained_and_of_the_same_configuration():
    model = language.build("symbolic_attention").train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(7.0)  # trained, so to speak
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    twin, other = measures.untrained_twin(model, seed=1), measures.untrained_twin(model, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training and not twin.training
    fresh = language.build("symbolic_attention")
    for (name, tensor), new in zip(twin.state_dict().items(), fresh.state_dict().values(), strict=True):
        assert tensor.shape == new.shape
        assert tensor.mean().item() == pytest.approx(new.mean().item(), abs=1.0), name
        spread = new.std(correction=0).item()
        assert tensor.std(correction=0).item() == pytest.approx(spread, rel=0.6, abs=1e-6), name
    assert measures.untrained_twin(model, seed=1).state_dict().keys() == twin.state_dict().keys()
    one, two = (copy.layers.blocks[0].dual_attn.relational_attention.wr for copy in (twin, other))
    assert not torch.equal(one, two)
    assert torch.equal(one, measures.untrained_twin(model, seed=1).layers.blocks[0].dual_attn.relational_attention.wr)
    assert twin(language.tokens(2, 8))[0].isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
def test_twins_of_every_family_are_drawn_anew_and_run(name):
    model = FAMILIES[name]()  # all of whose parameters are far from their initial values
    twin = measures.untrained_twin(model)
    for (path, old), new in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert not torch.equal(old, new), path
    assert call(name, twin)().isfinite().all()


def test_a_twin_made_while_a_model_is_watched_is_like_any_other():
    model, x = language.build("symbolic_attention"), language.tokens(2, 8)
    model.register_forward_hook(lambda *_: None)  # the user's own
    with torch.no_grad(), intervene(model, Ablate(Target("head"))), capture(model) as maps:
        twin = measures.untrained_twin(model)
        found = twin(x).logits
    assert hooks(twin) == 1 and not maps.calls
    assert torch.equal(found, measures.untrained_twin(model)(x).logits)


@pytest.mark.parametrize("begin", ["scaled", "published"])
@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_of_a_twin_are_as_large_as_they_began(tied: bool, begin: str):
    model = seq2seq.build(tie_weights=tied, embedding_init=begin)
    for name in ("source_embedder", "target_embedder"):
        spreads = [whole.layers[name].weight.detach().std().item() for whole in (model, measures.untrained_twin(model))]
        assert spreads[1] == pytest.approx(spreads[0], rel=0.4)
    twin = measures.untrained_twin(model)
    assert (twin.layers["final_out"].weight is twin.layers["target_embedder"].weight) == tied


def test_twins_of_models_for_transformers():
    sizes = {"vocab_size": 17, "d_model": 16, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "dff": 16}
    symbols = {"d_model": 16, "n_heads": 2, "n_symbols": 4}
    model = DualAttnForCausalLM(DualAttnConfig(**sizes, max_block_size=8, symbol_retrieval_kwargs=symbols))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    twin = measures.untrained_twin(model)
    assert all(not torch.equal(old, new) for old, new in zip(model.parameters(), twin.parameters(), strict=True))
    assert twin.model.layers.final_out.weight.detach().std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize(
    ("make", "head"),
    [
        (lambda: EncoderForMaskedLM(TransformerEncoder(17, 64, 1, 2)), "transform"),
        (lambda: EncoderForSequenceClassification(TransformerEncoder(17, 64, 1, 2), 9), "classifier"),
        (lambda: DualAttnLMForSequenceClassification(config("transformer", d_model=64, num_labels=9)), "score"),
    ],
)
def test_heads_of_a_twin_are_as_large_as_they_began(make, head):
    twin = measures.untrained_twin(make())
    assert twin.get_submodule(head).weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_a_twin_of_what_cannot_be_drawn_anew_needs_build():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

    with pytest.raises(ValueError, match="model: Own does not draw its parameters anew; expected build"):
        measures.untrained_twin(Own())
    assert measures.untrained_twin(Own(), build=Own).gain.eq(1).all()


def test_the_best_of_many_is_measured_on_other_examples():
    values, labels, mask = planted(1.5, examples=8)
    noise = torch.randn(8, 10, 10, 30, generator=torch.Generator().manual_seed(5))
    found = {x.name: x for x in measures.compare({"relations": values, "noise": noise}, labels, mask, permutations=39)}
    relations = found["relations"]
    assert (relations.score, relations.sign) == (2, -1)
    assert relations.auc > 0.8 and relations.detection.p[2].item() == pytest.approx(1 / 40)
    assert found["noise"].chosen_auc > found["noise"].auc
    assert found["noise"].auc == pytest.approx(0.5, abs=0.1)
    table = measures.comparison_table(list(found.values())).splitlines()
    low, high = relations.detection.interval(2)
    assert f"| {1 - high:.3f} to {1 - low:.3f} | 0.025 |" in table[2]
    assert len(table) == 4 and table[2].startswith("| relations | 4 | 2 (low) | 0.")


def test_examples_on_which_the_best_is_chosen_can_be_named():
    values, labels, mask = planted(1.5, examples=8)
    first = torch.arange(8) < 4
    (found,) = measures.compare({"relations": values}, labels, mask, permutations=0, chosen_on=first)
    on, other = (float(measures.detect(values[part], labels[part], mask).auc[found.score]) for part in (first, ~first))
    assert found.sign == -1 and (found.chosen_auc, found.auc) == (pytest.approx(1 - on), pytest.approx(1 - other))
