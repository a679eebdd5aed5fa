"""The script that draws Figures 5 and 9 chooses what it says, and draws it."""

import importlib.util
from types import ModuleType, SimpleNamespace

import pytest
import torch

from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.language_models import DualAttnTransformerLM
from dual_attention.model_analysis.measures import RelationReadings
from tests.support.documents import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    spec = importlib.util.spec_from_file_location("relation_pictures", ROOT / "docs" / "relation_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_largest_contribution_to_one_token(script):
    def readings(place):
        contribution = torch.zeros(1, 4, 4, 3)
        contribution[0, 2, 2, 0] = 9.0  # of a token to itself, which does not count
        contribution[place] = 1.0 + place[3]
        return RelationReadings(contribution, contribution, contribution, torch.ones(1, 4, 4, dtype=torch.bool))

    found = {"blocks.0": readings((0, 1, 0, 1)), "blocks.1": readings((0, 3, 2, 2))}
    assert script._largest(found) == ("blocks.1", 2, 3)


def test_arcs_go_from_the_receiver_to_its_largest_senders(script):
    values = torch.tensor([2.0, 1.0, -4.0, 9.0, 0.5])
    figure = script.draw_arcs(values, ["a", "猫", "c", "$d", "e"], 3, [0, 1, 2], title="r", most=2)
    figure.canvas.draw()
    (axis,) = figure.axes
    small, large = axis.patches  # the largest is drawn last, on top
    centres = [text.get_position()[0] for text in axis.texts[:5]]
    for arc, sender in ((small, 0), (large, 2)):
        ends = [arc.center[0] - arc.width / 2, arc.center[0] + arc.width / 2]
        assert ends == pytest.approx([centres[sender], centres[3]])
    assert large.get_linewidth() > small.get_linewidth()
    assert large.get_edgecolor()[2] > large.get_edgecolor()[0] and small.get_edgecolor()[0] > small.get_edgecolor()[2]
    assert axis.texts[-1].get_text() == "r   widest ±4"


@pytest.mark.slow
def test_the_pictures_are_drawn(script, monkeypatch, tmp_path):
    sizes = {"d_model": 16, "n_layers": 2, "n_heads_sa": 1, "n_heads_ra": 1, "dff": 16, "max_block_size": 96}
    symbols = {"symbol_retrieval_kwargs": {"d_model": 16, "n_heads": 2, "n_symbols": 4}}
    options = {"dropout_rate": 0.0, "activation": "gelu", "norm_first": True}
    models = {
        "lm": SimpleNamespace(
            model=DualAttnTransformerLM(vocab_size=257, **sizes, **options, **symbols), tokenizer=ByteTokenizer
        ),
        "games": SimpleNamespace(model=build_games_model(PRESETS["dat-0+2-sym"], 2, seed=0)),
    }
    monkeypatch.setattr(script, "open_checkpoint", lambda run: models[run.name])
    script.main(
        ["--language", str(tmp_path / "lm"), "--games", str(tmp_path / "games"), "--out", str(tmp_path / "out")]
    )
    names = {"figure-5-contribution.png", "figure-5-raw.png", "figure-9.png"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "out").iterdir())
