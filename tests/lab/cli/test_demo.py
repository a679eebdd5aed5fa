"""The demonstration in a tiny setting, and a sentence that says what the numbers say."""

import pytest

from dat.cli import demo
from dat.cli.main import main as dat_main
from dat.sweeps.results import read_results
from tests.support.processes import fork_workers


@pytest.mark.slow
def test_the_demo_leaves_a_table_pictures_and_sentences_and_goes_on_with_more_trials(tmp_path, monkeypatch, capsys):
    fork_workers(monkeypatch)
    folder = tmp_path / "demo"
    arguments = [f"--out={folder}", "--sizes=[16, 32]", "--epochs=1", "--n_test=64", "--workers=1"]
    assert dat_main(["demo", *arguments, "--seeds=1"]) == 0
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "learning_curves.png",
        "heldout.png",
        "relation.png",
    }
    text = capsys.readouterr().out
    assert "Hexominoes, never trained on" in text and "From 32 images the DAT" in text and "AUC" in text
    assert "From 32 images the DAT" in (folder / "demo.md").read_text()
    assert dat_main(["demo", *arguments, "--seeds=2"]) == 0
    assert "8 cells, 4 done, 4 to run" in capsys.readouterr().out
    assert len(read_results(demo.GAMES, folder / "results.csv")) == 8


def test_the_first_sentence_follows_the_numbers():
    rows = [
        {"model": model, "n_train": n, "seed": seed, "test": a, "hexominoes": a - 2, "stripes": a - 5}
        for model, n, seed, a in (
            (demo.DAT, 500, 0, 60),
            (demo.DAT, 1000, 0, 88),
            (demo.DAT, 1000, 1, 92),
            (demo.RIVAL, 1000, 0, 66),
        )
    ]
    text = demo.accuracy_sentence(rows, 1000)
    assert text.startswith("From 1,000 images the DAT reaches 90 % on new images, the Transformer 66 %;")
    assert text.endswith("88 against 64 % (hexominoes) and 85 against 61 % (stripes).")


def test_the_second_sentence_follows_the_relation_of_each_trial(monkeypatch):
    of_trials = {
        3: {"pentominoes": [0.9, 0.96], "hexominoes": [0.8, 0.91], "stripes": [0.7, 0.6]},
        4: {"pentominoes": [0.9, 0.98], "hexominoes": [0.8, 0.91], "stripes": [0.7, 0.6]},
    }
    monkeypatch.setattr(demo, "improved_relation", lambda folder, grid, seed: of_trials[seed])
    grid = demo.demo_grid(demo.DemoConfig(seeds=2, first_seed=3))
    text = " ".join(demo.relation_sentence(None, grid).split())
    assert "in 97 ± 13 % of pairs of pentominoes (90 ± 0 % before training), 91 ± 0 % of pairs of hexominoes" in text
