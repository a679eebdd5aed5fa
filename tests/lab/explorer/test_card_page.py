"""The page of a card in a real browser."""

import json

import pytest

from dat.explorer.example import EXAMPLES
from dat.explorer.image_cards import image_card
from dat.explorer.session import Session
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.lab.explorer.conftest import TEXT, dat, saved, transformer

pytestmark = pytest.mark.slow

SHOWN = "() => !document.getElementById('card-found').hidden"


def session_of(seed):
    return Session(dat(seed), ByteTokenizer(), f"model {seed}", {"weights": f"weights{seed}"})


def test_a_card_is_written_saved_and_opened_again(visit, serve, tmp_path):
    server = serve(session=session_of(0), text=TEXT)
    page = visit().open(f"{server.address}#page=card&layer=1&relation=2")
    page.wait_for_function(SHOWN)
    page.fill("#card-name", "same <b>letter</b>")
    page.fill("#card-note", "likes vowels")
    assert page.inner_text("#card-title") == "same <b>letter</b> · blocks.1 relation 2"
    facts = page.inner_text("#card-facts") + page.inner_text("#card-labels") + page.inner_text("#card-high")
    file = saved(page, "card-save", tmp_path / "card.json")
    saved(page, "html", tmp_path / "card.html")
    page.click("[aria-label='blocks.0 relation 1']")  # what was written stays with its relation
    page.wait_for_function("() => document.getElementById('card-title').textContent === 'blocks.0 relation 1'")
    assert page.input_value("#card-note") == ""
    # In another tab, beside another text.
    other = visit()
    page = other.open(f"{server.address}#page=card")
    page.wait_for_function(SHOWN)
    page.fill("#prompt", "another text")
    page.click("#ask button")
    page.wait_for_function("() => !document.querySelector('#ask button').disabled")
    page.set_input_files("#card-open", file)
    page.wait_for_function("() => document.getElementById('card-note').value === 'likes vowels'")
    shown = page.inner_text("#card-facts") + page.inner_text("#card-labels") + page.inner_text("#card-high")
    assert shown == facts and "another text than the one above" in page.inner_text("#card-about")
    # Files that are no card of this model are refused, and what is shown stays.
    whole = json.loads(file.read_text(encoding="utf-8"))
    for wrong, message in {
        "{": "this is no JSON",
        "{}": "this is none, or of another version",
        json.dumps({**whole, "labels": [{}]}): "its labels are damaged",
        json.dumps({**whole, "pairs": [None]}): "its pairs are damaged",
        json.dumps({**whole, "relation": 9}): "not among those shown",
        json.dumps({**whole, "weights": "weights1", "model": "model 1"}): "with the weights weights1 (model 1)",
    }.items():
        (tmp_path / "wrong.json").write_text(wrong, encoding="utf-8")
        page.set_input_files("#card-open", tmp_path / "wrong.json")
        page.wait_for_function("wanted => document.getElementById('message').textContent.includes(wanted)", arg=message)
        assert page.input_value("#card-note") == "likes vowels"
    # The page as a file, without a server.
    away = visit()
    page = away.open((tmp_path / "card.html").as_uri())
    assert page.inner_text("#card-title") == "same <b>letter</b> · blocks.1 relation 2"
    assert facts.startswith(page.inner_text("#card-facts"))
    assert not other.complaints and not away.complaints


def test_a_card_of_pictures_is_saved_and_opened_again(visit, serve, tmp_path):
    """A newcomer finds the relation that carries *same* in the model that ships, beside its control."""
    example = EXAMPLES["games"]
    server = serve(session=example.open(), text=example.source)
    visitor = visit()
    page = visitor.open(f"{server.address}#{example.view}")
    page.click("#tab-card")
    page.wait_for_function(SHOWN)
    found = image_card(server.session, {"layer": "blocks.0", "relation": 3})
    (row,) = [row for row in page.inner_text("#card-facts").splitlines() if row.startswith("right answers without it")]
    random = [one[2] for one in found["effects_random"]]
    assert row.split("\t")[1:3] == [
        f"{100 * found['effect'][2]:.1f} %",
        f"{100 * min(random):.1f} % to {100 * max(random):.1f} %",
    ]
    assert found["effect"][2] < 0.6 and min(random) > 0.9
    assert page.locator("#card-high > li").count() == 6 == page.locator("#card-low > li").count()
    answers = page.locator("#card-high > li > figure:first-child figcaption").all_inner_texts()
    assert all(text.endswith(" same") for text in answers)
    page.fill("#card-name", "same")
    file = saved(page, "card-save", tmp_path / "card.json")
    page.click("[aria-label='blocks.0 relation 0']")
    page.wait_for_function("() => document.getElementById('card-title').textContent === 'blocks.0 relation 0'")
    whole = json.loads(file.read_text(encoding="utf-8"))
    wrong = {**whole, "shown": {**whole["shown"], str(whole["pairs"][0]["example"]["picture"]): {}}}
    for text, wanted in ((json.dumps(wrong), "its pairs are damaged"), (json.dumps(whole), "")):
        (tmp_path / "next.json").write_text(text, encoding="utf-8")
        page.set_input_files("#card-open", tmp_path / "next.json")
        page.wait_for_function("wanted => document.getElementById('message').textContent.includes(wanted)", arg=wanted)
    page.wait_for_function("() => document.getElementById('card-title').textContent.startsWith('same · blocks.0')")
    page.click("#card-map")
    assert page.inner_text("#vision-table caption").startswith("blocks.0 · relation 3")
    assert not visitor.complaints


@pytest.mark.quick
def test_a_model_without_relations_says_what_it_has(visit, serve):
    visitor = visit()
    page = visitor.open(f"{serve(transformer(), text=TEXT).address}#page=card")
    assert "It has blocks.0 2 sensory heads; see the pages" in page.inner_text("#card-none")
    assert page.locator("#card-found").is_hidden() and page.locator("#card-tools").is_hidden()
    for key in ("[", "]"):
        page.keyboard.press(key)
    assert not visitor.complaints


def test_cards_that_somebody_steps_over_are_not_asked_for(visit, serve):
    server = serve(session=session_of(0), text=TEXT)
    visitor = visit()
    page = visitor.open(f"{server.address}#page=card")
    page.wait_for_function(SHOWN)
    before = len(visitor.requests)
    page.evaluate("""() => {
        for (let step = 0; step < 3; step++) {
            document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "]", bubbles: true}));
        }
    }""")
    last = "document.getElementById('card-title').textContent === 'blocks.0 relation 3'"
    page.wait_for_function(f"() => {last} && ({SHOWN})()")
    assert len(visitor.requests) == before + 1
