"""Studies from their files, and folders of grids that earlier versions made."""

import pickle
from dataclasses import asdict
from pathlib import Path

import pytest

from dat.cli.main import main
from dat.experiments.language.experiment import LanguageModelling
from dat.sweeps.grid import GridFolder
from dat.sweeps.reproduce import reproduce
from dat.sweeps.study import load_study, with_study
from dat.training.config_io import commented_yaml, read_config
from examples.my_experiment import Sums, SumsGrid
from tests.lab.cli.commands import printed, refusal
from tests.support.processes import fork_workers

STUDY = """
from dataclasses import replace
from pathlib import Path

from dat.experiments.language.experiment import LanguageModelling

EXPERIMENT = "language"
PRESETS = {"DAT-narrow": replace(LanguageModelling.presets["DAT-tiny"], name="DAT-narrow", d_model=32)}
GRIDS = {"narrow": LanguageModelling.Grid.with_presets(PRESETS)(models=("DAT-narrow", "T-tiny"), steps=(2,), seeds=1)}
FIGURES = {"rows.txt": lambda rows, path: path.write_text(str(len(rows)))}
"""


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("study.py").write_text(STUDY)
    return Path("study.py")


def test_a_study_is_run_and_drawn(file, capsys, monkeypatch):
    fork_workers(monkeypatch)
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
    small = ["--data.path=text.txt", "--data.val_tokens=256", "--loop.batch_size=2", "--workers=1"]
    words = ["language", "--study", str(file)]
    assert "2/2" in printed(capsys, "reproduce", *words, "--scale=narrow", "--out=grid", *small)
    assert Path("grid/figures/rows.txt").read_text() == "2"
    assert main(["plot", *words, "grid", "--out=figures"]) == 0
    assert Path("figures/rows.txt").is_file()
    error = refusal(capsys, "plot", "language", "grid", "--out=others")
    assert "(others are of a study: --study FILE), got 'DAT-narrow'" in error


def test_it_is_for_one_command_and_not_for_workers(file):
    experiment = LanguageModelling()
    found = with_study(experiment, load_study(file))
    assert {*found.scales} == {*experiment.scales, "narrow"} and "DAT-narrow" in found.presets
    assert "DAT-narrow" not in experiment.presets and "DAT-narrow" not in experiment.Grid.presets
    assert type(pickle.loads(pickle.dumps(found))) is LanguageModelling


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GRIDS = {}", "study.py: EXPERIMENT: expected the name of an experiment, got None"),
        ("EXPERIMENT = 'language'", "study.py: GRIDS: expected grids by name, got None"),
        ("EXPERIMENT, GRIDS = 'language', {'one': 1}", "study.py: GRIDS: expected grids by name, got {"),
        ("EXPERIMENT, GRIDS, FIGURES = 'language', {}, {'a': 1}", "study.py: FIGURES: expected functions that draw"),
        ("import nothing_of_that_name", "study.py: No module named 'nothing_of_that_name'"),
        ("EXPERIMENT, GRIDS = 'images', {}", "study.py: a study of images, not of language"),
    ],
)
def test_wrong_studies(file, capsys, text, message):
    file.write_text(text)
    assert message in refusal(capsys, "reproduce", "language", "--study", file, "--dry_run")


def test_files_that_are_none(file, capsys):
    for name, message in (("none.py", "none.py: no such file"), ("study.md", "study.md: expected a Python file")):
        assert message in refusal(capsys, "plot", "language", f"--study={name}", "grid", "--out=out")


# Folders of earlier versions ------------------------------------------------------------------------------------------

GONE = "lrs: {lrs}\nmatch: {match}\nmatch_to: null\n"


@pytest.fixture
def older(tmp_path, in_process) -> GridFolder:
    """A grid as earlier versions left it, with the plan of an analysis beside it."""
    folder = reproduce(Sums(), SumsGrid(out=str(tmp_path / "grid"), seeds=2, lr_of={"deep": 1e-2}), quiet=True)
    with open(folder.config, "a") as file:
        file.write(GONE.format(lrs="null", match="null"))
    (folder.path / "analysis.yaml").write_text("measure: val\n")
    (folder.path / "analysis.json").write_text("{}")
    return folder


def test_a_folder_with_keys_that_are_gone_is_continued(older, in_process):
    grid = read_config(SumsGrid, older.config)
    assert asdict(grid).keys().isdisjoint(SumsGrid.gone) and grid.lr_of == {"deep": 1e-2}
    assert older.not_run() == []
    reproduce(Sums(), SumsGrid(out=str(older.path), seeds=3, lr_of={"deep": 1e-2}), quiet=True)
    assert len(in_process) == 12 and (older.path / "analysis.yaml").is_file()


@pytest.mark.parametrize(("lrs", "match"), [("[1e-3, 2e-3]", "null"), ("null", "parameters")])
def test_a_key_that_is_gone_and_did_something_is_named(older, lrs, match):
    older.config.write_text(commented_yaml(SumsGrid()) + GONE.format(lrs=lrs, match=match))
    with pytest.raises(ValueError, match=r"grid\.yaml: (lrs|match): expected none, got .*; this key is gone, commit "):
        older.not_run()


def test_a_file_of_settings_may_hold_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    grid = LanguageModelling.Grid()
    Path("old.yaml").write_text(commented_yaml(grid) + GONE.format(lrs="null", match="null"))
    assert "12 cells" in printed(capsys, "reproduce", "language", "--config=old.yaml", "--dry_run", "--device=cuda")
    assert "--match: there is no such option" in refusal(capsys, "reproduce", "language", "--match=time", "--dry_run")
