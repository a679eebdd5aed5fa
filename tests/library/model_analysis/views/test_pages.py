"""Pages: they hold all they need, whatever text is in them; and a browser shows them, where there is one."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from dual_attention._base.colours import colour_of
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.dictionaries import DictionaryEntry, PairContext, PairExample, RelationDictionary
from dual_attention.model_analysis.views import Page, dictionary_page, importance_page, matrix_page, patch_page
from dual_attention.model_analysis.views.page import hash_source

NASTY = ["</script><script>alert(1)</script>", "<b>&amp;", "猫", '"', "'\u2028"]


def data_of(page: Page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<i2")


def dictionary() -> RelationDictionary:
    text = list(b"<i>one two</i> three four")
    near = PairExample(
        1.25, 0, 7, 3, text[7], text[3], PairContext(4, tuple(text[4:10])), PairContext(0, tuple(text[:7]))
    )
    far = PairExample(
        -3.0, 1, 22, 1, text[22], text[1], PairContext(20, tuple(text[20:])), PairContext(0, tuple(text[:3]))
    )
    entries = (
        DictionaryEntry("blocks.0", 1, "high", 1, near, (far,)),
        DictionaryEntry("blocks.0", 1, "low", 1, far, ()),
    )
    return RelationDictionary(entries, {"documents": 2, "tokens": 50})


def all_pages() -> dict[str, Page]:
    return {
        "matrices": matrix_page({"r <0>": torch.randn(5, 5)}, NASTY, title="<title> & more"),
        "patches": patch_page(torch.rand(3, 4, 6), torch.randn(6, 6, 2), (2, 3), titles=NASTY[:2], title="p"),
        "importance": importance_page(torch.randn(2, 2), rows=NASTY[:2], columns=NASTY[2:4], title="i", unit="<nats>"),
        "dictionary": dictionary_page(dictionary(), ByteTokenizer(), title="<d>"),
    }


class Outline(HTMLParser):
    """Elements, those that are open, and attributes that lead somewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found, self.open, self.links = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        if tag not in ("meta", "link", "img", "br", "input"):
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["matrices", "patches", "importance", "dictionary"])
def test_pages_hold_all_they_need(name):
    page = all_pages()[name]
    outline = Outline(page)
    assert outline.open == []
    assert outline.found.count("script") <= 2 and not {"link", "iframe", "img"} & {*outline.found}
    assert all(link.startswith("#") for link in outline.links)
    assert "http://www.w3.org/2000/svg" in page or "http" not in re.sub(r"http-equiv", "", page)
    assert "default-src 'none'" in page
    policy = unescape(re.search(r'Content-Security-Policy" content="(.*?)"', page)[1])
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = re.search(r"script-src (.*)$", policy)[1]
    assert all(allowed == hash_source(script) for script in scripts) and "'unsafe-inline'" not in allowed
    assert "fetch(" not in page and "XMLHttpRequest" not in page and "import(" not in page and "@import" not in page


def test_pages_show_themselves_in_notebooks_and_are_saved(tmp_path):
    for name, page in all_pages().items():
        frame = page._repr_html_()
        assert unescape(re.search(r'srcdoc="(.*?)" style', frame, re.DOTALL)[1]) == page
        assert f"height:{page.height}px" in frame and 'sandbox="allow-scripts"' in frame
        page.save(tmp_path / f"{name}.html")
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8") == page


def test_values_of_matrices():
    values, visible = 3 * torch.randn(4, 3), torch.rand(4, 3) < 0.7
    data = data_of(matrix_page({"a": values, "b": torch.zeros(4, 3)}, NASTY[:4], NASTY[:3], visible=visible))
    assert (data["receivers"], data["senders"]) == (NASTY[:4], NASTY[:3])
    assert unpacked(data["visible"]).reshape(4, 3).astype(bool).tolist() == visible.tolist()
    one, zero = data["matrices"]
    shown = unpacked(one["values"]).reshape(4, 3) / 32767 * one["top"]
    np.testing.assert_allclose(shown, values * visible, atol=1e-4 * one["top"])
    assert one["top"] == pytest.approx(values[visible].abs().max().item())
    assert not unpacked(zero["values"]).any()


def test_values_of_patches():
    image, relations = torch.rand(1, 4, 6), torch.randn(6, 6, 2)
    data = data_of(patch_page(image, relations, (2, 3)))
    shown = unpacked(data["maps"][1]["values"]).reshape(6, 6) / 32767 * data["maps"][1]["top"]
    np.testing.assert_allclose(shown, relations[..., 1], atol=1e-3)
    picture = Image.open(BytesIO(base64.b64decode(data["image"].partition(",")[2]))).convert("RGB")
    pixels = np.asarray(picture).astype(float) / 255
    np.testing.assert_allclose(pixels, image.expand(3, -1, -1).permute(1, 2, 0), atol=1 / 255)


def test_importance_marks_what_is_doubtful():
    values = torch.tensor([[0.5, -0.1], [float("nan"), 0.3]])
    page = importance_page(values, torch.full((2, 2), 0.2), unit="nats")
    cells = re.findall(r"<td.*?>(.*?)</td>", page)
    assert cells == ["0.5<small>±0.2</small>", "(-0.1)<small>±0.2</small>", "", "0.3<small>±0.2</small>"]


def test_contexts_of_a_dictionary():
    page = dictionary_page(dictionary(), ByteTokenizer())
    assert '&lt;i&gt;<b class="sender">o</b>ne <b class="receiver">␣</b>' not in page
    assert '&lt;i&gt;<b class="sender">o</b>ne <b class="receiver">t</b>wo' in page  # two contexts that meet
    assert '&lt;<b class="sender">i</b>&gt; <span class="gap">…</span> ' in page  # two that do not
    assert page.count("<section") == 2 and "(lowest values)" in page and "2 documents, 50 tokens" in page


def test_a_dictionary_of_other_types_is_text():
    """As one that was not read from a file may be."""
    entry = replace(dictionary().entries[0], layer=NASTY[1], rank=NASTY[0])
    page = dictionary_page(RelationDictionary((entry,), {"documents": NASTY[0]}), ByteTokenizer())
    assert Outline(page).found.count("script") == 0


def test_a_script_in_the_data_does_not_run(tmp_path, visit):
    """Nor would one that got into the page unescaped."""
    page = matrix_page({NASTY[0]: torch.eye(5)}, NASTY, title=NASTY[0])
    for name, text in {"as it is": page, "broken": page.replace("</h1>", "</h1><script>alert(1)</script>", 1)}.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
        visitor = visit()
        visitor.page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        assert visitor.open((tmp_path / f"{name}.html").as_uri()).locator('[role="option"]').count() == 1
        refused, visitor.complaints = visitor.complaints, []
        assert [line.partition("script-src")[0] != line for line in refused] == [True] * (name == "broken")


def test_bad_input():
    with pytest.raises(ValueError, match="matrices: expected at least one"):
        matrix_page({}, NASTY)
    with pytest.raises(ValueError, match=r"matrices: expected shape \(5, 5\) of 'a', got \(4, 5\)"):
        matrix_page({"a": torch.zeros(4, 5)}, NASTY)
    with pytest.raises(ValueError, match="matrices: expected finite values in 'a'"):
        matrix_page({"a": torch.full((5, 5), torch.nan)}, NASTY)
    with pytest.raises(ValueError, match=r"visible: expected shape \(5, 5\), got \(5,\)"):
        matrix_page({"a": torch.zeros(5, 5)}, NASTY, visible=torch.ones(5).bool())
    with pytest.raises(ValueError, match=r"relations: expected .*, no class token"):
        patch_page(torch.zeros(3, 4, 4), torch.zeros(5, 5, 1), (2, 2))
    with pytest.raises(ValueError, match="rows: expected 2, got 1"):
        importance_page(torch.zeros(2, 2), rows=["a"])


def test_a_browser_runs_the_scripts(tmp_path, visit):
    def shown(page: Page):
        page.save(tmp_path / "page.html")
        return visit().open((tmp_path / "page.html").as_uri())

    values = torch.tensor([[0.0, -2.0], [1.0, 0.5]])
    page = shown(matrix_page({"one": torch.zeros(2, 2), "two": values}, ["a", "<b>"]))
    assert page.locator('[role="option"]').count() == 2 and page.inner_text("#name") == "one, scale ±1.00"
    page = shown(matrix_page({"two": values}, ["a", "<b>"]))
    assert page.locator("#largest tr").all_inner_texts()[0].split("\t") == ["a (0)", "<b> (1)", "-2.00"]
    assert page.locator("line").count() == 2
    for share in (-1, -0.3, 0, 0.4, 1):
        assert "#" + "".join(f"{part:02x}" for part in page.evaluate(f"colour({share})")) == colour_of(share)
    page = shown(patch_page(torch.rand(3, 4, 6), torch.randn(6, 6, 2), (2, 3)))
    assert page.inner_text("#where") == "patch in row 2, column 2" and "relation 1, ±" in page.inner_text("#maps")
