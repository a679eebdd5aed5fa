"""Studies under studies/: their files, and the tables of their pages, which follow from the committed results."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from dat.experiments import experiment_named
from dat.sweeps.experiment import swept
from dat.sweeps.grid import GridConfig, cells
from dat.sweeps.study import load_module, load_study, with_study

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted(path.parent.name for path in ROOT.glob("studies/*/study.py"))
TABLE = re.compile(r"<!-- table: (.+?) -->\n(.*?)<!-- end of table -->", re.DOTALL)
MOST_LINES = 150


@pytest.fixture(scope="module", params=STUDIES)
def folder(request: pytest.FixtureRequest) -> Path:
    return ROOT / "studies" / request.param


@pytest.fixture(scope="module")
def module(folder: Path) -> ModuleType:
    return load_module(folder / "study.py")


def test_its_page_is_short_and_names_the_commit_of_its_runs(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES and re.search(r"commit `[0-9a-f]{7,}`", text)
    assert (folder / "NOTEBOOK.md").is_file()


def test_its_tables_follow_from_its_results(folder, module):
    text = (folder / "README.md").read_text(encoding="utf-8")
    written = {name: table.strip() for name, table in TABLE.findall(text)}
    assert written == {name: make().strip() for name, make in module.TABLES.items()}


def test_its_grids_list_their_cells(folder):
    study = load_study(folder / "study.py")
    experiment = with_study(swept(experiment_named(study.experiment)), study)
    for grid in study.grids.values():
        assert isinstance(grid, GridConfig) and cells(experiment, grid)


def test_what_studies_share_is_small():
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "studies" / "_lib").glob("*.py")]
    assert sum(text.count("\n") for text in files) <= 500
