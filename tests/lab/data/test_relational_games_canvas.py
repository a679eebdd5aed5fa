"""Scenes without a grid: the objects of the grid, whole, apart, in order, and otherwise anywhere."""

from itertools import combinations

import pytest
import torch

from dat.data.relational_games import EXTRA_TASKS, TASKS, generate_images, make_splits, num_classes
from dat.data.relational_games.canvas import FREE_TASKS, SMALLEST_CANVAS, STEP, positions_on_canvas
from dat.data.relational_games.objects import object_set
from dat.data.relational_games.tasks import ObjectSource, get_task
from tests.support.refusals import refusals


def scenes_of(task: str, n: int = 2000) -> torch.Tensor:
    labels = torch.arange(n) % num_classes(task)
    source = ObjectSource(object_set("pentominoes"), torch.Generator().manual_seed(0), 0.5)
    return get_task(task).rule(labels, torch.zeros_like(labels), source)


@pytest.mark.parametrize("task", FREE_TASKS)
@pytest.mark.parametrize("canvas", [SMALLEST_CANVAS, 45])
def test_objects_are_inside_apart_and_in_the_order_of_their_cells(task, canvas):
    scenes = scenes_of(task)
    row, column = positions_on_canvas(scenes, canvas, seed=3)
    for a, b in combinations(range(9), 2):
        both = (scenes[:, a] > 0) & (scenes[:, b] > 0)
        below, right = (row[:, b] - row[:, a])[both], (column[:, b] - column[:, a])[both]
        assert ((below if a // 3 < b // 3 else right) >= STEP).all()
    for of in (row[scenes > 0], column[scenes > 0]):
        assert of.min() == 0 and of.max() == canvas + 1 - STEP


def test_two_objects_are_anywhere():
    """Two objects in one row of cells lie at any height, in either order."""
    scenes = torch.tensor([[1, 0, 2, 0, 0, 0, 0, 0, 0]]).expand(4000, -1)
    row, _ = positions_on_canvas(scenes, 45, seed=0)
    counts = torch.bincount(row[:, 0], minlength=36)
    assert counts.min() > 60 and counts.max() < 170  # 111 each, 10.4 standard deviation
    assert abs((row[:, 0] < row[:, 2]).float().mean() - 0.486) < 0.03


@pytest.mark.parametrize("task", FREE_TASKS)
def test_a_canvas_has_the_objects_of_the_grid(task):
    sizes = {"n_val": 40, "n_test": 40, "n_heldout": 40, "seed": 5}
    grid, free = make_splits(task, 60, **sizes), make_splits(task, 60, **sizes, canvas=40)
    assert list(grid) == list(free)
    for name in grid:
        assert free[name].images.shape[1:] == (3, 40, 40)
        assert torch.equal(grid[name].labels, free[name].labels)
        for of in (grid[name], free[name]):
            assert of.images.dtype == torch.uint8
        bright = [of[name].images.flatten(2).long().sum(2) for of in (grid, free)]
        assert torch.equal(*bright)  # no object covers another
        assert len(free[name].images.unique(dim=0)) > 35


def test_a_smaller_split_is_a_prefix_and_a_seed_settles_all():
    small, large, other = (
        make_splits("occurs", n, n_val=1, n_test=1, n_heldout=5, seed=seed, canvas=33)
        for n, seed in ((20, 0), (50, 0), (20, 1))
    )
    assert torch.equal(small["train"].images, large["train"].images[:20])
    assert torch.equal(small["stripes"].images, large["stripes"].images)
    assert not torch.equal(small["train"].images, other["train"].images)


@refusals(
    ("same", SMALLEST_CANVAS - 1, r"canvas: expected 29 \(three .*\) to 256 pixels, got 28"),
    ("same", 10**6, r"canvas: expected 29 \("),
    ("same", 40.0, TypeError, "canvas: expected an integer, got 40.0"),
    *(
        (task, 40, "canvas: expected null, or one of the tasks same, .*, got 40 with")
        for task in (*TASKS, *EXTRA_TASKS)
        if task not in FREE_TASKS
    ),
    of="task, canvas",
)
def test_bad_input(task, canvas, error, message):
    with pytest.raises(error, match=message):
        generate_images(task, 4, seed=0, canvas=canvas)
    with pytest.raises(error, match=message):
        make_splits(task, 4, n_val=1, n_test=1, n_heldout=1, seed=0, canvas=canvas)
