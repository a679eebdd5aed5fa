"""Every control of the maps, by mouse and by key, in a real browser."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.lab.explorer.conftest import vision
from tests.support.browser import pixels

pytestmark = pytest.mark.slow


def state(page):
    """What the address says, which follows what is seen."""
    page.wait_for_timeout(200)
    return {name: found for name, (found,) in parse_qs(urlsplit(page.url).fragment).items()}


@pytest.fixture
def visitor(visit, exported):
    found = visit()
    found.open(exported(text="the cat sat on the mat of the hat"))
    return found


def press(visitor, *keys):
    for key in keys:
        visitor.page.keyboard.press(key)
    visitor.settle()


@pytest.mark.slow
def test_keys_that_move_far(visitor):
    page = visitor.page
    page.focus("#main-map canvas")
    press(visitor, "Escape", "ArrowDown", "Shift+ArrowDown", "Shift+ArrowDown", "Shift+ArrowUp", "End")
    assert state(page)["i"] == state(page)["j"] == "10"
    press(visitor, "ArrowUp", "ArrowLeft", "Shift+ArrowLeft", "Shift+ArrowRight", "ArrowLeft")
    assert (state(page)["i"], state(page)["j"]) == ("9", "9")
    press(visitor, "Home")
    assert state(page)["j"] == "0" and "sender 0 t" in page.inner_text("#readout")


def test_keys_that_change_the_look(visitor):
    page = visitor.page
    page.focus("#main-map canvas")
    raw = pixels(visitor)
    assert page.input_value("#scale") == "linear"
    press(visitor, "s")
    assert page.input_value("#scale") == state(page)["scale"] == "root" and pixels(visitor) != raw
    press(visitor, "s", "s")
    assert page.input_value("#scale") == "linear" and pixels(visitor) == raw
    press(visitor, "v", "h")
    assert "under attention of head 1" in page.inner_text("#main-map figcaption")
    press(visitor, "p", "[", "]", "]")
    assert page.locator("#pinned-map").is_visible()
    assert page.inner_text("#pinned-map figcaption").startswith("blocks.0 · relation 0")
    assert page.inner_text("#main-map figcaption").startswith("blocks.0 · relation 2")
    press(visitor, "p")
    assert page.locator("#pinned-map").is_hidden()
    theme = page.inner_text("#theme")
    press(visitor, "d")
    assert page.inner_text("#theme") != theme


def test_zoom(visitor):
    page = visitor.page
    page.focus("#main-map canvas")
    whole = pixels(visitor)
    press(visitor, "+", "+")
    large = float(state(page)["cell"])
    assert pixels(visitor) != whole
    press(visitor, "-")
    assert float(state(page)["cell"]) == pytest.approx(large / 1.5, rel=1e-4)
    press(visitor, "0")
    assert "cell" not in state(page) and pixels(visitor) == whole
    for button, change in (("#larger", 1.5), ("#larger", 1.5), ("#smaller", 1 / 1.5)):
        before = float(state(page).get("cell", large / 1.5**2))
        page.click(button)
        visitor.settle()
        assert float(state(page)["cell"]) == pytest.approx(before * change, rel=1e-4)
    page.click("#whole")
    visitor.settle()
    assert pixels(visitor) == whole


def test_the_bar_above_the_map(visitor):
    page = visitor.page
    raw, ends = pixels(visitor), page.inner_text("#main-map .scale")
    page.fill("#contrast", "3")
    visitor.settle()
    assert state(page)["contrast"] == "3"
    assert pixels(visitor) != raw and page.inner_text("#main-map .scale") != ends
    page.fill("#contrast", "0")
    page.select_option("#scale", "log")
    visitor.settle()
    assert state(page)["scale"] == "log" and pixels(visitor) != raw
    page.select_option("#scale", "linear")
    assert page.locator("#head-choice").is_hidden()
    page.check("#view-choice input[value=attended]", force=True)
    page.select_option("#head", "1")
    visitor.settle()
    assert "under attention of head 1" in page.inner_text("#main-map figcaption")
    page.click("#pin")
    assert page.get_attribute("#pin", "aria-pressed") == "true"


def test_mouse_on_the_map(visitor):
    page = visitor.page
    press(visitor, "Escape")
    box = page.locator("#main-map canvas").bounding_box()
    places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in ((0.3, 0.6), (0.3, 0.9))]
    page.mouse.move(*places[0])
    visitor.settle()
    hovered = page.inner_text("#readout")
    assert hovered.startswith("receiver ") and "i" not in state(page)
    page.mouse.click(*places[1])
    visitor.settle()
    chosen = page.inner_text("#readout")
    assert chosen != hovered and chosen.startswith(f"receiver {state(page)['i']} ")
    page.mouse.click(*places[1])  # once more lets go
    visitor.settle()
    assert "i" not in state(page)


def test_buttons_of_the_head(visitor):
    page = visitor.page
    names, themes = [], []
    for _ in range(3):
        names.append(page.inner_text("#theme"))
        themes.append(page.get_attribute("html", "data-theme"))
        page.click("#theme")
    assert len(set(names)) == 3 and page.inner_text("#theme") == names[0] and themes == ["light", "light", "dark"]
    page.click("#help-button")
    assert page.locator("#help").is_visible()
    press(visitor, "Escape")
    assert page.locator("#help").is_hidden()


def test_options_of_generation(visit, serve):
    page = visit().open(serve().address)
    page.click("#tab-generate")

    def written(**options):
        for name, value in options.items():
            page.fill(f"#{name}", str(value))
        page.click("#generate")
        page.wait_for_function(
            "count => document.getElementById('generate-note').textContent.startsWith(`${count} of at most ${count}`)",
            arg=options["tokens"],
        )
        return page.locator("#generated bdi.new").all_text_contents()

    drawn = {"temperature": 1.5, "top_k": 0, "seed": 3}
    first = written(tokens=9, **drawn)
    assert len(first) == 9 and written(tokens=7, **drawn) == first[:7]
    assert written(tokens=8, **{**drawn, "seed": 4}) != first[:8]
    greedy = written(tokens=6, **{**drawn, "temperature": 0})
    assert greedy != first[:6] and written(tokens=5, **{**drawn, "top_k": 1}) == greedy[:5]


def test_views_of_images_and_parts_of_symbols(visit, serve):
    visitor = visit()
    page = visitor.open(f"{serve(vision()).address}#page=vision")
    raw = page.inner_text("#vision-table")
    page.select_option("#vision-view", "attended")
    visitor.settle()
    attended = page.inner_text("#vision-table")
    assert attended != raw
    page.select_option("#vision-head", "1")
    visitor.settle()
    assert page.inner_text("#vision-table") not in (raw, attended)
    page.click("#tab-symbols")
    visitor.settle()
    note = pixels(visitor, "#usage canvas")
    page.select_option("#symbol-head", index=1)
    visitor.settle()
    assert pixels(visitor, "#usage canvas") != note
