"""The demonstration in a tiny setting, and sentences that say what the numbers say."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from dat.cli import demo
from dat.cli.main import main as dat_main
from dat.experiments.relational_games.grid_relations import Detector
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.results import read_results
from dat.training.interrupt import Interrupted
from dat.training.lock import InUse
from tests.support.processes import fork_workers


def rows(dat: dict[int, float], rival: dict[int, float]) -> list[dict]:
    return [
        {"model": model, "n_train": n, "seed": 0, "test": a, "hexominoes": a - 2, "stripes": a - 5}
        for model, values in ((demo.DAT, dat), (demo.RIVAL, rival))
        for n, a in values.items()
    ]


@pytest.mark.slow
def test_the_demo_leaves_a_table_two_pictures_and_two_sentences(tmp_path, monkeypatch, capsys):
    fork_workers(monkeypatch)
    config = demo.DemoConfig(
        folder=str(tmp_path), sizes=(16, 32), trials=2, time_budget=0.0, epochs=1, n_test=64, workers=1
    )
    folder = demo.run_demo(config)
    assert folder == tmp_path / "demo-1"
    assert all((folder / "figures" / name).exists() for name in ("learning_curves.png", "relation.png"))
    assert len(read_results(demo.GAMES, folder / "results.csv")) == 4  # one trial: the budget allows no second one
    text = capsys.readouterr().out
    assert "Accuracy in percent (one trial" in text and "From 32 images the DAT" in text and "AUC" in text
    said = " ".join((folder / "demo.txt").read_text().split())
    assert "From 32 images" in said
    assert "One trial was run; that of seed 1 would not have ended in --time_budget" in said
    assert dat_main(["reproduce", "relational-games", "--config", str(folder / "grid.yaml"), "--dry_run"]) == 0
    assert "8 cells, 4 done, 4 to run" in capsys.readouterr().out


def test_a_folder_is_new_or_has_the_same_demo_unfinished(tmp_path):
    def claimed(config: demo.DemoConfig) -> str:
        with ExitStack() as locks:
            return demo.claim_folder(config, locks).path.name

    config = demo.DemoConfig(folder=str(tmp_path))
    first, second = tmp_path / "demo-1", tmp_path / "demo-2"
    assert claimed(config) == "demo-1"
    assert claimed(config) == "demo-2"  # the first was never begun
    grid = demo.demo_grid(config, second)
    GridFolder(demo.GAMES, second).open(grid)
    assert claimed(config) == "demo-2"
    assert claimed(replace(config, time_budget=1.0)) == "demo-2"
    assert claimed(replace(config, trials=2)) == "demo-3"
    with GridFolder(demo.GAMES, second).locked():
        assert claimed(config) == "demo-4"
    cell = GridFolder(demo.GAMES, second).path_of(cells(demo.GAMES, grid)[0])
    cell.write_text("{}")  # as no cell of this version is
    assert claimed(config) == "demo-5"
    cell.unlink()
    (second / "demo.txt").write_text("done")
    assert claimed(config) == "demo-6"
    assert not any(first.glob("*.yaml"))


def test_an_interrupted_demo_says_what_continues_it(tmp_path, monkeypatch):
    def demonstrate(config, grid, folder):
        raise Interrupted

    monkeypatch.setattr(demo, "demonstrate", demonstrate)
    with pytest.raises(Interrupted, match=r"the same command continues in .*demo-1"):
        demo.run_demo(demo.DemoConfig(folder=str(tmp_path)))


def test_the_first_sentence_follows_the_numbers():
    text = demo.accuracy_sentence(rows({250: 70, 500: 80, 1000: 90}, {250: 51, 500: 55, 1000: 66}), 5000)
    assert "DAT reaches 90 % on new images, the Transformer 66 %" in text
    assert "88 against 64 % (hexominoes) and 85 against 61 % (stripes)" in text
    assert "250 images already take the DAT past the Transformer's 1,000" in text
    text = demo.accuracy_sentence(rows({250: 52, 500: 53, 1000: 60}, {250: 70, 500: 75, 1000: 80}), 5000)
    assert "DAT reaches 60 % on new images, the Transformer 80 %" in text and "past" not in text


@pytest.mark.parametrize(
    ("dat", "rival", "n_test", "past"),
    [
        (50, 50, 5000, ""),
        (51, 50, 5000, ""),  # both guess
        (53, 50, 5000, "50 images"),
        (53, 50, 500, ""),  # too few images to tell
        (70, 70, 5000, ""),
        (71, 70, 5000, "50 images"),
    ],
)
def test_only_a_dat_that_does_better_than_guessing_is_past_the_transformer(dat, rival, n_test, past):
    text = demo.accuracy_sentence(rows({50: dat, 100: dat}, {50: rival, 100: rival}), n_test)
    assert ("already take the DAT past the Transformer's 100" in text) == bool(past) and past in text


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((5, 6, 7), ""),
        ((5, 6), "2 trials were run; that of seed 7 would not have ended in --time_budget"),
        ((5,), "One trial was run; those of seed 6, 7 would not"),
    ],
)
def test_trials_that_were_left_out_are_named_with_the_command_that_runs_them(seeds, words, tmp_path):
    grid = demo.demo_grid(demo.DemoConfig(trials=3, seed=5), tmp_path / "demo-3")
    text = demo.left_out_sentence([{"seed": seed} for seed in seeds], grid)
    assert text.startswith(words) and bool(text) == bool(words)
    assert not words or text.endswith(f"dat reproduce relational-games --config {tmp_path / 'demo-3' / 'grid.yaml'}")


def test_the_second_sentence_follows_the_relation():
    aucs = {"test": (0.9, 0.97), "hexominoes": (0.8, 0.91), "stripes": (0.7, 0.6)}
    text = demo.relation_sentence(Detector(1, 0, -1, 0.97), [aucs], 1000)
    assert "relation 1 of layer 2" in text and "Training did not make it" not in text
    assert "in 97 % of pairs of pentominoes (90 % before training), 91 % of pairs of hexominoes (80 %" in text
    trials = [{name: (before, after + gain) for name, (before, after) in aucs.items()} for gain in (-0.01, 0.0, 0.01)]
    text = demo.relation_sentence(Detector(1, 0, -1, 0.97), trials, 1000)
    assert "in 97 ± 2 % of pairs of pentominoes (90 ± 0 % before training)" in text
    trials = [{name: (before, before + gain) for name, (before, _) in aucs.items()} for gain in (0.01, -0.05, 0.03)]
    assert demo.relation_sentence(Detector(1, 0, -1, 0.97), trials, 1000).endswith("it is about as good before.")


def test_a_trial_that_does_not_end_in_time_is_left_out(tmp_path, monkeypatch):
    grid = demo.demo_grid(demo.DemoConfig(trials=3, sizes=(250, 500)), tmp_path / "demo")
    folder = GridFolder(demo.GAMES, grid.out)
    folder.open(grid)
    begun = []

    def run_cells(chosen, grid, folder, count, stop):
        begun.append(chosen[0].seed)
        for cell in chosen if chosen[0].seed == 0 else chosen[:1]:
            assert not stop()
            folder.path_of(cell).write_text('{"accuracy": {"test": 0.5}}')
            yield cell, 1.0

    monkeypatch.setattr(demo, "run_cells", run_cells)
    demo.train_trials(grid, folder, budget=1000.0)
    assert begun == [0, 1]
    assert {path.name.split("__")[-1] for path in folder.cells.iterdir()} == {"seed0.json"}
    assert len(list(folder.cells.iterdir())) == 4


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A demo of two trials of four cells, five of which are done; and a way to go on, which takes no time."""
    grid = demo.demo_grid(demo.DemoConfig(trials=2, sizes=(250, 500)), tmp_path / "demo")
    folder = GridFolder(demo.GAMES, grid.out)
    folder.open(grid)
    every = cells(demo.GAMES, grid)

    def write(cell):
        folder.path_of(cell).write_text('{"accuracy": {"test": 0.5}}')
        folder.weights_of(cell).write_bytes(b"weights")

    def run_cells(chosen, grid, folder, count, stop):
        for cell in chosen:
            write(cell)
            yield cell, 1.0

    for cell in (*every[:4], every[5]):
        write(cell)
    monkeypatch.setattr(demo, "run_cells", run_cells)
    return grid, folder, every


def test_models_that_were_trained_before_are_not_trained_again(begun, capsys):
    grid, folder, every = begun
    folder.weights_of(every[1]).unlink()
    demo.train_trials(grid, folder, budget=1000.0)
    said = capsys.readouterr().out
    assert "demo: 4 of 8 models were trained before" in said
    assert said.count("right on new ones") == 4
    assert all(folder.done(cell) and folder.weights_of(cell).exists() for cell in every)
    demo.train_trials(grid, folder, budget=0.0)  # what is complete takes no time
    assert all(map(folder.done, every))


def test_no_part_of_a_trial_stays_that_is_left_out(begun):
    grid, folder, every = begun
    demo.train_trials(grid, folder, budget=0.0)
    assert [folder.done(cell) for cell in every] == 4 * [True] + 4 * [False]


def test_its_folder_is_locked(tmp_path, monkeypatch):
    seen = []

    def demonstrate(config, grid, folder):
        with pytest.raises(InUse, match="demo-1: in use by process"), folder.locked():
            pass
        seen.append(folder.path)

    monkeypatch.setattr(demo, "demonstrate", demonstrate)
    assert demo.run_demo(demo.DemoConfig(folder=str(tmp_path))) == tmp_path / "demo-1" == seen[0]
