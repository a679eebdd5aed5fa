"""Interventions in files."""

import json

import numpy as np
import pytest
import torch

from dual_attention.model_analysis.interventions import (
    Ablate,
    Patch,
    Scale,
    Steer,
    Target,
    load_interventions,
    save_interventions,
)
from tests.library.model_analysis.interventions.support import logits
from tests.support.language import lm, tokens
from tests.support.refusals import refusals


def test_files(tmp_path):
    interventions = [
        Ablate(Target("relation", layers=[0, "blocks.1"], relations=[1], pairs=[[3, 2], (1, 0)]), "resample", seed=4),
        Ablate(Target("relation", layers=0), direction=torch.tensor([1.0, 0.5])),
        Scale(Target("head", heads={"sensory": [0], "relational": None}), 0.5, strength=0.25),
        Patch(Target("symbol", senders=[2], heads=1)),
        Steer(Target("relation", receivers=(3,)), np.float32(-1.5)),
    ]
    save_interventions(tmp_path / "some.json", interventions)
    assert load_interventions(tmp_path / "some.json") == interventions
    text = (tmp_path / "some.json").read_text()
    target = {"mediator": "relation", "receivers": [3]}
    assert json.loads(text)["interventions"][4] == {"kind": "steer", "target": target, "amount": -1.5}
    model, x = lm("symbolic_attention"), tokens(3, 9)
    save_interventions(tmp_path / "one.json", Steer(Target("relation", layers=0), 1.0))
    one = load_interventions(tmp_path / "one.json")
    assert torch.equal(logits(model, x, one), logits(model, x, Steer(Target("relation", layers=0), 1.0)))


@pytest.mark.parametrize(("depth", "allowed"), [(8, True), (9, False), (450, False)])
def test_rotations_within_each_other_are_bounded(tmp_path, depth, allowed):
    change = Ablate(Target("head", layers=0), "zero").as_json()
    for _ in range(depth):
        change = {"kind": "rotated", "change": change, "seed": 0}
    (tmp_path / "nested.json").write_text(json.dumps({"format": 1, "interventions": [change]}))
    if allowed:
        assert len(load_interventions(tmp_path / "nested.json")) == 1
        return
    with pytest.raises(ValueError, match=r"nested\.json: change: expected at most 8 rotations within each other"):
        load_interventions(tmp_path / "nested.json")


@refusals(
    ("[]", "object"),
    ('{"format": 2, "interventions": []}', "expected a format of 1"),
    ('{"format": 1, "interventions": [3]}', "intervention: expected an object"),
    ('{"format": 1, "interventions": [{"kind": "remove"}]}', "kind: expected one of ablate, scale, patch, steer"),
    ('{"format": 1, "interventions": [{"kind": "patch"}]}', "target: expected an object"),
    ('{"format": 1, "interventions": [{"kind": "scale", "target": {"mediator": "head"}, "factr": 2}]}', "'factr'"),
    ('{"format": 1, "interventions": [{"kind": "scale", "target": {"mediator": "heads"}}]}', "mediator: .*'head'"),
    of="content",
)
def test_wrong_files(tmp_path, content, error, message):
    (tmp_path / "wrong.json").write_text(content)
    with pytest.raises(error, match=message) as error:
        load_interventions(tmp_path / "wrong.json")
    assert "wrong.json" in str(error.value)
