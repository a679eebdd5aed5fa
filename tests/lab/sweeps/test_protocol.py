"""Runs that were made differently are neither added to a folder nor merged; what is not known hinders nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dat.experiments.language.config import LanguageDataConfig
from dat.experiments.language.data import load_data, text_digest, text_origin
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.grid import LanguageGrid
from dat.experiments.sequences.config import RecallGrid, RecallSets
from dat.experiments.sequences.experiment import Recall
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.report import plot_results
from dat.sweeps.reproduce import reproduce
from dat.sweeps.results import CONFIG, differing_settings, digests, load_results, settings_of, to_csv
from dat.sweeps.sources import merge_results
from dat.training.configs import OptimConfig, StepLoopConfig
from dat.training.metrics import Row
from dual_attention.generation.tokenizer import ByteTokenizer
from studies.digit_games.experiment import DigitGames
from studies.theorem_1.experiment import SelectionDataConfig, Theorem1, Theorem1Grid

RECALL, THEOREM, LANGUAGE = Recall(), Theorem1(), LanguageModelling()
LOOP = StepLoopConfig(steps=3, batch_size=2, eval_every=0, checkpoint_every=0)
TEXT = "".join(f"{n} is followed by {n + 1}. " for n in range(400))


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    for module in ("reproduce", "report"):
        monkeypatch.setattr(f"dat.sweeps.{module}.draw_figures", lambda *_: None)


def recall_grid(folder, **options) -> RecallGrid:
    options = {"tasks": ("mqar-2",), "steps": (5,), "seeds": 1, **options}
    return RecallGrid(out=str(folder), models=("T",), evaluations=1, data=RecallSets(8, 8), loop=LOOP, **options)


def theorem_grid(folder, **options) -> Theorem1Grid:
    sets = SelectionDataConfig(n_val=4, n_test=4)
    options = {"models": ("relational", "standard"), "widths": (8,), "seeds": 1, "data": sets, "loop": LOOP, **options}
    return Theorem1Grid(out=str(folder), **options)


def language_grid(folder, text, **options) -> LanguageGrid:
    data = LanguageDataConfig(path=str(text), val_tokens=256)
    options = {"models": ("T-tiny",), "steps": (2,), "seeds": 1, "data": data, "loop": LOOP, **options}
    return LanguageGrid(out=str(folder), **options)


def forget_settings(folder: GridFolder) -> None:
    """Make cells those of an older version, which kept no settings."""
    for path in folder.cells.iterdir():
        result = json.loads(path.read_text())
        del result[CONFIG]
        path.write_text(json.dumps(result))
    (folder.path / "checksums.json").unlink()


def older_table(rows: list[Row], path):
    """A table of an older version, without digests."""
    path.write_text(to_csv([{key: x for key, x in row.items() if not key.endswith("_digest")} for row in rows]))
    return path


def test_cells_that_the_last_call_did_not_list_count(tmp_path, in_process):
    first = recall_grid(tmp_path / "grid")
    folder = reproduce(RECALL, first, quiet=True)
    reproduce(RECALL, replace(first, tasks=("s3-4",)), quiet=True)
    for seeds in ({"seeds": 2}, {"first_seed": 7}):
        message = r"^loop\.steps: .*mqar__T__size2__seed0\.json was run with 5, got 40; give"
        with pytest.raises(ValueError, match=message):
            reproduce(RECALL, replace(first, steps=(40,), **seeds), quiet=True)
    reproduce(RECALL, replace(first, seeds=2), quiet=True)
    assert in_process == ["mqar__T__size2__seed0", "s3__T__size4__seed0", "mqar__T__size2__seed1"]
    reproduce(RECALL, replace(first, tasks=("s3-4",)), quiet=True)
    forget_settings(folder)
    folder.check(replace(first, steps=(40,)))


def test_learning_rates_of_arms_that_the_last_call_did_not_list_count(tmp_path, in_process):
    first = theorem_grid(tmp_path / "grid")
    folder = reproduce(THEOREM, first, quiet=True)
    reproduce(THEOREM, replace(first, models=("standard",)), quiet=True)
    for older in (False, True):
        with pytest.raises(ValueError, match=r"lr_of: .* holds cells of relational run with optim\.lr, got 0\.05; "):
            reproduce(THEOREM, replace(first, seeds=2, lr_of={"relational": 5e-2}), quiet=True)
        if not older:
            forget_settings(folder)
    reproduce(THEOREM, replace(first, seeds=2), quiet=True)
    assert len(in_process) == 4


def test_what_changes_no_result_is_no_setting():
    config = theorem_grid("grid").config(cells(THEOREM, theorem_grid("grid"))[0])
    settings = settings_of(config)
    assert settings.keys() == {"data", "model", "optim", "loop"}
    same = replace(config, seed=3, loop=replace(LOOP, eval_batch_size=7, micro_batch_size=1))
    assert settings_of(same) == settings
    other = replace(config, loop=replace(LOOP, steps=4), optim=replace(config.optim, betas=(0.5, 0.5)))
    assert list(differing_settings(settings, settings_of(other))) == [
        ("optim.betas", [0.9, 0.999], [0.5, 0.5]),
        ("loop.steps", 3, 4),
    ]
    assert not list(differing_settings({"model": {"old": 1, "width": 2}}, {"model": {"width": 2, "new": 3}, "more": 4}))
    later = {**settings, "optim": {**settings["optim"], "later": None}}
    assert digests(THEOREM.table, {CONFIG: later}) == digests(THEOREM.table, {CONFIG: settings}) != {}


@pytest.mark.parametrize("experiment", [THEOREM, LANGUAGE, DigitGames()], ids=lambda experiment: experiment.name)
def test_cells_of_a_grid_are_made_alike(experiment):
    """Whatever their place on the axes, and whatever their arm is given."""
    grid = replace(experiment.Grid(), **{axis: values[:2] for axis, values in sizes_of(experiment.Grid()).items()})
    found = [digests(experiment.table, {CONFIG: settings_of(grid.config(cell))}) for cell in cells(experiment, grid)]
    assert found[0].keys() == {"data_digest", "loop_digest", "optim_digest"} and all(one == found[0] for one in found)


def sizes_of(grid) -> dict:
    return {name: values for name, values in vars(grid).items() if name in ("sizes", "widths", "steps")}


def test_damaged_cells_are_run_again_however_the_others_were_made(tmp_path, in_process, capsys):
    grid = recall_grid(tmp_path / "grid", seeds=2)
    folder = reproduce(RECALL, grid, quiet=True)
    folder.path_of(cells(RECALL, grid)[1]).write_text("{")
    reproduce(RECALL, grid, quiet=True)
    assert in_process[2:] == ["mqar__T__size2__seed1"] and "computed again" in capsys.readouterr().err


def test_texts_are_told_apart(tmp_path, in_process):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    first = language_grid(tmp_path / "one", text)
    reproduce(LANGUAGE, first, quiet=True)
    text.rename(tmp_path / "renamed.txt")
    reproduce(LANGUAGE, first, quiet=True)  # all is done, so the text is not asked for
    reproduce(LANGUAGE, language_grid(tmp_path / "two", tmp_path / "renamed.txt", first_seed=1), quiet=True)
    text.write_text(TEXT.replace("followed", "preceded"))
    with pytest.raises(ValueError, match=r"text_digest .*, but text_digest .* not made alike"):
        reproduce(LANGUAGE, replace(first, seeds=2), quiet=True)
    reproduce(LANGUAGE, language_grid(tmp_path / "three", text, first_seed=1), quiet=True)
    assert len(merge_results(LANGUAGE, [tmp_path / "one", tmp_path / "two" / "results.csv"])) == 2
    with pytest.raises(ValueError, match=r"three: .* text_digest .*, but text_digest"):
        merge_results(LANGUAGE, [tmp_path / "one", tmp_path / "three"])
    older = older_table(load_results(LANGUAGE, tmp_path / "three"), tmp_path / "older.csv")
    assert len(merge_results(LANGUAGE, [tmp_path / "one", older])) == 2


@pytest.mark.parametrize("kind", ["text", "two texts", "json lines", "tokens", "documentation"])
def test_a_text_is_known_before_it_is_tokenized(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("dat.data.text.tokens.python_documentation", lambda: [TEXT])
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text(TEXT[::-1])
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": f"{n}: {TEXT[:500]}"}) + "\n" for n in range(20)))
    np.save(tmp_path / "d.npy", np.arange(5000, dtype=np.uint16) % 256)
    paths = {
        "text": {"path": str(tmp_path / "a.txt")},
        "two texts": {"path": str(tmp_path / "a.txt"), "val_path": str(tmp_path / "b.txt")},
        "json lines": {"path": str(tmp_path / "c.jsonl")},
        "tokens": {"path": str(tmp_path / "d.npy")},
        "documentation": {},
    }
    config = LanguageDataConfig(**paths[kind])
    data = load_data(config, ByteTokenizer(), context=16, vocab_size=257, seed=0, cache=tmp_path / "cache")
    assert text_digest(text_origin(config)) == text_digest(data.origin)


def test_runs_of_other_settings_are_not_merged(tmp_path, in_process):
    one = reproduce(THEOREM, theorem_grid(tmp_path / "one"), quiet=True).path
    others = {
        "loop": {"loop": replace(LOOP, steps=4)},
        "data": {"data": SelectionDataConfig(senders=4, n_val=4, n_test=4)},
        "optim": {"optim": OptimConfig(lr=0.5)},
    }
    for group, options in others.items():
        other = reproduce(THEOREM, theorem_grid(tmp_path / group, first_seed=1, **options), quiet=True).path
        for sources in ([one, other], [other / "results.csv", one / "results.csv"]):
            with pytest.raises(ValueError, match=f"{group}_digest .*, but {group}_digest .* not made alike"):
                merge_results(THEOREM, sources)
        older = older_table(load_results(THEOREM, other), tmp_path / f"{group}.csv")
        assert len(merge_results(THEOREM, [one, older])) == 4
        assert len(merge_results(THEOREM, [older, one / "results.csv"])) == 4
    wider = theorem_grid(tmp_path / "wider", widths=(16,), loop=replace(LOOP, eval_batch_size=2))
    assert len(merge_results(THEOREM, [one, reproduce(THEOREM, wider, quiet=True).path])) == 4


def test_arms_with_and_without_rates_of_their_own_are_not_merged(tmp_path, in_process):
    one = reproduce(THEOREM, theorem_grid(tmp_path / "one"), quiet=True).path
    options = {"first_seed": 1, "lr_of": {"relational": 4e-3}}
    tuned = reproduce(THEOREM, theorem_grid(tmp_path / "tuned", **options), quiet=True).path
    for sources in ([one, tuned], [tuned / "results.csv", one / "results.csv"]):
        with pytest.raises(ValueError, match=r": relational: lr 0\.004 and optim\.lr; "):
            plot_results(THEOREM, sources, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "again.csv").write_text((tuned / "results.csv").read_text().replace(",0.004", ",0.05"))
    with pytest.raises(ValueError, match=r": relational: lr 0\.05 and lr 0\.004; "):
        merge_results(THEOREM, [tuned, tmp_path / "again.csv"])
    older = older_table(load_results(THEOREM, one), tmp_path / "older.csv")  # which may be of several grids
    assert "comparison.md" in [path.name for path in plot_results(THEOREM, [tuned, older], tmp_path / "out")]
