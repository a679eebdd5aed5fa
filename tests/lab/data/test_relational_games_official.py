"""Official files: small ones of the same form are written here and read back."""

import io
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from dat.data.relational_games import (
    EXTRA_TASKS,
    TASKS,
    generate_images,
    load_official,
    official_splits,
    supported_objects,
)
from dat.data.relational_games.labels import labels_of
from dat.data.relational_games.official import official_path
from tests.support.refusals import refusals, refused

pytestmark = pytest.mark.sweep(4)


def write(folder, name, *, n=40, task="between", seed=0, objects="pentominoes", compressed=False, **replaced):
    """A file in the official form; ``replaced`` overrides a key, or removes it with None."""
    games = generate_images(task, n, seed=seed, objects=objects)
    arrays = {
        "images": games.images.permute(0, 2, 3, 1).numpy().astype(np.int64),
        "labels": games.labels.numpy()[:, None],
        "tasks": games.asked.numpy()[:, None],
    } | replaced
    save = np.savez_compressed if compressed else np.savez
    save(folder / name, **{key: array for key, array in arrays.items() if array is not None})
    return games


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("task", "split", "name"),
    [
        ("same", "pentominoes", "same_pentos.npz"),
        ("between", "hexominoes", "1task_between_hexos.npz"),
        ("match_pattern", "stripes", "1task_match_patt_stripes.npz"),
        ("column_patterns", "pentominoes", "3task_col_patts_pentos.npz"),
        ("row_patterns", "pentominoes", "5task_row_patts_pentos.npz"),
        ("colour_and_or_shape", "pentominoes_valid", "colour_and_or_shape_pentos_valid.npz"),
    ],
)
def test_official_form_is_read_back(tmp_path, task, split, name, compressed):
    written = write(tmp_path, name, task=task, objects=split.removesuffix("_valid"), compressed=compressed)
    read = load_official(tmp_path, task, split)
    assert [part.dtype for part in read] == [torch.uint8, torch.int64, torch.int64]
    assert all(torch.equal(a, b) for a, b in zip(read, written, strict=True))


@pytest.mark.slow
def test_many_pieces_and_limit(tmp_path):
    written = write(tmp_path, "same_pentos.npz", n=2500, task="same")
    assert torch.equal(load_official(str(tmp_path), "same").images, written.images)
    for limit in (0, 1, 1024, 1025, 9999):
        read = load_official(tmp_path, "same", limit=limit)
        assert all(torch.equal(a, b[:limit]) for a, b in zip(read, written, strict=True))


def test_columns_may_be_flat_and_other_integers_are_fine(tmp_path):
    games = generate_images("same", 3, seed=0)
    images, labels = games.images.permute(0, 2, 3, 1).numpy(), games.labels.numpy().astype(np.int32)
    write(tmp_path, "same_pentos.npz", images=images, labels=labels, tasks=None)
    read = load_official(tmp_path, "same")
    assert torch.equal(read.labels, games.labels)
    assert read.asked.tolist() == [0, 0, 0]


@pytest.mark.slow
def test_memory_stays_near_the_size_of_the_result(tmp_path):
    games = generate_images("same", 4000, seed=0)
    images, labels = games.images.permute(0, 2, 3, 1).numpy().astype(np.int64), games.labels.numpy()[:, None]
    np.savez_compressed(tmp_path / "same_pentos.npz", images=images, labels=labels, tasks=labels)
    whole = images.nbytes
    del images
    tracemalloc.start()  # counts what Python and numpy hold; the result itself is torch's
    load_official(tmp_path, "same")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < whole / 4


@refusals(
    ({"images": None}, "the key 'images', got labels, tasks"),
    ({"labels": None}, "the key 'labels'"),
    ({"tasks": None}, "the key 'tasks'"),
    ({"images": np.zeros((40, 3, 36, 36), np.int64)}, r"images of shape \(n, 36, .*got \(40, 3, 36, 36\)"),
    ({"images": np.zeros((40, 36, 36), np.int64)}, r"images of shape .*got \(40, 36, 36\)"),
    ({"images": np.zeros((40, 36, 36, 3))}, r"images to be an integer array .*got dtype float64"),
    ({"images": np.asfortranarray(np.zeros((40, 36, 36, 3), np.int64))}, ".*row-major"),
    ({"images": np.full((40, 36, 36, 3), 256)}, "images with values from 0 to 255, got 0 to 256"),
    ({"images": np.full((40, 36, 36, 3), -1)}, "images with values from 0 to 255, got -1 to"),
    ({"labels": np.zeros((40, 2), np.int64)}, r"labels of shape \(n, 1\), got \(40, 2\)"),
    ({"labels": np.full((40, 1), 2)}, "labels with values from 0 to 1, got 2 to 2"),
    ({"tasks": np.full((40, 1), 3)}, "tasks with values from 0 to 2, got 3 to 3"),
    ({"labels": np.zeros((39, 1), np.int64)}, ".*got 40 images, 39 labels and 40 tasks"),
    ({"labels": np.array([["a"]] * 40)}, "labels to be an integer array"),
    ({"labels": np.array(1)}, "labels to be .*got dtype int64, shape"),
    ({"labels": np.array([object()] * 40)}, "labels to be .*got dtype object"),
    of="replaced",
)
def test_malformed_files(tmp_path, replaced, error, message):
    write(tmp_path, "3task_col_patts_pentos.npz", task="column_patterns", **replaced)
    with pytest.raises(error, match=f"expected {message}"):
        load_official(tmp_path, "column_patterns")


BY_RULE = r"images of task '{}', by whose rule the label of image \d+ is .* got \d; is this another"
BY_CELLS = r"images of task '{}', .* image \d+; is this another task's file"
ZEROS = np.zeros((40, 1), np.int64)
TWO_LABELS = generate_images("colour_and_or_shape", 40, seed=0).labels.numpy()[:, None] % 2


@refusals(
    ("occurs", "pentominoes", {"task": "xoccurs"}, BY_RULE),
    ("between", "pentominoes", {"task": "column_patterns"}, BY_RULE),
    ("between", "pentominoes", {"task": "row_patterns"}, BY_RULE),
    ("same", "pentominoes", {"task": "colour_and_or_shape", "labels": TWO_LABELS}, BY_RULE),
    ("colour_and_or_shape", "pentominoes", {"task": "same"}, BY_RULE),
    ("same", "pentominoes", {"task": "occurs", "tasks": ZEROS}, BY_CELLS),
    ("occurs", "pentominoes", {"task": "between", "tasks": ZEROS}, BY_CELLS),
    ("column_patterns", "pentominoes", {"task": "row_patterns", "tasks": ZEROS}, BY_CELLS),
    ("same", "stripes", {}, "stripes in the cells, got something else in cell"),
    ("same", "hexominoes", {"objects": "stripes"}, "hexominoes in the cells, got something else"),
    ("same", "pentominoes", {"objects": "hexominoes"}, "pentominoes in the cells, got hexominoes; is this another s"),
    ("same", "pentominoes_valid", {"objects": "stripes"}, "pentominoes in the cells, got stripes"),
    of="task, split, written",
)
def test_files_of_something_else_are_refused(tmp_path, task, split, written, error, message):
    write(tmp_path, official_path(tmp_path, task, split).name, **{"task": task, **written})
    with pytest.raises(error, match=f"expected {message.format(task)}"):
        load_official(tmp_path, task, split)


def claiming(rows: str) -> bytes:
    """An archive whose header says so many rows."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({rows}, 36, 36, 3), }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(file := io.BytesIO(), "w") as written:
        written.writestr("images.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    return file.getvalue()


def archive(method: int = zipfile.ZIP_STORED, place: int | None = None, value: int = 0) -> bytes:
    """One with another value in both of its headers."""
    with zipfile.ZipFile(file := io.BytesIO(), "w", method) as written:
        written.writestr("images.npy", bytes(500))
    content = bytearray(file.getvalue())
    if place is not None:
        content[place] = content[content.index(b"PK\x01\x02") + place + 2] = value
    return bytes(content)


def load_archive(content: bytes, *, tmp_path) -> None:
    (tmp_path / "same_pentos.npz").write_bytes(content)
    load_official(tmp_path, "same")


PACKED = archive(zipfile.ZIP_BZIP2)
UNREADABLE = r"same_pentos\.npz: expected an npz file, but it cannot be read \("

test_archives_that_are_none = refused(
    (b"not an archive", UNREADABLE),
    (archive(place=6, value=1), UNREADABLE),  # encrypted
    (archive(place=8, value=77), UNREADABLE),  # by another method
    (PACKED[:44] + b"garbage..." + PACKED[54:], UNREADABLE),
    *((claiming(rows), r"same_pentos\.npz: expected (\d+ rows of )?images")
      for rows in ("2**50", str(2**22), "-1", "True", "1" + 30 * "0", "1.5", "'a'")),
    by=load_archive,
)  # fmt: skip


def test_damaged_files(tmp_path):
    write(tmp_path, "same_pentos.npz", task="same", compressed=True)
    content = bytearray((tmp_path / "same_pentos.npz").read_bytes())
    content[200:400] = bytes(200)
    (tmp_path / "same_pentos.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"same_pentos\.npz"):
        load_official(tmp_path, "same")


@pytest.mark.parametrize("split", ["pentominoes", "hexominoes", "stripes", "pentominoes_valid"])
def test_no_images_are_read_where_none_are_asked_for(tmp_path, split):
    path = official_path(tmp_path, "between", split)
    write(tmp_path, path.name, task="between", objects=split.removesuffix("_valid"))
    assert load_official(tmp_path, "between", split, limit=0).images.shape == (0, 3, 36, 36)


@pytest.mark.parametrize(
    ("task", "objects"), [(task, objects) for task in (*TASKS, *EXTRA_TASKS) for objects in supported_objects(task)]
)
def test_the_rules_give_the_labels_of_generated_images(task, objects):
    games = generate_images(task, 500, seed=3, objects=objects)
    found = labels_of(task, games.images, games.asked)
    if task in ("row_patterns", "left_of"):
        assert found is None
    else:
        assert torch.equal(found, games.labels)


def test_missing_numpy_is_named(tmp_path, monkeypatch):
    write(tmp_path, "same_pentos.npz", task="same")
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ImportError, match=r'pip install "relational-attention\[train\]"'):
        load_official(tmp_path, "same")


@pytest.fixture
def folder(tmp_path):
    """1,500 images of which each occurs three times, and one held-out file."""
    games = generate_images("same", 500, seed=0)
    thrice = games.images.permute(0, 2, 3, 1).numpy().astype(np.int64).repeat(3, 0)
    labels = games.labels.numpy()[:, None].repeat(3, 0)
    write(tmp_path, "same_pentos.npz", images=thrice, labels=labels, tasks=labels * 0)
    write(tmp_path, "same_stripes.npz", n=30, task="same", objects="stripes")
    return tmp_path


def images_of(games) -> list[bytes]:
    return [image.numpy().tobytes() for image in games.images]


def test_official_splits_do_not_overlap(folder):
    splits = official_splits(folder, "same", 300, n_val=200, n_test=300, seed=0)
    assert list(splits) == ["train", "val", "test", "stripes"]
    assert [len(games.images) for games in splits.values()] == [300, 200, 300, 30]
    train, val, test = (set(images_of(splits[name])) for name in ("train", "val", "test"))
    assert not train & val and not train & test and not val & test
    pool = load_official(folder, "same")
    label_of = dict(zip(images_of(pool), pool.labels.tolist(), strict=True))
    for name in ("train", "val", "test"):
        games = splits[name]
        assert [label_of[image] for image in images_of(games)] == games.labels.tolist()
        assert max(images_of(games).count(image) for image in set(images_of(games))) <= 3


def test_official_splits_are_comparable_across_sizes_and_fixed_by_the_seed(folder):
    small = official_splits(folder, "same", 50, n_val=20, n_test=30, seed=1, n_heldout=7)
    large = official_splits(folder, "same", 200, n_val=20, n_test=30, seed=1)
    other = official_splits(folder, "same", 50, n_val=20, n_test=30, seed=2)
    assert torch.equal(small["train"].images, large["train"].images[:50])
    assert torch.equal(small["val"].images, large["val"].images)
    assert torch.equal(small["test"].images, large["test"].images)
    assert not torch.equal(small["test"].images, other["test"].images)
    assert len(small["stripes"].labels) == 7


def test_official_splits_do_not_follow_the_order_of_the_file(tmp_path):
    games = generate_images("same", 1000, seed=0)
    by_label = games.labels.argsort()
    images = games.images[by_label].permute(0, 2, 3, 1).numpy().astype(np.int64)
    write(tmp_path, "same_pentos.npz", images=images, labels=games.labels[by_label].numpy(), tasks=None)
    train = official_splits(tmp_path, "same", 100, n_val=10, n_test=10, seed=0)["train"]
    assert train.labels.float().mean() == pytest.approx(0.5, abs=0.2)


def split_up(folder, task="same", **changes):
    return official_splits(folder, task, **{"n_train": 10, "n_val": 10, "n_test": 10, "seed": 0, **changes})


test_what_the_folder_does_not_hold = refused(
    (lambda folder: load_official(folder, "xoccurs", "hexominoes"), FileNotFoundError,
     r"expected the official file xoccurs_hexos\.npz in "),
    (lambda folder: split_up(folder, "xoccurs"), FileNotFoundError, r"xoccurs_pentos\.npz"),
    (lambda folder: load_official(folder, "xoccurs", "train"),
     r"split: expected one of pentominoes, hexominoes, .*, got 'train'"),
    (lambda folder: load_official(folder, "1task_between"), r"task: expected one of same, .*, got '1task_between'"),
    (lambda folder: load_official(folder, "xoccurs", limit=-1), "limit: expected at least 0, got -1"),
    (lambda folder: split_up(folder, n_test=1400), r"n_test: expected at most \d+, .* of the 1500 images .*got 1400"),
    (lambda folder: split_up(folder, n_heldout=-1), "n_heldout: expected at least 0, got -1"),
    by=lambda call, *, folder: call(folder),
)  # fmt: skip
