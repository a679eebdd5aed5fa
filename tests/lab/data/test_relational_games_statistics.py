"""Statistics of images, and the golden test of the generator: it agrees with the genuine files in each of them."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from dat.cli.main import main
from dat.data.relational_games import (
    EXTRA_TASKS,
    TASKS,
    generate_images,
    official_statistics,
    read_scenes,
    scene_statistics,
    supported_objects,
)
from dat.data.relational_games.objects import object_set
from dat.data.relational_games.render import render
from dat.data.relational_games.scene_statistics import STATISTICS
from dat.data.relational_games.tasks import LINES, ObjectSource, get_task

GENUINE = Path(__file__).parents[2] / "golden" / "relational_games_official.csv"
FILES = [(task, objects) for task in ("between", "column_patterns") for objects in ("hexominoes", "stripes")]
SEEDS, IMAGES = 20, 5000


def counts(rows):
    """Counts of values by statistic and condition."""
    found = defaultdict(lambda: defaultdict(int))
    for row in rows:
        found[row["statistic"], row["given"]][row["value"]] += int(row["count"])
    return found


def genuine(task, objects):
    with open(GENUINE, newline="") as file:
        return counts(row for row in csv.DictReader(file) if (row["task"], row["objects"]) == (task, objects))


def drawn(task, objects, seeds=range(SEEDS)):
    definition, rows = get_task(task), []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(IMAGES) % len(definition.classes)
        asked = torch.arange(IMAGES) // len(definition.classes) % max(1, len(definition.asked))
        source = ObjectSource(object_set(objects), generator, definition.independent_share)
        rows += scene_statistics(task, objects, definition.rule(labels, asked, source), labels, asked)
    return counts(rows)


def p_value(one, other):
    """Of the chi-square test that two tables of counts come from one distribution."""
    values = sorted({*one, *other})
    table = torch.tensor([[sample.get(value, 0) for value in values] for sample in (one, other)], dtype=torch.float64)
    expected = table.sum(1, keepdim=True) * table.sum(0) / table.sum()
    chi_square, freedom = ((table - expected) ** 2 / expected).sum(), len(values) - 1
    return (
        float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), chi_square / 2))
        if freedom
        else 1.0
    )


@pytest.mark.parametrize(("task", "objects"), FILES)
def test_the_generator_agrees_with_the_genuine_file(task, objects):
    official, ours = genuine(task, objects), drawn(task, objects)
    assert set(official) == set(ours)
    p_values = {key: p_value(official[key], ours[key]) for key in official}
    assert min(p_values.values()) > 0.001, sorted(p_values.items(), key=lambda item: item[1])[:3]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "objects"), FILES)
def test_each_seed_agrees_with_the_genuine_file(task, objects):
    """Of 20 seeds by themselves; p-values below 0.05 are about as frequent as they are by chance."""
    official, of_seeds = genuine(task, objects), [drawn(task, objects, [seed]) for seed in range(SEEDS)]
    p_values = [p_value(official[key], ours[key]) for ours in of_seeds for key in official]
    assert min(p_values) > 0.001
    assert sum(p < 0.05 for p in p_values) / len(p_values) < 0.1


@pytest.mark.parametrize("objects", ["hexominoes", "stripes"])
def test_uniform_lines_do_not_pass(objects, monkeypatch):
    """As the first release drew them."""
    monkeypatch.setattr("dat.data.relational_games.tasks.DRAWN_LINES", LINES)
    official, ours = genuine("between", objects), drawn("between", objects, seeds=range(4))
    assert p_value(official["cells", "holds"], ours["cells", "holds"]) < 1e-9


def test_the_table_holds_what_the_documentation_says():
    middle = genuine("between", "hexominoes")["cells", "holds"]
    assert middle.pop("3 4 5") == 546 and sorted(middle.values()) == [271, 275, 280, 281, 285, 288, 299]
    for task, objects in FILES:
        assert sum(genuine(task, objects)["label", ""].values()) == 5000
    assert {name for task, objects in FILES for name, _ in genuine(task, objects)} == set(STATISTICS) - {
        "copies",
        "near misses",
    }


@pytest.mark.parametrize("name", ["pentominoes", "hexominoes", "stripes"])
def test_scenes_are_read_back(name):
    objects = object_set(name)
    scenes = torch.randint(len(objects) + 1, (500, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(read_scenes(render(scenes, objects), objects), scenes)
    images = render(scenes, objects)
    images[3, :, 13, 25] ^= 1
    with pytest.raises(ValueError, match=f"expected {name} in the cells, got something else in cell 5 of image 3"):
        read_scenes(images, objects)


@pytest.mark.parametrize(("task", "objects"), [(t, o) for t in TASKS + EXTRA_TASKS for o in supported_objects(t)])
def test_every_image_is_counted_once_in_each_statistic(task, objects):
    games = generate_images(task, 600, objects=objects, seed=0)
    scenes = read_scenes(games.images, object_set(objects))
    found = counts(scene_statistics(task, objects, scenes, games.labels, games.asked))
    assert {name for name, _ in found} <= set(STATISTICS)
    for name in ("label", "colour", "look"):
        assert sum(found[name, ""].values()) == 600
    assert sum(sum(values.values()) for (name, _), values in found.items() if name == "cells") == 600


def test_copies_patterns_and_pairs():
    def of(task, given, statistic):
        games = generate_images(task, 2000, seed=1)
        scenes = read_scenes(games.images, object_set("pentominoes"))
        return dict(counts(scene_statistics(task, "pentominoes", scenes, games.labels, games.asked))[statistic, given])

    assert of("occurs", "holds", "copies") == {"1": 1000} and of("occurs", "does not hold", "copies") == {"0": 1000}
    assert set(of("xoccurs", "does not hold", "copies")) == {"0", "2"}
    assert set(of("occurs", "holds", "near misses")) == {"0", "1", "2"}
    assert of("same", "same", "pair") == {"both": 1000}
    assert set(of("same", "different", "pair")) == {"nothing", "look", "colour"}
    same_patterns = {f"{pattern} {pattern}" for pattern in ("AAA", "AAB", "ABA", "ABB", "ABC")}
    assert set(of("match_pattern", "holds", "pattern")) == same_patterns
    assert of("colour_and_or_shape", "nothing", "pair") == {"nothing": 500}
    assert of("colour_and_or_shape", "shape", "pair") == {"look": 500}


def save(folder, name, task, objects="hexominoes"):
    games = generate_images(task, 40, objects=objects, seed=0)
    arrays = {"labels": games.labels.numpy()[:, None], "tasks": games.asked.numpy()[:, None]}
    np.savez_compressed(folder / name, images=games.images.permute(0, 2, 3, 1).numpy().astype(np.int64), **arrays)


def test_the_command_writes_the_table_of_a_folder(tmp_path, capsys):
    save(tmp_path, "1task_between_hexos.npz", "between")
    words = ["data", "relational-games", "--official_folder", str(tmp_path), "--tasks=[between]"]
    out = tmp_path / "table.csv"
    assert main([*words, "--objects=[hexominoes]", "--out", str(out)]) == 0
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["task", "objects", "statistic", "given", "value", "count"]
    assert counts(rows)["label", ""] == {"does not hold": 20, "holds": 20}
    assert main([*words, "--out", str(tmp_path / "other.csv")]) == 2
    assert "expected 1task_between_pentos.npz, 1task_between_stripes.npz in" in capsys.readouterr().err


def test_folders_of_something_else_are_refused(tmp_path):
    save(tmp_path, "same_hexos.npz", "occurs")
    with pytest.raises(ValueError, match=r"same_hexos\.npz: expected images of task 'same', with objects in cells"):
        official_statistics(tmp_path, ["same"], ["hexominoes"])
    save(tmp_path, "same_stripes.npz", "same", "pentominoes")
    with pytest.raises(ValueError, match=r"same_stripes\.npz: expected stripes in the cells, got something"):
        official_statistics(tmp_path, ["same"], ["stripes"])
    save(tmp_path, "occurs_hexos.npz", "occurs")
    whole = (tmp_path / "occurs_hexos.npz").read_bytes()
    (tmp_path / "occurs_hexos.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"occurs_hexos\.npz: expected an npz file, but it cannot be read"):
        official_statistics(tmp_path, ["occurs"], ["hexominoes"])
    with pytest.raises(ValueError, match="objects: expected one of pentominoes"):
        official_statistics(tmp_path, ["occurs"], ["hexos"])
