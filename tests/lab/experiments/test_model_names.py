"""Names of models in runs and titles: a preset's name is that of its keys, other models say what they are."""

from dataclasses import replace

import pytest

from dat.experiments import EXPERIMENTS
from dat.experiments.model_keys import named_by_keys
from tests.lab.cli.commands import shown


def names(experiment, *models):
    config = experiment.Config()
    return [named_by_keys(replace(config, model=model), experiment.presets).model.name for model in models]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_presets_name_stands_for_its_keys_alone(name: str):
    experiment = EXPERIMENTS[name].load()
    default, presets = experiment.Config().model, experiment.presets
    assert names(experiment, default, *presets.values()) == [default.name, *presets]
    own = [replace(model, name="mine", d_model=2 * model.d_model) for model in presets.values()]
    assert set(names(experiment, *own)) == {"mine"}
    for model in presets.values():
        changed = replace(model, d_model=2 * model.d_model), replace(model, dropout_rate=0.25)
        told = {model.name, *names(experiment, *changed)}
        assert len(told) == 3 and set(presets) & told == {model.name}


@pytest.mark.parametrize(
    ("words", "model", "folder"),
    [
        ("--model.n_layers=1 --model.d_model=32", "DAT (1 layer, width 32)", "language-DAT-1-layer-width-32-seed0"),
        ("--preset=T-tiny --model.context=64", "Transformer (2 layers, width 64, context 64)",
         "language-Transformer-2-layers-width-64-context-64-seed0"),
        ("--preset=T-tiny", "T-tiny", "language-T-tiny-seed0"),
        ("--model.n_layers=1 --model.name=mine", "mine", "language-mine-seed0"),
    ],
)  # fmt: skip
def test_the_command_says_what_it_trains(words: str, model: str, folder: str, capsys: pytest.CaptureFixture[str]):
    assert f"\n  name: {model}\n" in shown(capsys, "train", "language", *words.split(), "--print_config")
    experiment = EXPERIMENTS["language"].load()
    config = experiment.Config()
    assert replace(config, model=replace(config.model, name=model)).run_name == folder
