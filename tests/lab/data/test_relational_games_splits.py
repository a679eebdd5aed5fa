"""``make_splits``: no overlap, comparable sizes, balance, and an end to what distinct images can supply."""

from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dat.data.relational_games import EXTRA_TASKS, TASKS, asked_patterns, make_splits, num_classes, supported_objects
from dat.data.relational_games.splits import split_mask
from dat.data.relational_games.tasks import place
from dual_attention._base.hashing import counter_words, keys_of, uniform_of
from tests.support.refusals import refused

pytestmark = pytest.mark.sweep(4)

ALL_TASKS = TASKS + EXTRA_TASKS
SMALL: dict[str, Any] = {"n_val": 60, "n_test": 120, "n_heldout": 40}


def images_of(games) -> list[bytes]:
    return [image.numpy().tobytes() for image in games.images]


def equal(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("task", ALL_TASKS)
def test_names_sizes_and_balance(task):
    splits = make_splits(task, 80, **SMALL, seed=0)
    heldout = [name for name in ("hexominoes", "stripes") if name in supported_objects(task)]
    assert list(splits) == ["train", "val", "test", *heldout]
    assert [len(games.labels) for games in splits.values()] == [80, 60, 120, *[40] * len(heldout)]
    for games in splits.values():
        per_class = torch.bincount(games.labels, minlength=num_classes(task))
        assert per_class.max() == per_class.min()
        for label in range(num_classes(task)):
            questions = torch.bincount(games.asked[games.labels == label], minlength=max(1, len(asked_patterns(task))))
            assert questions.max() - questions.min() <= 1


@pytest.mark.parametrize("task", ["same", "row_patterns"])
def test_no_image_is_in_two_splits_or_twice_in_one(task):
    """The two tasks with the fewest images, in the published sizes: here independent draws would overlap heavily."""
    splits = make_splits(task, 4000, n_heldout=0, seed=1)
    train, val, test = (set(images_of(splits[name])) for name in ("train", "val", "test"))
    assert not train & val and not train & test and not val & test
    for games in splits.values():
        examples = list(zip(images_of(games), games.asked.tolist(), strict=True))
        assert len(set(examples)) == len(examples)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_smaller_train_is_a_prefix_and_no_split_depends_on_the_others(task):
    small = make_splits(task, 90, n_val=50, n_test=70, n_heldout=0, seed=2)
    large = make_splits(task, 1500, n_val=50, n_test=70, n_heldout=0, seed=2)
    other = make_splits(task, 90, n_val=10, n_test=20, n_heldout=0, seed=2)
    assert equal(small["train"], [part[:90] for part in large["train"]])
    assert equal(small["val"], large["val"]) and equal(small["test"], large["test"])
    assert equal(other["train"], small["train"])
    assert equal(other["test"], [part[:20] for part in small["test"]])


def test_every_prefix_is_balanced_and_in_random_order():
    labels = make_splits("same", 2000, n_val=0, n_test=0, n_heldout=0, seed=0)["train"].labels
    excess = (2 * labels - 1).cumsum(0)
    assert excess.abs().max() == 1
    assert labels[::2].float().mean() == pytest.approx(0.5, abs=0.06)


def test_seed_decides():
    first, again, other = (make_splits("between", 50, **SMALL, seed=seed) for seed in (3, 3, 4))
    for name, games in first.items():
        assert equal(games, again[name])
        assert not torch.equal(games.images, other[name].images)


def test_splits_and_heldout_sets_differ_from_one_another():
    splits = make_splits("match_pattern", 64, n_val=64, n_test=64, n_heldout=64, seed=0)
    labels = [games.labels.tolist() for games in splits.values()]
    assert len({tuple(one) for one in labels}) == len(labels)


def test_all_images_of_a_split_can_be_had_and_not_one_more():
    """All 33,300 positives of ``same`` are enumerated: 925 objects in 36 pairs of cells."""
    one = torch.arange(1, 926)[:, None].expand(-1, 2)
    scenes = torch.cat([place(torch.tensor([pair] * 925), one - 1) for pair in combinations(range(9), 2)])
    there_are = int(split_mask(keys_of(scenes), "train", 0).sum())
    assert there_are == pytest.approx(0.35 * 33_300, rel=0.03)
    train = make_splits("same", 2 * there_are, n_val=0, n_test=0, n_heldout=0, seed=0)["train"]
    positives = [image for image, label in zip(images_of(train), train.labels.tolist(), strict=True) if label]
    assert len(positives) == len(set(positives)) == there_are
    with pytest.raises(ValueError, match=f"about {there_are} distinct images .*what belongs to the train split"):
        make_splits("same", 2 * there_are + 2, n_val=0, n_test=0, n_heldout=0, seed=0)


def test_seed_decides_which_split_an_image_belongs_to():
    first, second = (make_splits("same", 2000, n_val=0, n_test=2000, n_heldout=0, seed=seed) for seed in (0, 1))
    assert set(images_of(first["train"])) & set(images_of(second["test"]))


def test_prefix_of_a_much_larger_train_split():
    small, large = (make_splits("occurs", n, n_val=0, n_test=0, n_heldout=0, seed=0)["train"] for n in (100, 12_000))
    assert equal(small, [part[:100] for part in large])


test_bad_arguments = refused(
    ({"task": "sane"}, "task: expected one of .*, got 'sane'"),
    ({"n_train": -1}, "n_train: expected at least 0, got -1"),
    ({"n_val": 1.5}, TypeError, "n_val: expected an integer, got 1.5"),
    ({"n_test": -2}, "n_test: expected at least 0, got -2"),
    ({"n_heldout": -2}, "n_heldout: expected at least 0, got -2"),
    ({"seed": "1"}, TypeError, "seed: expected an integer, got '1'"),
    ({"independent_share": -0.1}, "independent_share: expected a number between 0 and 1, got -0.1"),
    ({"n_train": 30_000, "n_heldout": 0},
     r"n_train: expected at most about \d+ distinct images of task 'same', class 'same'.*got 15000"),
    ({"task": "row_patterns", "n_train": 20_000, "n_heldout": 0}, "asked pattern AAA"),
    by=lambda given: make_splits(**({"task": "same", "n_train": 4, "n_val": 2, "n_test": 2, "seed": 0} | given)),
)  # fmt: skip


def test_hash_is_that_of_splitmix64():
    """First outputs of the public reference implementation for seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [word % 2**64 for word in counter_words(4, 1234567).tolist()] == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), min_size=1, max_size=20))
def test_keys_agree_exactly_when_rows_do(rows):
    keys = keys_of(torch.tensor(rows)).tolist()
    for i, row in enumerate(rows):
        for j in range(i):
            assert (keys[i] == keys[j]) == (row == rows[j])


def test_partition_is_uniform():
    position = uniform_of(torch.arange(50_000), seed=3)
    assert position.min() >= 0 and position.max() < 1
    assert torch.histc(position, 10, 0, 1).sub(5000).abs().max() < 300
