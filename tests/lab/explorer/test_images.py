"""Images of any kind of file become what the model reads, or get a message."""

import io
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dat.checkpoints import Checkpoint
from dat.data.images import IMAGE_SETS
from dat.data.images.pictures import decoded
from dat.data.relational_games import EXTRA_TASKS, TASKS, class_names
from dat.experiments.images.config import ImageConfig
from dat.explorer import images, opening
from dat.explorer.images import GAMES, ImageSession, normalisation_of
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import as_array, vision
from tests.lab.explorer.test_server import ask

Image = pytest.importorskip("PIL.Image")


def file_of(picture, kind="PNG", **options):
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def pixels_of(found):
    return torch.from_numpy(as_array(found["image"]["pixels"]).copy())


def huge_png(width, height):
    """The head of a PNG, which promises so many pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
def session():
    return ImageSession(vision(), "a model")


def test_samples_are_the_projects_own(session):
    assert session.default == "game same" and len(session.samples) == len(GAMES)
    seen = {bytes(pixels_of(session.packed(name)).numpy()) for name in session.samples}
    assert len(seen) == len(GAMES) and all(any(pixels) for pixels in seen)


def test_a_run_opens_on_its_own_task(monkeypatch):
    run = Path(__file__).parents[1] / "old_runs" / "relational-games"
    checkpoint = opening.opened(str(run))
    for task in (*TASKS, *EXTRA_TASKS):
        found = replace(checkpoint, config=replace(checkpoint.config, task=task))
        monkeypatch.setattr(opening, "opened", lambda name, found=found: found)
        session = opening.open_session(str(run))
        assert session.default == f"game {task}" and session.default in session.samples
        image = session.packed(session.default)["image"]  # with the right answer, and classes by their names
        names = class_names(task)
        own = [name for name in session.samples if name.startswith(session.default)]
        assert own == [session.default, *(f"{session.default} {number}" for number in range(1, 9))]
        answers = [session.packed(name)["image"]["about"].partition("“")[2] for name in own[1:]]
        assert {f"{name}”" for name in names} == {*answers}
        assert image["about"].removeprefix(f"sample: game {task}, whose answer is “").removesuffix("”") in names
        assert {name for name, _ in image["classes"]} <= set(names)


@pytest.mark.parametrize("name", ImageSession(vision(), "").samples)
def test_at_first_an_object_is_chosen(session, name):
    _, shown = session.record(session.pixels(name)[0])
    rows, columns = shown.grid
    row, column = divmod(shown.chosen - shown.first, columns)
    height, width = (side // count for side, count in zip(shown.pixels.shape[1:], shown.grid, strict=True))
    patch = shown.pixels[:, row * height : (row + 1) * height, column * width : (column + 1) * width]
    assert patch.float().std() > 20 and 0 <= row < rows


def test_maps_are_those_of_the_model_on_the_image(session):
    """And pixels reach it normalised."""
    normalised = ImageSession(session.model, "a model", mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    recording, shown = normalised.record(session.pixels("game occurs")[0])
    x = (shown.pixels / 255.0 - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[
        :, None, None
    ]
    with torch.no_grad(), capture(session.model) as maps:
        scores = session.model(x[None])
    assert shown.classes[0][0] == str(int(scores.argmax()))
    assert shown.classes[0][1] == pytest.approx(float(scores.softmax(-1).max()), rel=1e-5)
    heads = recording.heads[-1]
    n = heads.weights.receivers
    assert n == 10 and len(recording.sequences["patches"]) == 10 and recording.sequences["patches"][4] == "row 2 col 1"
    expected = maps["blocks.1"].relational.relations[0].permute(2, 0, 1)
    torch.testing.assert_close(heads.relations.values(0, n, heads.visible), expected, rtol=1e-4, atol=1e-5)
    other, _ = session.record(shown.pixels)
    assert not torch.allclose(other.heads[-1].relations.values(0, n, heads.visible), expected, atol=1e-2)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_files(session, kind):
    """An image of the model's own size, without loss, is taken as it is."""
    before = session.pixels("game between")[0].permute(1, 2, 0)
    options = {"lossless": True} if kind == "WEBP" else {}
    found = session.packed_file(file_of(Image.fromarray(before.numpy()), kind, **options))
    assert torch.equal(pixels_of(found), before) and found["image"]["about"].startswith("your image.") is False
    assert found["image"]["about"] == "your image"
    assert found["source"] is None  # so that the page knows that its address does not hold it


def test_what_is_done_to_other_images():
    wide = Image.new("RGB", (300, 100), (255, 0, 0))
    wide.paste((0, 0, 255), (100, 0, 200, 100))  # the middle, which is what is left
    found, before = decoded(file_of(wide), 36, 36, grey=False)
    assert before == (300, 100) and found.shape == (3, 36, 36)
    assert found[:, 18, 18].tolist() == [0, 0, 255] and found[0].float().mean() < 20
    clear = Image.new("RGBA", (36, 36), (0, 0, 0, 0))
    assert decoded(file_of(clear), 36, 36, grey=True)[0].eq(255).all()
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    picture = Image.new("L", (8, 8))
    picture.paste(255, (0, 0, 8, 4))
    turned = decoded(file_of(picture, exif=exif), 8, 8, grey=True)[0]
    assert turned[0, :4].eq(0).all() and turned[0, 4:].eq(255).all()


def test_a_model_of_one_channel_and_digits():
    torch.manual_seed(0)
    from tests.library.model_analysis.models import vision as grey

    model = grey().float()
    found = ImageSession(model, "a model").packed("game same")
    assert found["image"]["pixels"]["shape"] == [8, 8, 1]
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    digits = ImageSession(model, "a model", digits="digits")
    assert digits.samples[0] == "digit 0" and pixels_of(digits.packed("digit 0")).max() > 200


def test_a_transformer(session):
    baseline = ImageSession(vision(dual=False), "a baseline")
    found = baseline.packed("game same")
    assert [heads["kind"] for heads in found["heads"]] == ["sensory"] and found["reads"] == "image"


BAD = [
    (b"", 422, "got an empty one"),
    (b"#!/bin/sh\n", 422, "expected an image (PNG, JPEG, "),
    (b"%PDF-1.7 \n", 422, "got a file that is none"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "got a file that is none"),
    (file_of(Image.new("RGB", (50, 50)))[:-40], 422, "the file is damaged"),
    (b"P6\n31(24 255\n" + bytes(99), 422, "the file is damaged (invalid literal for int"),
    (huge_png(30_000, 30_000), 422, "expected at most 64,000,000 pixels, got many more"),
    (huge_png(8_001, 8_001), 422, "expected at most 64,000,000 pixels, got 8,001 × 8,001"),
    (huge_png(2_000_000_000, 2_000_000_000), 422, "image: "),
]


@pytest.mark.parametrize(
    ("data", "status", "message"),
    BAD,
    ids=["empty", "script", "PDF", "SVG", "cut", "head", "enormous", "large", "impossible"],
)
def test_bad_uploads_get_a_message_and_the_server_lives_on(serve, data, status, message):
    server = serve(vision())
    found, body, _ = ask(server, data, path="/image")
    assert found == status and message in json.loads(body)["error"]
    assert ask(server, file_of(Image.new("RGB", (50, 50))), path="/image")[0] == 200


def test_enormous_files_and_other_requests(serve, monkeypatch):
    server = serve(vision())
    largest = server.answers["/image"].largest
    assert largest == images.IMAGE_BYTES
    status, body, _ = ask(server, b"x" * (largest + 1), path="/image")
    assert status == 413 and "image: expected at most 33,554,432 bytes, got 33,554,433" in json.loads(body)["error"]
    for name in ("/etc/passwd", "game nothing", ""):
        status, body, _ = ask(server, json.dumps({"sample": name}), path="/sample")
        assert status == 422 and "sample: expected one of game same" in json.loads(body)["error"]
    assert ask(server, json.dumps({"text": "x"}), path="/record")[0] == 404
    assert ask(server, json.dumps({"sample": "game between"}), path="/sample")[0] == 200


def test_a_file_of_this_machine(session, tmp_path):
    (tmp_path / "image.png").write_bytes(file_of(Image.new("RGB", (72, 36), "red")))
    found = session.packed(str(tmp_path / "image.png"))
    assert found["image"]["about"] == "your image of 72 × 36 pixels, cut and resized"
    with pytest.raises(FileNotFoundError, match=r"image: expected a file or one of game same, .*got 'none.png'"):
        session.check("none.png")


def test_pixels_are_normalised_as_in_training():
    """Runs of images say which set they were trained on; of other models nothing is known."""
    config = ImageConfig()
    found = Checkpoint("digits", "images run", config, vision(), (), torch.float32)
    about = IMAGE_SETS[config.data.dataset]
    assert normalisation_of(found) == (about.mean, about.std, config.data.dataset)
    other = Checkpoint("hub", "transformers format", config, vision(), (), torch.float32)
    assert normalisation_of(other) == ((0.0,), (1.0,), None)
