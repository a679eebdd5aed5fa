"""The option ``rel_init_size``: messages of relations begin at the size that was asked for."""

import math

import pytest
import torch
from torch import nn

from dual_attention._layers.relation_size import OBJECTS, initial_variation
from dual_attention.encoder_models import DualAttnTransformerEncoder
from dual_attention.language_models import DualAttnTransformerLM
from dual_attention.mechanisms import Cosine, Dot, Euclidean, Relation, RelationalMessage
from dual_attention.relational_attention import RelationalAttention
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer
from dual_attention.vision_models import VisionDualAttnTransformer
from tests.support.combinations import pairwise
from tests.support.refusals import refused

ACTIVATED = ("tanh", "softmax", torch.sigmoid)
SIZED = {"rel_init_size": 0.6, "n_relations": 3, "symmetric_rels": True}
HEADS = {"n_heads_sa": 1, "n_heads_ra": 1, "ra_kwargs": SIZED}
SIZES = {"d_model": 64, "n_layers": 2, "dff": 32}
TOKENS = {"type": "token", "vocab_size": 9}
SIDES = {"n_layers_enc": 1, "n_layers_dec": 1, "encoder_kwargs": HEADS, "decoder_kwargs": {**HEADS, "n_heads_cross": 1}}
MODELS = {
    "language": lambda: DualAttnTransformerLM(9, **SIZES, **HEADS),
    "encoder": lambda: DualAttnTransformerEncoder(9, **SIZES, **HEADS),
    "vision": lambda: VisionDualAttnTransformer(
        (1, 4, 4), (2, 2), 2, **SIZES, **HEADS, symbol_retrieval="symbolic_attention", symbol_retrieval_kwargs=None
    ),
    "seq2seq": lambda: Seq2SeqDualAttnTransformer(TOKENS, TOKENS, "symbolic_attention", None, 64, 9, **SIDES),
}


def size(relations: torch.Tensor, w_r: torch.Tensor) -> float:
    messages = torch.einsum("bnmr,hdr->bnmhd", relations, w_r)
    return messages.var(2, correction=0).mean().sqrt().item()


def objects(width: int) -> torch.Tensor:
    return torch.randn(100, OBJECTS, width)


def mean_size(layers: list[RelationalAttention]) -> float:
    """Root mean square over layers."""
    with torch.no_grad():
        squares = [size(layer.relations(objects(layer.d_model)), layer.wr) ** 2 for layer in layers]
    return math.sqrt(sum(squares) / len(squares))


OPTIONS = {"n_relations": [1, 4, 32], "rel_score": ["dot", "squared_distance"], "symmetric_rels": [True, False]}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("options", pairwise({**OPTIONS, "rel_init_size": [0.1, 2.0]}), ids=str)
def test_messages_begin_at_the_size_asked_for(options):
    layers = [RelationalAttention(64, 2, **options) for _ in range(12)]
    assert mean_size(layers) == pytest.approx(options["rel_init_size"], rel=0.1)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("activation", ACTIVATED)
@pytest.mark.parametrize("symmetric", [True, False])
def test_after_any_activation(activation, symmetric):
    options = {"rel_activation": activation, "symmetric_rels": symmetric}
    assert mean_size([RelationalAttention(64, 2, rel_init_size=0.5, **options) for _ in range(12)]) == pytest.approx(
        0.5, rel=0.1
    )


@pytest.mark.sweep(3)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("score", [Dot, lambda: Cosine(learned=True), lambda: Euclidean(squared=True)])
def test_any_score_of_the_toolbox(score, symmetric):
    messages = [
        RelationalMessage(Relation(64, 4, score=score(), symmetric=symmetric), 16, heads=4, rel_init_size=0.5)
        for _ in range(12)
    ]
    with torch.no_grad():
        squares = [size(message.relation(objects(64)), message.wr) ** 2 for message in messages]
    assert math.sqrt(sum(squares) / 12) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("p", [1, 8, 64])
def test_the_variation_of_inner_products_is_the_expected_one(p):
    """For Gaussian weights: tr(A²) of unlike objects, and 2 tr(A²) + (tr A)² of an object with itself."""
    d, std, m = 64, 0.1, OBJECTS
    unlike = std**4 * d * (p + d + 1)
    itself = 2 * unlike + std**4 * (p * d**2 + 2 * d)
    options = {"symmetric": True, "activation": "identity", "rel_score": "dot"}
    wanted = (1 - 1 / m) * ((m - 1) * unlike + itself) / m
    assert initial_variation(d, p, std, **options) == pytest.approx(wanted, rel=0.1)
    wanted = std**4 * (1 - 1 / m) * ((m - 1) * d**2 + d**2 + 2 * d) / m
    assert initial_variation(d, p, std, **options | {"symmetric": False}) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("family", MODELS)
def test_every_family_of_models(family):
    layers = [layer for _ in range(8) for layer in MODELS[family]().modules() if isinstance(layer, RelationalAttention)]
    assert len(layers) == 16
    assert mean_size(layers) == pytest.approx(0.6, rel=0.15)


def test_only_w_r_changes_and_no_generator_moves():
    def drawn(**options) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        torch.manual_seed(3)
        return RelationalAttention(16, 2, **options).state_dict(), torch.get_rng_state()

    (plain, before), (sized, after) = drawn(), drawn(rel_init_size=0.5)
    assert torch.equal(before, after) and plain.keys() == sized.keys()
    assert [name for name in plain if not torch.equal(plain[name], sized[name])] == ["wr"]
    ratio = sized["wr"] / plain["wr"]
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio))


def test_without_storage_and_in_low_precision():
    with torch.device("meta"):
        assert RelationalAttention(16, 2, rel_init_size=0.5).wr.is_meta
        relation = Relation(16, 2)
        assert RelationalMessage(relation, 8, rel_init_size=0.5).wr.is_meta
    torch.set_default_dtype(torch.bfloat16)
    try:
        layers = [RelationalAttention(64, 2, rel_init_size=0.5) for _ in range(12)]
        message = RelationalMessage(Relation(64, 2), 8, rel_init_size=0.5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert message.wr.dtype == torch.bfloat16
    assert mean_size([layer.float() for layer in layers]) == pytest.approx(0.5, rel=0.1)


def message(size):
    return RelationalMessage(Relation(8, 2), 4, rel_init_size=size)


def heads(size, **options):
    return RelationalAttention(8, 2, rel_init_size=size, **options)


OTHERS = Relation(8, 2, d_sender=6)

test_wrong_sizes_are_refused = refused(
    *((lambda build=build, wrong=wrong: build(wrong), "rel_init_size: ")
      for build in (heads, message) for wrong in (0, -1.0, math.nan, math.inf)),
    (lambda: heads("0.5"), TypeError, "rel_init_size"),
    (lambda: heads(0.5, rel_activation=torch.zeros_like), "rel_init_size: .* vary over senders, got a variance of"),
    (lambda: RelationalMessage(OTHERS, 4, rel_init_size=0.5), "rel_init_size: .* as wide as receivers, 8, got 6"),
)  # fmt: skip


def test_senders_of_another_width_need_no_size():
    assert isinstance(RelationalMessage(OTHERS, 4), nn.Module)
