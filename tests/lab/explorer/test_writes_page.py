"""The pages of what parts write and of patching in a real browser."""

import pytest

from dat.explorer.patching import patched
from dat.explorer.writes import written
from tests.lab.explorer.conftest import TEXT, saved

pytestmark = pytest.mark.slow

OTHER = "the dog sat on the log"
WRITES = "() => !document.getElementById('writes-found').hidden && document.getElementById('writes-busy').hidden"
PATCHING = "() => !document.getElementById('patching-found').hidden && document.getElementById('patching-busy').hidden"


def kept_file(page, visit, path):
    """The page as a file without a server."""
    saved(page, "html", path)
    visitor = visit()
    return visitor.open(path.as_uri()), visitor


@pytest.mark.quick
def test_what_parts_write(visit, serve, tmp_path):
    server = serve(text=TEXT)
    visitor = visit()
    page = visitor.open(server.address)
    page.click("#tab-writes")
    page.wait_for_function(WRITES)
    found = written(server.session, {"text": TEXT})
    order = sorted(range(12), key=lambda place: -abs(found["effects"][place]))
    parts = page.locator("#writes-table tbody th button")
    assert parts.evaluate_all("all => all.map(one => Number(one.dataset.part))") == order
    some = {"embedding", "blocks.0 sensory head 1", "blocks.1 relational head 0", "blocks.1 feed-forward"}
    assert some < set(parts.all_text_contents())
    values = [float(value) for value in page.locator("#writes-table tbody td").all_text_contents()]
    assert values == pytest.approx([found["effects"][place] for place in order], rel=2e-3, abs=1e-6)
    # Relations at another place, and the tokens of one of them.
    page.click("#writes-text bdi >> nth=4")
    page.wait_for_function("() => document.getElementById('writes-note').textContent.includes('after token 4 “c”')")
    page.select_option("#writes-by", "relation")
    page.wait_for_selector("#writes-table button:text-is('blocks.1 relation 3')")
    page.click("#writes-table button:text-is('blocks.1 relation 3')")
    assert page.inner_text("#writes-name") == "blocks.1 relation 3"
    found = written(server.session, {"text": TEXT, "place": 4, "by": "relation"})
    (place,) = [n for n, part in enumerate(found["parts"]) if (part["layer"], part["relation"]) == ("blocks.1", 3)]
    promoted = page.locator("#writes-promoted tbody th").all_text_contents()
    assert promoted == [token for token, _ in found["writes"][place]["promoted"]]
    # Another next token; a file shows the same.
    page.select_option("#writes-target", str(found["likeliest"][3]["id"]))
    token = found["likeliest"][3]["token"]
    page.wait_for_function(
        "token => document.getElementById('writes-note').textContent.startsWith(token)", arg=f"“{token}”"
    )
    rows = page.locator("#writes-table tbody tr").all_text_contents()
    copied, other = kept_file(page, visit, tmp_path / "writes.html")
    assert copied.locator("#writes-table tbody tr").all_text_contents() == rows and not other.complaints
    assert copied.inner_text("#writes-name") == "blocks.1 relation 3" and copied.locator("#writes-by").is_disabled()
    page.click("#writes-map")
    visitor.settle()
    assert page.inner_text("#main-map figcaption") == "blocks.1 · relation 3"
    assert visitor.inside(server.address.partition("?")[0]) and not visitor.complaints


def test_patching_from_a_second_text(visit, serve, tmp_path):
    server = serve(text=TEXT)
    visitor = visit()
    page = visitor.open(server.address + "#page=patching")
    page.fill("#other", "the dog")
    page.click("#ask-other button")
    page.wait_for_selector("#message:not([hidden])")
    assert page.inner_text("#message") == "The second text needs 22 tokens, as the first has; it has 7."
    visitor.complaints.clear()  # Chromium notes the status
    page.fill("#other", OTHER)
    page.press("#other", "Control+Enter")
    page.wait_for_function(PATCHING)
    found = patched(server.session, {"text": TEXT, "other": OTHER})
    cells = page.locator("#patching-grid button")
    assert cells.all_text_contents() == [f"{cell['recovery']:.2f}" for cell in found["cells"]]
    assert page.locator("#patching-grid thead th").all_text_contents()[1:] == [
        *("sensory selections", "values", "relational selections", "relations", "symbols", "all heads")
    ]
    assert page.locator("#patching-text .changed").count() == sum(a != b for a, b in zip(TEXT, OTHER, strict=True))
    # An answer of one's own, then every head and relation; a link leads to the same.
    answer = found["candidates"][4]["id"]
    page.select_option("#patching-answer", str(answer))
    page.select_option("#patching-each", "1")
    page.wait_for_function("() => document.querySelectorAll('#patching-grid button').length === 32")
    page.wait_for_function(PATCHING)
    rows = page.locator("#patching-table tbody tr").all_text_contents()
    more = {"by": "head", "answer": answer, "foil": found["foil"]["id"]}
    sizes = [abs(cell["recovery"]) for cell in patched(server.session, {"text": TEXT, "other": OTHER, **more})["cells"]]
    first = page.locator("#patching-table tbody th button").first
    assert int(first.get_attribute("data-patch")) == sizes.index(max(sizes))
    page.wait_for_timeout(200)
    address = page.url
    again = visit().open(address)
    again.wait_for_function("() => document.querySelectorAll('#patching-grid button').length === 32")
    again.wait_for_function(PATCHING)
    assert again.locator("#patching-table tbody tr").all_text_contents() == rows
    assert again.input_value("#other") == OTHER
    copied, other = kept_file(page, visit, tmp_path / "patching.html")
    assert copied.locator("#patching-table tbody tr").all_text_contents() == rows and not other.complaints
    assert copied.locator("#ask-other").is_hidden()
    page.click("#patching-grid [aria-label^='blocks.1 selection of relational head 1']")
    visitor.settle()
    assert page.inner_text("#main-map figcaption").startswith("blocks.1 · relational head 1")
    assert visitor.inside(server.address.partition("?")[0]) and not visitor.complaints
