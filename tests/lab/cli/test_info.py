"""``dat info``: numbers that are those of the model, without reading its weights."""

import json
from dataclasses import replace

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli import main as cli
from dat.description import memory, parameters_by_part
from dat.estimate import estimate
from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from dat.training.experiment import count_parameters
from dual_attention import LANGUAGE_PRESETS
from tests.lab.cli.commands import QUIET, fails, games, printed, refusal


@pytest.mark.slow
def test_a_language_run(run, capsys):
    found = json.loads(printed(capsys, "info", run, "--json"))
    model = open_checkpoint(run).model
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert found["trained_parameters"] == found["parameters"] - 4 * 16  # the symbol library is frozen
    assert found["parts"]["embeddings, also the output"] == {"parameters": 257 * 16, "trained": 257 * 16}
    assert found["result"]["loss"] == json.loads((run / "result.json").read_text())["loss"]
    assert found["state"] == "finished" and found["context"] == 24
    assert found["memory"]["weights"] == 4 * found["parameters"]
    training = found["memory"]["training"]
    assert training["weights"] == 4 * found["parameters"] and training["gradients"] == 4 * found["trained_parameters"]
    counts_of_steps = 4 * sum(p.requires_grad for p in model.parameters())
    assert training["optimizer"] == 2 * training["gradients"] + counts_of_steps
    assert training["activations"] > 0
    assert training["in_all"] == sum(training[name] for name in ("weights", "gradients", "optimizer", "activations"))
    costs = estimate(model, training=True)
    assert training["in_all"] == costs.training_bytes
    ways = ("forward", "backward")
    assert found["flops_per_token"] == {way: getattr(costs, f"{way}_flops_per_token") for way in ways}

    cache = model.new_cache()
    with torch.no_grad():
        model(torch.zeros(1, 24, dtype=torch.long), cache=cache)
    assert found["memory"]["cache"] == 4 * cache.numbers_per_token * 24
    half = json.loads(printed(capsys, "info", run, "--json", "--dtype=bfloat16"))
    for name in ("weights", "cache"):
        assert half["memory"][name] == found["memory"][name] // 2
    assert half["memory"]["activations"] == estimate(model, dtype="bfloat16", training=False).inference_bytes


@pytest.mark.slow
def test_what_a_reader_sees(run, hub_folder, capsys):
    out = printed(capsys, "info", run)
    for text in ("DualAttnTransformerLM, language run (finished)", "n_heads_ra", "relational attention", "of them 64"):
        assert text in out
    approximate = "" if torch.cuda.is_available() else " (approximate: traced on a CPU)"
    assert f"memory, estimated for one text of 24 tokens on a GPU{approximate}\n" in out and "bits per byte" in out
    out = printed(capsys, "info", hub_folder)
    assert "hub format" in out and "result" not in out


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["causal", "masked", "classifier", "vision"])
def test_folders_of_transformers(architecture, tmp_path, capsys):
    pytest.importorskip("transformers")
    from tests.library.hf import models

    model = getattr(models, architecture)()
    model.save_pretrained(tmp_path)
    found = json.loads(printed(capsys, "info", tmp_path, "--json"))
    assert found["kind"] == "transformers format" and found["model"] == type(model.model).__name__
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert found["parameters"] == sum(part["parameters"] for part in found["parts"].values())
    assert ("cache" in found["memory"]) == (architecture == "causal")
    assert found["weights"]["files"] == [str(tmp_path / "model.safetensors")]
    if architecture != "vision":
        assert found["config"]["vocab_size"] == model.config.vocab_size
    costs = json.loads(printed(capsys, "estimate", tmp_path, "--json"))
    assert costs["training_bytes"] == found["memory"]["training"]["in_all"]


@pytest.mark.slow
def test_a_run_of_relational_games(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "relational-games", "--preset=dat-1+1-sym", *games(), *QUIET, "--output.name=games"]) == 0
    found = json.loads(printed(capsys, "info", "runs/games", "--json"))
    expected = count_parameters(build_games_model(PRESETS["dat-1+1-sym"], 2, seed=0))
    assert found["parameters"] == expected == sum(part["parameters"] for part in found["parts"].values())
    assert {"relational attention", "self-attention", "feed-forward", "symbols"} <= set(found["parts"])
    assert found["config"]["task"] == "same" and "cache" not in found["memory"]
    assert "accuracy" in printed(capsys, "info", "runs/games")
    assert "a run of Relational Games, whose model writes no text" in refusal(capsys, "generate", "runs/games", "x")


@pytest.mark.parametrize("name", ["T-353M", "DAT-343M-nr8"])
def test_parts_add_up(name):
    model = replace(LANGUAGE_PRESETS[name], n_layers=2).build(device="meta")
    costs = estimate(model, dtype="bfloat16", length=64, training=False)
    parts = parameters_by_part(model, costs)
    assert sum(part["parameters"] for part in parts.values()) == sum(p.numel() for p in model.parameters())
    known = {"symbols", "relational attention", "self-attention", "feed-forward", "norms"}
    assert set(parts) - known == {"embeddings, also the output"}
    assert memory(costs, costs)["weights"] == 2 * sum(p.numel() for p in model.parameters())


def test_bad_input_is_one_line(run, tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    for words, message in (
        (["info", run, "--dtype=int8"], "dtype: expected one of 'float32', 'bfloat16', 'float16', 'float64', got int8"),
        (["info", run / "none"], f"{run / 'none'}: no such folder, and no name on the Hugging Face hub (OWNER/NAME)"),
        (["info", tmp_path], f"{tmp_path}: expected a model of this library, got model_type='gpt2'"),
        (["estimate", tmp_path], f"{tmp_path}/config.json: expected a model of this library, got model_type='gpt2'"),
    ):
        assert fails(capsys, *words) == f"dat: error: {message}\n"
