"""Addresses of views: a link leads to the same view of the same text and the same model, or says that it does not."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from dat.explorer import command, view_state
from dat.explorer.images import ImageSession
from dat.explorer.session import Session
from dat.explorer.view_state import View, packed_text, unpacked_text
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.dictionaries import weights_digest
from tests.lab.explorer.conftest import TEXT, dat, vision

OTHER = "Paris, naïve 猫: “سلام” & #1"


def session(seed: int = 0) -> Session:
    model = dat(seed)
    return Session(model, ByteTokenizer(), "a model", {"weights": weights_digest(model)})


def show(page, text):
    page.fill("#prompt", text)
    page.click("#ask button")
    page.wait_for_function("() => document.getElementById('busy').hidden")
    page.wait_for_timeout(250)


@pytest.mark.parametrize("text", ["a", OTHER, "x" * 5000, "\n\t \0"])
def test_a_text_in_an_address(text):
    view = View(page="attention", text=text, weights="0123456789ab")
    assert View.of(f"http://127.0.0.1/?token=x#{view.fragment}") == view
    assert re.fullmatch(r"[\w-]+", packed_text(text))
    assert len(packed_text("x" * 5000)) < 50


@pytest.mark.parametrize("packed", ["é", "x", "AAAA", packed_text("x" * 100)[:-3], packed_text("x" * (2 << 20))])
def test_a_damaged_text_in_an_address(packed):
    with pytest.raises(ValueError, match=r"view: .*text"):
        unpacked_text(packed)


def test_numbers_of_an_address_are_read_as_the_fields_of_a_view_are_declared():
    address = json.loads((Path(view_state.__file__).parent / "page" / "view.json").read_text(encoding="utf-8"))
    own = {field.name: field.type.removesuffix(" | None") for field in dataclasses.fields(View) if field.name != "rest"}
    kinds = {**dict.fromkeys(address["counts"], "int"), **dict.fromkeys(address["ranges"], "float")}
    assert own == {name: kinds.get(name, "str") for name in own} and own.keys() < address["initial"].keys()
    assert kinds.keys() < address["initial"].keys()
    for name, (least, most) in address["ranges"].items():
        assert address["initial"][name] is None or least <= address["initial"][name] <= most


def test_a_digest_tells_models_apart():
    assert weights_digest(dat()) == weights_digest(dat()) != weights_digest(dat(1))
    assert weights_digest(dat().bfloat16()) != weights_digest(dat())


@pytest.mark.slow
def test_a_link_leads_to_the_same_view(visit, serve):
    visitor, server = visit(), serve(session=session())
    page = visitor.open(server.address)
    show(page, OTHER)
    page.click("#gallery .thumb >> nth=2")
    page.select_option("#scale", "log")
    page.click("#larger")
    page.focus("#main-map canvas")
    for key in ("Escape", "ArrowDown", "End", "Shift+ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    page.wait_for_timeout(250)
    seen, link = page.inner_text("#work"), page.url
    assert "receiver 10" in seen
    for again in (page, visit().page):
        again.goto(link)
        again.reload()
        again.wait_for_function("() => document.getElementById('readout').innerText.includes('receiver 10')")
        assert again.inner_text("#work") == seen and again.input_value("#prompt") == OTHER
        assert again.locator("#message").is_hidden()
    strange = "page=none&layer=99&kind=x&relation=-3&i=1e9&j=x&cell=NaN&view=&unknown=1&contrast=1e999"
    page = visit().open(f"{server.address}#{strange}")
    assert page.inner_text("#main-map figcaption").startswith("blocks.0")
    # Another server, token and port: the address as --view has it shows the same.
    view = View.of(link)
    assert (view.text, view.relation, dict(view.rest)["scale"]) == (OTHER, 2, "log")
    assert view.weights == server.session.facts["weights"]
    view.check_weights(weights_digest(dat()))


@pytest.mark.slow
def test_back_leads_to_the_page_and_text_before(visit, serve):
    visitor, server = visit(), serve(session=session(), text=TEXT)
    page = visitor.open(server.address)
    page.wait_for_function("() => location.hash.includes('text=')")  # the address follows after a moment
    page.click("#tab-attention")
    page.wait_for_function("() => location.hash.includes('page=attention')")
    text = "new URLSearchParams(location.hash.slice(1)).get('text')"
    before = page.evaluate(text)
    show(page, OTHER)
    page.wait_for_function(f"before => {text} !== before", arg=before)
    page.go_back()
    page.wait_for_function("text => document.getElementById('prompt').value === text", arg=TEXT)
    assert page.get_attribute("#tab-attention", "aria-selected") == "true"
    page.go_back()
    page.wait_for_function("() => document.getElementById('tab-relations').ariaSelected === 'true'")
    assert page.locator("#links .text").text_content() == TEXT


@pytest.mark.slow
def test_a_link_of_another_model_is_warned_about(visit, serve):
    own, other = session(), session(1)
    server, visitor = serve(session=own), visit()
    fragment = View(i=4, j=2, text=OTHER, weights=other.facts["weights"]).fragment
    page = visitor.open(f"{server.address}#{fragment}")
    page.wait_for_function("() => document.getElementById('readout').innerText.includes('receiver 4')")
    warning = page.inner_text("#message")
    assert other.facts["weights"] in warning and own.facts["weights"] in warning and "\n" not in warning
    show(page, "a text of this model")
    assert page.locator("#message").is_hidden() and own.facts["weights"] in page.url


@pytest.mark.slow
def test_what_a_link_cannot_show_is_said(visit, exported, serve):
    visitor = visit()
    page = visitor.open(exported() + f"#i=4&j=2&text={packed_text(OTHER)}")
    page.wait_for_function("() => document.getElementById('message').innerText.includes('another text')")
    visitor.settle()
    assert not page.inner_text("#readout").startswith("receiver 4 s ← sender 2 ")
    page.goto(serve().address + "#i=4&j=2&text=AAAA")
    page.wait_for_function("() => document.getElementById('message').innerText.includes('is damaged')")
    images = ImageSession(vision(), "images")
    page.goto(serve(session=images, text="game same").address + "#page=vision&own=1")
    page.wait_for_function("() => document.getElementById('message').innerText.includes('choose that file again')")


@pytest.mark.slow
def test_links_of_images_generation_switches_and_dictionaries(visit, serve):
    visitor, server = visit(), serve(session=ImageSession(vision(), "images"), text="game same")
    page = visitor.open(server.address + "#page=vision")
    page.select_option("#sample", "game xoccurs")
    page.wait_for_timeout(400)
    about, link = page.inner_text("#picture-about"), page.url
    assert "game xoccurs" in about and View.of(link).text == "game xoccurs"
    page = visit().open(link)
    page.wait_for_function("() => document.getElementById('picture-about').innerText.includes('xoccurs')")
    assert page.inner_text("#picture-about") == about

    page = visit().open(serve().address + "#page=generate&tokens=6&seed=3&off=r1.2_sa0.1")
    show(page, OTHER)
    page.click("#generate")
    page.wait_for_function("() => document.getElementById('generate-note').innerText.startsWith('6 of')")
    page.click("#generated bdi.new >> nth=2")
    page.click("#tab-dictionary")
    page.click("#make-dictionary")
    page.wait_for_selector("#dictionary-list li")
    pairs = page.inner_text("#dictionary-list")
    page.click("#tab-generate")
    page.wait_for_timeout(250)
    steps = page.inner_text("#generate-page")
    page.reload()
    page.wait_for_function("() => document.getElementById('generate-note').innerText.startsWith('6 of')")
    page.wait_for_timeout(250)
    assert page.inner_text("#generate-page") == steps
    page.click("#tab-dictionary")
    page.wait_for_selector("#dictionary-list li")
    assert page.inner_text("#dictionary-list") == pairs
    page.click("#tab-interventions")
    page.wait_for_selector("#switch-effects:not([hidden])")
    assert page.locator("#switch-text").text_content().startswith("Paris, na")


def test_the_command_reads_an_address(monkeypatch, tmp_path, capsys):
    """Text and weights of --view; a text that is given beside it comes first."""
    found = session()
    monkeypatch.setattr(command, "session_of", lambda options: found)
    view = View(page="attention", text="of a link", weights=found.facts["weights"])
    run = lambda *options: command.run_explorer("dat explore", options)  # noqa: E731
    link = f"http://127.0.0.1:1/?token=x#{view.fragment}"
    assert run("--view", link, "--export", str(tmp_path / "a.csv")) == 0
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 1 + 9 * 10 // 2
    assert run("--view", link, "--text", "own", "--export", str(tmp_path / "b.csv")) == 0
    assert len((tmp_path / "b.csv").read_text().splitlines()) == 1 + 3 * 4 // 2
    assert command.run_app("dat explore", ["--view", "page=attention&weights=0", "--export", str(tmp_path / "c.csv")])
    assert "view: it is of a model with weights 0, but this one has" in capsys.readouterr().err
