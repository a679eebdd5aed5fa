"""Folders of labelled pictures: found, read, kept apart, and what is said of those that are not."""

import io
import shutil

import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoImageProcessor

from dat.data.images import find_pictures, folder_images, image_set, split_images
from dat.data.images.folders import MEAN, STD
from dat.data.images.pictures import decoded
from dat.experiments.images.config import ImageConfig, ImageDataConfig, ImageModelConfig, ImageSources
from dat.experiments.images.experiment import ImageClassification
from dat.experiments.images.grid import ImageGrid
from dat.explorer.images import ImageSession
from dat.explorer.opening import open_session
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.workers import run_cell
from dat.training.configs import LoopConfig
from tests.lab.cli.commands import dat, fails, refusal
from tests.support.refusals import refusals


def picture(path, seed, mode="RGB", size=(40, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = len(mode)
    numbers = torch.randint(256, (size[1], size[0], channels), generator=torch.Generator().manual_seed(seed))
    Image.fromarray(numbers.to(torch.uint8).numpy(), mode).save(path)


@pytest.fixture
def folder(tmp_path):
    """Eight pictures of cats, and twelve of dogs in deeper folders; with a note."""
    for i in range(8):
        picture(tmp_path / "pets" / "cat" / f"{i}.png", i, mode="RGBA" if i % 2 else "RGB")
    for i in range(12):
        picture(tmp_path / "pets" / "dog" / "more" / f"{i}.JPG", 100 + i)
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("soft")
    return tmp_path / "pets"


def split(folder):
    """The same, kept apart by the folder itself."""
    for name, places in (("train", range(6)), ("test", range(6, 8))):
        for i in places:
            (folder / name / "cat").mkdir(parents=True, exist_ok=True)
            shutil.move(folder / "cat" / f"{i}.png", folder / name / "cat")
    shutil.rmtree(folder / "cat")
    shutil.move(folder / "dog", folder / "train" / "dog")
    return folder


def test_a_folder_for_each_class(folder):
    images, test = folder_images(str(folder), 16)
    assert test is None and images.images.shape == (20, 3, 16, 16) and images.images.dtype == torch.uint8
    assert images.labels.tolist() == [0] * 8 + [1] * 12
    about = image_set("folder", str(folder), 16)
    assert (about.classes, about.train, about.test, about.shape) == (2, 20, 0, (3, 16, 16))
    assert find_pictures(str(folder)).left_out == 1
    splits = split_images("folder", n_train=10, n_val=4, n_test=6, seed=1, folder=str(folder), size=16)
    rows = torch.cat([part.images.flatten(1) for part in splits.values()])
    assert len(rows.unique(dim=0)) == 20


def test_what_systems_hide_is_no_picture(folder):
    """Files beside those of a Mac, which have their suffix, thumbnails, and folders that an archive brings."""
    for name in ("cat/._0.png", "dog/more/.thumbnails/0.JPG", "__MACOSX/cat/0.png", "cat/@eaDir/0.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\0\5\x16\7")
    found = find_pictures(str(folder))
    assert found.classes == ("cat", "dog") and [len(files) for files in found.train.values()] == [8, 12]
    assert len(folder_images(str(folder), 8)[0].images) == 20 and found.left_out == 5


def test_every_other_folder_is_read(folder, tmp_path):
    (folder / "dog" / "more").rename(tmp_path / "elsewhere")
    (folder / "dog" / "more").symlink_to(tmp_path / "elsewhere")
    (folder / "cat").rename(folder / "__unknown__")
    found = find_pictures(str(folder)).train
    assert {name: len(files) for name, files in found.items()} == {"__unknown__": 8, "dog": 12}


def test_a_run_is_called_by_its_folder(folder):
    """So that two folders are two runs; what a shell or a file system dislikes is left out."""
    model = ImageModelConfig(patch_size=(4, 4))
    shutil.copytree(folder, other := folder.with_name("my pets: 2"))
    data = [ImageDataConfig(dataset="folder", folder=str(place), n_test=4) for place in (folder, other)]
    names = [ImageConfig(data=one, model=model).run_name for one in data]
    assert [name.partition("-ViDAT")[0] for name in names] == ["folder-pets-none", "folder-my-pets-2-none"]


def test_test_pictures_that_the_folder_keeps_apart(folder):
    images, test = folder_images(str(split(folder)), 8)
    assert test is not None and (len(images.images), test.labels.tolist()) == (18, [0, 0])
    splits = split_images("folder", n_train=18, n_val=0, n_test=2, seed=0, folder=str(folder), size=8)
    assert {name: len(part.labels) for name, part in splits.items()} == {"train": 18, "test": 2}
    (folder / "test").rename(folder / "valid")
    assert image_set("folder", str(folder)).test == 2
    (folder / "valid").rename(folder / "holdout")
    found = find_pictures(str(folder))
    assert (found.test, found.left_out) == (None, 2)


def test_links_in_a_circle_come_to_an_end(folder):
    whole = find_pictures(str(folder))
    for name in ("cat", "dog"):
        for number in range(9):  # each of which leads to all others
            (folder / name / f"again{number}").symlink_to(folder / name)
    assert find_pictures(str(folder)) == whole


def test_transparent_is_white(tmp_path):
    for name, alpha in (("a", 0), ("b", 255)):
        (tmp_path / name).mkdir()
        Image.new("RGBA", (9, 9), (10, 20, 30, alpha)).save(tmp_path / name / "1.png")
    images, _ = folder_images(str(tmp_path), 4)
    assert images.images[0].eq(255).all() and images.images[1, :, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_to_eight(form):
    wide = (torch.arange(64).view(8, 8) * 1040).numpy().astype("uint16")
    file = io.BytesIO()
    Image.fromarray(wide).save(file, form)
    pixels, _ = decoded(file.getvalue(), 8, 8, grey=True)
    assert (pixels[0].double() - torch.from_numpy(wide / 257.0)).abs().max() <= 1


def test_pictures_of_more_bits_are_refused():
    file = io.BytesIO()
    Image.fromarray(torch.rand(8, 8).numpy()).save(file, "TIFF")
    with pytest.raises(ValueError, match="image: expected 8 or 16 bits for each channel, got an image of mode F"):
        decoded(file.getvalue(), 8, 8, grey=False)


def test_no_folder():
    with pytest.raises(FileNotFoundError, match=r"data\.folder: no such folder: nowhere"):
        find_pictures("nowhere")


def leaking(folder):
    split(folder)
    shutil.copy(folder / "train" / "cat" / "0.png", folder / "test" / "cat" / "again.png")


def an_unknown_class(folder):
    split(folder)
    picture(folder / "test" / "owl" / "1.png", 7)
    picture(folder / "test" / "cat" / "2.png", 8)


@refusals(
    (lambda folder: shutil.rmtree(folder / "dog"), r"two classes or more in .*pets, got only cat"),
    (lambda folder: [shutil.rmtree(folder / name) for name in ("cat", "dog")],
     r"two classes or more in .*pets, got none"),
    (lambda folder: (folder / "bird").mkdir(), r"expected pictures \(.*\.png.*\) in .*bird, found none"),
    (lambda folder: (folder / "cat" / "bad.png").write_bytes(b"not a picture"),
     r"cat.bad\.png: image: expected an image .*got a file that is none"),
    (lambda folder: (folder / "cat" / "0.png").write_bytes((folder / "cat" / "0.png").read_bytes()[:200]),
     r"cat.0\.png: image: the file is damaged"),
    (lambda folder: shutil.copy(folder / "cat" / "0.png", folder / "dog" / "0.png"),
     r"cat.0\.png and .*dog.0\.png are the same picture at 8 x 8 pixels"),
    (leaking, r"train.cat.0\.png and .*test.cat.again\.png are the same picture"),
    (an_unknown_class, r"test has the classes owl, which train has not"),
    (lambda folder: (split(folder), shutil.copytree(folder / "test", folder / "val")),
     r"expected train and test, or train and val, in .*pets, got all three"),
    of="spoil",
)  # fmt: skip
def test_what_is_refused_by_name(folder, spoil, error, message):
    spoil(folder)
    with pytest.raises(error, match=rf"data\.folder: .*{message}"):
        folder_images(str(folder), 8)


def test_a_run_from_the_command_line(folder, tmp_path, capsys):
    words = "--data.dataset folder --data.image_size 8 --data.n_val 4 --loop.epochs 1 --machine.threads 1"
    model = "--model.n_layers 1 --model.d_model 16 --model.dff 16 --model.rel_proj_dim 4"
    where = ("--data.folder", str(folder), "--output.folder", str(tmp_path / "runs"), "--output.name", "pets")
    dat("train", "images", *words.split(), *model.split(), *where)
    printed = capsys.readouterr().out
    assert "pictures: 2 classes, 12 to train on, 4 to validate on, 4 to test on; left out: 1 other file" in printed
    dat("evaluate", str(tmp_path / "runs" / "pets"))
    assert "test" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_knows_its_pictures(folder, tmp_path, monkeypatch, capsys):
    """Others are refused, since it would be tested on what it was trained on; without them it opens all the same."""
    monkeypatch.chdir(tmp_path)
    words = "--data.dataset folder --data.folder pets --data.image_size 8 --data.n_val 4 --loop.epochs 1"
    model = "--model.n_layers 1 --model.d_model 16 --model.dff 16 --model.rel_proj_dim 4"
    assert dat("train", "images", *words.split(), *model.split(), "--output.name=run", "--machine.threads=1") == 0
    assert dat("evaluate", "runs/run") == 0
    picture(folder / "cat" / "new.png", 77)
    assert "the pictures are not those that the run began with" in fails(capsys, "evaluate", "runs/run")
    shutil.rmtree(folder)
    assert dat("info", "runs/run") == 0 and dat("export", "runs/run", "--out=exported") == 0
    session = open_session("runs/run")
    assert isinstance(session, ImageSession)
    assert {name for name, _ in session.packed(session.default)["image"]["classes"]} == {"cat", "dog"}
    assert AutoConfig.from_pretrained("exported").id2label == {0: "cat", 1: "dog"}
    how = AutoImageProcessor.from_pretrained("exported", backend="pil")
    across, down = torch.arange(50)[None].expand(30, 50) * 5, torch.arange(30)[:, None].expand(30, 50) * 8
    wide, file = Image.fromarray(torch.stack([across, down, 250 - across], -1).to(torch.uint8).numpy()), io.BytesIO()
    wide.save(file, "PNG")
    ours = decoded(file.getvalue(), 8, 8, grey=False)[0] / 255
    ours = (ours - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    theirs = torch.from_numpy(how(wide)["pixel_values"][0])
    torch.testing.assert_close(theirs, ours, atol=0.25, rtol=0)  # cut half a pixel apart; squashed it would be 0.6


def test_a_grid_is_not_continued_with_other_pictures(folder, tmp_path):
    grid = ImageGrid(
        out=str(tmp_path / "grid"),
        datasets=("folder",),
        sizes=(10,),
        data=ImageSources(folder=str(folder), n_val=4, n_test=4, image_size=8),
        loop=LoopConfig(epochs=1, batch_size=8, eval_every=0, checkpoint_every=0),
    )
    experiment, opened = ImageClassification(), GridFolder(ImageClassification(), grid.out)
    opened.open(grid)
    cell = cells(experiment, grid)[0]
    run_cell(experiment, grid.config(cell), opened.path_of(cell), cache=opened.path)
    opened.open(grid)
    picture(folder / "cat" / "new.png", 77)
    with pytest.raises(ValueError, match="pictures_digest"):
        opened.open(grid)


def test_a_grid_needs_its_folder_only_when_it_runs(folder):
    def grid(where, size=10):
        data = ImageSources(folder=str(where), n_val=4, n_test=4)
        return ImageGrid(datasets=("folder",), sizes=(size,), data=data, seeds=2)

    assert len(cells(ImageClassification(), grid("nowhere"))) == 4
    grid(folder, 12)
    with pytest.raises(ValueError, match=r"n_train: expected from 1 to 12, the images of folder .* got 13"):
        grid(folder, 13)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data.dataset folder", "data.folder: expected a folder with a folder of pictures for each class"),
        ("--data.dataset digits --data.image_size 8", "data.image_size: expected 32 with digits, got 8"),
        ("--data.dataset folder --data.folder x --data.image_size 9", "model.patch_size: expected sides that divide"),
    ],
)
def test_options_that_do_not_go_together(words, message, capsys):
    assert message in refusal(capsys, "train", "images", *words.split())


def test_a_grid_takes_a_folder_as_one_run_does(folder, capsys, tmp_path, monkeypatch):
    """All pictures that are not kept apart are trained on, unless sizes are given."""
    monkeypatch.chdir(tmp_path)
    words = ["--data.dataset=folder", "--data.folder=pets", "--data.image_size=8", "--data.n_val=4"]
    for command, line in (("reproduce", "datasets: [folder]"), ("train", "  dataset: folder")):
        with pytest.raises(SystemExit):
            dat(command, "images", *words, "--print_config")
        assert line in capsys.readouterr().out.splitlines()
    data = ImageSources(dataset="folder", folder=str(folder), n_val=4)
    assert [point["n_train"] for point in ImageGrid(data=data).points()] == [12, 12]
    assert [point["n_train"] for point in ImageGrid(data=data, sizes=(5,)).points()] == [5, 5]
    assert ImageGrid().sizes == (250, 1000)
