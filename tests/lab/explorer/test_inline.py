"""The explorer's page of a model in memory: what it holds, of our models and of transformers'."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dat
from dat.explorer.html import Page
from dat.explorer.packing import unpacked_array
from dual_attention import TransformerEncoder
from dual_attention.generation.tokenizer import ByteTokenizer, characters_of_bytes
from tests.support.browser import Visit, launched
from tests.support.tensors import moved

from . import conftest
from .conftest import TEXT

transformers = pytest.importorskip("transformers")
TOKENS = torch.tensor([ByteTokenizer().encode(TEXT)])
SIZES = {"vocab_size": 257, "bos_token_id": None, "eos_token_id": None}


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    """Addresses that a browser was asked for."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    return addresses


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(**SIZES, n_embd=32, n_layer=2, n_head=4)
    return moved(transformers.GPT2LMHeadModel(config), 0.15)


def llama() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SIZES, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    return moved(transformers.LlamaForCausalLM(config), 0.15)


def data_of(page: str) -> dict:
    return json.loads(re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)[1])["recording"]


def factor(packed: dict) -> torch.Tensor:
    return unpacked_array(packed["values"]).float() * unpacked_array(packed["scales"])[..., None]


@pytest.mark.parametrize("build", [gpt2, llama])
def test_attention_of_transformers_is_what_they_return(build, opened):
    model = build()
    page = dat.explore(model, TEXT)
    assert [address.startswith("file:") for address in opened] == [True]
    assert dat.explore(model, TEXT, show=False) == page and len(opened) == 1
    recording = data_of(page)
    assert "".join(recording["sequences"]["tokens"]) == TEXT.replace(" ", "␣")
    model.set_attn_implementation("eager")
    wanted = model(TOKENS, output_attentions=True).attentions
    assert len(recording["heads"]) == len(wanted) == 2
    for heads, weights in zip(recording["heads"], wanted, strict=True):
        queries, keys = (factor(heads["weights"][name]) for name in ("queries", "keys"))
        torch.testing.assert_close(queries @ keys.mT, weights[0], atol=heads["error"] / 255 + 1e-6, rtol=0)
        assert heads["relations"] is None and unpacked_array(heads["last"]).tolist() == [*range(1, TOKENS.shape[1] + 1)]


class TheirBytes:
    """A tokenizer with the interface of transformers'."""

    eos_token_id = None

    def __len__(self):
        return 257

    def __call__(self, text):
        return {"input_ids": [*text.encode()]}

    def decode(self, ids):
        return bytes(ids).decode("latin-1")

    def convert_ids_to_tokens(self, token):
        return chr(token)


def test_two_models_share_a_tokenizer_of_transformers():
    models, tokenizers = [conftest.dat() for _ in "AB"], (TheirBytes(), ByteTokenizer())
    own, ours = (dat.explore(models[0], TEXT, one, beside=models[1], show=False) for one in tokenizers)
    assert data_of(own)["sequences"] == data_of(ours)["sequences"]


@pytest.mark.parametrize("name", [characters_of_bytes().get, "<0x{:02X}>".format])
def test_parts_of_a_character_are_told_by_their_bytes(name):
    class TheirParts(TheirBytes):
        def decode(self, ids):
            return bytes(ids).decode("utf-8", "replace")

        def convert_ids_to_tokens(self, token):
            return name(token)

    pages = [dat.explore(conftest.dat(), "é猫", one, show=False) for one in (TheirParts(), ByteTokenizer())]
    assert data_of(pages[0])["sequences"] == data_of(pages[1])["sequences"]


def test_a_model_is_left_as_it_was():
    model = gpt2().train()
    model.transformer.h[0].eval()
    before, modes = model.config._attn_implementation, [module.training for module in model.modules()]
    dat.explore(model, TEXT)
    assert model.config._attn_implementation == before and modes == [module.training for module in model.modules()]


def test_our_models_have_relations_and_symbols_in_a_notebook(monkeypatch, opened, session):
    shell = SimpleNamespace(kernel=True)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    page = dat.explore(session.model, TEXT, view="page=attention&layer=1")
    assert isinstance(page, Page) and not opened
    assert [heads["kind"] for heads in data_of(page)["heads"]] == ["sensory", "relational"] * 2
    encoder = TransformerEncoder(257, d_model=16, n_layers=1, n_heads=2, max_block_size=32)
    assert len(data_of(dat.explore(encoder, TEXT, ByteTokenizer()))["heads"]) == 1


@pytest.mark.parametrize("size", [(3, 36, 36), (1, 40, 50)])
def test_an_image_is_a_tensor_a_sample_or_of_pillow(size):
    model, image = conftest.vision(), torch.rand(size)
    pixels = data_of(dat.explore(model, image))["image"]["pixels"]
    assert pixels["shape"] == [36, 36, 3]
    if size == (3, 36, 36):
        wanted = (255 * image).round().to(torch.uint8).permute(1, 2, 0)
        assert torch.equal(unpacked_array(pixels), wanted)
    assert data_of(dat.explore(model, "game same"))["source"] == "game same"


@pytest.mark.slow
def test_a_frame_in_an_exported_notebook_shows_the_page_without_a_network(tmp_path):
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><h1>A notebook</h1>{dat.explore(gpt2(), TEXT)._repr_html_()}")
    with launched() as browser:
        visit = Visit(browser)
        page = visit.open(file.as_uri())
        frame = page.wait_for_selector("iframe").content_frame()
        frame.wait_for_selector("text=head 0", timeout=90_000)  # beside other tests, a browser may wait long
        assert "GPT2LMHeadModel" in frame.inner_text("body") and visit.inside(file.as_uri())
        assert not [text for text in visit.complaints if "autofocus" not in text]
        visit.close()


BAD = [
    (lambda: dat.explore(nn.Linear(2, 2), TEXT), TypeError, "model: expected a model of texts or an image classifier"),
    (lambda: dat.explore(nn.Linear(2, 2), torch.ones(1, 2)), TypeError, "got Linear; dat.explorer.recording.record"),
    (lambda: dat.explore(gpt2(), 3), TypeError, "text_or_image: expected a text for GPT2LMHeadModel, got int"),
    (lambda: dat.explore(gpt2(), ""), ValueError, "text_or_image: expected at least one token"),
    (lambda: dat.explore(gpt2(), TEXT, object()), TypeError, "tokenizer: expected one of this library or transformers"),
    (lambda: dat.explore(conftest.dat(vocab_size=90), TEXT), ValueError, "tokenizer: expected one for the model's voc"),
    (
        lambda: dat.explore(conftest.dat(vocab_size=90), TEXT, ByteTokenizer()),
        ValueError,
        "at most 90 tokens, .* got 257",
    ),
    (lambda: dat.explore(conftest.vision(), TEXT), FileNotFoundError, "image: expected a file or one of game"),
    (
        lambda: dat.explore(conftest.vision(), torch.rand(36, 36)),
        ValueError,
        r"expected an image \(1 or 3, height, wid",
    ),
    (lambda: dat.explore(conftest.vision(), 2), TypeError, "text_or_image: expected an image, or the name of its file"),
    (lambda: dat.explore(gpt2(), TEXT, view="page=nothing"), ValueError, "view"),
    (lambda: Page("").save("map.csv"), ValueError, "path: expected a name that ends in .html, got 'map.csv'"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_does_not_fit_is_named(call, error, message, opened):
    with pytest.raises(error, match=message):
        call()
    assert not opened
