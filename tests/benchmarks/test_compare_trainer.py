"""The experiment that compares transformers' Trainer with our loop, in short: they agree, and a difference is seen."""

import copy
import json
from pathlib import Path

import pytest
import transformers

from benchmarks import compare_trainer
from benchmarks.compare_trainer import CONTROL, OURS, TRAINER, agrees, main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def usual_logging():
    verbosity = transformers.logging.get_verbosity()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


@pytest.mark.slow
def test_trainer_and_our_loop_agree_at_every_step(tmp_path: Path, usual_logging: None):
    """On a text of the repository. In float64 to 1e-12; in float32 to 1e-4, as a control of rounding alone does."""
    steps = 24
    text = str(ROOT / "CHANGELOG.md")
    assert main(["--steps", str(steps), "--path", text, "--threads", "1", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "trainer.png").stat().st_size > 10_000
    result = json.loads((tmp_path / "trainer.json").read_text())
    assert result["agrees"] and result["loop"]["steps"] == steps
    for dtype, trainings, bound in (("float32", {TRAINER, CONTROL}, 1e-4), ("float64", {TRAINER}, 1e-12)):
        found = result[dtype]
        assert found["differences"].keys() == trainings
        for apart in found["differences"].values():
            assert max(apart["all steps"], apart["validation"]) < bound
        for losses in found["losses"].values():  # it learns, from log(257)
            assert losses["first step"] > 5.4 and losses["last ten steps"] < 5
        for name in (OURS, TRAINER):
            texts = found["texts"][name]
            assert texts["our generate"] == texts["transformers' generate"]
            assert texts["our generate"].startswith(compare_trainer.PROMPT)

    other = copy.deepcopy(result)
    other["float64"]["differences"][TRAINER]["all steps"] = 1e-6
    assert not agrees(other)
    other = copy.deepcopy(result)
    other["float32"]["texts"][TRAINER]["transformers' generate"] += "!"
    assert not agrees(other)
