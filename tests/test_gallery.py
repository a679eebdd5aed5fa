"""The pages of the attention gallery print what they say; the pictures of the documents can be drawn."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dat.estimate import estimate
from dual_attention import LANGUAGE_PRESETS, mechanisms
from tests.support.depth import of_all_layers
from tests.support.documents import wrong_outputs

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("attention-gallery.md", "composed-attention.md", "attention-at-work.md", "equal-arithmetic.md")
LARGEST, LARGEST_OF_ALL = 40_000, 600_000  # bytes, of what a reader loads


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(DOCS)
    yield importlib.import_module("make_gallery")


def quick_estimate(name: str, **options: Any) -> SimpleNamespace:
    """Arithmetic of a preset, without running all its layers."""
    (flops,) = of_all_layers(LANGUAGE_PRESETS[name], lambda shallow: [estimate(shallow, **options).step_flops])
    return SimpleNamespace(step_flops=flops)


@pytest.mark.parametrize("page", [PAGES[0], *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[1:])])
def test_a_page_prints_what_it_says_and_is_drawn(
    page: str, gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dat.estimate.estimate", quick_estimate)
    steps = gallery.steps(text(page))

    def draw(number: int, variables: dict[str, Any]) -> None:
        for name in steps[number].pictures:
            drawn = gallery.draw(name, variables, tmp_path)
            assert drawn.read_bytes().startswith(b"\x89PNG")

    wrong = list(wrong_outputs(text(page), page, after_block=draw))
    assert not wrong, "\n".join(wrong)
    assert sorted(p.stem for p in tmp_path.iterdir()) == sorted(name for step in steps for name in step.pictures)


def test_every_picture_is_on_a_page_and_in_the_repository(gallery: ModuleType):
    assert gallery.PAGES == PAGES
    on_pages = [name for page in PAGES for step in gallery.steps(text(page)) for name in step.pictures]
    assert sorted(on_pages) == sorted(gallery.PICTURES)
    files = list((DOCS / "images" / "gallery").iterdir())
    assert sorted(file.stem for file in files) == sorted(on_pages)
    assert max(file.stat().st_size for file in files) < LARGEST
    assert sum(file.stat().st_size for file in files) < LARGEST_OF_ALL


def test_the_drawings_are_on_the_readme_and_in_the_repository(gallery: ModuleType, tmp_path: Path):
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for name, drawing in gallery.drawings.DRAWINGS.items():
        drawing(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"(docs/images/{name}.png)" in readme
        assert (DOCS / "images" / f"{name}.png").stat().st_size < LARGEST


def test_every_mechanism_is_shown():
    """Each part, each mechanism and each recipe stands on a page, apart from base classes and what parts return."""
    shown = set(re.findall(r"\w+", text(PAGES[0]) + text(PAGES[1]) + text("attention-toolbox.md")))
    bases = {"Align", "Message", "Messages", "Score", "ScoreFactory", "Select", "Selection"}
    returned = {name for name in mechanisms.__all__ if name.endswith(("Output", "Messages", "Values"))}
    assert set(mechanisms.__all__) - bases - returned <= shown
    assert set(mechanisms.recipes.__all__) <= shown


def test_the_script_parses_a_page_into_code_and_pictures(gallery: ModuleType):
    page = "text\n```python\na = 1\n```\n\n![A](images/gallery/one.png)\n\n```python\nb = a\n```\n"
    assert [tuple(step) for step in gallery.steps(page)] == [("a = 1\n", ["one"]), ("b = a\n", [])]
