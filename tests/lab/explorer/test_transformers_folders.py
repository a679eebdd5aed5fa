"""Folders that ``save_pretrained`` of transformers' classes wrote are shown by the explorer."""

import json

import pytest
import torch

from dat.explorer.answers import offers_of
from dat.explorer.exporting import Exporter
from dat.explorer.images import ImageSession
from dat.explorer.opening import open_session
from dat.explorer.session import Session, TextSession
from dat.explorer.view_state import View
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.test_server import ask

pytest.importorskip("transformers")
from tests.library.hf.models import causal, classifier, masked, vision

TEXT = "a cat, 猫"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
@pytest.mark.parametrize(
    ("make", "session_type"), [(causal, Session), (masked, TextSession), (classifier, TextSession)]
)
def test_texts(tmp_path, make, session_type, kind):
    make(kind, vocab_size=257).save_pretrained(tmp_path)
    session = open_session(str(tmp_path), tokenizer="bytes")
    assert type(session) is session_type and session.facts["layers"] == "2"
    tokens = session.tensor(session.tokens(TEXT))
    with torch.no_grad(), capture(session.model) as maps:
        session.model(tokens)
    recording = session.record(TEXT)
    assert recording.sequences["tokens"][0] == "a" and len(recording.sequences["tokens"]) == tokens.shape[1]
    for heads, expected in zip(recording.heads, maps.heads(), strict=True):
        found = heads.weights.values(0, tokens.shape[1], heads.visible)
        torch.testing.assert_close(found, expected.weights[0], rtol=1e-4, atol=1e-6)
    for name in ("a.html", "a.svg", "a.csv"):
        assert Exporter(session, TEXT, View.of("attention")).write(tmp_path / name) > 500
    paths = offers_of(session)["paths"]
    assert ({"generate", "intervene", "make-dictionary"} <= set(paths)) == (make is causal)
    assert {"model", "record"} <= set(paths)


def test_what_encoders_do_not_have(tmp_path, serve):
    masked(vocab_size=257).save_pretrained(tmp_path)
    session = open_session(str(tmp_path), tokenizer="bytes")
    server = serve(session=session, text=TEXT)
    assert ask(server, json.dumps({"text": TEXT}), path="/generate")[0] == 404
    status, body, _ = ask(server, json.dumps({"text": "x" * (session.context + 1)}), path="/record")
    assert status == 422 and f"the model reads at most {session.context}" in json.loads(body)["error"]


def test_pages_that_encoders_do_not_have(tmp_path):
    masked(vocab_size=257).save_pretrained(tmp_path)
    session = open_session(str(tmp_path), tokenizer="bytes")
    for page in ("interventions", "dictionary", "generate"):
        with pytest.raises(ValueError, match=f"the page {page} is of language models, and this is none"):
            Exporter(session, TEXT, View.of(page))


def test_a_vocabulary_that_no_tokenizer_has(tmp_path):
    masked().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer: .* its vocabulary of 11 is none that is known; name one"):
        open_session(str(tmp_path))


@pytest.mark.parametrize("kind", ["dat", "transformer"])
def test_images(tmp_path, kind):
    vision(kind).save_pretrained(tmp_path)
    session = open_session(str(tmp_path))
    assert isinstance(session, ImageSession)
    assert Exporter(session, session.default, View.of("vision")).write(tmp_path / "a.html") > 10_000


@pytest.mark.slow
def test_pages_of_an_encoder_in_a_browser(tmp_path, serve, visit):
    masked(vocab_size=257).save_pretrained(tmp_path)
    server = serve(session=open_session(str(tmp_path), tokenizer="bytes"), text=TEXT)
    visitor = visit()
    page = visitor.open(server.address)
    shown = [tab.inner_text() for tab in page.locator("nav button").all() if tab.is_visible()]
    assert shown == ["Relations", "Attention", "Symbols", "Model"]
    page.fill("#prompt", "another text")
    page.click("#ask button")
    page.wait_for_function("() => !document.querySelector('#ask button').disabled")
    assert page.locator("#message").is_hidden()
    assert visitor.inside(server.address.partition("?")[0])
