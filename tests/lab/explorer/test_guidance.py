"""What the page says and does for somebody who opens it for the first time, in a real browser."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

import dual_attention
from dat.explorer import command
from dat.explorer.citation import commands_of
from dat.explorer.opening import relation_formula
from dat.explorer.session import Session
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.dictionaries import weights_digest
from dual_attention.model_analysis.sites import find_sites
from tests.lab.explorer.conftest import TEXT, dat, rows_of, saved, vision
from tests.lab.explorer.test_page import maps_of
from tests.lab.explorer.test_page import numbers as csv_numbers

pytestmark = pytest.mark.slow

ROOT = Path(dual_attention.__file__).resolve().parents[1]


def session_of(model):
    relational = next(site.module for site in find_sites(model) if site.kind == "relational")
    return Session(model, ByteTokenizer(), "a model", {"formula": relation_formula(relational)})


NOTES = "all => all.filter(one => one.offsetParent && one.textContent).map(one => one.textContent).join(' ')"
SAID = {
    "relations": ("rij = tanh(⟨Wq xi, Wk xj⟩ / √p)", "No unit"),
    "relations&view=attended&head=1": ("αhij rij", "head h = 1"),
    "relations&view=contribution&relation=2": ("‖Σh αhij rij Who Whr eℓ‖", "ℓ = 2", "length in the residual stream"),
    "attention": ("αij = softmaxj(⟨qi, kj⟩ / √d)", "No unit"),
    "attention&view=contribution": ("αhij ‖Who vj‖", "length in the residual stream"),
    "symbols": ("sj = Σk wjk ck", "K = 12", "no unit"),
    "effects": ("D = Σ p ln(p / p′)", "nats"),
    "writes": ("zt − z̄ = Σp ⟨wt − w̄, N(xp)⟩", "nats"),
    "patching&other=the+dog+sat": ("recovery = (D′ − D) / (D₂ − D)", "no unit"),
    "card": ("rij = tanh(⟨Wq xi, Wk xj⟩ / √p)", "no unit"),
    "interventions": ("ΔL = L′ − L", "nats"),
    "dictionary": ("rij", "no unit"),
    "generate": ("softmaxt(zt / T)", "no unit"),
    "vision": ("rij", "No unit"),
}


def test_views_say_what_they_show_and_open_on_a_pair(visit, serve, exported):
    """The strongest pair; a token with itself and the first sender count half, a single sender not at all."""
    model = dat(ra_kwargs={"n_relations": 3, "rel_activation": "tanh"})
    texts, images = serve(session=session_of(model)), serve(vision())
    visitor = visit()
    for fragment, parts in SAID.items():
        page = visitor.open(f"{(images if fragment == 'vision' else texts).address}#page={fragment}")
        if fragment == "card":
            page.wait_for_function("() => !document.getElementById('card-found').hidden")
        said = page.locator("main .note").evaluate_all(NOTES)
        assert all(part in said for part in parts), (fragment, said)
    model = dat()
    found = maps_of(model)["blocks.1"].sensory.weights[0, 1].clone()
    found[:, 0] /= 2
    found.diagonal().div_(2)
    found[0] = 0
    i, j = divmod(int(found.argmax()), len(TEXT))
    address = exported(model)
    page = visitor.open(f"{address}#page=attention&layer=1&kind=sensory&head=1")
    assert page.inner_text("#readout").startswith(f"receiver {i} {TEXT[i].replace(' ', '␣')} ← sender {j} ")
    assert page.locator("#row-table tbody tr").count() > 0 and page.locator("#links svg path").count() > 0
    page.wait_for_timeout(250)
    assert f"i={i}&j={j}" in page.url
    page.keyboard.press("Escape")  # which lets go of it for good
    page.click("#gallery .thumb >> nth=1")
    visitor.settle()
    assert page.inner_text("#readout") == ""
    other = visit().open(f"{address}#page=attention&layer=1&kind=sensory&head=1&i=4&j=1")
    assert other.inner_text("#readout").startswith("receiver 4 ")


UNCOVERED = """() => {
    const [part, text] = [".toured", "#tour"].map(one => document.querySelector(one).getBoundingClientRect());
    const end = Math.min(part.bottom, document.body.getBoundingClientRect().bottom, innerHeight), gap = 1;
    const top = Math.max(0, part.top), left = Math.max(0, part.left), right = Math.min(part.right, innerWidth);
    const below = text.bottom <= top + gap || text.top >= end - gap;
    const beside = text.right <= left + gap || text.left >= right - gap;
    const whole = text.left >= 0 && text.top >= 0 && text.right <= innerWidth && text.bottom <= innerHeight;
    const seen = end - top >= Math.min(part.height, 150) - gap && right - left >= Math.min(part.width, 150) - gap;
    return (below || beside) && whole && seen;
}"""


@pytest.mark.parametrize("size", [(390, 844), (720, 450), (1280, 720), (2560, 1400)])
def test_a_tour_covers_nothing_of_what_it_explains(visit, serve, size):
    """On a phone, at a zoom of 200 %, and on large screens; in the end the page has all of the window again."""
    for server in (serve(), serve(vision())):
        visitor = visit()
        visitor.page.set_viewport_size({"width": size[0], "height": size[1]})
        page = visitor.open(server.address)
        page.click("#tour-button")
        for _ in range(int(page.inner_text("#tour-count").split()[-1])):
            visitor.settle()
            assert page.evaluate(UNCOVERED), page.inner_text("#tour-text")
            page.click("#tour-next")
        assert page.locator("#tour").is_hidden()
        assert page.evaluate("() => document.body.clientHeight >= innerHeight")


def test_wide_screens_are_used(visit, serve):
    """The map and its gutters fill most of their column, and the text has a third of the window."""
    visitor = visit()
    visitor.page.set_viewport_size({"width": 2560, "height": 1400})
    page = visitor.open(serve(dat(context=256), TEXT * 6).address)
    columns = [page.locator(f"#{name}").bounding_box()["width"] for name in ("work", "side")]
    height = page.locator("#main-map .canvas").bounding_box()["height"]
    assert height + 4 > 0.85 * columns[0] and columns[1] > 2560 / 3
    page = visitor.open(f"{serve(vision()).address}#page=vision")
    maps = page.locator("#vision-maps .patch-map").evaluate_all("all => all.slice(0, 3).map(one => one.offsetWidth)")
    assert sum(maps) > 0.6 * page.locator("#vision-maps").bounding_box()["width"]


def test_a_tour_with_keys(browser, serve):
    """By itself in a browser that has not seen it, on any port; at a button later, which leads back to the page."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page, server = context.new_page(), serve()
    page.goto(f"{server.address}#page=symbols")  # a link to another page is not interrupted
    page.wait_for_selector("#symbol-text bdi")
    assert page.locator("#tour").is_hidden()
    page.goto("about:blank")
    page.goto(server.address)
    seen = []
    for _ in range(7):
        seen.append(page.inner_text("#tour-text"))
        assert page.evaluate(UNCOVERED) and page.locator(".toured").count() == 1
        page.keyboard.press("Enter")
    assert len(set(seen)) == 7 and page.locator("#tour").is_hidden() and page.locator(".toured").count() == 0
    page.goto(serve().address)
    page.wait_for_selector("#readout:not(:empty)")
    assert page.locator("#tour").is_hidden()
    page.click("#tab-card")
    page.click("#tour-button")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#tour-text") == seen[0] and page.locator("#pair-page").is_visible()
    pair = page.inner_text("#readout")
    page.keyboard.press("Escape")  # of the tour, not of the pair
    assert page.locator("#tour").is_hidden() and page.get_attribute("#tab-card", "aria-selected") == "true"
    page.click("#tab-relations")
    assert page.inner_text("#readout") == pair
    page.click("#tour-button")
    page.click("#tab-symbols")  # who goes elsewhere has left it
    assert page.locator("#tour").is_hidden() and page.get_attribute("#tab-symbols", "aria-selected") == "true"
    context.close()


@pytest.mark.slow
def test_a_view_is_cited(visit, serve, monkeypatch, tmp_path):
    """The link and the command lead to the view; a file has no link, and names no folder."""
    folder = tmp_path / "a run"
    folder.mkdir()
    absent = dict.fromkeys(("example", "dictionary", "tokenizer", "experiment", "bits", "corpus", "beside"))
    commands = commands_of(SimpleNamespace(checkpoint=str(folder), layers="0,1", **absent))
    model = dat()
    session = Session(model, ByteTokenizer(), "a run", {"weights": weights_digest(model)})
    server = serve(session=session, text=TEXT, commands=commands)
    visitor = visit()
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visitor.open(server.address + "#page=attention&layer=1&kind=relational&head=1&view=contribution&i=9&j=4")
    shown, numbers = page.inner_text("#work"), csv_numbers(visitor)

    def copied(page, name):
        page.click(f"[data-copies=cite-{name}]")
        page.wait_for_selector("#cite-done:not(:empty)")
        return page.evaluate("() => navigator.clipboard.readText()")

    page.click("#cite-button")
    link, other = copied(page, "link"), visitor.context.new_page()
    assert server.token not in link
    other.goto(link)  # in a browser that has opened the address with the token
    other.wait_for_selector("#readout:not(:empty)")
    assert other.inner_text("#work") == shown
    stranger = visit()
    assert "Open the address that dat explore printed" in stranger.open(link).inner_text("p")
    stranger.complaints.clear()
    words = shlex.split(copied(page, "command"))
    assert words[:6] == ["dat", "explore", str(folder), "--layers", "0,1", "--view"]
    monkeypatch.setattr(command, "session_of", lambda options: session)
    assert command.run_explorer("dat explore", [*words[2:], "--export", str(tmp_path / "a.csv")]) == 0
    for row in rows_of(tmp_path / "a.csv"):
        pair = int(row["receiver"]), int(row["sender"])
        assert float(row["value"]) == pytest.approx(numbers.pop(pair), abs=1e-2)
    assert not numbers
    entries = copied(page, "bibtex")
    (readme,) = re.findall(r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (title,) = re.findall(r"^title: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    software = entries.removeprefix(readme)
    assert entries.startswith(readme) and f"title = {{{title}}}" in software
    assert f"version = {{{dual_attention.__version__}}}" in software
    page.keyboard.press("Escape")
    file = saved(page, "html", tmp_path / "view.html")
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    other = visit().open(file.as_uri())
    other.click("#cite-button")
    assert other.locator("#cite-link").is_hidden() and other.input_value("#cite-bibtex") == entries
    assert shlex.split(other.input_value("#cite-command"))[2:] == ["a run", *words[3:]]
