"""Arms matched in parameters, operations and time: what each is given, what the tables say, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dat.cli.main import main
from dat.estimate import estimate
from dat.experiments.images.config import ImageSources
from dat.experiments.images.experiment import ImageClassification
from dat.experiments.images.grid import ImageGrid
from dat.experiments.mathematics.experiment import Mathematics
from dat.experiments.mathematics.grid import MathematicsGrid
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.grid import GamesGrid
from dat.experiments.sequences.config import RecallGrid
from dat.experiments.sequences.experiment import Recall
from dat.sweeps import matching
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.matching import length_changes, match_cells, write_costs
from dat.sweeps.reproduce import reproduce
from dat.sweeps.results import load_results
from dat.training.configs import LoopConfig, OptimConfig, StepLoopConfig
from dat.training.experiment import count_parameters
from studies.theorem_1.experiment import SelectionDataConfig, Theorem1, Theorem1Grid

IMAGES = ImageClassification()
LOOP = LoopConfig(epochs=20, batch_size=16, eval_every=0, checkpoint_every=0, measure_at=(5, 15))


def image_grid(**options) -> ImageGrid:
    options = {"sizes": (32,), "seeds": 1, "data": ImageSources(n_test=20), "loop": LOOP, **options}
    return ImageGrid(**options)


def given(experiment, grid, folder) -> dict:
    arm = experiment.curve_axis.name
    return {cell[arm]: cell for cell in match_cells(experiment, grid, cells(experiment, grid), folder)}


def games_grid(**options) -> GamesGrid:
    options = {"loop": LOOP, "optim": OptimConfig(warmup_steps=40), **options}
    return GamesGrid(tasks=("same",), sizes=(100,), seeds=1, **options)


def test_operations(tmp_path):
    grid = games_grid(match="operations", match_to="dat-0+2-sym", models=("corelnet", "dat-0+2-sym"))
    found = given(RelationalGames(), grid, tmp_path)
    assert found["dat-0+2-sym"].given.changes == ()
    config, numbers = grid.config(found["corelnet"]), {name: dict(cell.given.numbers) for name, cell in found.items()}
    factor = numbers["dat-0+2-sym"]["step_operations"] / numbers["corelnet"]["step_operations"]
    assert factor > 2 and config.loop.epochs == round(20 * factor) == numbers["corelnet"]["trained_epochs"]
    assert config.optim.warmup_steps == round(40 * config.loop.epochs / 20)
    assert config.loop.measure_at == (5, 15)


def test_parameters(tmp_path):
    grid = image_grid(match="parameters", models=("ViDAT-digits", "ViT-digits", "ViDAT-digits-asym"))
    counts = {}
    for name, cell in given(IMAGES, grid, tmp_path).items():
        config = grid.config(cell)
        assert config.loop == LOOP
        counts[name] = count_parameters(IMAGES.empty_model(config))
        assert dict(cell.given.numbers)["dff"] == config.model.dff
    assert all(count == pytest.approx(counts["ViDAT-digits"], rel=0.01) for count in counts.values())
    assert grid.config(given(IMAGES, grid, tmp_path)["ViDAT-digits-asym"]).model.dff < 128


def test_time_is_measured_once(tmp_path, monkeypatch, in_process):
    calls = []

    def timed(experiment, configs, steps):
        calls.append(len(configs))
        return [1.0, 0.5]

    monkeypatch.setattr(matching, "timed_rates", timed)
    monkeypatch.setattr("dat.sweeps.reproduce.draw_figures", lambda *_: None)
    loop = LoopConfig(epochs=2, batch_size=16, eval_every=0, checkpoint_every=0)
    grid = image_grid(match="time", out=str(tmp_path / "grid"), loop=loop)
    folder = reproduce(IMAGES, grid, quiet=True)
    rows = {row["model"]: row for row in load_results(IMAGES, folder.path)}
    assert rows["ViT-digits"]["trained_epochs"] == 2 and rows["ViDAT-digits"]["trained_epochs"] == 4
    assert rows["ViDAT-digits"]["steps"] == 2 * rows["ViT-digits"]["steps"] and rows["ViDAT-digits"]["epochs"] == 2
    assert rows["ViT-digits"]["step_seconds"] == 16.0
    table = folder.comparison.read_text()
    assert "## Arms, matched in time" in table and "| seconds a step | epochs |" in table and "published" not in table
    reproduce(IMAGES, replace(grid, seeds=2), quiet=True)
    assert calls == [2] and len(in_process) == 4
    with pytest.raises(ValueError, match=r"match: .*holds cells run with time, got operations"):
        reproduce(IMAGES, replace(grid, match="operations"), quiet=True)


def test_what_no_cell_was_run_with_is_found_anew(tmp_path):
    """A grid that failed before its first cell may be given anew, matched in something else."""
    grid = games_grid(match="operations", models=("transformer-128-h2", "dat-0+2-sym"), out=str(tmp_path))
    GridFolder(RelationalGames(), tmp_path).open(grid)
    write_costs(tmp_path, list(given(RelationalGames(), grid, tmp_path).values()))
    other = replace(grid, match="parameters")
    found = given(RelationalGames(), other, tmp_path)
    assert dict(found["dat-0+2-sym"].given.changes) == {"model.dff": 211}
    write_costs(tmp_path, list(found.values()))
    (tmp_path / "cells" / "one.json").write_text("{}")
    assert given(RelationalGames(), other, tmp_path) == found


def theorem_grid(*models: str, **options) -> Theorem1Grid:
    loop = StepLoopConfig(steps=40, batch_size=8)
    sets = SelectionDataConfig(n_val=10, n_test=20)
    return Theorem1Grid(models=models, widths=(16,), seeds=1, loop=loop, data=sets, **options)


def test_the_reference_stays(tmp_path, in_process, monkeypatch):
    monkeypatch.setattr("dat.sweeps.reproduce.draw_figures", lambda *_: None)
    grid = theorem_grid("relational", "standard", match="operations", out=str(tmp_path / "grid"))
    reproduce(Theorem1(), grid, quiet=True)
    message = "match_to: .*holds cells run with relational, got standard"
    with pytest.raises(ValueError, match=message):
        reproduce(Theorem1(), replace(grid, models=("standard", "relational"), seeds=2), quiet=True)
    named = replace(grid, models=("standard", "relational"), match_to="relational", seeds=2)
    rows = load_results(Theorem1(), reproduce(Theorem1(), named, quiet=True).path)
    assert len(in_process) == 4
    assert {row["steps"] for row in rows if row["model"] == "relational"} == {40}


class Machine:
    """Times steps of arms, by the seconds of each and a factor by which all are slower."""

    def __init__(self, **seconds: float) -> None:
        self.seconds, self.slower, self.timed = seconds, 1.0, []

    def __call__(self, experiment, configs, steps) -> list[float]:
        self.timed.append([config.model.name for config in configs])
        return [self.slower * self.seconds[config.model.name] / config.loop.batch_size for config in configs]


def kept_matches(grid, folder) -> dict:
    """What arms are given, kept in the folder, which has a cell."""
    found = given(Theorem1(), grid, folder)
    (folder / "cells").mkdir(exist_ok=True)
    (folder / "cells" / "one.json").write_text("{}")
    write_costs(folder, list(found.values()))
    return found


def test_a_continued_grid_has_the_times_of_its_start(tmp_path, monkeypatch):
    """Both follow from the rounded seconds that are kept."""
    monkeypatch.setattr(matching, "timed_rates", Machine(relational=2.6e-6, standard=1.4e-6))
    grid = theorem_grid("relational", "standard", match="time")
    began = kept_matches(grid, tmp_path)
    assert given(Theorem1(), grid, tmp_path) == began
    assert dict(began["standard"].given.numbers)["trained_steps"] == 120  # 3e-6 over 1e-6


def test_an_arm_that_is_added_is_timed_beside_the_reference(tmp_path, monkeypatch):
    machine = Machine(relational=0.02, standard=0.01, symmetric=0.016)
    monkeypatch.setattr(matching, "timed_rates", machine)
    began = kept_matches(theorem_grid("relational", "standard", match="time"), tmp_path)
    machine.slower = 2.0
    more = given(Theorem1(), theorem_grid("relational", "standard", "symmetric", match="time"), tmp_path)
    assert machine.timed == [["relational", "standard"], ["relational", "symmetric"]]
    assert {name: more[name] for name in began} == began
    numbers = dict(more["symmetric"].given.numbers)
    assert numbers["step_seconds"] == 0.016 and numbers["trained_steps"] == 50


def test_costs_are_of_the_sequences_trained_on(tmp_path):
    """Models of one preset cost more on longer sequences, whatever their context."""
    recall = Recall()
    grid = RecallGrid(match="operations", seeds=1, tasks=("mqar-2", "mqar-4"), models=("T", "RCA"))
    cost = {
        (cell["size"], cell["model"]): dict(cell.given.numbers)["step_operations"]
        for cell in match_cells(recall, grid, cells(recall, grid), tmp_path)
    }
    config = grid.config(cells(recall, grid)[0])
    expected = estimate(recall.empty_model(config), batch=config.loop.batch_size, length=16, device="cpu").step_flops
    assert cost[2, "T"] == expected
    assert 2 < cost[4, "T"] / cost[2, "T"] < 2.2 and 2 < cost[4, "RCA"] / cost[2, "RCA"] < 2.2


def test_steps_are_stretched_with_their_schedule():
    config = Theorem1().Config(loop=StepLoopConfig(steps=100))
    config = replace(config, optim=replace(config.optim, warmup_steps=10))
    assert length_changes(config, "steps", 250) == [("loop.steps", 250), ("optim.warmup_steps", 25)]
    assert length_changes(config, "steps", 100) == []


def test_an_axis_of_lengths_keeps_its_points(tmp_path):
    """Runs of a matched arm belong to the point of the reference whose operations they have."""
    grid = MathematicsGrid(match="operations", seeds=1, epochs=(20,), modules=("polynomials__add",))
    found = given(Mathematics(), grid, tmp_path)["DAT-tiny"]
    assert found["epochs"] == 20 and found.name == "polynomials__add__DAT-tiny__epochs20__seed0"
    assert grid.config(found).loop.epochs < 20


def test_what_cannot_be_matched(tmp_path):
    def refused(experiment, grid) -> str:
        with pytest.raises(ValueError, match="match") as error:
            match_cells(experiment, grid, cells(experiment, grid), tmp_path)
        return str(error.value)

    assert "symmetric is of a fixed recipe" in refused(Theorem1(), Theorem1Grid(match="parameters"))
    games = games_grid(models=("dat-0+2-sym", "esbn"), match="parameters")
    assert "esbn is of a fixed recipe, its feed-forward width" in refused(RelationalGames(), games)
    short = replace(LOOP, epochs=1, measure_at=())
    games = games_grid(models=("dat-0+2-sym", "corelnet"), match="operations", loop=short)
    assert "epochs to match in operations, and 2 are too far" in refused(RelationalGames(), games)
    assert "match_to: expected names among ViT-digits" in refused(IMAGES, image_grid(match="time", match_to="ViT"))
    assert "--device cuda; match operations" in refused(IMAGES, image_grid(match="time", device="cuda"))
    large = image_grid(match="parameters", models=("ViT-digits", "ViDAT"))
    large = replace(large, datasets=("mnist",))
    assert "name a larger arm with --match_to" in refused(IMAGES, large)


def test_the_command_says_what_arms_get(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--match=operations", "--dry_run", "--sizes=[32]", "--seeds=1", "--workers=1"]
    assert main(["reproduce", "images", *options]) == 0
    out = capsys.readouterr().out
    assert "digits-shift ViT (d 64): operations a step" in out and "epochs 40" in out
    assert not list(tmp_path.iterdir())
    assert main(["reproduce", "images", "--match=width", "--dry_run"]) == 2
    assert "match: expected one of 'parameters', 'operations', 'time' or null, got width" in capsys.readouterr().err
