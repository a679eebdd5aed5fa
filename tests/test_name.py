"""The distribution is relational-attention: nothing here ever asks pip for dual-attention, the authors' package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dual_attention
from dual_attention._base.extras import require

from .test_imports import PROJECT, PYPROJECT, ROOT

NAME = "relational-attention"
THEIRS = "dual-attention"
TEXTS = {".cfg", ".html", ".js", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
FOLDERS = (".github", "benchmarks", "dat", "docs", "dual_attention", "examples", "studies", "tests")


def texts() -> dict[str, str]:
    """Pages, sources and settings of the repository, except what earlier versions wrote."""
    found = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    names = {path.relative_to(ROOT).as_posix(): path for path in found}
    left_out = ("tests/lab/old_runs/", "tests/test_name.py")
    return {name: path.read_text(encoding="utf-8") for name, path in names.items() if not name.startswith(left_out)}


def test_what_is_installed_is_ours():
    """An extra is asked of our distribution, and the other one only by its published version, or to remove it."""
    ours, extras = 0, PROJECT["optional-dependencies"]
    for file, text in texts().items():
        for match in re.finditer(rf"pip install\b[^\n]*?\b{THEIRS}(?!==0\.0\.7|==\{{PUBLISHED)", text):
            raise AssertionError(f"{file}: {match[0]}")
        for match in re.finditer(r"\b([a-z]+-attention)\\?\[([\w,]+)\\?\]", text):
            assert match[1] == NAME, f"{file}: {match[0]}"
            assert set(match[2].split(",")) <= extras.keys(), f"{file}: {match[0]}"
            ours += 1
    assert ours > 20


def test_the_source_distribution_can_test_itself():
    """It has all that the repository has, so that tests of pages, workflows and style find what they read."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no checkout of git")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    always = {".gitignore", "LICENSE", "README.md", "pyproject.toml"}
    named = {name.removeprefix("/") for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert {path.partition("/")[0] for path in tracked.splitlines()} == named | always


def test_the_project():
    assert PROJECT["name"] == NAME
    with pytest.raises(ImportError, match=rf'pip install "{NAME}\[train\]"'):
        require("a_module_that_nobody_has", extra="train")


def imported(package: str, site: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """A process that imports ``package`` from a folder like site-packages with these folders of metadata."""
    shutil.copytree(ROOT / "dat", site / "dat", ignore=shutil.ignore_patterns("*.json", "page", "__pycache__"))
    if not (site / "dual_attention").exists():
        (site / "dual_attention").mkdir()
        shutil.copy(dual_attention.__file__, site / "dual_attention")
    for name in files:
        (site / name).mkdir()
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); import {package}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=site)


def test_the_authors_package_beside_ours_is_named(tmp_path):
    done = imported(
        "dual_attention", tmp_path, "dual_attention-0.0.7.dist-info", "relational_attention-0.2.0.dist-info"
    )
    lines = [line for line in done.stderr.splitlines() if line[:1] != " "]  # from 3.13 on, with the line that imports
    assert done.returncode == 0 and len(lines) == 1, done.stderr
    assert "UserWarning: dual-attention-0.0.7 is installed beside relational-attention" in lines[0]
    assert "pip uninstall dual-attention" in lines[0]


def test_nothing_is_said_without_it(tmp_path):
    done = imported("dual_attention", tmp_path, "relational_attention-0.2.0.dist-info")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lab_names_files_of_the_authors_package_over_ours(tmp_path):
    (tmp_path / "dual_attention").mkdir()
    (tmp_path / "dual_attention" / "__init__.py").write_text("")
    done = imported("dat", tmp_path)
    assert done.returncode == 1 and "pip uninstall dual-attention" in done.stderr.splitlines()[-1]
