"""Checkpoints that transformers opens before this package is imported, and what their folders say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dual_attention.hf import DualAttnForCausalLM, DualAttnForMaskedLM
from tests.library.hf.models import MODELS, causal

ROOT = Path(__file__).resolve().parents[3]

REMOTE = """
import sys, torch
from transformers import AutoModelForCausalLM
assert "dual_attention" not in sys.modules
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
import dual_attention.hf
assert type(model) is dual_attention.hf.DualAttnForCausalLM
print(float(model(torch.tensor([[1, 2, 3]])).logits.sum()))
"""


def loaded_elsewhere(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that has not imported this package, which is installed."""
    home = str(folder.parent / "home")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": home, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_remote_code(tmp_path: Path):
    """Every checkpoint is found by the Auto classes before this package is imported, as its README says."""
    model = causal()
    folder = tmp_path / "checkpoint"
    model.save_pretrained(folder)
    done = loaded_elsewhere(REMOTE, folder)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = float(model(torch.tensor([[1, 2, 3]])).logits.sum())
    assert float(done.stdout.split()[-1]) == pytest.approx(expected, abs=1e-4)
    readme = (folder / "README.md").read_text()
    assert "import dual_attention.hf" in readme and "from transformers import AutoModelForCausalLM" in readme
    assert "trust_remote_code=True" in readme


@pytest.mark.slow
def test_without_remote_code_an_error_says_how_to_load(tmp_path: Path):
    folder = tmp_path / "checkpoint"
    causal().save_pretrained(folder)
    done = loaded_elsewhere(REMOTE.replace("trust_remote_code=True", "trust_remote_code=False"), folder)
    assert done.returncode != 0 and "trust_remote_code=True" in done.stderr


@pytest.mark.parametrize("name", MODELS)
def test_what_a_folder_says_of_itself(name: str, tmp_path: Path):
    make, auto = MODELS[name]
    model = make()
    (tmp_path / "README.md").write_text("mine")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["num_attention_heads"] == model.config.num_attention_heads == 4
    assert told.get("tie_word_embeddings") == told.get("tie_weights")  # PEFT knows the first name only
    assert told["auto_map"] == model.config.auto_map
    assert told["auto_map"][auto.__name__] == f"dual_attention_loader.{type(model).__name__}"
    source = (tmp_path / "dual_attention_loader.py").read_text()
    found: dict[str, Any] = {}
    exec(source, found)
    assert all(found[value.partition(".")[2]] for value in told["auto_map"].values())


def test_a_class_registered_for_an_auto_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(DualAttnForCausalLM, "_loaded_by", None)
    DualAttnForCausalLM.register_for_auto_class("AutoModelForPreTraining")
    causal().save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert (
        told["AutoModelForPreTraining"] == told["AutoModelForCausalLM"] == "dual_attention_loader.DualAttnForCausalLM"
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_heads_follows(name: str):
    config = MODELS[name][0]().config
    with pytest.raises(ValueError, match=r"num_attention_heads: follows from n_heads.*expected 4, got 5"):
        type(config)(**{**config.to_dict(), "num_attention_heads": 5})


def test_an_auto_class_that_there_is_not():
    with pytest.raises(ValueError, match="transformers has no 'AutoModelForNothing'"):
        DualAttnForMaskedLM.register_for_auto_class("AutoModelForNothing")
