"""The contact sheet is an image file that shows what was asked for."""

import sys
from pathlib import Path

import pytest

from dat.data.relational_games import EXTRA_TASKS, contact_sheet
from dual_attention._base import files
from tests.support.refusals import refusals

image = pytest.importorskip("matplotlib.image")


@pytest.mark.slow
def test_sheet_of_the_paper_tasks(tmp_path):
    path = contact_sheet(tmp_path / "sheet.png", per_class=2)
    assert path == tmp_path / "sheet.png"
    pixels = image.imread(path)
    height, width = pixels.shape[:2]
    assert 700 < width < 3000 and 700 < height < 3000
    assert (pixels[..., :3].max(2) == 0).mean() > 0.1  # the black of the images
    assert (pixels[..., :3].min(2) == 1).mean() > 0.2  # the white of the page


def test_sheet_of_extra_tasks_and_one_object_set(tmp_path):
    sizes = []
    for number in (1, 3):
        path = contact_sheet(str(tmp_path / f"{number}.png"), tasks=EXTRA_TASKS[-number:], objects=("stripes",), seed=1)
        sizes.append(image.imread(path).shape)
    assert sizes[1][0] > sizes[0][0] and sizes[1][1] == sizes[0][1]


def test_same_seed_same_sheet(tmp_path):
    sheets = [image.imread(contact_sheet(tmp_path / "a.png", tasks=("same",), per_class=1, seed=s)) for s in (1, 1, 2)]
    assert (sheets[0] == sheets[1]).all()
    assert (sheets[0] != sheets[2]).any()


@refusals(
    ({"tasks": "same"}, TypeError, "tasks: expected a sequence of names, got the string 'same'"),
    ({"tasks": ()}, "tasks: expected at least one name, got an empty sequence"),
    ({"objects": ("stars",)}, "objects: expected one of .*, got 'stars'"),
    ({"per_class": 0}, "per_class: expected at least 1, got 0"),
    ({"seed": 0.5}, TypeError, "seed: expected an integer, got 0.5"),
    of="arguments",
)
def test_bad_arguments(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        contact_sheet(tmp_path / "sheet.png", **arguments)
    assert not (tmp_path / "sheet.png").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    opened = files.opened_without_links
    monkeypatch.setattr(files, "opened_without_links", lambda _, flags: opened("/dev/full", flags))
    with pytest.raises(OSError, match=r"No space left on device: '.*sheet\.png'"):
        contact_sheet(tmp_path / "sheet.png", tasks=("same",), per_class=1)
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "relational-attention\[train\]"'):
        contact_sheet(tmp_path / "sheet.png")
