"""Two models side by side: differences of maps and predictions, the link, files, and what does not fit together."""

import re
from dataclasses import replace
from typing import Any

import pytest

import dat as lab
from dat.explorer import packing
from dat.explorer.command import run_app
from dat.explorer.example import EXAMPLES
from dat.explorer.exporting import Exporter
from dat.explorer.images import ImageSession
from dat.explorer.opening import facts_of, with_beside
from dat.explorer.session import Session, TextSession
from dat.explorer.switches import predicted, switch_effects
from dat.explorer.view_state import View
from dual_attention import TransformerEncoder, TransformerLM
from dual_attention.generation.tokenizer import BytePairTokenizer, ByteTokenizer
from tests.lab.explorer.conftest import TEXT, dat, rows_of, saved, transformer, vision
from tests.support.refusals import refused

BYTES = ByteTokenizer()


def session_of(model, title="A", tokenizer: Any = BYTES, kind: Any = Session):
    return kind(model, tokenizer, title, facts=facts_of(model))


@pytest.fixture(scope="module")
def pair():
    """Two models with the same parts, the second with a smaller context."""
    return session_of(dat()), session_of(dat(seed=1, context=32), "B")


def values(session, view):
    rows = Exporter(session, TEXT, View.of(view)).seen.rows
    return {(row[0], row[2]): row[-1] for row in rows}


VIEWS = ["relation=2", "layer=1&relation=1&view=attended&head=1", "view=contribution", "page=attention&head=1"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_difference_is_of_the_second_less_the_first_and_of_a_model_and_itself_zero(pair, view):
    first, second = pair
    a, b = (values(one, view) for one in pair)
    both = with_beside(first, second)
    assert values(both, f"{view}&model=0") == a and values(both, f"{view}&model=1") == b
    found = values(both, f"{view}&model=2")
    assert found == {place: pytest.approx(b[place] - a[place], abs=1e-6) for place in a} and max(found.values()) > 0.01
    assert set(values(with_beside(first, first), f"{view}&model=2").values()) == {0.0}


def test_a_difference_is_of_pairs_that_both_see():
    options = {"block_kwargs": {"attn_kwargs": {"window": 2}}}
    narrow, wide = (session_of(TransformerLM(257, 16, 1, 2, max_block_size=64, **own), "A") for own in (options, {}))
    few, all_ = (values(one, "page=attention").keys() for one in (narrow, wide))
    assert few < all_
    for both in (with_beside(narrow, wide), with_beside(wide, narrow)):
        assert values(both, "page=attention&model=2").keys() == few


def test_predictions_are_those_of_both_models(pair):
    first, second = pair
    both: Any = with_beside(first, second)
    found = switch_effects(both, {"text": TEXT, "beside": 1})
    for name, session in zip(("before", "after"), pair, strict=True):
        assert found["losses"][name] == predicted(session.model, session.tensor(session.tokens(TEXT))).losses.tolist()
    assert found["divergence"]["after"] > 0 and found["switched"] == "B" and found["loss"]["controls"] == []
    both = with_beside(first, first)
    same = switch_effects(both, {"text": TEXT, "beside": 1})
    assert same["losses"]["before"] == same["losses"]["after"] and same["divergence"]["after"] == 0
    assert all(one["before"] == one["after"] for one in same["next"])


ENCODER = TransformerEncoder(257, d_model=16, n_layers=1, n_heads=2, max_block_size=32)


test_what_is_refused = refused(
    (lambda one: with_beside(one, session_of(dat(), "B", BytePairTokenizer.train([TEXT], 260))),
     "^beside: expected the tokenizer of A, got another one"),
    (lambda one: with_beside(one, session_of(dat(vocab_size=300), "B")),
     "^beside: expected the vocabulary of A, 257 tokens, got 300"),
    (lambda one: with_beside(one, ImageSession(vision(), "B")),
     "^beside: expected two models of texts, got B, a VisionDualAttnTransformer"),
    (lambda one: with_beside(one, session_of(ENCODER, "B", kind=TextSession)),
     "^beside: expected two language models, or none, got A, a Dual.* and B, a T"),
    (lambda one: Exporter(one, TEXT, View.of("model=1")),
     "view: it is of two models; give the second with --beside"),
    (lambda one: values(with_beside(one, session_of(transformer(), "B")),
                        "page=attention&kind=relational&head=1&model=2"),
     "view: expected a map of both models, got .* sensory head 1 and .* relational"),
    *((lambda _, digest=digest: View.of("beside=0a").check_weights("", digest),
       "view: beside, it shows a model with weights 0a") for digest in (None, "other")),
    by=lambda call, *, pair: call(pair[0]),
)  # fmt: skip


def test_a_text_that_one_of_them_cannot_read(pair):
    boths: list[Any] = [with_beside(*pair), with_beside(*reversed(pair))]
    for both in boths:
        for ask in (both.check, both.packed, lambda text, both=both: switch_effects(both, {"text": text, "beside": 1})):
            with pytest.raises(ValueError, match="text: 33 tokens, but the model B reads at most 32 at a time"):
                ask("x" * 33)
        both.check(both.default)


def test_from_python_and_from_the_command(pair, tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda _: None)
    assert not {0.0} ^ {float(row["value"]) for row in rows_of(commanded(tmp_path / "zero.csv", "relation=3&model=2"))}
    models = [one.model for one in pair]
    assert re.search(r'"beside": ?{"format', lab.explore(models[0], TEXT, beside=models[1]))
    for beside in (vision(), "a folder"):
        with pytest.raises(TypeError, match="beside: expected two models of texts of this library"):
            lab.explore(models[0], beside=beside)


def commanded(file, view):
    path = str(EXAMPLES["language"].path)
    assert run_app(arguments=[path, "--beside", path, "--view", view, "--text", "a law", "--export", str(file)]) == 0
    return file


@pytest.mark.slow
@pytest.mark.parametrize("whole", [packing.WHOLE, 0])
def test_the_page(visit, serve, pair, tmp_path, monkeypatch, whole):
    """One link leads to the same view of the same two models; a file has it without a server; nothing is half-made."""
    monkeypatch.setattr(packing, "WHOLE", whole)  # of a larger recording, maps come as they are seen
    first, second = (replace(one, _large=[]) for one in pair)
    visitor, server = visit(), serve(session=with_beside(first, second), text=TEXT)
    page = visitor.open(server.address + "#relation=1&i=9&j=2")
    assert "Both models have the same heads" in page.inner_text("#beside-note")
    shown = [float(value) for value in re.findall(r"(?:: | B )(-?[\d.]+)", page.inner_text("#readout"))]
    assert shown == pytest.approx([values(one, "relation=1")[9, 2] for one in pair], rel=1e-3)
    scales = [page.inner_text(f"#{name}-map .scale") for name in ("main", "pinned")]
    assert scales[0] == scales[1]
    page.keyboard.press("m")
    page.keyboard.press("m")
    page.wait_for_function("() => document.querySelector('#readout').innerText.includes('A -')")
    csv = saved(page, "csv").read_bytes()
    wanted = values(with_beside(*pair), "relation=1&model=2")
    found = {(int(row["receiver"]), int(row["sender"])): float(row["value"]) for row in rows_of(saved(page, "csv"))}
    assert found == {place: pytest.approx(value, abs=2e-3) for place, value in wanted.items()}
    assert page.inner_text("#main-map figcaption") == "B − A, blocks.0 · relation 1"
    page.wait_for_function("() => location.hash.includes('beside=')")
    link, seen = page.url, page.inner_text("main")
    other = visit().open(link)
    assert other.inner_text("main") == seen and saved(other, "csv").read_bytes() == csv
    alone = visitor.open(saved(page, "html", tmp_path / "two.html").as_uri())
    assert saved(alone, "csv").read_bytes() == csv
    assert not whole or alone.inner_text("main") == seen
    page.goto(link.replace("beside=", "beside=0"))
    page.wait_for_function("() => document.getElementById('message').innerText.includes('of two models')")
    page.click("#tab-interventions")
    page.click("[data-codes=beside]")
    page.wait_for_selector("#switch-losses tbody tr")
    assert page.locator("#switch-losses tbody th").all_inner_texts() == ["A", "B"]
    page.fill("#prompt", "x" * 33)
    page.click("#ask button")
    page.wait_for_function("() => document.getElementById('message').innerText.includes('model B reads at most 32')")
    assert "tokens 22 of 64" in page.inner_text("#facts")
    visitor.complaints.clear()  # of the answer 422
