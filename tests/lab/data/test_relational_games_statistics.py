"""The golden test of the generator: it agrees with the genuine files in what its images hold."""

import csv
from collections import defaultdict

import pytest
import torch

from dat.data.relational_games import read_scenes
from dat.data.relational_games.objects import object_set
from dat.data.relational_games.render import render
from dat.data.relational_games.tasks import LINES, ObjectSource, get_task
from tests.golden.count_official import FILES, TABLE, count

SEEDS, IMAGES = 20, 5000


def genuine(task, objects):
    found = defaultdict(dict)
    with open(TABLE, newline="") as file:
        for row in csv.DictReader(file):
            if (row["task"], row["objects"]) == (task, objects):
                counted = (entry.rpartition(": ") for entry in row["counts"].split("; "))
                found[row["statistic"], row["given"]] = {value: int(number) for value, _, number in counted}
    return found


def drawn(task, objects, seeds=range(SEEDS)):
    definition, found = get_task(task), defaultdict(lambda: defaultdict(int))
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(IMAGES) % len(definition.classes)
        asked = torch.arange(IMAGES) // len(definition.classes) % max(1, len(definition.asked))
        source = ObjectSource(object_set(objects), generator, definition.independent_share)
        for key, counts in count(task, objects, definition.rule(labels, asked, source), labels, asked).items():
            for value, number in counts.items():
                found[key][value] += number
    return found


def p_value(one, other):
    """Of the chi-square test that two tables of counts come from one distribution."""
    values = sorted({*one, *other})
    table = torch.tensor([[sample.get(value, 0) for value in values] for sample in (one, other)], dtype=torch.float64)
    expected = table.sum(1, keepdim=True) * table.sum(0) / table.sum()
    chi_square, freedom = ((table - expected) ** 2 / expected).sum(), len(values) - 1
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, chi_square / 2)) if freedom else 1.0


@pytest.mark.parametrize(("task", "objects"), FILES)
def test_the_generator_agrees_with_the_genuine_file(task, objects):
    official, ours = genuine(task, objects), drawn(task, objects)
    assert set(official) == set(ours)
    p_values = {key: p_value(official[key], ours[key]) for key in official}
    assert min(p_values.values()) > 0.001, sorted(p_values.items(), key=lambda item: item[1])[:3]


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
        assert sum(genuine(task, objects)["label", ""].values()) == IMAGES


@pytest.mark.parametrize("name", ["pentominoes", "hexominoes", "stripes"])
def test_scenes_are_read_back(name):
    objects = object_set(name)
    scenes = torch.randint(len(objects) + 1, (500, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(read_scenes(render(scenes, objects), objects), scenes)
    images = render(scenes, objects)
    images[3, :, 13, 25] ^= 1
    with pytest.raises(ValueError, match=f"expected {name} in the cells, got something else in cell 5 of image 3"):
        read_scenes(images, objects)
