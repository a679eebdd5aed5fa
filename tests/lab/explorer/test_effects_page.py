"""The page of effects in a real browser."""

import pytest

from dat.explorer.ablations import ablated
from tests.lab.explorer.conftest import TEXT, saved, vision

pytestmark = pytest.mark.slow

DONE = (
    "() => document.getElementById('effects-busy').hidden && !document.getElementById('effects-found').hidden"
    " && !document.getElementById('effects-page').hidden && document.querySelector('#effects-table tbody tr')"
)


def test_every_part_in_turn(visit, serve):
    server = serve(text=TEXT)
    visitor = visit()
    page = visitor.open(server.address)
    page.click("#tab-effects")
    page.fill("#draws", "2")
    page.press("#draws", "Enter")
    assert page.inner_text("#effects-cost").startswith("61 forward passes: one of the model as it is, 20 each")
    page.click("#ablate")
    page.wait_for_function(DONE)
    found = ablated(server.session, {"text": TEXT, "draws": 2})
    order = sorted(range(20), key=lambda place: -found["effects"][place][1])
    rows = page.locator("#effects-table tbody tr").all_text_contents()
    values = page.locator("#effects-table tbody td:nth-child(2)").all_text_contents()
    strongest = found["parts"][order[0]]
    assert len(rows) == 20 and rows[0].startswith(strongest["layer"])
    assert [float(value) for value in values] == pytest.approx(
        [found["effects"][place][1] for place in order], rel=2e-3, abs=1e-6
    )
    cells = page.locator("#effects-grid button")
    assert cells.count() == 20 and "divergence" in cells.first.get_attribute("aria-label")
    # With a key, to the map of a relation; the address leads back to the effects.
    page.wait_for_function("() => location.hash.includes('ablated=1')")  # the address follows what is shown
    address = page.url
    page.focus("#effects-grid [aria-label^='blocks.1 relation 3']")
    page.keyboard.press("Enter")
    visitor.settle()
    assert page.inner_text("#main-map figcaption") == "blocks.1 · relation 3"
    again = visit().open(address)
    again.wait_for_function(DONE)
    assert again.locator("#effects-table tbody tr").all_text_contents() == rows
    assert visitor.inside(server.address.partition("?")[0]) and not visitor.complaints


@pytest.mark.slow
@pytest.mark.quick
def test_effects_on_an_image_as_a_file(visit, serve, tmp_path):
    """Also by the change of the loss, and in a file without a server."""
    page = visit().open(serve(vision()).address + "#page=effects&measure=loss&draws=1&ablated=1")
    page.wait_for_function(DONE)
    assert page.locator("#message").is_hidden(), page.inner_text("#message")
    rows = page.locator("#effects-table tbody td").all_text_contents()
    assert "The loss is of the class that the model itself names" in page.inner_text("#effects-note")
    assert page.input_value("#measure") == "loss" and rows[0][0] in "+-"
    other = visit()
    page = other.open(saved(page, "html", tmp_path / "effects.html").as_uri())
    page.wait_for_function(DONE)
    assert page.locator("#effects-table tbody td").all_text_contents() == rows
    assert page.locator("#effects-tools").is_hidden() and not other.complaints
