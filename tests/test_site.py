"""The site: a build that finds something wrong fails, and says where. `make docs` builds all of it."""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.browser import Visit, launched

ROOT = Path(__file__).resolve().parent.parent
PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)([^)\s]+)\)")
PAGE = """# A page

[A link that leads nowhere](no-such-page.md)

$\\nosuchcommand$

![A picture that no command makes](gallery/scores.png)

[Code](examples/my_experiment.py)
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("furo"), reason="needs Sphinx, Furo and MyST, which need Python 3.11")
def test_a_build_fails_and_says_where(tmp_path: Path):
    source = tmp_path / "source"
    (source / "examples").mkdir(parents=True)
    (source / "README.md").write_text(PAGE, encoding="utf-8")
    (source / "gallery").mkdir()
    (source / "gallery/scores.png").write_bytes((ROOT / "docs/images/dual-attention.png").read_bytes())
    (source / "examples/my_experiment.py").touch()
    folders = [str(source), str(tmp_path / "site")]
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", str(ROOT / "docs"), *folders]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode
    assert "README.md:3: WARNING: 'myst' cross-reference target not found: 'no-such-page.md'" in run.stderr
    assert "README.md:5: WARNING: cannot write '\\\\nosuchcommand' as MathML" in run.stderr
    assert "README.md:7: WARNING: no command makes the picture gallery/scores.png" in run.stderr
    assert "my_experiment" not in run.stderr


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("picture_makers")


def shown() -> set[str]:
    """The pictures of all pages of the site, by their paths in the repository."""
    places = ("*.md", "docs/*.md", "studies/*/*.md", "benchmarks/*.md")
    pages = [page for place in places for page in ROOT.glob(place)]
    pictures = {(page, name) for page in pages for name in PICTURE.findall(page.read_text(encoding="utf-8"))}
    return {os.path.relpath(page.parent / name, ROOT) for page, name in pictures}


def test_a_command_makes_every_picture_that_a_page_shows(makers: ModuleType):
    assert not [picture for picture in sorted(shown()) if makers.maker_of(picture) is None]


def test_a_command_named_for_one_picture_is_still_there(makers: ModuleType):
    assert makers.SINGLE.keys() <= shown()
    scripts = [command.split()[1] for command in makers.SINGLE.values() if command.startswith("python ")]
    assert all((ROOT / script).is_file() for script in scripts)


@pytest.mark.parametrize(
    "picture",
    [
        "drawn-by-hand.png",
        "docs/images/gallery/drawn-by-hand.png",
        "docs/images/scores.png",  # is made in another folder
        "studies/emoji/results/codes.png",  # by another study
        "studies/no-such-study/results/accuracy.png",
    ],
)
def test_a_picture_that_no_command_makes(picture: str, makers: ModuleType):
    assert makers.maker_of(picture) is None


def test_every_page_has_its_place_in_the_margin():
    sections = re.findall(r"[\w-]+", (ROOT / "docs/conf.py").read_text(encoding="utf-8"))
    assert not {page.stem for page in ROOT.glob("docs/*.md")} - {*sections}


@pytest.mark.slow
def test_every_exhibit_is_on_its_page_and_is_written_with_its_caption(tmp_path: Path):
    pytest.importorskip("tokenizers", reason="byte pairs need the extra language")
    command = [sys.executable, str(ROOT / "docs/make_exhibits.py"), "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert run.returncode == 0, run.stderr
    named = re.findall(r"^\| `(\S+\.html)` \|", (ROOT / "docs/exhibits.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in tmp_path.iterdir()) and named
    for path in tmp_path.iterdir():
        text = path.read_text(encoding="utf-8")
        assert re.search(r'<p id="caption">\w.{40,}</p>', text) and path.stat().st_size < 1 << 20


def test_a_search_shows_guides_first_and_excerpts_without_a_server(tmp_path: Path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/search_texts.js").write_text('globalThis.SEARCH_TEXTS = {"docs/a": "own <data>"};')
    script = (ROOT / "docs/search.js").read_text(encoding="utf-8")
    (tmp_path / "search.html").write_text(f"<!doctype html><html data-content_root='./'><script>{script}</script>")
    pages = ["docs/your-part", "docs/reference/dual_attention", "studies/emoji/README", "studies/emoji/ANNOUNCED"]
    pages += ["benchmarks/NOTEBOOK", "CHANGELOG", "docs/log"]
    with launched() as browser:
        visit = Visit(browser)
        page = visit.open((tmp_path / "search.html").as_uri() + "?q=own+data")
        scores = page.evaluate("pages => pages.map(page => Scorer.score([page, 'Data', '', '', 5]))", pages)
        titled = page.evaluate("() => Scorer.score(['docs/your-data', 'Your own data', '', '', 7])")
        found = page.evaluate("async () => await (await fetch('./docs/a.html')).text()")
        assert not visit.complaints
        visit.close()
    assert titled > 15 + max(scores) and scores[0] > scores[1] == scores[2] > 10 + max(scores[3:])
    assert found == '<div role="main">own &lt;data&gt;</div>'
