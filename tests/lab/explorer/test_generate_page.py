"""The page of generation in a real browser."""

import time

import pytest

from dat.explorer import streaming
from dat.explorer.streaming import generated
from tests.lab.explorer.conftest import dat, saved

pytestmark = pytest.mark.slow
NOTE = "part => document.getElementById('generate-note').textContent.includes(part)"


def test_tokens_steps_and_maps(visit, serve, tmp_path):
    server = serve()
    visitor = visit()
    page = visitor.open(f"{server.address}#page=generate&tokens=12&seed=5")
    page.click("#generate")
    page.wait_for_function(NOTE, arg="12 of at most 12 tokens: as many tokens as asked for")
    begin, *steps, _ = generated(server.session, {"text": "the cat sat", "tokens": 12, "seed": 5})
    labels = begin["labels"]
    for step in steps:
        labels[step["from"] :] = step["labels"]
    shown = page.locator("#generated bdi").all_text_contents()
    assert [label.replace("␣", " ", 1) if label.startswith("␣") else label for label in labels] == shown
    assert page.locator("#generated bdi.new").count() == 12
    page.click("#generated bdi >> nth=14")
    caption = page.inner_text("#step-likeliest caption")
    assert caption.startswith(f"Likeliest tokens in the place of 14 “{labels[14]}”")
    assert page.locator("#step-likeliest tbody th").all_inner_texts() == [label for label, _ in steps[3]["likeliest"]]
    assert page.inner_text("#step-senders caption").startswith("What token 13 ")
    first = page.locator("#step-senders tbody td").nth(1).inner_text()
    page.select_option("#step-map", label="blocks.1 relation 2")
    assert "blocks.1 relation 2" in page.inner_text("#step-senders caption")
    assert page.locator("#step-senders tbody td").nth(1).inner_text() != first
    page.focus("#steps")
    page.keyboard.press("ArrowUp")
    assert page.inner_text("#step-senders caption").startswith("What token 12 ")
    for kind in ("html", "csv", "svg", "png"):
        saved(page, kind, tmp_path / f"steps.{kind}")
    other = visit()
    copied = other.open((tmp_path / "steps.html").as_uri())
    assert copied.inner_text("#step-senders") == page.inner_text("#step-senders")
    assert copied.locator("#generate").is_disabled() and other.inside((tmp_path / "steps.html").as_uri())
    page.click("#record-generated")
    page.wait_for_function("() => document.getElementById('generated-box').hidden")
    page.click("#tab-attention")
    visitor.settle()
    assert page.locator("#links bdi").count() >= 12


def test_a_link_with_other_numbers_does_not_promise_the_continuation(visit, serve):
    page = visit().open(f"{serve().address}#page=generate&tokens=3")
    page.click("#generate")
    page.wait_for_function(NOTE, arg="3 of at most 3 tokens")
    page.wait_for_function("() => location.hash.includes('generated=1')")
    page.fill("#seed", "7")
    page.press("#seed", "Tab")
    page.wait_for_function("() => location.hash.includes('seed=7')")
    assert "generated" not in page.url and page.locator("#generated bdi.new").count() == 3
    page.click("#generate")
    page.wait_for_function("() => location.hash.includes('generated=1')")


def test_stop(visit, serve, monkeypatch):
    packed = streaming.LastRows.packed

    def slowly(rows):
        time.sleep(0.05)
        return packed(rows)

    monkeypatch.setattr(streaming.LastRows, "packed", slowly)
    server = serve(dat(context=512))
    page = visit().open(f"{server.address}#page=generate&tokens=400")
    assert page.locator("#stop").is_disabled()
    page.click("#generate")
    page.wait_for_function("() => document.querySelectorAll('#generated bdi.new').length > 3")
    assert page.locator("#generate-busy").is_visible() and page.locator("#generate").is_disabled()
    page.click("#stop")
    page.wait_for_function(NOTE, arg="it was stopped")
    count = page.locator("#generated bdi.new").count()
    assert 3 < count < 390
    page.wait_for_timeout(400)
    assert page.locator("#generated bdi.new").count() == count and page.locator("#generate").is_enabled()


@pytest.mark.quick
def test_a_full_context_gets_a_message(visit, serve):
    visitor = visit()
    page = visitor.open(f"{serve(text='x' * 64).address}#page=generate")
    page.click("#generate")
    page.wait_for_function("() => document.getElementById('message').textContent.includes('fill the context of 64')")
    page.wait_for_function("() => !document.getElementById('generate').disabled")  # in the next frame
    assert all("422" in complaint for complaint in visitor.complaints)
    visitor.complaints.clear()
