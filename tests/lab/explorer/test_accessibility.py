"""Pages for everybody: no barrier that axe-core finds, in both colour schemes, and everything with keys."""

import pytest

from dat.explorer.example import EXAMPLES
from dat.explorer.opening import with_beside
from dat.explorer.session import Session
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.lab.explorer.conftest import dat, vision
from tests.support.browser import Visit

axe = pytest.importorskip("axe_playwright_python.base", reason="pages are examined with axe-playwright-python")
pytestmark = pytest.mark.slow

PAGES = {
    "relations": "&i=5&j=2",
    "attention": "&view=contribution&i=5&j=2",
    "symbols": "&symbol=3",
    "effects": "&ablated=1&draws=1",
    "writes": "&by=each",
    "card": "&layer=1",
    "interventions": "&off=r1.2",
    "interventions of two": "&off=beside",
    "relations of two": "&model=2&i=5&j=2",
    "patching": "&each=1&other=the+dog+sat",
    "dictionary": "&dictionary=1",
    "generate": "&generated=1&tokens=5",
    "vision": "",
    "card of pictures": "&relation=3",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(browser, scheme, serve):
    games = EXAMPLES["games"]
    servers = {"vision": serve(vision()), "card of pictures": serve(session=games.open(), text=games.source)}
    texts = serve(session=with_beside(*(Session(dat(seed), ByteTokenizer(), name) for seed, name in enumerate("AB"))))
    visitor = Visit(browser, scheme)
    visitor.context.close()
    visitor.context = browser.new_context(color_scheme=scheme, bypass_csp=True, viewport={"width": 1360, "height": 860})
    found = {}
    for name, more in PAGES.items():
        visitor.page = visitor.context.new_page()
        visitor.open(f"{servers.get(name, texts).address}#page={name.partition(' ')[0]}{more}")
        visitor.page.wait_for_timeout(400)
        visitor.page.wait_for_function("() => !document.querySelector('progress:not([hidden])')?.offsetParent")
        visitor.settle()
        visitor.page.evaluate(axe.AXE_FILE_PATH.read_text(encoding="utf-8"))
        for dialog in ("#tour", "#cite") if name == "relations" else ("",):  # a new browser begins the tour
            if dialog == "#cite":
                visitor.page.click("#cite-button")
            assert not dialog or visitor.page.locator(dialog).is_visible()
            violations = visitor.page.evaluate("() => axe.run().then((found) => found.violations)")
            found |= {(name + dialog, one["id"]): one["nodes"][0]["html"][:160] for one in violations}
        visitor.page.close()
    visitor.close()
    assert not found


@pytest.mark.slow
def test_tokens_are_chosen_with_keys(visit, serve):
    page = visit().open(serve().address + "#page=symbols")
    page.focus("#symbol-text")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.inner_text("#token-symbols caption").startswith("Symbols of token 1 “h”")
    page.goto(serve().address + "#page=interventions&off=r1.2")
    page.wait_for_selector("#switch-effects:not([hidden])")
    page.focus("#switch-text")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelector('#switch-next caption').innerText.includes(' after 9 ')")


def test_keys_of_one_letter_can_be_switched_off(visit, exported):
    visitor = visit()
    page = visitor.open(exported() + "#i=3&j=1")
    page.keyboard.press("?")
    page.uncheck("#letters")
    page.keyboard.press("Escape")
    before = page.inner_text("#work")
    for key in ("v", "d", "2", "]", "?", "p"):
        page.keyboard.press(key)
    visitor.settle()
    assert page.inner_text("#work") == before and page.locator("#help").is_hidden()
    page.keyboard.press("ArrowDown")
    visitor.settle()
    assert "receiver 4" in page.inner_text("#readout")
