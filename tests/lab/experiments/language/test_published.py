"""Published numbers: consistent with each other, of models that are there, and beside measured ones."""

from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import pytest

from dat.experiments.language.config import LanguageConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.presets import PRESETS
from dat.experiments.language.published import published_perplexity, published_results
from dat.sweeps.curves import draw_published
from dat.sweeps.grid import cells
from dat.sweeps.report import comparison_text
from dat.training.config_io import build_parser, parse_config
from dual_attention._base.plots import house_style, matplotlib_figure

LANGUAGE = LanguageModelling()
RECIPE = Path(__file__).parents[4] / "examples" / "fineweb.yaml"
PLAIN = {"T-353M": 16.94, "T-757M": 14.65, "T-1.31B": 13.63}
DATS = {"DAT-343M-nr64": 16.09, "DAT-734M": 14.31, "DAT-1.27B-nr128": 13.43}
TABLE = {model: ppl for pair in zip(PLAIN.items(), DATS.items(), strict=True) for model, ppl in pair}
LOSSES = {"T-stories": 1.775, "DAT-4+4-stories": 1.729, "RCA-4+4-stories": 1.759, "RCA-6+2-stories": 1.761}


def rows_of(model: str, source: str) -> list:
    return [row for row in published_results() if (row["model"], row["source"]) == (model, source)]


def test_table_5_and_figure_12():
    assert {model: published_perplexity(model)[0].mean for model in TABLE} == TABLE
    assert {model: published_perplexity(model)[0].mean for model in LOSSES} == {m: exp(x) for m, x in LOSSES.items()}
    assert {published_perplexity(model)[0].point for model in TABLE} == {19_073}


@pytest.mark.slow
def test_every_published_model_is_a_preset_of_its_size():
    """Those on Tiny Stories are of the study."""
    sizes = {row["model"]: row["parameters"] for row in published_results() if "-stories" not in row["model"]}
    assert sizes.keys() <= PRESETS.keys()
    for name, text in sizes.items():
        unit = {"M": 1e6, "B": 1e9}.get(text[-1], 1)
        model = PRESETS[name].language_config(32_000).build("meta")
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        assert trained == pytest.approx(float(text.rstrip("MB")) * unit, rel=0 if unit == 1 else 0.005)


@pytest.mark.parametrize("model", TABLE)
def test_figures_agree_with_the_table_and_each_other(model):
    """Figure 10 ends at the perplexity of Table 5, and passes those of Figure 4 where that says."""
    tokens, losses = (np.array([row[key] for row in rows_of(model, "Figure 10")]) for key in ("tokens", "loss"))
    assert len(losses) == 10 and all(np.diff(losses) < 0) and all(np.diff(tokens) > 0)
    assert exp(losses[-1]) == pytest.approx(TABLE[model], rel=0.01)
    passed = rows_of(model, "Figure 4")
    assert len(passed) >= 5
    for row in passed:
        if row["tokens"] >= tokens[0]:  # between two points of a convex curve; validated each 0.131e9 tokens
            assert np.log(row["perplexity"]) == pytest.approx(np.interp(row["tokens"], tokens, losses), abs=0.07)


def recipe(*words: str) -> LanguageConfig:
    parser = build_parser(LanguageConfig, prog="", description="")
    return parse_config(parser, LanguageConfig, ["--config", str(RECIPE), *words])[0]


def test_the_grid_of_published_runs():
    """Each is a run by the recipe that comes as a file."""
    grid, shipped = LANGUAGE.scales["table-5"], recipe()
    assert grid.models == tuple(TABLE)
    for cell in cells(LANGUAGE, grid):
        config = grid.config(cell)
        assert (config.data, config.model, config.optim) == (shipped.data, PRESETS[cell["model"]], shipped.optim)
        assert config.loop == replace(shipped.loop, eval_every=0, checkpoint_every=0)
        assert (config.machine.precision, config.machine.device) == ("bfloat16", "cuda")
        assert config.loop.steps * config.tokens_per_step == 9_999_745_024


def test_the_output_layer_is_as_the_keys_say():
    """As in other models by default, and another where they ask for it."""
    keys = LanguageModelKeys(n_heads_ra=0)
    plain, other = (
        {name for name, _ in model.language_config(257).build("meta").named_parameters()}
        for model in (keys, replace(keys, final_norm=False, output_bias=True))
    )
    assert plain ^ other == {"layers.norm.weight", "layers.norm.bias", "layers.final_out.bias"}
    assert "layers.final_out.bias" in other


def test_published_numbers_stand_beside_measured_ones():
    columns = {"seed": 0, "bits_per_byte": 1.0}
    rows = [
        {"model": "T-353M", "steps": 19_073, "perplexity": 17.0, **columns},
        {"model": "T-353M", "steps": 5000, "perplexity": 23.0, **columns},
        {"model": "T-stories", "steps": 100_000, "perplexity": 6.0, **columns},
    ]
    text = comparison_text(LANGUAGE.table, rows)
    assert text.startswith("# Measured beside published") and "another tokenizer, Llama 2's" in text
    assert "| T-353M | 23.000 (–) | 17.000 (16.940) |" in text and "6.000 (5.900)" in text
    assert "## Bits per byte" in text and "1.000 (–)" in text


def test_a_published_point_is_a_cross_in_figures():
    with house_style():
        _, axis = matplotlib_figure(1, 1)
        draw_published(axis, published_perplexity("T-353M"), color="black", linestyle="--")
    (line,) = axis.lines
    assert line.get_marker() == "x" and line.get_xydata().tolist() == [[19_073, 16.94]]


def test_a_data_set_takes_the_place_of_the_files_of_a_configuration():
    """The message says how, and the command of the pages does it."""
    words = ["--data.dataset", "somebody/texts"]
    with pytest.raises(ValueError, match=r"which --data.path null --data.val_path null take back"):
        recipe(*words)
    config = recipe(*words, "--data.path", "null", "--data.val_path", "null")
    data = replace(recipe().data, path=None, val_path=None, dataset="somebody/texts")
    assert config == replace(recipe(), data=data)
