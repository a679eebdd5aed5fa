"""The pages of the dictionary and of the model, in a real browser, and what all pages have in common."""

import re
from dataclasses import replace

import pytest

from dat.explorer import dictionaries
from dat.explorer.dictionaries import made_dictionary
from tests.lab.explorer.conftest import dat, of_checkpoint, rows_of, saved, vision
from tests.lab.explorer.test_dictionaries import TEXT

pytestmark = pytest.mark.slow


def test_a_dictionary_is_made(visit, serve, tmp_path):
    server = serve()
    page = visit().open(f"{server.address}#page=dictionary")
    assert "Make a dictionary of the text above" in page.inner_text("#dictionary-note")
    (tmp_path / "corpus.txt").write_text(TEXT, encoding="utf-8")
    page.set_input_files("#corpus", str(tmp_path / "corpus.txt"))
    page.wait_for_function("() => !document.getElementById('dictionary-entries').hidden")
    note = page.inner_text("#dictionary-note").strip()
    assert note == (
        f"Of corpus.txt: {len(TEXT)} tokens in 6 documents. "
        "It was read in pieces of 64 tokens, each without what stands before it: pairs across two are not seen, "
        "and a map of the whole text may have other values."
    )
    *_, last = made_dictionary(server.session, {"text": TEXT})
    page.click("[aria-label='blocks.1 relation 2']")
    page.select_option("#dictionary-end", "low")
    of = {"layer": "blocks.1", "relation": 2, "end": "low"}
    entries = [one for one in last["dictionary"]["entries"] if of.items() <= one.items()]
    assert page.locator("#dictionary-list > li").count() == len(entries) > 3
    first = entries[0]["example"]
    shown = page.locator("#dictionary-list > li >> nth=0")
    assert float(shown.locator("strong").inner_text().replace("−", "-")) == pytest.approx(first["value"], rel=1e-3)
    receiver = shown.locator("bdi.receiver").first.text_content().replace(" ", "␣")
    assert receiver == first["receiver"]["labels"][first["receiver"]["at"]]
    page.focus("#dictionary-page")
    page.keyboard.press("]")
    assert page.get_attribute("[aria-label='blocks.1 relation 3']", "aria-pressed") == "true"
    assert {row["kind"] for row in rows_of(saved(page, "csv"))} == {"pair", "like it"}
    assert saved(page, "svg").read_text(encoding="utf-8").count("<text") > 20
    assert saved(page, "png").read_bytes().startswith(b"\x89PNG")
    listed = page.inner_text("#dictionary-list")
    other = visit()
    copied = other.open(saved(page, "html", tmp_path / "file.html").as_uri())
    assert copied.inner_text("#dictionary-list") == listed and copied.locator("#make-dictionary").is_hidden()
    # Another text leaves the dictionary as it is.
    page.fill("#prompt", "other words")
    page.click("#ask button")
    page.wait_for_function("() => !document.querySelector('#ask button').disabled")
    assert page.inner_text("#dictionary-list") == listed


def test_a_link_does_not_promise_the_dictionary_of_a_file(visit, serve):
    page = visit().open(f"{serve().address}#page=dictionary")
    page.click("#make-dictionary")
    page.locator("#dictionary-note", has_text="Of the text").wait_for()
    page.wait_for_function("() => location.hash.includes('dictionary=1')")
    page.set_input_files("#corpus", {"name": "a.txt", "mimeType": "text/plain", "buffer": TEXT.encode()})
    page.locator("#dictionary-note", has_text="Of a.txt").wait_for()
    page.wait_for_function("() => !location.hash.includes('dictionary=1')")


def test_a_dictionary_of_the_text_is_of_an_earlier_one_when_that_changes(visit, serve):
    page = visit().open(f"{serve().address}#page=dictionary&dictionary=1")
    page.locator("#dictionary-note", has_text="Of the text").wait_for()
    page.fill("#prompt", "other words")
    page.click("#ask button")
    page.locator("#dictionary-note", has_text="Of an earlier text").wait_for()


def test_making_is_stopped(visit, serve, monkeypatch):
    monkeypatch.setattr(dictionaries, "_BATCH", 1)
    page = visit().open(f"{serve(text=TEXT[:60]).address}#page=dictionary")
    page.set_input_files("#corpus", {"name": "long.txt", "mimeType": "text/plain", "buffer": (TEXT * 400).encode()})
    page.wait_for_function("() => document.getElementById('dictionary-busy').value > 0")
    page.click("#stop-dictionary")
    page.wait_for_function("() => document.getElementById('dictionary-busy').hidden")
    assert page.locator("#dictionary-entries").is_hidden() and page.locator("#make-dictionary").is_enabled()


def test_the_dictionary_that_the_command_names(visit, serve):
    server = serve()
    *_, last = made_dictionary(server.session, {"text": TEXT})
    named = serve(session=replace(server.session, dictionary={**last["dictionary"], "source": "relations.jsonl"}))
    page = visit().open(f"{named.address}#page=dictionary")
    page.wait_for_function(
        "() => document.getElementById('dictionary-note').textContent.startsWith('Of relations.jsonl')"
    )


def test_the_model(visit, serve, tmp_path):
    model = dat()
    server = serve(session=of_checkpoint(model))
    visitor = visit()
    page = visitor.open(f"{server.address}#page=model")
    page.wait_for_function("() => !document.getElementById('model-facts').hidden", timeout=60_000)
    tables = page.locator("#model-tables table")
    text = tables.all_inner_texts()
    assert text[0].startswith("configuration") and "d_model\t32" in text[0]
    assert f"in all\t{sum(p.numel() for p in model.parameters()):,}" in text[1]
    assert any(one.startswith("memory, estimated for one text of 64 tokens") for one in text)
    assert page.locator("#model-figure svg rect").count() > 8
    line = {"section": "configuration", "name": "d_model", "value": "32", "remark": ""}
    assert line in rows_of(saved(page, "csv"))
    copied = visit().open(saved(page, "html", tmp_path / "file.html").as_uri())
    assert copied.locator("#model-tables table").all_inner_texts() == text
    assert visitor.inside(server.address.partition("?")[0])


@pytest.mark.slow
@pytest.mark.quick
def test_pages_that_have_nothing_to_show_are_not_there(visit, serve):
    page = visit().open(serve().address)
    assert page.locator("#tab-model").is_hidden() and page.locator("#tab-vision").is_hidden()
    names = [tab.get_attribute("data-page") for tab in page.locator("nav button").all() if tab.is_visible()]
    assert names[:6] == ["relations", "attention", "symbols", "effects", "writes", "card"]
    assert names[6:] == ["interventions", "patching", "dictionary", "generate"]
    for number, name in enumerate(names[:9], 1):
        page.keyboard.press(str(number))
        assert page.get_attribute(f"#tab-{name}", "aria-selected") == "true"
        assert page.locator("main > section:visible").count() == 1
    page.click("#tab-generate")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-relations", "aria-selected") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_in_both_colour_schemes(visit, serve, scheme):
    """Two people at once, with a model of texts and one of images; every page is drawn, in the scheme of its system."""
    servers = [serve(text=TEXT[:48]), serve(vision())]
    visitors = [visit(scheme) for _ in servers]
    for visitor, server in zip(visitors, servers, strict=True):
        visitor.open(f"{server.address}#off=r0.2&i=3")
    words, images = (visitor.page for visitor in visitors)
    for page in (words, images, words, images):
        for tab in page.locator("nav button:visible").all():
            tab.click()
            ground, ink = page.evaluate(
                "() => ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"
            )
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 384) == (scheme == "light")
            assert contrast(ground, ink) > 7
            section = page.locator("main > section:visible")
            assert section.count() == 1 and section.inner_text().strip()
    words.click("#tab-interventions")
    words.locator("#switch-losses tbody tr").first.wait_for()
    images.click("#tab-vision")
    images.select_option("#sample", "game between")
    words.click("#tab-generate")
    words.click("#generate")
    words.locator("#generate-note", has_text="as many tokens as asked for").or_(
        words.locator("#generate-note", has_text="the context is full")
    ).wait_for()
    images.locator("#picture-about", has_text="game between").wait_for()
    for visitor, server in zip(visitors, servers, strict=True):
        assert visitor.inside(server.address.partition("?")[0])


def contrast(one, other):
    """Contrast ratio of two CSS colours, as WCAG 2.2 defines it."""

    def luminance(colour):
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
