"""What a release consists of, and the files beside it, which say the same as the project does."""

import io
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from dual_attention import __version__
from tests import release
from tests.release import ROOT, check_contents
from tests.support.refusals import refused
from tests.test_name import PROJECT

WHEEL = (*sorted(release.IN_WHEEL, reverse=True), "relational_attention-0.dist-info/METADATA")


def archives(folder: Path, wheel: tuple[str, ...], sdist: set[str]) -> tuple[Path, Path]:
    paths = folder / "a.whl", folder / "a.tar.gz"
    with zipfile.ZipFile(paths[0], "w") as archive:
        for name in wheel:
            archive.writestr(name, "")
    with tarfile.open(paths[1], "w:gz") as archive:
        for name in sorted(sdist):
            archive.addfile(tarfile.TarInfo(f"a-0/{name}"), io.BytesIO())
    return paths


test_wrong_contents = refused(
    ((*WHEEL, "studies/x.py"), release.IN_SDIST, r"expected the packages .*, got \['dat', 'dual_attention', 'st"),
    (WHEEL[1:], release.IN_SDIST, r"expected the packages .*, got \['dat'\]"),
    ((*WHEEL[1:], "dual_attention/a.py"), release.IN_SDIST, "expected dual_attention/py.typed, got none"),
    (WHEEL, release.IN_SDIST - {"LICENSE"}, "expected LICENSE, got none"),
    (WHEEL, release.IN_SDIST | {"dat/__pycache__/a.pyc"}, "expected no dat/__pycache__/a.pyc"),
    by=lambda wheel, sdist, *, tmp_path: check_contents(*archives(tmp_path, wheel, sdist)),
)


def test_contents(tmp_path):
    check_contents(*archives(tmp_path, WHEEL, release.IN_SDIST))


def test_missing_interpreters_are_reported(capsys, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert release.usable(["python-none", str(broken)]) == []
    assert capsys.readouterr().out.count("not on this machine, not tried") == 2


def test_the_recipe_asks_for_what_the_project_asks_for():
    text = (ROOT / "recipe/meta.yaml").read_text(encoding="utf-8")
    needed = {name.replace("torch", "pytorch").replace(">=", " >=") for name in PROJECT["dependencies"]}
    asked = re.search(r"  run:\n((?:    - .*\n)+)", text)
    assert asked is not None
    lines = {line.strip().removeprefix("- ") for line in asked[1].splitlines()}
    assert lines == {*needed, f"python {PROJECT['requires-python']}"}
    assert f'version = "{__version__}"' in text
    [(name, target)] = PROJECT["scripts"].items()
    assert f"- {name} = {target}" in text


def test_the_citation_is_that_of_the_readme():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert str(cited["version"]) == __version__ and cited["title"] == PROJECT["name"]
    paper = cited["preferred-citation"]
    authors = " and ".join(f"{author['given-names']} {author['family-names']}" for author in paper["authors"])
    for key, value in {"title": paper["title"], "author": authors, "year": paper["year"]}.items():
        assert f"{key} = {{{value}}}" in readme
    assert paper["url"].rpartition("/")[2] in readme


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.stem)
def test_issue_forms_can_be_read(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    fields = form.get("body", [])
    assert path.stem == "config" or (form["name"] and form["description"] and fields)
    assert len({field["id"] for field in fields}) == len(fields)
