"""The page of interventions in a real browser."""

import re
from xml.etree import ElementTree

import pytest

from dat.explorer.switches import switch_effects
from tests.lab.explorer.conftest import TEXT, dat, rows_of, saved

pytestmark = pytest.mark.slow

EFFECTS = "() => !document.getElementById('switch-effects').hidden && document.getElementById('switch-busy').hidden"


def switched(page):
    page.wait_for_function(EFFECTS)
    return page.locator("#switch-losses tbody tr").all_inner_texts()


def test_switches_and_what_they_do(visit, serve):
    server = serve(text=TEXT)
    visitor = visit()
    page = visitor.open(server.address)
    page.click("#tab-interventions")
    assert "Switch heads, relations or symbols off to begin" in page.inner_text("#switch-note")
    page.click("[aria-label='blocks.1 sensory heads 1']")
    rows = switched(page)
    switch = {"mediator": "head", "layer": "blocks.1", "kind": "sensory", "number": 1}
    found = switch_effects(server.session, {"text": TEXT, "switches": [switch]})
    shown = [float(re.findall(r"\d+\.\d+", row)[0]) for row in rows[:2]]
    assert shown == pytest.approx([found["loss"]["before"], found["loss"]["after"]], abs=1e-3)
    assert re.search(
        r"The loss changes by [+−].* random directions? changes? it as much", page.inner_text("#switch-note")
    )
    tokens = page.locator("#switch-next tbody th").all_inner_texts()
    assert tokens == [one["token"] for one in found["next"]]
    assert page.locator("#switch-figure svg").count() == 1
    page.click("#switch-text bdi >> nth=4")
    page.wait_for_function("() => document.querySelector('#switch-next caption').textContent === 'Tokens after 4 “c”'")
    page.click("[aria-label='blocks.0 relations, all']")
    assert page.get_attribute("[aria-label='blocks.0 relations 3']", "aria-pressed") == "true"
    page.wait_for_timeout(300)
    others = switched(page)
    assert others[1] != rows[1] and others[0] == rows[0]
    page.select_option("#change", "scale")
    page.fill("#factor", "3")
    page.press("#factor", "Enter")
    page.wait_for_timeout(400)
    assert switched(page)[1] != others[1]
    cited = page.url
    again = visit().open(cited)
    assert switched(again) == switched(page)
    page.click("#all-on")
    assert page.locator("#switch-effects").is_hidden()
    assert visitor.inside(server.address.partition("?")[0])


def test_effects_as_files(visit, serve, tmp_path):
    visitor = visit()
    server = serve(text=TEXT)
    page = visitor.open(f"{server.address}#page=interventions&off=r0.2&place=3")
    rows = switched(page)
    assert {row["switched"] for row in rows_of(saved(page, "csv"))} == {"relation 2 of blocks.0: zero"}
    # The file shows the same without a server, and asks for nothing.
    file, other = saved(page, "html", tmp_path / "effects.html"), visit()
    page = other.open(file.as_uri())
    assert page.locator("#switch-losses tbody tr").all_inner_texts() == rows
    assert page.locator("#switch-list button >> nth=0").is_disabled() and page.locator("#ask").is_hidden()
    assert other.inside(file.as_uri())
    assert "connect-src 'none'" in file.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.quick
def test_text_is_never_markup(visit, serve, tmp_path):
    """Signs of markup, and what XML cannot hold, are shown and saved as text."""
    text = "</svg><img src=x onerror=alert(1)> & \"'\x01\x0b"
    page = visit().open(f"{serve(text=text).address}#page=interventions&off=sa0.0&place=5")
    switched(page)
    assert page.locator("#switch-figure > svg text").count() > 12 and page.locator("img, parsererror").count() == 0
    shown = page.locator("#switch-text bdi").all_text_contents()
    assert shown[:6] == [*"</svg>"] and shown[-1] == "\\x0b"
    assert "“>”" in "".join(ElementTree.parse(saved(page, "svg")).getroot().itertext())
    copied = visit().open(saved(page, "html", tmp_path / "file.html").as_uri())
    assert copied.locator("#switch-text bdi").all_text_contents() == shown and copied.locator("img").count() == 0


def test_answers_come_to_the_switches_that_are_set(visit, serve):
    """Of switches that follow each other fast only the last ones count."""
    server = serve(text=TEXT)
    page = visit().open(f"{server.address}#page=interventions")
    for number in range(4):
        page.click(f"[aria-label='blocks.0 relations {number}']")
    page.click("[aria-label='blocks.0 relations 0']")
    page.wait_for_timeout(400)
    rows = switched(page)
    switches = [{"mediator": "relation", "layer": "blocks.0", "kind": "relational", "number": one} for one in (1, 2, 3)]
    found = switch_effects(server.session, {"text": TEXT, "switches": switches})
    assert f"{found['loss']['after']:.3f}" in rows[1]


def test_a_file_without_effects_has_no_such_page(visit, serve, tmp_path):
    page = visit().open(serve(dat(1), text=TEXT).address)
    page = visit().open(saved(page, "html", tmp_path / "page.html").as_uri())
    assert page.locator("#tab-interventions").is_hidden() and page.locator("#tab-attention").is_visible()
