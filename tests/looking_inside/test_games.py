"""The study of games: the announced rule on numbers of every kind, and a small model looked into."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from dat.cli.main import main as dat
from studies.looking_inside import games
from studies.looking_inside.games import Found, Lost, Read, look_into, main
from studies.looking_inside.games_report import draw, lost_by_relation, report, verdict

NAMES = ("0.0", "0.1", "1.0", "1.1")
SETS = ("test", "hexominoes", "stripes")


def found(left: tuple[float, ...], best: int = 1, accuracy: float = 0.92, seed: int = 0) -> Found:
    """A model that has these accuracies without each relation, one of which reads best."""
    read = (Read("relations", best, (0.6, 0.9, 0.3, 0.5), 0.88, 0.005), Read("cosines", 0, (0.99, 0.7), 0.98, 0.005))
    lost = tuple(
        Lost(f"relation {name}", how, objects, after, accuracy - after, 0.01)
        for name, after in zip(NAMES, left, strict=True)
        for how in ("resample", "mean", "zero")
        for objects in SETS
    )
    others = (
        ("selection of layer 0", 0.7),
        ("random direction 0 of layer 1", 0.9),
        ("random direction 1 of layer 1", 0.8),
    )
    lost += tuple(Lost(what, "resample", "test", after, accuracy - after, 0.01) for what, after in others)
    return Found(f"run-{seed}", seed, dict.fromkeys(SETS, accuracy), NAMES, read, lost)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([found((0.9, 0.52, 0.91, 0.92))] * 5, "uses the relation that reads best, and no other"),
        ([found((0.9, 0.56, 0.91, 0.92))] * 5, "it uses that relation among others"),  # not at chance
        ([found((0.8, 0.52, 0.91, 0.92))] * 5, "it uses that relation among others"),  # another costs, too
        ([*[found((0.9, 0.52, 0.91, 0.92))] * 4, found((0.8, 0.6, 0.9, 0.9))], "it uses that relation among others"),
        ([found((0.6, 0.9, 0.91, 0.92))] * 3, "what reads best is not what is used"),
        ([*[found((0.6, 0.9, 0.91, 0.92))] * 2, found((0.9, 0.5, 0.9, 0.9))], "it differs from model to model"),
        ([found((0.9, 0.85, 0.91, 0.92))] * 5, "it differs from model to model"),  # costs most, but little
        ([], "no model has learned the task"),
    ],
)
def test_the_announced_words(models, words):
    assert words in verdict(models)


def test_report_and_figure(tmp_path):
    models = [found((0.9, 0.52, 0.91, 0.94)), found((0.5, 0.5, 0.5, 0.5), accuracy=0.6, seed=7)]
    text = report(models, learned=0.8)
    assert "of 1 models: **the model uses the relation that reads best, and no other**" in text
    assert "Left out, below 80% on new pentominoes: run-7." in text
    line = "| 0 | test | 92.0 | 90.0 (-2.0 ± 1.0) | **52.0 (-40.0 ± 1.0)** | 91.0 (-1.0 ± 1.0) | 94.0 (+2.0 ± 1.0) |"
    assert text.count(line) == 3  # in each way
    assert "| 0 | relations | 4 | 0.0: 0.600, 0.1: 0.900, 1.0: 0.300, 1.1: 0.500 | 0.1 | 0.880 | 0.005 |" in text
    assert "| 0 | cosines | 2 | 0.700 to 0.990 | – | 0.980 | 0.005 |" in text
    assert "| 0 | selection of layer 0 | 70.0 | -22.0 ± 1.0 |" in text
    assert "| 0 | 2 random directions of layer 1 | 80.0 to 90.0 | -12.0 to -2.0 |" in text
    draw(models, tmp_path / "games.png", learned=0.8)
    assert (tmp_path / "games.png").stat().st_size > 10_000
    draw(models[1:], tmp_path / "none.png", learned=0.8)
    assert not (tmp_path / "none.png").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sizes = {"n_train": 32, "n_val": 24, "n_test": 40, "n_heldout": 40}
    words = [word for name, size in sizes.items() for word in (f"--data.{name}", str(size))]
    options = ["--task", "occurs", "--preset", "dat-0+2-sym", "--loop.epochs", "1", "--output.progress", "false"]
    assert dat(["train", "relational-games", *options, *words, "--output.folder", str(folder)]) == 0
    return next(path for path in folder.iterdir() if (path / "result.json").exists())


def test_a_small_model(run, tmp_path, monkeypatch, capsys):
    one = look_into(run, shuffles=3, directions=1)
    again = json.loads((run / "result.json").read_text())["accuracy"]
    assert {name: round(accuracy, 6) for name, accuracy in one.accuracies.items()} == {
        name: pytest.approx(again[name], abs=1e-6) for name in SETS
    }
    assert one.relations == NAMES and lost_by_relation(one).keys() == set(NAMES)
    assert [read.scores for read in one.read][:3] == ["relations", "attention weights", "random projections"]
    assert [len(read.aucs) for read in one.read] == [4, 4, 4, 2, 4]
    assert all(abs(lost.accuracy + lost.lost - one.accuracies[lost.objects]) < 1e-9 for lost in one.lost)
    assert one == look_into(run, shuffles=3, directions=1)  # nothing is left to chance

    monkeypatch.setattr(games, "SHUFFLES", 1)
    monkeypatch.setattr(games, "look_into", lambda run: replace(one, run=run.name))
    assert main([str(run), "--out", str(tmp_path / "out")]) == 0
    assert "of 0 models" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "out" / "games.json").read_text())["models"]) == 1


def test_resampling_takes_the_relation_of_another_image(run):
    """Where all images are one, another image has the same relations, and nothing is lost."""
    model = games.open_checkpoint(str(run)).model
    (site, _), image = [s.site for s in games.choose_sites(model)], torch.rand(1, 3, 36, 36).expand(6, -1, -1, -1)
    for _, how, intervention in games.interventions([site], 1):
        with torch.no_grad():
            plain = model(image)
            with games.intervene(model, intervention):
                changed = model(image)
        assert (how != "resample") or torch.allclose(plain, changed, atol=1e-5)


def test_other_runs_are_refused(run, tmp_path, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "error: " in capsys.readouterr().err and not (tmp_path / "out").exists()
    options = ["--task", "occurs", "--preset", "transformer-128-h2", "--loop.epochs", "1", "--output.progress", "false"]
    sizes = ["--data.n_train", "8", "--data.n_val", "8", "--data.n_test", "8", "--data.n_heldout", "8"]
    assert (
        dat(["train", "relational-games", *options, *sizes, "--output.folder", str(tmp_path), "--output.name", "t"])
        == 0
    )
    with pytest.raises(ValueError, match="expected a model with relations, transformer-128-h2 has none"):
        look_into(tmp_path / "t")
