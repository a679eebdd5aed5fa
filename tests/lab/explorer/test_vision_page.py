"""The page of an image and its patches in a real browser."""

import pytest
import torch

from dat.explorer.example import EXAMPLES
from dat.explorer.view_state import View
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import rows_of, saved, vision
from tests.lab.explorer.test_baselines import session_of
from tests.lab.explorer.test_images import file_of
from tests.support.browser import pixels

Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.slow


def numbers(page):
    return rows_of(saved(page, "csv"))


def test_maps_from_a_patch(visit, serve):
    model = vision()
    server = serve(model)
    visitor = visit()
    page = visitor.open(f"{server.address}#page=vision")
    assert page.inner_text("#picture-about").startswith("sample: game same, whose answer is “")
    page.click("#tab-relations")
    assert page.locator("#links.apart bdi").count() == 10  # labels are words, and kept apart
    page.click("#tab-vision")
    # The patch in the middle is chosen at first; up, and to the left.
    page.focus("#picture")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    image = server.session.pixels("game same")[0]
    with torch.no_grad(), capture(model) as maps:
        model(image[None] / 255.0)
    table = numbers(page)
    assert {row["receiver"] for row in table} == {"row 1 col 1"} and len(table) == 6 * 9
    for layer in (0, 1):
        relations = maps[f"blocks.{layer}"].relational.relations[0]
        for relation in range(3):
            name = f"blocks.{layer} · relation {relation}"
            found = [float(row["value"]) for row in table if row["map"] == name]
            most = float(relations[..., relation].abs().max())
            assert found == pytest.approx(relations[1, 1:, relation].tolist(), abs=most / 255)
    best = max(
        (row for row in table if row["map"] == "blocks.0 · relation 0"),
        key=lambda row: abs(float(row["value"])),
    )
    assert page.locator("#vision-table tbody th").first.inner_text() == best["sender"]
    page.click(".patch-map >> nth=4")
    assert page.inner_text("#vision-table caption").startswith("blocks.1 · relation 1, of row 1 col 1")
    ends = [float(end) for end in page.inner_text("#vision-scale").split()[:2]]  # those of the chosen map
    others = [abs(float(row["value"])) for row in table if row["map"] == "blocks.1 · relation 1"][1:]
    assert (
        ends == pytest.approx([-max(others), max(others)], rel=1e-3) and page.locator("#vision-scale .bar").is_visible()
    )
    page.click("#class-token")
    assert "of class token" in page.inner_text("#vision-table caption")
    page.click("#picture", position={"x": 300, "y": 10})
    assert "of row 1 col 3" in page.inner_text("#vision-table caption")
    page.select_option("#vision-what", "attention")
    assert page.locator(".patch-map").count() == 8
    assert page.locator("#tab-interventions").is_hidden()
    assert visitor.inside(server.address.partition("?")[0])


@pytest.mark.slow
@pytest.mark.quick
def test_uploads(visit, serve, tmp_path):
    server = serve(vision())
    visitor = visit()
    page = visitor.open(f"{server.address}#page=vision")
    before = page.locator("#picture").screenshot()
    (tmp_path / "red.png").write_bytes(file_of(Image.new("RGB", (100, 100), (200, 10, 10))))
    page.set_input_files("#image-file", str(tmp_path / "red.png"))
    page.wait_for_function(
        "() => document.getElementById('picture-about').textContent.startsWith('your image of 100 × 100')"
    )
    visitor.settle()
    assert page.locator("#picture").screenshot() != before and "200,10,10" in pixels(visitor, "#picture")
    (tmp_path / "none.png").write_text("no image")
    page.set_input_files("#image-file", str(tmp_path / "none.png"))
    page.wait_for_function("() => document.getElementById('message').textContent.includes('got a file that is none')")
    assert all("422" in complaint for complaint in visitor.complaints)
    visitor.complaints.clear()
    page.select_option("#sample", "game between")
    page.wait_for_function(
        "() => document.getElementById('picture-about').textContent.startsWith('sample: game between')"
    )
    assert page.locator("#message").is_hidden()


def test_an_address_does_not_hold_an_image_from_a_file(visit, serve, tmp_path):
    page = visit().open(f"{serve(vision()).address}#page=vision")
    page.select_option("#sample", "game between")
    page.locator("#picture-about", has_text="game between").wait_for()
    (tmp_path / "red.png").write_bytes(file_of(Image.new("RGB", (100, 100), "red")))
    page.set_input_files("#image-file", str(tmp_path / "red.png"))
    page.locator("#picture-about", has_text="your image").wait_for()
    page.wait_for_function("() => location.hash.includes('own=1')")
    assert View.of(page.url).text == ""
    copied = visit().open(saved(page, "html", tmp_path / "page.html").as_uri())
    assert "your image" in copied.inner_text("#picture-about") and copied.locator("#message").is_hidden()
    page.reload()
    page.locator("#message", has_text="choose that file again").wait_for()


def test_an_image_in_a_file(visit, serve, tmp_path):
    page = visit().open(f"{serve(vision()).address}#page=vision&i=3&maps=attention")
    before = page.locator("#vision-table").inner_text()
    assert saved(page, "png").read_bytes().startswith(b"\x89PNG")
    drawing = saved(page, "svg").read_text(encoding="utf-8")
    assert drawing.count("crispEdges") == 8 * 9 and "data:image/png;base64," in drawing
    file, other = saved(page, "html", tmp_path / "page.html"), visit()
    page = other.open(file.as_uri())
    assert page.locator("#vision-table").inner_text() == before and page.locator("#ask-image").is_hidden()
    assert other.inside(file.as_uri())


def test_a_vision_transformer_shows_attention(visit, serve):
    page = visit().open(serve(vision(dual=False)).address)
    assert page.locator("#tab-relations").is_hidden()
    page.click("#tab-vision")
    assert page.locator(".patch-map").count() == 2 and page.locator("#vision-what").is_hidden()


def test_a_model_that_only_compares(visit, serve):
    server = serve(session=session_of("corelnet-softmax"), text="game same")
    visitor = visit()
    page = visitor.open(f"{server.address}#page=attention")
    assert page.locator("#tab-attention").is_hidden()
    page.click("#tab-relations")
    assert page.locator(".thumb").count() == 1 and page.locator("input[name=view]").count() == 1
    page.focus("#main-map")
    for key in "hvp":
        page.keyboard.press(key)
    page.click("#tab-vision")
    assert page.locator(".patch-map").count() == 1 and page.locator("#class-token").is_hidden()
    assert page.locator("#vision-what").is_hidden() and page.locator("#vision-head").is_hidden()
    page.click("#picture", position={"x": 10, "y": 10})
    assert {row["receiver"] for row in numbers(page)} == {"row 1 col 1"}
    assert visitor.inside(server.address.partition("?")[0])


def test_receivers_that_are_no_patches(visit, serve):
    """The two objects of each head of a PrediNet."""
    page = visit().open(f"{serve(session=session_of('predinet'), text='game same').address}#page=vision")
    assert page.locator(".patch-map").count() == 2 * 16
    before = page.locator(".patch-map canvas").first.screenshot()
    page.focus("#picture")
    page.keyboard.press("ArrowUp")
    assert page.locator(".patch-map canvas").first.screenshot() == before
    assert page.locator(".patch-map").nth(3).inner_text().startswith("head 1 second object")
    page.locator(".patch-map").nth(3).click()
    assert "head 1" in page.inner_text("#vision-table caption")
    assert len(numbers(page)) == 2 * 16 * 9


def test_one_scale_for_all_maps(visit, serve):
    """It ends at the largest value of all, also of the patch itself; a patch as dark as itself is equal."""
    example = EXAMPLES["games"]
    visitor = visit()
    page = visitor.open(f"{serve(session=example.open(), text=example.source).address}#{example.view}")

    def dark():
        """Dark patches of each map, by the share of its pixels."""
        maps = (pixels(visitor, f".patch-map:nth-child({number}) canvas") for number in range(1, 5))
        return [
            round(9 * sum(n for colour, n in found.items() if int(colour.split(",")[0]) < 30) / sum(found.values()))
            for found in maps
        ]

    assert dark() == [1, 1, 1, 2]
    page.click("#vision-shared")
    assert dark() == [2, 2, 2, 2]
    page.keyboard.press("o")
    assert dark() == [1, 1, 1, 2] and page.get_attribute("#vision-shared", "aria-pressed") == "true"
