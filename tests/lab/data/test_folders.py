"""Folders of labelled pictures: found, read, kept apart, and what is said of those that are not."""

from __future__ import annotations

import shutil

import pytest
import torch
from PIL import Image

from dat.data.images import find_pictures, folder_images, image_set, split_images
from dat.experiments.images.config import ImageSources
from dat.experiments.images.experiment import ImageClassification
from dat.experiments.images.grid import ImageGrid
from dat.sweeps.grid import cells
from tests.lab.cli.commands import dat


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


def test_test_pictures_that_the_folder_keeps_apart(folder):
    images, test = folder_images(str(split(folder)), 8)
    assert test is not None and (len(images.images), test.labels.tolist()) == (18, [0, 0])
    splits = split_images("folder", n_train=18, n_val=0, n_test=2, seed=0, folder=str(folder), size=8)
    assert {name: len(part.labels) for name, part in splits.items()} == {"train": 18, "test": 2}
    (folder / "test").rename(folder / "val")
    assert image_set("folder", str(folder)).test == 2


def test_transparent_is_white(tmp_path):
    for name, alpha in (("a", 0), ("b", 255)):
        (tmp_path / name).mkdir()
        Image.new("RGBA", (9, 9), (10, 20, 30, alpha)).save(tmp_path / name / "1.png")
    images, _ = folder_images(str(tmp_path), 4)
    assert images.images[0].eq(255).all() and images.images[1, :, 0, 0].tolist() == [10, 20, 30]


def test_no_folder():
    with pytest.raises(FileNotFoundError, match=r"data\.folder: no such folder: nowhere"):
        find_pictures("nowhere")


def one_class(folder):
    shutil.rmtree(folder / "dog")


def no_class(folder):
    one_class(folder)
    shutil.rmtree(folder / "cat")


def an_empty_class(folder):
    (folder / "bird").mkdir()


def no_picture(folder):
    (folder / "cat" / "bad.png").write_bytes(b"not a picture")


def damaged(folder):
    path = folder / "cat" / "0.png"
    path.write_bytes(path.read_bytes()[:200])


def twice(folder):
    shutil.copy(folder / "cat" / "0.png", folder / "dog" / "0.png")


def leaking(folder):
    split(folder)
    shutil.copy(folder / "train" / "cat" / "0.png", folder / "test" / "cat" / "again.png")


def an_unknown_class(folder):
    split(folder)
    picture(folder / "test" / "owl" / "1.png", 7)
    picture(folder / "test" / "cat" / "2.png", 8)


def two_to_test_on(folder):
    split(folder)
    shutil.copytree(folder / "test", folder / "val")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (one_class, r"two classes or more in .*pets, got only cat"),
        (no_class, r"two classes or more in .*pets, got none"),
        (an_empty_class, r"expected pictures \(.*\.png.*\) in .*bird, found none"),
        (no_picture, r"cat.bad\.png: image: expected an image .*got a file that is none"),
        (damaged, r"cat.0\.png: image: the file is damaged"),
        (twice, r"cat.0\.png and .*dog.0\.png are the same picture at 8 x 8 pixels"),
        (leaking, r"train.cat.0\.png and .*test.cat.again\.png are the same picture"),
        (an_unknown_class, r"test has the classes owl, which train has not"),
        (two_to_test_on, r"expected train and test, or train and val, in .*pets, got all three"),
    ],
)
def test_what_is_refused_by_name(folder, spoil, message):
    spoil(folder)
    with pytest.raises(ValueError, match=rf"data\.folder: .*{message}"):
        folder_images(str(folder), 8)


def test_a_run_from_the_command_line(folder, tmp_path, capsys):
    words = "--data.dataset folder --data.image_size 8 --data.n_val 4 --loop.epochs 1 --machine.threads 1"
    model = "--model.n_layers 1 --model.d_model 16 --model.dff 16 --model.rel_proj_dim 4"
    where = ("--data.folder", str(folder), "--output.folder", str(tmp_path / "runs"), "--output.name", "pets")
    dat("train", "images", *words.split(), *model.split(), *where)
    printed = capsys.readouterr().out
    assert "pictures: 2 classes, 12 to train on, 4 to validate on, 4 to test on; left out: 1 file" in printed
    dat("evaluate", str(tmp_path / "runs" / "pets"))
    assert "test" in capsys.readouterr().out


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
        ("--data.dataset folder --data.folder x --data.from_hub true", "data.folder: expected null with data.from_hub"),
        ("--data.dataset folder --data.folder x --data.image_size 9", "model.patch_size: expected sides that divide"),
    ],
)
def test_options_that_do_not_go_together(words, message, capsys):
    assert dat("train", "images", *words.split()) == 2
    assert message in capsys.readouterr().err
