"""The page in another browser, with keys alone, on paper, and without motion."""

import json

import pytest

from dat.explorer.exporting import Exporter
from dat.explorer.opening import with_beside
from dat.explorer.session import Session
from dat.explorer.view_state import View
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.lab.explorer.conftest import TEXT, dat
from tests.support.firefox import launched_firefox

pytestmark = pytest.mark.slow

SEEN = "document.querySelector('main > section:not([hidden])').textContent"
COLOURS = """[...document.querySelectorAll("#gallery canvas")].map(
    (one) => [...one.getContext("2d").getImageData(0, 0, one.width, one.height).data].join(),
)"""
DRAWN = "[...document.querySelectorAll('#gallery canvas')].every(one => one.width !== 300)"
TAB = "\ue004"


@pytest.fixture
def file(tmp_path):
    """The address of a file with two models."""
    sessions = [Session(dat(seed), ByteTokenizer(), name) for seed, name in enumerate("ab")]
    Exporter(with_beside(*sessions), TEXT, View.of("relation=1&i=9&j=2&model=2")).write(tmp_path / "page.html")
    return (tmp_path / "page.html").as_uri()


def test_firefox_shows_what_chromium_shows_and_obeys_keys(visit, file, tmp_path):
    visitor = visit()
    page = visitor.open(file)
    (tmp_path / "profile").mkdir()
    with launched_firefox(tmp_path / "profile", **{"ui.prefersReducedMotion": 1}) as firefox:
        firefox.open(file)
        firefox.wait(DRAWN)
        page.wait_for_function(DRAWN)
        assert firefox.run(COLOURS) == page.evaluate(COLOURS)
        for key in "1231":
            firefox.press(key)
            page.keyboard.press(key)
            visitor.settle()
            firefox.wait(f"{SEEN} === {json.dumps(page.evaluate(SEEN))}")
        firefox.run("document.activeElement.blur()")
        reached = set()
        for _ in range(40):
            firefox.press(TAB)
            reached.add(firefox.run("document.activeElement.id || document.activeElement.parentElement.id"))
        assert {"shown-model", "tab-relations", "png", "gallery", "scale", "shared", "pin", "links"} <= reached
        assert firefox.run("getComputedStyle(document.querySelector('#png')).transitionDuration") == "0s"


def test_on_paper(visit, file):
    """All of a panel, without controls, in dark ink also where the page is dark."""
    visitor = visit("dark")
    page = visitor.open(file)
    ink = "() => getComputedStyle(document.body).color"
    assert page.locator("#gallery").is_visible() and page.evaluate(ink) == "rgb(236, 234, 229)"
    page.emulate_media(media="print")
    assert page.evaluate(ink) == "rgb(29, 28, 26)" and page.locator("#main-map canvas").is_visible()
    for hidden in ("#tools", "#gallery", "#controls", "#tab-attention"):
        assert page.locator(hidden).is_hidden()
    asked = "() => [...document.querySelectorAll('#gallery canvas')].map((one) => one.toDataURL()).join()"
    printed = f"() => {{ dispatchEvent(new Event('beforeprint')); return ({asked})() }}"
    page.wait_for_function(DRAWN)
    dark, paper = page.evaluate(asked), page.evaluate(printed)
    page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    visitor.settle()
    light = visit("light").open(file)
    light.wait_for_function(DRAWN)
    assert paper == light.evaluate(asked) != dark == page.evaluate(asked)
    cut = "all => all.filter(one => one.checkVisibility() && one.scrollHeight > one.clientHeight + 1).length"
    assert page.locator("main > section, #side, #work, #links").evaluate_all(cut) == 0
