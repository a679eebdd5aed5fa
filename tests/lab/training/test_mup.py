"""muP: initial sizes and rates by kind of parameter, and the coordinate check, which standard parametrisation fails."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dat.data.images import IMAGE_SETS
from dat.experiments.images.config import ImageModelConfig
from dat.experiments.images.model import build_image_model as build_vision
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.mathematics.model_keys import PRESETS as MATHEMATICS
from dat.sweeps.study import load_module
from dat.training.configs import OptimConfig
from dat.training.mup import mup_factors, scale_by_mup
from dat.training.optim import build_optimizer
from dual_attention.baselines import VisionCoRelNet
from dual_attention.language_models import DualAttnTransformerLM
from dual_attention.seq2seq_models import Seq2SeqTransformer
from tests.support.refusals import refused

check = load_module(Path(__file__).parents[3] / "docs" / "coordinates.py")
BASE, WIDE = 32, 128
GROWTH = WIDE / BASE
ONE = {"n_layers": 1, "n_kv_heads": None, "rel_proj_dim": None}
LANGUAGE = LanguageModelKeys(d_model=BASE, n_relations=2, context=16, n_symbols=8, **ONE)
VISION = ImageModelConfig(d_model=BASE, n_layers=1, dff=None, rel_proj_dim=None)


def language(keys: LanguageModelKeys, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return keys.language_config(64).build()


def seq2seq(keys: Any) -> nn.Module:
    torch.manual_seed(0)
    return keys.build()


def vision(keys: ImageModelConfig) -> nn.Module:
    return build_vision(keys, IMAGE_SETS["digits"], seed=0)


def size(parameter: torch.Tensor) -> float:
    return parameter.detach().square().mean().sqrt().item()


KINDS = [
    (r"wq_attn|wq_rel|self_attention\.wq|self_attn\.wq|cross_attn\.wq", GROWTH**-1, GROWTH**-1.5),
    (r"q_proj\.weight", GROWTH**-1, GROWTH**-1.5),
    (r"q_proj\.bias", GROWTH**-0.5, GROWTH**-0.5),
    (r"wk|wv|wo|linear[123]", GROWTH**-0.5, GROWTH**-1),
    (r"final_out", GROWTH**-1, GROWTH**-1),
]
"""Names of weights, growth of their initial sizes, and of their rates; biases, tables, norms and W_r: none."""
SYMMETRIC = (r"wq_rel", GROWTH**-0.75, GROWTH**-1.25)
COMPARED = (r"w[qk]_rel", GROWTH**-0.75, GROWTH**-1.25)
TIED = (r"layers\.norm\.", GROWTH**-1, GROWTH**-1)

MODELS = {
    "language": (language, LANGUAGE, [TIED]),
    "untied, relative": (language, replace(LANGUAGE, tie_weights=False, symbols="position_relative"), []),
    "symmetric, large W_r": (language, replace(LANGUAGE, symmetric_rels=True, wr_init="large"), [SYMMETRIC, TIED]),
    "distances": (language, replace(LANGUAGE, rel_score="squared_distance"), [COMPARED, TIED]),
    "distances, symmetric": (vision, replace(VISION, rel_score="squared_distance"), [COMPARED]),
    "Transformer": (language, replace(LANGUAGE, n_heads_sa=4, n_heads_ra=0), [TIED]),
    "disentangled": (language, replace(LANGUAGE, ra_type="disrca", tie_weights=False), []),
    "seq2seq": (seq2seq, MATHEMATICS["DAT-tiny"].at_width(BASE), []),
    "vision": (vision, VISION, [SYMMETRIC]),
    "vision, library": (vision, replace(VISION, symbols="symbolic_attention", symmetric_rels=False), []),
    "vision, grid": (vision, replace(VISION, symbols="position_relative_2d", ra_type="relational_attention"),
        [SYMMETRIC]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_initial_sizes_and_rates_grow_as_derived(name):
    make, keys, more = MODELS[name]
    base, model = make(keys), make(keys.at_width(WIDE))
    factors = scale_by_mup(model, base)
    assert factors.keys() == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        is_vector = parameter.dim() == 1 and not name.endswith("q_proj.bias")
        growths = [kind[1:] for kind in (*more, *KINDS) if re.search(kind[0], name)]
        growth, rate = growths[0] if growths and (not is_vector or "layers.norm" in name) else (1.0, 1.0)
        if "layers.norm" in name and TIED not in more:
            growth = rate = 1.0
        assert factors[name].adam == pytest.approx(rate), name
        at_base = size(base.get_parameter(name))
        if at_base:
            noise = 4 / math.sqrt(min(parameter.numel(), base.get_parameter(name).numel()))
            assert size(parameter) / at_base == pytest.approx(growth, rel=max(noise, 1e-3)), name


@pytest.mark.parametrize("name", MODELS)
def test_at_the_base_width_nothing_changes(name):
    make, keys, _ = MODELS[name]
    model, same = make(keys), make(keys)
    assert {*scale_by_mup(model, same).values()} == {(1.0, 1.0, 1.0, 1.0)}
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)


def test_relations_of_fixed_width_are_outputs():
    """Where R and p stay, relation queries and keys map a growing width to a finite one."""
    base, wide = (language(replace(LANGUAGE, d_model=width, rel_proj_dim=4)) for width in (BASE, WIDE))
    factors = mup_factors(wide, base)
    for name in ("wq_rel", "wk_rel"):
        of_map = factors[f"layers.blocks.0.dual_attn.relational_attention.{name}.weight"]
        assert (of_map.initial, of_map.adam) == pytest.approx((1 / GROWTH, 1 / GROWTH))


def test_heads_that_write_everywhere_are_scaled_by_the_width_of_their_heads():
    """Both sides of both output projections grow, as those of the maps that are added in a Transformer do."""

    def make(width: int) -> nn.Module:
        everywhere = {"out_dim": width}
        return DualAttnTransformerLM(64, width, 1, 2, 2, sa_kwargs=everywhere, ra_kwargs=everywhere, max_block_size=16)

    factors = mup_factors(make(WIDE), make(BASE))
    for kind in ("self_attention", "relational_attention"):
        of_map = factors[f"layers.blocks.0.dual_attn.{kind}.wo.weight"]
        assert (of_map.initial, of_map.adam) == pytest.approx((GROWTH**-0.5, GROWTH**-1))


def test_embeddings_that_are_drawn_smaller_are_scaled_back():
    tokens = {"type": "token", "vocab_size": 40}
    block = {"n_heads": 2, "dff": 32, "dropout_rate": 0.0, "activation": "relu", "norm_first": True, "bias": True}

    def make(width: int) -> nn.Module:
        sizes = {"d_model": width, "out_dim": 40, "n_layers_enc": 1, "n_layers_dec": 1}
        blocks = {"encoder_kwargs": block, "decoder_kwargs": {**block, "n_heads_cross": 2}}
        sizes |= {"in_block_size": 8, "out_block_size": 8}
        specs = {"input_spec": tokens, "output_spec": tokens}
        return Seq2SeqTransformer(**specs, **sizes, **blocks, tie_weights=False, embedding_init="scaled")

    of_embedding = mup_factors(make(WIDE), make(BASE))["layers.source_embedder.weight"]
    assert (of_embedding.initial, of_embedding.adam) == pytest.approx((GROWTH**0.5, 1.0))


def test_more_relations_are_inputs_of_wr():
    """Where p stays and R grows with the width, W_r is a matrix of a hidden layer."""
    base, wide = (language(replace(LANGUAGE, d_model=d, n_relations=d // 16, rel_proj_dim=4)) for d in (BASE, WIDE))
    of_wr = mup_factors(wide, base)["layers.blocks.0.dual_attn.relational_attention.wr"]
    assert (of_wr.initial, of_wr.adam) == pytest.approx((GROWTH**-0.5, 1 / GROWTH))


def test_a_scale_that_is_given_is_respected():
    """With 1 / width of a query already, the factor of queries is no more."""
    make = lambda width: language(  # noqa: E731
        replace(LANGUAGE, d_model=width, n_heads_sa=4, n_heads_ra=0)
    )
    base, wide = make(BASE), make(WIDE)
    for model in (base, wide):
        attention = model.layers.blocks[0].self_attn
        attention.attn_scale = 1 / attention.key_dim
    assert mup_factors(wide, base)["layers.blocks.0.self_attn.wq.weight"].adam == pytest.approx(1 / GROWTH)


def checked(width: int, optimizer: str, *, mup: bool, **changes: Any) -> dict[str, Any]:
    keys = replace(LANGUAGE, **changes)
    model = language(keys.at_width(width))
    factors = scale_by_mup(model, language(keys)) if mup else None
    config = OptimConfig(optimizer=optimizer, lr=2e-3)
    tokens = torch.randint(64, (2, 9), generator=torch.Generator().manual_seed(0))
    built = build_optimizer(model, config, factors)
    for group in built.param_groups:
        group["lr"] = config.lr * group["lr_scale"]
    x, targets = tokens[:, :-1], tokens[:, 1:]
    return check.coordinate_check(model, built, lambda: model.loss(x, targets), lambda: model(x)[0], steps=4)


SYMMETRIC_RELS = {"symmetric_rels": True}
WIDTHS = (64, 128, 256, 512)
MOST = 2.5
"""Largest quotient of changes over widths; what is random at first fades over these widths still."""


@pytest.mark.parametrize(
    ("optimizer", "changes", "widths"),
    [
        ("adamw", {}, WIDTHS),
        ("adamw", {**SYMMETRIC_RELS, "wr_init": "large", "trainable_symbols": True, "tie_weights": False}, WIDTHS),
        pytest.param("muon", SYMMETRIC_RELS, WIDTHS[:3], marks=pytest.mark.slow),
        pytest.param("muon", SYMMETRIC_RELS, WIDTHS, marks=pytest.mark.slow),  # by products in bfloat16
    ],
)
def test_activations_and_their_changes_keep_their_size(optimizer, changes, widths):
    """The coordinate check: under muP nothing grows with the width, and what is learned does not fade."""
    found = [checked(width, optimizer, mup=True, **changes) for width in widths]
    for kind in found[0]:
        initial, change = ([getattr(sizes[kind], what) for sizes in found] for what in check.Sizes._fields)
        assert max(initial) <= 2 * initial[0], (kind, initial)
        assert max(change) / min(change) < MOST, (kind, change)
        assert max(change) <= 2 * change[0], (kind, change)


def test_standard_parametrisation_fails_the_coordinate_check():
    found = [checked(width, "adamw", mup=False) for width in (WIDTHS[0], WIDTHS[-1])]
    quotients = {kind: found[1][kind].change / found[0][kind].change for kind in found[0]}
    assert min(quotients[kind] for kind in ("relations", "W_r r", "scores", "heads")) > 8, quotients
    assert quotients["blocks"] > 3, quotients


test_what_muP_does_not_cover_is_named = refused(
    (lambda: [language(replace(LANGUAGE, rel_init_size=0.5))] * 2, "rel_init_size: expected None under muP"),
    (lambda: [VisionCoRelNet((3, 8, 8), (4, 4), 2, d_model=16)] * 2,
     r"model: muP is derived for DualAttnTransformerLM, .*, got VisionCoRelNet"),
    (lambda: [language(LANGUAGE), language(replace(LANGUAGE, n_layers=2))],
     "base: expected the same model at another width"),
    (lambda: [seq2seq(replace(MATHEMATICS["T-tiny"], tie_weights=True))] * 2,
     "tie_weights: expected false or a normalisation"),
    by=lambda models: mup_factors(*models()),
)  # fmt: skip
