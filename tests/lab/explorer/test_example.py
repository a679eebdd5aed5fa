"""The models that come with the package open everywhere, and do what their READMEs say."""

import math
import re

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.data.relational_games.dataset import generate_images
from dat.explorer.corpus import CorpusRun, held_out
from dat.explorer.example import DEFAULT, EXAMPLES
from dat.explorer.images import ImageSession
from dat.explorer.view_state import View
from dual_attention.functional import cross_entropy
from dual_attention.model_analysis.capture import capture
from tests.lab.cli.commands import dat, fails
from tests.support.documents import ROOT

pytest.importorskip("tokenizers", reason="byte pairs need the extra language")

LARGEST = {"language": 720_000, "games": 300_000}
"""Bytes of a folder."""


def stated(name, what):
    """A number that the README of a model states."""
    text = (EXAMPLES[name].path / "README.md").read_text(encoding="utf-8")
    return float(re.search(rf"\| {re.escape(what)} \| ([\d.]+)", text)[1])


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_a_small_finished_run_that_reads_its_first_source(name):
    example = EXAMPLES[name]
    assert sum(file.stat().st_size for file in example.path.rglob("*") if file.is_file()) < LARGEST[name]
    found = open_checkpoint(example.path)
    assert found.state == "finished" and found.weights_dtype == torch.float16
    assert {one.dtype for one in found.model.parameters()} == {torch.float32}
    session = example.open()
    assert session.title == example.title
    session.check(example.source)
    View.of(example.view).check_weights(session.facts["weights"])


def test_bits_per_byte_of_kept_text():
    found = open_checkpoint(EXAMPLES["language"].path)
    text = (EXAMPLES["language"].path / "held-out.txt").read_text(encoding="utf-8")
    tokenizer = found.tokenizer()
    tokens, length = tokenizer.encode(text), found.config.max_block_size
    nats = 0.0
    for start in range(0, len(tokens), length):
        window = torch.tensor([[tokenizer.end, *tokens[start : start + length]]])
        with torch.no_grad():
            logits = found.model(window[:, :-1]).logits
        nats += float(cross_entropy(logits, window[:, 1:], reduction="sum"))
    bits = nats / math.log(2) / len(text.encode())
    assert bits == pytest.approx(stated("language", "`held-out.txt`"), abs=0.006) and bits < 2


@pytest.mark.slow
def test_the_stated_effect_over_new_pictures(tmp_path):
    session = EXAMPLES["games"].open()
    run = CorpusRun(session, "new", held_out(session), tmp_path)
    assert len(list(run.measure())) == 64
    relations = [one for one in run.effects if one.mediator == "relation" and one.effect.metric == "kl"]
    assert max(one.effect.mean for one in relations[:3]) < 0.001
    row, most = relations[3].row, max(draw.mean for draw in relations[3].random)
    stated = f"{row['mean']:.1f} nats ({row['low']:.1f} to {row['high']:.1f}), random directions by at most {most:.1f}."
    assert f"by {stated}" in (ROOT / "docs/explorer-effects.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("objects", ["pentominoes", "hexominoes", "stripes"])
def test_the_stated_relation_tells_same_from_different(objects):
    example = EXAMPLES["games"]
    session = example.open()
    assert isinstance(session, ImageSession)
    games = generate_images("same", 600, objects=objects, seed=8)
    with torch.no_grad(), capture(session.model, ["relations"]) as maps:
        logits = session.model(session.normalised(games.images))
    assert float((logits.argmax(-1) == games.labels).float().mean()) > stated("games", objects) / 100 - 0.03
    (layer,) = maps.layers
    relation = maps[layer].relational.relations[..., View.of(example.view).relation]
    patches = games.images.unflatten(2, (3, 12)).unflatten(4, (3, 12)).sum((1, 3, 5)).flatten(1)
    places = patches.topk(2).indices + relation.shape[1] - 9  # of the two objects
    values = relation[torch.arange(600), places[:, 0], places[:, 1]]
    same, different = values[games.labels == 1], values[games.labels == 0]
    area = float((same[:, None] > different).float().mean())
    assert area > stated("games", f"AUC, {objects}") - 0.03


@pytest.mark.slow
def test_commands_open_them(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert dat("explore", "--export", "language.csv") == 0
    assert dat("explore", "--text", "A text", "--export", "short.csv") == 0
    assert dat("explore", "--layers", "1", "--export", "layer.csv") == 0  # which is not that of its view
    for name, layers in (("games.html", ()), ("layers.html", ("--layers", "0"))):
        assert dat("explore", "--example", "games", *layers, "--export", name) == 0
        assert "page=vision" in (tmp_path / name).read_text(encoding="utf-8")
    assert dat("info", str(EXAMPLES["games"].path)) == 0
    assert dat("generate", str(EXAMPLES[DEFAULT].path), "Fellow citizens", "--max_new_tokens", "3") == 0
    assert "Fellow citizens" in capsys.readouterr().out
    assert "example: expected language or games, got 'gamse'" in fails(capsys, "explore", "--example", "gamse")
    both = fails(capsys, "explore", str(EXAMPLES["games"].path), "--example", "games")
    assert "give a checkpoint or an example, not both" in both
