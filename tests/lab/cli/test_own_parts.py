"""Parts in files of the user's own, on the command line: trained, copied, and never run because a run names them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from dat import _own_code
from dat.cli.main import main
from dat.training.run_folder import RunFolder
from tests.lab.cli.commands import printed, refusal
from tests.support.documents import ROOT
from tests.support.runs import stopping

from .text_runs import words

EXAMPLES = ROOT / "examples" / "parts.py"
PLAIN: dict[str, object] = {"model__n_heads_ra": 0, "model__n_kv_heads": "null", "model__pos_enc_type": "pos_emb"}
HEADS = {**PLAIN, "model__heads": "mine.py:Averaging"}
RELATION = {
    "model__pos_enc_type": "none",
    "model__rel_score": "mine.py:Manhattan",
    "model__symbols": "mine.py:SignSymbols",
}
RECALL = {
    **{"data.size": 2, "data.n_val": 4, "data.n_test": 4, "loop.steps": 2, "loop.batch_size": 4, "loop.eval_every": 1},
    **{"output.name": "recall", "output.tensorboard": "false"},
}


@pytest.fixture(autouse=True)
def mine(folder, monkeypatch):
    """A copy of the examples, of which this process knows nothing."""
    shutil.copy(EXAMPLES, folder / "mine.py")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    strange(monkeypatch)


def strange(monkeypatch):
    """Let this process forget what the user has named."""
    monkeypatch.setattr(_own_code, "_given", [])


@pytest.mark.slow
def test_heads_train_and_are_run_only_on_the_users_word(capsys, monkeypatch):
    assert main(words(**HEADS, output__name="whole")) == 0
    with stopping(5):
        assert main(words(**HEADS)) == 130
    hint = "dat train language --resume runs/run --code mine.py:Averaging"
    assert hint in capsys.readouterr().err
    assert Path("runs/run/mine.py").read_bytes() == EXAMPLES.read_bytes()
    strange(monkeypatch)
    resume = ["train", "language", "--resume", "runs/run"]
    message = "model.heads: mine.py:Averaging is run only if you name it (read it first): --code"
    assert f"{message} mine.py:Averaging" in refusal(capsys, *resume)
    Path("mine.py").write_text("open('ran', 'w')")
    message += " runs/run/mine.py:Averaging"
    for command in (resume, ["evaluate", "runs/run"], ["info", "runs/run"], ["generate", "runs/run", "3 times"]):
        assert message in refusal(capsys, *command)
    Path("mine.py").unlink()
    assert "(read it first): --code runs/run/mine.py:Averaging" in refusal(capsys, *resume)
    assert main([*resume, "--code", "runs/run/mine.py"]) == 0
    weights = [Path("runs", name, "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1] and not Path("ran").exists()
    strange(monkeypatch)
    for command in (["evaluate", "runs/run"], ["info", "runs/run"], ["generate", "runs/run", "3 times"]):
        assert main([*command, "--code=runs/run/mine.py"]) == 0
    said = refusal(capsys, "export", "runs/run", "--out", "exported", "--code", "runs/run/mine.py")
    assert "runs/run: a model with parts of your own has no form but that of a run folder" in said


def test_relations_and_symbols_train_too(monkeypatch):
    assert main(words(**RELATION)) == 0
    name = RunFolder("runs/run").read_result()["model"]
    assert "rel_score mine.py:Manhattan, symbols mine.py:SignSymbols" in name
    strange(monkeypatch)
    assert main(["evaluate", "runs/run", "--code", "mine.py"]) == 0


def test_an_estimate_is_of_the_model_with_its_parts(capsys, monkeypatch):
    assert main(words(**RELATION)) == 0
    expected = RunFolder("runs/run").read_result()["parameters"]
    checkpoint = RunFolder("runs/run").checkpoints.latest()
    for name in ("runs/run", checkpoint):
        found = json.loads(printed(capsys, "estimate", name, "--json", "--device=cpu"))
        assert found["parameters"] == expected and "rel_score mine.py:Manhattan" in found["model"]
    strange(monkeypatch)
    assert "model.rel_score: mine.py:Manhattan is run only if you name it" in refusal(capsys, "estimate", "runs/run")


@pytest.mark.parametrize("part", ["Averaging", "SquaredRelu", "Manhattan"])
def test_sequences_take_heads_an_alignment_or_a_score(part):
    options = {"preset": "T-positions", **RECALL, "model.heads": f"mine.py:{part}"}
    assert main(["train", "recall", *(f"--{key}={value}" for key, value in options.items())]) == 0
    assert RunFolder("runs/recall").read_result()["matching"]["test"] > 0


def test_images_take_parts(capsys):
    options = {"model.n_layers": 1, "model.n_heads_sa": 2, "model.n_heads_ra": 0, "model.heads": "mine.py:Averaging"}
    options |= {"loop.epochs": 1, "output.name": "run", "output.tensorboard": "false", "data.n_train": 32}
    command = ["train", "images", *(f"--{key}={value}" for key, value in options.items())]
    assert main(command) == 0
    said = refusal(capsys, *command, "--model.pos_enc=RoPE")
    assert "model.pos_enc: expected learned or none with model.heads" in said


BAD = [
    ({**HEADS, "model__output_gate": "sigmoid"}, "model.output_gate: expected none with model.heads=mine.py:Averaging"),
    ({"model__heads": "mine.py:Nothing", **PLAIN}, "model.heads: mine.py: expected one of its modules Manhattan, "),
    ({"model__heads": "other.py:A", **PLAIN}, "model.heads: other.py: no such file"),
    ({"model__heads": "latent", **PLAIN}, "model.heads: expected FILE.py:CLASS or null, got latent"),
    ({"model__heads": "mine.py:Averaging"}, "model.n_heads_ra: expected 0 with model.heads=mine.py:Averaging, got 2"),
    ({**HEADS, "model__pos_enc_type": "RoPE"}, "model.pos_enc_type: expected pos_emb or none with model.heads=mine.py"),
    ({"model__heads": "mine.py:SignSymbols", **PLAIN}, "model.heads: mine.py:SignSymbols: heads: tried on inputs (2,"),
    ({**RELATION, "model__rel_score": "mine.py:Averaging"}, "model.rel_score: mine.py: expected one of its scores M"),
    ({**RELATION, "model__rel_score": "euclidean"}, "or FILE.py:CLASS, got euclidean; did you mean squared_distance?"),
    ({**HEADS, "machine__parallel": "shard"}, "model.heads: expected no parts of your own where processes share a mo"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_what_does_not_fit_is_named_before_anything_is_written(options, message, capsys):
    assert message in refusal(capsys, *words(**options))
    assert not Path("runs/run").exists()


def test_an_error_in_a_part_is_told_with_its_line(capsys):
    text = EXAMPLES.read_text().replace("self.values(x)), weights", "self.values(x)[0]), weights")
    text = text.replace("        weights = mask / ", "        raise KeyError('colour')\n        weights = mask / ")
    Path("mine.py").write_text(text)
    said = refusal(capsys, *words(**HEADS))
    line = next(number for number, line in enumerate(Path("mine.py").read_text().splitlines(), 1) if "KeyError" in line)
    assert "KeyError: 'colour'" in said and f"(line {line})" in said and "(2, 3, 16)" in said
