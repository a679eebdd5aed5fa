"""The page in a real browser: what it shows, how it is used, and that it asks nothing of any other place."""

import json
import re
import struct
from xml.etree import ElementTree

import pytest
import torch

from dat.explorer import packing
from dat.explorer.html import page_html
from dat.explorer.packing import pack
from dat.explorer.recording import record
from dat.explorer.session import Session
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import TEXT, dat, rows_of, saved, transformer
from tests.support import seq2seq
from tests.support.browser import pixels

pytestmark = pytest.mark.slow


def maps_of(model, text=TEXT):
    tokens = torch.tensor([ByteTokenizer().encode(text)])
    with torch.no_grad(), capture(model) as maps:
        model(tokens)
    return maps


def numbers(visitor):
    """The numbers that the button CSV saves, by receiver and sender."""
    rows = rows_of(saved(visitor.page, "csv"))
    return {(int(row["receiver"]), int(row["sender"])): float(row["value"]) for row in rows}


@pytest.mark.slow
def test_an_exported_page_asks_for_nothing(visit, exported):
    visitor = visit()
    address = exported()
    page = visitor.open(address)
    for tab in ("attention", "symbols", "relations"):
        page.click(f"#tab-{tab}")
        visitor.settle()
    for button in ("#larger", "#smaller", "#whole", "#pin", "#theme", "#png"):
        page.click(button)
        visitor.settle()
    assert visitor.requests[0] == address and visitor.inside(address)
    # The policy would have stopped it, too.
    refused = page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'fetched', error => error.name)")
    assert refused == "TypeError"
    assert page.evaluate("() => document.querySelectorAll('[src], link:not([href^=\"data:\"])').length") == 0
    visitor.complaints = [complaint for complaint in visitor.complaints if "127.0.0.1:9" not in complaint]


def test_pictures(visit, exported):
    """A picture of as many squares as there are pairs, with title and scale, as SVG and PNG."""
    visitor = visit()
    page = visitor.open(exported() + "#relation=1")
    ends = page.inner_text("#main-map .scale").split()[:2]
    files = {}
    for kind in ("png", "svg"):
        with page.expect_download() as waiting:
            page.click(f"#{kind}")
        files[kind] = waiting.value.path().read_bytes()
        assert waiting.value.suggested_filename == f"blocks.0-relation-1.{kind}"
    assert files["png"].startswith(b"\x89PNG")
    drawing = ElementTree.fromstring(files["svg"])
    space = "{http://www.w3.org/2000/svg}"
    rectangles = [one for one in drawing.iter(f"{space}rect") if one.get("fill").startswith("rgb(")]
    squares = [square for square in rectangles if square.get("class") != "scale"]
    n = len(TEXT)
    assert len(squares) == n * (n + 1) // 2
    title, *texts = [text.text for text in drawing.findall(f".//{space}text")]
    assert title == "blocks.0 · relation 1" and texts[:2] == ends
    assert texts[3 : 3 + n] == [*TEXT.replace(" ", "␣")]
    width, height = (float(drawing.get(name)) for name in ("width", "height"))
    assert struct.unpack(">II", files["png"][16:24]) == (2 * width, 2 * height)  # nothing of the screen, no empty third
    drawn = pixels(visitor)
    assert all(square.get("fill").removeprefix("rgb(").removesuffix(")") in drawn for square in squares)


def test_a_picture_of_a_long_text(visit, exported):
    """Pixels in the place of squares, with few labels and a word on what a pixel is."""
    page = visit().open(exported(dat(context=2048), text=(TEXT + " ") * 60) + "#view=attended")
    page.wait_for_function("() => document.querySelector('#main-map .scale .bar')")
    drawing = saved(page, "svg").read_text(encoding="utf-8")
    assert "Each pixel is the strongest of 2 × 2 pairs." in drawing and drawing.count("<image") == 1
    assert drawing.count("<text") < 250 and "under attention of head 0</text>" in drawing


def test_contributions_are_other_pictures_than_relations_under_attention(visit, exported):
    visitor = visit()
    page = visitor.open(exported() + "#relation=1&view=attended&head=1")
    attended = pixels(visitor)
    page.check("input[value=contribution]", force=True)
    visitor.settle()
    assert pixels(visitor) != attended and page.locator("#head-choice").is_hidden()
    assert page.inner_text("#main-map figcaption").endswith("relation 1, contribution through all heads")
    page.click("#pin")
    page.check("input[value=raw]", force=True)
    visitor.settle()
    scales = [page.inner_text(f"#{name}-map .scale").split()[:2] for name in ("main", "pinned")]
    assert scales[0][0].startswith("-") and scales[1][0] == "0"  # each beside its own map


def test_one_scale_of_all_maps(visit, exported):
    model = dat()
    maps = maps_of(model)
    visible = maps["blocks.0"].relational.visible[0, 0, ..., None]
    most = max(float((maps[f"blocks.{n}"].relational.relations[0] * visible).abs().max()) for n in (0, 1))
    visitor = visit()
    page = visitor.open(exported(model) + "#relation=1")
    thumbs = "all => all.map(one => one.toDataURL())"
    own, before = page.locator(".thumb canvas").evaluate_all(thumbs), pixels(visitor)
    page.click("#shared")
    visitor.settle()
    assert float(page.inner_text("#main-map .scale").split()[1]) == pytest.approx(most, rel=5e-3)
    shared = page.locator(".thumb canvas").evaluate_all(thumbs)
    assert sum(one == other for one, other in zip(own, shared, strict=True)) <= 1 and pixels(visitor) != before
    page.keyboard.press("o")
    visitor.settle()
    assert page.locator(".thumb canvas").evaluate_all(thumbs) == own
    page.check("input[value=contribution]", force=True)
    visitor.settle()
    assert page.locator(".thumb canvas").evaluate_all(thumbs) != own  # thumbnails are of the view that is chosen


HOSTILE = "<script>document.title='taken'</script><img src=x onerror=document.title='taken'>"


def test_text_is_never_markup(visit, exported):
    visitor = visit()
    model = dat(context=128)
    tokens = torch.tensor([[1, 2, 3, 4]])
    labels = [HOSTILE, "</script>", "<!--", "\u2028&amp;'\""]
    recording = record(model, lambda: model(tokens), {"tokens": labels}, title=HOSTILE, facts={HOSTILE: HOSTILE})
    page = visitor.open(exported(recording=recording) + "#i=3&j=0")
    assert page.title() == HOSTILE
    assert page.locator("#links bdi").all_text_contents() == labels
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#readout").inner_text()
    page.click("#tab-symbols")
    assert page.locator("#symbol-text bdi").first.text_content() == HOSTILE


def test_a_script_that_got_into_the_page_is_refused(visit, tmp_path):
    page = page_html(pack(Session(dat(), ByteTokenizer(), "a model").record(TEXT)).json)
    (tmp_path / "broken.html").write_text(page.replace("</h1>", "</h1><script>document.title='taken'</script>", 1))
    visitor = visit()
    assert visitor.open((tmp_path / "broken.html").as_uri()).title() == "a model"
    refused, visitor.complaints = visitor.complaints, []
    assert len(refused) == 1 and "script-src" in refused[0]


def test_text_in_any_script(visit, exported):
    text = "naïve 猫 says سلام دنيا and 👍"
    page = visit().open(exported(text=text))
    shown = page.locator("#links bdi").all_text_contents()
    assert "猫¹⁄₃猫²⁄₃猫³⁄₃" in "".join(shown) and "س¹⁄₂س²⁄₂" in "".join(shown)
    runs = page.locator("#links span[dir=rtl]")
    assert runs.count() == 1 and runs.first.locator("bdi").first.text_content() == "س¹⁄₂"
    places = page.locator("#links span[dir=rtl] bdi").evaluate_all("all => all.map(one => one.offsetLeft)")
    rows = page.locator("#links span[dir=rtl] bdi").evaluate_all("all => all.map(one => one.offsetTop)")
    same_row = [left for left, top in zip(places, rows, strict=True) if top == rows[0]]
    assert len(same_row) > 2 and same_row == sorted(same_row, reverse=True)


def test_words_of_two_directions(visit, exported):
    """Runs are read in their own direction, also those from left to right in a text that is read from right to left."""
    visitor = visit()
    page = visitor.open(exported(text="שלום עולם the cat said שלום"))
    assert page.get_attribute("#links .text", "dir") == "rtl"
    tokens = page.locator("#links bdi")
    place = "one => { const { x, y } = one.getBoundingClientRect(); return [one.textContent, x, y]; }"
    boxes = tokens.evaluate_all(f"all => all.map({place})")
    at = {}
    for text, x, y in boxes:
        at.setdefault(text, (x, y))
    assert at["t"][0] < at["h"][0] < at["e"][0] < at["c"][0]
    # A character of two tokens is written once, above both of them.
    glyphs = page.locator("#links .glyph").all_text_contents()
    assert "".join(glyphs) == "שלוםעולםשלום" and tokens.count() == 2 * 12 + 15
    assert at["ש¹⁄₂"][0] > at["ל¹⁄₂"][0] > at["ו¹⁄₂"][0]
    page.locator("#links .parts bdi").nth(2).click(force=True)
    visitor.settle()
    assert page.inner_text("#links-title") == "relation 0 of receiver 2 ל¹⁄₂"


def test_a_receiver_of_a_long_text_is_scrolled_into_view(visit, exported):
    visitor = visit()
    page = visitor.open(exported(dat(context=2048), text=(TEXT + " ") * 80) + "#i=1500&j=1490")
    page.wait_for_timeout(300)
    box = page.locator("#links").bounding_box()
    token = page.locator("#links bdi.receiver").bounding_box()
    assert box["y"] <= token["y"] and token["y"] + token["height"] <= box["y"] + box["height"]
    assert "Each pixel is the strongest of 4 × 4 pairs." in page.inner_text("#main-map .scale")
    page.evaluate("() => document.querySelector('#larger').click()")
    for _ in range(4):
        page.click("#larger")
    visitor.settle()
    assert "Each pixel" not in page.inner_text("#main-map .scale")


def test_a_phone(browser, exported):
    """Swipes over a map that fits scroll the page; maps that are compared are wide enough to be seen."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(exported() + "#pinned=page%3Drelations%26relation%3D1")
    page.wait_for_selector("#pinned-map .bar")
    maps = [page.locator(f"#{name}-map .canvas").bounding_box() for name in ("main", "pinned")]
    assert all(one["width"] > 330 and one["height"] > 280 for one in maps)
    assert maps[0]["y"] < 310 and maps[0]["y"] < maps[1]["y"]
    touch = "() => getComputedStyle(document.querySelector('#main-map canvas')).touchAction"
    assert page.evaluate(touch) == "auto"
    page.click("#larger")
    page.wait_for_timeout(200)
    assert page.evaluate(touch) == "none"  # then a finger moves the map
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    context.close()


def test_a_text_that_is_not_yet_shown(visit, serve):
    page = visit().open(serve().address)
    assert "tokens 11 of 64" in page.inner_text("#facts")
    page.fill("#prompt", "another")
    assert page.inner_text("#ask button") == "Show this text"
    page.click("#ask button")
    page.wait_for_function("() => document.querySelector('#ask button').innerText === 'Show'")
    assert "tokens 7 of 64" in page.inner_text("#facts")


@pytest.mark.quick
def test_keys(visit, exported):
    visitor = visit()
    page = visitor.open(exported())
    page.focus("#main-map canvas")
    for key in ("Escape", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "v", "]"):
        page.keyboard.press(key)
    visitor.settle()
    # The first press only chooses the first pair.
    assert re.match(r"receiver 2 e ← sender 1 h: ", page.inner_text("#readout"))
    assert page.inner_text("#main-map figcaption").startswith("blocks.0 · relation 1 under attention of head 0")
    page.keyboard.press("End")
    visitor.settle()
    assert "sender 2 e" in page.inner_text("#readout")
    page.keyboard.press("Escape")
    visitor.settle()
    assert page.inner_text("#readout") == ""
    page.keyboard.press("3")
    assert page.get_attribute("#tab-symbols", "aria-selected") == "true"
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.focus("#gallery")
    page.keyboard.press("ArrowRight")
    visitor.settle()
    chosen = page.get_attribute("#gallery", "aria-activedescendant")
    assert page.get_attribute(f"#{chosen}", "aria-label") == "blocks.0 · relation 2 under attention of head 0"


def test_a_row_of_the_table_for_readers_of_the_screen(visit, exported):
    model = dat()
    r = maps_of(model)["blocks.0"].relational.relations[0, :, :, 3]
    page = visit().open(exported(model) + "#relation=3&i=9&j=2")
    caption = page.inner_text("#row-table caption")
    assert caption == "Senders of which receiver 9 “a” gets most, blocks.0 · relation 3"
    best = int(r[9, :10].abs().argmax())
    cells = page.locator("#row-table tbody tr").first.locator("th, td").all_inner_texts()
    assert int(cells[0]) == best
    assert float(cells[2]) == pytest.approx(float(r[9, best]), abs=float(r.abs().max()) / 100)
    label = page.get_attribute("#main-map canvas", "aria-label")
    assert "22 receivers" in label and "receiver 9, sender 2" in label
    assert page.locator("#row-table th[scope=col]").count() == 3


def test_comparison(visit, exported):
    visitor = visit()
    page = visitor.open(exported() + "#i=6&j=2")
    page.click("#pin")
    page.click("#gallery .thumb >> nth=2")
    visitor.settle()
    assert page.inner_text("#main-map figcaption").startswith("blocks.0 · relation 2")
    assert page.inner_text("#pinned-map figcaption").startswith("blocks.0 · relation 0")
    assert "beside it" in page.inner_text("#readout")
    assert pixels(visitor, "#main-map canvas") != pixels(visitor, "#pinned-map canvas")
    page.click("#pin")
    visitor.settle()
    assert page.locator("#pinned-map").is_hidden()


def test_symbols(visit, exported):
    model = dat()
    assignment = maps_of(model)["blocks.1"].relational.assignment[0, 1]  # (L, K)
    page = visit().open(exported(model) + "#page=symbols&layer=1&part=1&symbol=5")
    nearest = page.locator("#symbol-tokens tbody th").all_inner_texts()
    assert [int(place) for place in nearest] == assignment[:, 5].sort(descending=True, stable=True).indices[
        :20
    ].tolist()
    cells = page.locator("#symbol-tokens tbody tr").first.locator("th, td").all_inner_texts()
    assert float(cells[2]) == pytest.approx(float(assignment[:, 5].max()), rel=1e-3)
    # Every token is as dark as its weight, also where other symbols are heavier.
    most = float(assignment[:, 5].max())
    assert f"{most:.3f}"[:4] in page.inner_text("#symbol-scale") and "0.08333" in page.inner_text("#symbol-scale")
    grounds = page.locator("#symbol-text bdi").evaluate_all("all => all.map(one => one.style.backgroundColor)")
    light = [sum(map(int, re.findall(r"\d+", ground))) for ground in grounds]
    by_weight = assignment[:, 5].argsort().tolist()
    assert [light[place] for place in by_weight] == sorted(light, reverse=True) and len(set(light)) > 10
    weights = {(int(row["place"]), int(row["symbol"])): float(row["weight"]) for row in rows_of(saved(page, "csv"))}
    assert len(weights) == assignment.numel()
    assert all(weight == pytest.approx(float(assignment[at]), abs=1e-3 * most) for at, weight in weights.items())
    page.click("#symbol-text bdi >> nth=3")
    rows = page.locator("#token-symbols tbody th").all_inner_texts()
    assert [int(row) for row in rows] == assignment[3].argsort(descending=True).tolist()
    page.select_option("#symbol-layer", "1")
    page.focus("#usage canvas")
    before = page.input_value("#symbol")
    page.keyboard.press("ArrowRight")
    assert int(page.input_value("#symbol")) == (int(before) + 1) % 12


def test_a_transformer_shows_attention(visit, exported):
    visitor = visit()
    page = visitor.open(exported(transformer()))
    assert page.locator("#tab-relations").is_hidden()  # which would be empty
    assert page.get_attribute("#tab-attention", "aria-selected") == "true"
    assert len(pixels(visitor)) > 50
    page.click("#tab-symbols")
    assert "no relational heads" in page.inner_text("#symbol-note")


def test_cross_attention(visit, exported):
    model = seq2seq.build("symbolic_attention")
    source, target = (words[:1] for words in seq2seq.words())
    labels = {"source": [f"s{j}" for j in range(source.shape[1])], "target": [f"t{i}" for i in range(target.shape[1])]}
    recording = record(model, lambda: model(source, target, target), labels)
    visitor = visit()
    page = visitor.open(exported(recording=recording) + "#page=attention&layer=decoder.0.cross&i=1&j=2")
    assert page.inner_text("#readout").startswith("receiver 1 t1 ← sender 2 s2: ")
    assert page.locator("#links bdi").all_text_contents() == labels["source"]
    assert len(numbers(visitor)) == source.shape[1] * target.shape[1]


@pytest.mark.slow
@pytest.mark.quick
def test_a_wrong_text_gets_a_message(visit, serve):
    visitor = visit()
    server = serve()
    page = visitor.open(server.address)
    for words, message in (("", "at least one character"), ("x" * 80, "80 tokens, but the model reads at most 64")):
        page.fill("#prompt", words)
        page.click("#ask button")
        page.wait_for_function("part => document.getElementById('message').innerText.includes(part)", arg=message)
    page.fill("#prompt", "right again")
    page.press("#prompt", "Control+Enter")
    page.wait_for_function("() => document.querySelector('#links .text').textContent === 'right again'")
    assert page.locator("#message").is_hidden()
    # Chromium notes on its console that an answer was an error; nothing else may be there.
    assert all("422" in complaint for complaint in visitor.complaints)
    visitor.complaints.clear()
    visitor.context.set_offline(True)
    page.click("#ask button")
    page.wait_for_function("() => document.getElementById('message').innerText.includes('does not answer')")
    visitor.complaints.clear()


def test_two_thousand_tokens_stay_fluid(visit, exported):
    """Frames follow each other at the pace of a screen, whatever is done to a map of 4 million pairs."""
    model = dat(context=2048)
    page = visit().open(exported(model, text=(TEXT + " ") * 89))
    page.evaluate("""() => {
        window.gaps = [];
        let last = performance.now();
        const frame = () => {
            const now = performance.now();
            gaps.push(now - last);
            last = now;
            requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame);
    }""")
    box = page.locator("#main-map canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for step in range(15):
        page.mouse.move(x + 5 * step, y - 3 * step)
        page.mouse.wheel(0, -150)
    page.mouse.down()
    for step in range(15):
        page.mouse.move(x - 12 * step, y - 9 * step)
    page.mouse.up()
    page.keyboard.press("]")
    page.keyboard.press("v")
    page.wait_for_timeout(500)
    gaps = sorted(page.evaluate("() => gaps"))
    # Half of the frames within two sixtieths of a second; the limits leave room for a machine with other work.
    assert gaps[len(gaps) // 2] < 100 and gaps[-1] < 1500, gaps[-10:]
    assert json.loads(page.locator("#data").text_content())["recording"]["sequences"]["tokens"][4] == "c"


@pytest.mark.slow
def test_maps_of_a_large_recording_come_as_they_are_seen(visit, serve, exported, monkeypatch, tmp_path):
    """The same numbers as of a page that has all; a file holds the layer that is seen, and says so."""
    model, views = dat(), ("relations&layer=1&relation=2", "relations&layer=1&relation=2&view=contribution", "symbols")
    whole, asking = visit(), visit()
    address = exported(model)
    expected = []
    for view in views:
        whole.page.goto("about:blank")
        page = whole.open(f"{address}#page={view}")
        expected.append(saved(page, "csv").read_bytes())
    monkeypatch.setattr(packing, "WHOLE", 0)
    server = serve(model, TEXT)
    for view, numbers_seen in zip(views, expected, strict=True):
        asking.page.goto("about:blank")
        page = asking.open(f"{server.address}#page={view}&i=9&j=3")
        coming = (
            "[...document.querySelectorAll('#readout, #symbol-note')].some(one => one.textContent.includes(' way.'))"
        )
        page.wait_for_function(f"() => !{coming}")
        assert saved(page, "csv").read_bytes() == numbers_seen
    page = asking.open(f"{server.address}#page=relations&layer=1&relation=2&i=9&j=3")
    page.wait_for_function("() => [...document.querySelectorAll('#gallery canvas')].every(one => one.width !== 300)")
    file = saved(page, "html", tmp_path / "some.html")
    page = whole.open(f"{file.as_uri()}#layer=1&relation=2")
    assert "maps of blocks.1 only" in page.inner_text("#facts") and saved(page, "csv").read_bytes() == expected[0]
    assert page.locator("#gallery .thumb").count() == 4 and page.locator("#message").is_hidden()
    whole.page.goto("about:blank")
    page = whole.open(f"{file.as_uri()}#layer=0")
    assert "holds the maps of blocks.1 only" in page.inner_text("#message")
