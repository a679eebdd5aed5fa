"""Folders of emoji for the study of that name: how they are split, and what is refused by name."""

import io
import json
import shutil
import tarfile
from typing import Any

import pytest
import torch
from PIL import Image

from dat.experiments.images.config import ImageDataConfig, ImageModelConfig
from studies.emoji import pictures
from studies.emoji.experiment import Emoji, EmojiConfig, check_identities
from studies.emoji_games.experiment import TASKS, EmojiDataConfig, drawings, emoji_splits, scenes_of
from studies.emoji_games.rule import FEATURES, fitted_threshold, nearest, rule_accuracy
from studies.emoji_matched.experiment import OTHERS, TOLERANCE, levelled, matched_scenes, partners
from tests.support.refusals import refusals

TREES = 60


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (number % 256, number // 256, 40)).save(file, "PNG")
    return file.getvalue()


def listed() -> list[dict[str, str]]:
    """Smileys, and trees beside them by the same code with each joiner."""
    codes = [f"{label}{i:03X}" for label in ("1F", "2F") for i in range(TREES)]
    codes += [f"{codes[0]}-200D-{sex}-FE0F" for sex in ("2640", "2642")]
    about = [{"unified": code, "image": f"{code.lower()}.png", "subcategory": "all"} for code in codes]
    return [line | {"category": "Trees & More" if line["unified"] >= "2" else "Smileys"} for line in about]


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Writes the archive of a vendor, as npm pack does, with changes."""
    monkeypatch.setattr(pictures, "EMOJI", len(listed()))

    def write(vendor, *, version="16.0.0", emoji=None, **files):
        first = 1 + 1000 * pictures.VENDORS.index(vendor)
        contents = {
            "package.json": json.dumps({"name": f"emoji-datasource-{vendor}", "version": version}).encode(),
            "emoji.json": json.dumps(listed() if emoji is None else emoji).encode(),
            **{f"img/{vendor}/64/{line['image']}": picture(first + i) for i, line in enumerate(listed())},
        }
        contents |= {f"img/{vendor}/64/{name}.png": data for name, data in files.items()}
        with tarfile.open(tmp_path / f"emoji-datasource-{vendor}-16.0.0.tgz", "w:gz") as archive:
            for name, data in contents.items():
                member = tarfile.TarInfo(f"package/{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

    for vendor in pictures.VENDORS:
        write(vendor)
    return write


@pytest.fixture
def folder(pack, tmp_path):
    pictures.write_folders(tmp_path, tmp_path / "out")
    return tmp_path / "out" / "category"


def test_identities_are_split_alike_for_both_vendors(folder):
    names = {part: {path.stem for path in folder.glob(f"{part}/*/*.png")} for part in pictures.PARTS.values()}
    assert names["train"] == names["hand"] and names["test"] == names["both"] and not names["train"] & names["test"]
    assert sum(map(len, (names["train"], names["test"]))) == len(listed())
    variants = [name for name in names["train"] | names["test"] if name.startswith("1f000")]
    assert len(variants) == 3 and {name in names["train"] for name in variants} in ({True}, {False})
    assert {path.name for path in (folder / "train").iterdir()} == {"smileys", "trees-and-more"}
    check_identities(folder)


def test_what_a_vendor_draws_alike_is_kept_once(pack, tmp_path):
    pack("google", **{"1f001": picture(1001)})  # like the first
    assert "1 left out" in pictures.write_folders(tmp_path, tmp_path / "out")
    assert not [*(tmp_path / "out").rglob("1f001.png")]


@refusals(
    ({"version": "15.1.2"}, r"google-16\.0\.0\.tgz: expected emoji-datasource-google 16\.0\.0, got .*google 15\.1\.2"),
    ({"1f001": b"no picture"}, r"emoji-datasource-google: 1f001\.png: image: expected an image .* none"),
    ({"1f001": b""}, r"emoji-datasource-google: 1f001\.png: image: .* an empty one"),
    ({"emoji": []}, r"expected 122 emoji, the same in both, got 122 and 0"),
    of="changes",
)
def test_packages_that_are_refused(pack, tmp_path, changes, error, message):
    pack("google", **changes)
    with pytest.raises(error, match=f"packages: .*{message}"):
        pictures.write_folders(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_archives_that_are_none(pack, tmp_path):
    path = tmp_path / "emoji-datasource-twitter-16.0.0.tgz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"twitter-16\.0\.0\.tgz: expected .* cannot be read"):
        pictures.read_emoji(tmp_path)
    path.rename(tmp_path / "emoji-datasource-twitter-15.0.0.tgz")
    with pytest.raises(FileNotFoundError, match=r"expected .*16\.0\.0\.tgz in .*, found .*15\.0\.0\.tgz"):
        pictures.read_emoji(tmp_path)


def test_emoji_that_are_trained_and_tested_on(folder):
    for parts in (("train", "test"), ("hand", "both")):
        source = next((folder / parts[0]).glob("smileys/*.png"))
        shutil.copy(source, folder / parts[1] / "smileys")
    with pytest.raises(ValueError, match=r"expected other emoji in test than in train in .*, got 1f\d+.*\.png in both"):
        check_identities(folder)


def test_emoji_without_a_picture_by_the_other_vendor(folder):
    lost = next((folder / "hand").glob("smileys/*.png"))
    lost.unlink()
    with pytest.raises(ValueError, match=rf"emoji of train in hand in .*, not so smileys/{lost.name}"):
        check_identities(folder)


def test_a_run_is_measured_on_the_emoji_it_trained_on_by_another_vendor(folder, tmp_path):
    model = ImageModelConfig(n_layers=1, d_model=16, dff=16, rel_proj_dim=4)
    data = ImageDataConfig(dataset="folder", folder=str(folder), image_size=8, n_val=20)
    problem: Any = Emoji().prepare(EmojiConfig(data=data, model=model), cache=tmp_path).problem
    sets = {"train": problem.train, **problem.evaluation}

    def numbers(part: str) -> list[int]:  # as pictures of this file have them in their colours
        red, green, _ = sets[part].tensors[0][:, :, 0, 0].long().unbind(1)
        return (red + 256 * green).tolist()

    assert numbers("hand") == [number + 1000 for number in numbers("train")]
    assert sorted(numbers("both")) == sorted(number + 1000 for number in numbers("test"))
    assert not {*numbers("train")} & {*numbers("val"), *numbers("test")}
    assert torch.equal(sets["hand"].tensors[1], sets["train"].tensors[1])


@pytest.mark.parametrize("task", TASKS)
def test_games_between_two_vendors_and_emoji_kept_apart(folder, task):
    data = EmojiDataConfig(folder=str(folder), n_train=200, n_val=50, n_test=50, n_unseen=200)
    emoji = {}
    for name, (images, labels, _) in emoji_splits(task, data, seed=3).items():
        red, green, blue = images[:, :, 6::12, 6::12].flatten(2).long().unbind(1)
        numbers = (red + 256 * green).tolist()
        drawn = [[n for n, x in zip(*line, strict=True) if x] for line in zip(numbers, blue.tolist(), strict=True)]
        vendors = [[number // 1000 for number in scene] for scene in drawn]
        assert all({*others} == {1 - first} for first, *others in vendors)
        assert 0 < sum(first for first, *_ in vendors) < len(vendors)
        copies = torch.tensor([sum(n % 1000 == first % 1000 for n in others) for first, *others in drawn])
        assert torch.equal(copies == 1, labels == 1) and (task == "xoccurs") == bool((copies > 1).any())
        emoji[name] = {number % 1000 for scene in drawn for number in scene}
    seen, unseen = emoji["train"] | emoji["val"] | emoji["test"], emoji["unseen"]
    assert not seen & unseen and len(seen | unseen) > 0.9 * len(listed())
    assert len({1, *range(len(listed()) - 1, len(listed()) + 1)} & unseen) in (0, 3)  # variants of one identity


def test_games_with_a_file_that_is_no_picture(folder):
    broken = next((folder / "both").glob("smileys/*.png"))
    broken.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=rf"data\.folder: .*both.*{broken.name}: image: expected an image .* none"):
        drawings(str(folder))


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("task", ("same", "occurs"))
def test_an_untrained_rule_tells_equal_pictures_and_no_other(kind, task):
    """It is always right where both vendors draw alike, and by chance where one draws what the other does not."""
    drawn = torch.randint(1, 256, (2, 40, 3, 12, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    alike = torch.stack([drawn[0], drawn[0]])
    for cells, low, high in ((alike, 100, 100), (drawn, 40, 65)):
        splits = {name: scenes_of(task, 600, cells, seed) for seed, name in enumerate(("train", "test", "unseen"))}
        found = rule_accuracy(splits, FEATURES[kind])
        assert {*found} == {"test", "unseen"} and all(low <= value <= high for value in found.values())


def test_the_first_object_is_compared_with_the_nearest_other():
    images = torch.zeros(1, 3, 36, 36, dtype=torch.uint8)
    for place, value in ((1, 10), (3, 50), (8, 13)):  # empty cells are no objects
        row, column = divmod(place, 3)
        images[0, :, 12 * row : 12 * row + 12, 12 * column : 12 * column + 12] = value
    assert nearest(images, FEATURES["mean colour"]).item() == pytest.approx(3 * 3**0.5)
    assert nearest(images, FEATURES["pixels"]).item() == pytest.approx(3 * (3 * 144) ** 0.5)


def test_a_threshold_is_where_most_are_right():
    distances, labels = torch.tensor([4.0, 1.0, 3.0, 2.0, 9.0]), torch.tensor([0, 1, 0, 1, 1])
    assert fitted_threshold(distances, labels) == 2.5


@pytest.fixture(scope="module")
def level() -> torch.Tensor:
    drawn = torch.randint(256, (2, 40, 3, 12, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return levelled(drawn)


def test_levelled_drawings_differ_in_no_mean_colour_and_no_spread(level):
    grey = level.double()
    assert (grey[:, :, 0] == grey[:, :, 2]).all() and grey.min() >= 1
    assert (grey.mean((2, 3, 4)) - 128).abs().max() < 0.5 and (grey[:, :, 0].std((2, 3)) - 40).abs().max() < 0.5
    assert levelled(torch.zeros(3, 12, 12, dtype=torch.uint8)).unique().tolist() == [128]


def test_partners_are_as_far_as_the_same_emoji_and_as_frequent(level):
    names = [str(i // 2) for i in range(40)]  # two variants of each identity
    level = level.clone()
    level[1, 7] = level[0, 7]  # which no other can be as near to
    keep, others = partners(level[0], level[1], names)
    first, second = (level[v].double().flatten(1) for v in (0, 1))
    own = (first - second).norm(dim=1)
    assert 7 not in keep and others.shape == (len(keep), OTHERS) and len(keep) > 20
    for column in others.T:
        assert torch.equal(column.sort().values, keep.sort().values)
        distance = (first[keep] - second[column]).norm(dim=1)
        assert ((distance / own[keep] - 1).abs() <= TOLERANCE).all()
    assert all(names[i] != names[j] for i, row in zip(keep, others, strict=True) for j in row)
    assert all(len({*row}) == OTHERS for row in others.tolist())


@pytest.mark.parametrize("task", ("same", "occurs"))
def test_scenes_of_matched_emoji_hold_the_first_or_its_partners(level, task):
    pairs = [partners(level[v], level[1 - v], [*map(str, range(40))]) for v in (0, 1)]
    images, labels, _ = matched_scenes(task, 200, level, pairs, seed=1)
    cells = images.unflatten(3, (3, 12)).unflatten(2, (3, 12)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    for scene, label in zip(cells, labels.tolist(), strict=True):
        drawn = [(level == cell).all(-1).all(-1).all(-1).nonzero()[0].tolist() for cell in scene if cell.any()]
        (vendor, first), *others = drawn
        members, partnered = pairs[vendor]
        allowed = partnered[members.tolist().index(first)].tolist()
        beside = [emoji for _, emoji in others if emoji != first]
        assert {v for v, _ in others} == {1 - vendor} and {*beside} <= {*allowed} and len({*beside}) == len(beside)
        assert len(others) - len(beside) == label
