"""The models of the paper's Figure 12, and their grid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.presets import PRESETS
from dat.experiments.language.shipped import GRIDS
from dat.experiments.language.stories import STORIES, TRANSFORMER, VOCABULARY
from dat.training.experiment import count_parameters

COUNTS = {
    "T-stories": 4_391_168,
    "DAT-4+4-stories": 4_488_256,
    "RCA-4+4-stories": 4_454_976,
    "RCA-6+2-stories": 4_457_024,
}


def size(model: LanguageModelKeys) -> int:
    return count_parameters(model.language_config(VOCABULARY).build("meta"))


def test_parameter_counts():
    assert {name: size(PRESETS[name]) for name in STORIES} == COUNTS


@pytest.mark.parametrize(
    ("d_model", "n_layers", "count"),
    [(64, 5, 4_456_960), (64, 6, 4_522_752), (128, 4, 9_274_624), (128, 6, 9_799_936)],
)
def test_parameter_counts_of_larger_transformers(d_model, n_layers, count):
    assert size(replace(TRANSFORMER.at_width(d_model), n_layers=n_layers)) == count


def test_the_output_layer_is_as_the_keys_say():
    """As in other models by default, and another where they ask for it."""
    keys = LanguageModelKeys(n_heads_ra=0)
    plain, other = (
        {name for name, _ in model.language_config(257).build("meta").named_parameters()}
        for model in (keys, replace(keys, final_norm=False, output_bias=True))
    )
    assert plain ^ other == {"layers.norm.weight", "layers.norm.bias", "layers.final_out.bias"}
    assert "layers.final_out.bias" in other


def test_the_grid_has_the_published_recipe():
    grid = GRIDS["stories"]
    assert grid.models == tuple(COUNTS) and grid.steps == (100_000,)
    assert grid.loop.batch_size * TRANSFORMER.context == 131_072
    assert (grid.optim.lr, grid.optim.schedule, grid.optim.warmup_steps) == (1e-3, "constant", 0)
    assert grid.data.vocab_size == VOCABULARY
