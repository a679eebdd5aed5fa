"""``generate_images``: balance, determinism and what it refuses."""

import os
import subprocess
import sys
from hashlib import sha256

import pytest
import torch

from dat.data.relational_games import (
    EXTRA_TASKS,
    TASKS,
    asked_patterns,
    generate_images,
    generator_version,
    make_splits,
    num_classes,
)
from tests.support.refusals import refused

ALL_TASKS = TASKS + EXTRA_TASKS


@pytest.mark.parametrize("task", ALL_TASKS)
@pytest.mark.parametrize("n", [600, 7, 1, 0])
def test_classes_and_questions_are_balanced(task, n):
    games = generate_images(task, n, seed=0)
    assert games.images.shape == (n, 3, 36, 36) and games.images.dtype == torch.uint8
    assert games.labels.shape == games.asked.shape == (n,)
    assert games.labels.dtype == games.asked.dtype == torch.int64
    per_class = torch.bincount(games.labels, minlength=num_classes(task))
    assert per_class.max() - per_class.min() <= 1
    for label in range(num_classes(task)):
        questions = torch.bincount(games.asked[games.labels == label], minlength=max(1, len(asked_patterns(task))))
        assert len(questions) == max(1, len(asked_patterns(task)))
        assert questions.max() - questions.min() <= 1


def test_order_is_random():
    labels = generate_images("same", 2000, seed=0).labels
    changes = (labels[1:] != labels[:-1]).float().mean()
    assert changes == pytest.approx(0.5, abs=0.06)
    assert labels[:1000].float().mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_same_seed_same_images_and_other_seed_other_images(task):
    first, again, other = (generate_images(task, 64, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize(
    ("task", "images", "splits"),
    [
        ("same", "e4657920bcd2fe66", "e9df3cce14ea4123"),
        ("occurs", "1da4ad416864ffb8", "a38e87d2cfb39b5d"),
        ("xoccurs", "9e65f1be49267fb0", "b3392290fdddb7f4"),
        ("match_pattern", "f39ab4bdd7fd9192", "22ed08141015ae22"),
        ("column_patterns", "3b982df06e69eaf7", "5bff9857c84394cb"),
        ("row_patterns", "afa51dc324372c52", "9db9f5c2c7758c04"),
        ("left_of", "28dbd51ad68f4144", "eb02a9f5c32f1d3e"),
    ],
)
def test_images_of_generator_1_are_those_of_the_first_release(task, images, splits):
    """So that results of these tasks, committed ones too, can be joined by later ones."""
    assert generator_version(task) == 1
    assert digest(generate_images(task, 64, seed=7)) == images
    assert digest(*make_splits(task, 32, n_val=8, n_test=8, n_heldout=8, seed=3).values()) == splits


def digest(*parts):
    return sha256(b"".join(p.images.numpy().tobytes() + p.labels.numpy().tobytes() for p in parts)).hexdigest()[:16]


def test_seeds_that_share_their_low_bits_differ():
    seeds = (0, 2**32, 2**64, -1)
    drawn = [generate_images("same", 32, seed=seed).images for seed in seeds]
    for i in range(len(seeds)):
        assert not any(torch.equal(drawn[i], drawn[j]) for j in range(i))


def test_global_random_state_is_neither_read_nor_changed():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = generate_images("xoccurs", 32, seed=5).images
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(generate_images("xoccurs", 32, seed=5).images, first)


@pytest.mark.slow
def test_another_process_draws_the_same_images_and_import_stays_light():
    program = (
        "import sys, hashlib; from dat.data.relational_games import generate_images;"
        "assert 'matplotlib' not in sys.modules;"
        "print(hashlib.sha256(bytes(generate_images('occurs', 16, seed=9).images.flatten().tolist())).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "123", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    printed = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()
    assert printed == sha256(bytes(generate_images("occurs", 16, seed=9).images.flatten().tolist())).hexdigest()


test_bad_arguments = refused(
    ({"task": "sane"}, "task: expected one of same, occurs, .*, got 'sane'"),
    ({"objects": "stars"}, "objects: expected one of pentominoes, .*, got 'stars'"),
    ({"task": "colour_and_or_shape", "objects": "stripes"},
     "objects: expected one of pentominoes, hexominoes for task 'colour_and_or_shape', got 'stripes'"),
    ({"n": -1}, "n: expected at least 0, got -1"),
    ({"n": 2.0}, TypeError, "n: expected an integer, got 2.0 of type float"),
    ({"n": True}, TypeError, "n: expected an integer, got True of type bool"),
    ({"seed": None}, TypeError, "seed: expected an integer, got None"),
    ({"independent_share": 1.5}, "independent_share: expected a number between 0 and 1, got 1.5"),
    ({"independent_share": float("nan")}, "independent_share"),
    by=lambda arguments: generate_images(**({"task": "same", "n": 4, "seed": 0} | arguments)),
)  # fmt: skip
