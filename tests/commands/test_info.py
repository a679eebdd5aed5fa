"""``dat info``: numbers that are those of the model, without reading its weights."""

from __future__ import annotations

import json

import pytest
import torch

from dual_attention import LANGUAGE_PRESETS, cli
from dual_attention.checkpoints import open_checkpoint
from dual_attention.commands.info import aligned, memory, parameters_by_part, size
from dual_attention.training.relational_games.model import build_model, count_parameters
from dual_attention.training.relational_games.presets import PRESETS

GAMES = [
    "--task=same",
    "--data.n_train=8",
    "--data.n_val=4",
    "--data.n_test=4",
    "--data.n_heldout=4",
    "--loop.epochs=1",
    "--machine.threads=1",
    "--output.tensorboard=false",
    "--output.progress=false",
    "--output.name=games",
]


def told(capsys, *words) -> str:
    assert cli.main(["info", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_a_language_run(run, capsys):
    found = json.loads(told(capsys, run, "--json"))
    model = open_checkpoint(run).model
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert found["trained_parameters"] == found["parameters"] - 4 * 16  # the symbol library is frozen
    assert found["parts"]["token embedding, also the output"] == {"parameters": 257 * 16, "trained": 257 * 16}
    assert found["result"]["loss"] == json.loads((run / "result.json").read_text())["loss"]
    assert found["state"] == "finished" and found["context"] == 24
    assert found["memory"]["weights"] == 4 * found["parameters"]
    assert found["memory"]["training"] == 4 * (found["parameters"] + 3 * found["trained_parameters"])

    cache = model.new_cache()
    with torch.no_grad():
        model(torch.zeros(1, 24, dtype=torch.long), cache=cache)
    assert found["memory"]["cache"] == 4 * cache.numbers_per_token * 24
    half = json.loads(told(capsys, run, "--json", "--dtype=bfloat16"))
    assert (half["memory"]["weights"], half["memory"]["cache"]) == (
        found["memory"]["weights"] // 2,
        found["memory"]["cache"] // 2,
    )


def test_what_a_reader_sees(run, hub_folder, capsys):
    out = told(capsys, run)
    for text in ("DualAttnTransformerLM, language run (finished)", "n_heads_ra", "relational attention", "of them 64"):
        assert text in out
    assert "bits per byte" in out and "for 24 tokens" in out
    out = told(capsys, hub_folder)
    assert "model folder" in out and "result" not in out


def test_a_run_of_relational_games(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "relational-games", "--preset=dat-1+1-sym", *GAMES]) == 0
    found = json.loads(told(capsys, "runs/games", "--json"))
    expected = count_parameters(build_model(PRESETS["dat-1+1-sym"], 2, seed=0))
    assert found["parameters"] == expected == sum(part["parameters"] for part in found["parts"].values())
    assert {"relational attention", "sensory attention", "feed-forward", "symbols"} <= set(found["parts"])
    assert found["config"]["task"] == "same" and "cache" not in found["memory"]
    assert "accuracy" in told(capsys, "runs/games")
    assert cli.main(["generate", "runs/games", "x"]) == 2
    assert "a run of Relational Games, whose model writes no text" in capsys.readouterr().err


@pytest.mark.parametrize("name", LANGUAGE_PRESETS)
def test_parts_add_up(name):
    model = LANGUAGE_PRESETS[name].build(device="meta")
    parts = parameters_by_part(model)
    assert sum(part["parameters"] for part in parts.values()) == sum(p.numel() for p in model.parameters())
    known = {"symbols", "relational attention", "sensory attention", "feed-forward", "normalisation"}
    assert set(parts) - known == {"token embedding, also the output"}
    assert memory(model, torch.bfloat16)["weights"] == 2 * sum(p.numel() for p in model.parameters())


def test_sizes_in_words():
    assert [size(n) for n in (5, 1536, 1 << 20, 682 << 20, 5 << 30)] == [
        "5 bytes",
        "1.5 KiB",
        "1.0 MiB",
        "682 MiB",
        "5.0 GiB",
    ]
    assert aligned([("a", "10"), ("bcd", "5")], right=1) == ["  a    10", "  bcd   5"]
