"""Training language models: the recipe, a complete folder, the same numbers again after any stop."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dat.experiments import experiment_of_run
from dat.experiments.language.config import LanguageConfig, LanguageOptimConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.model_keys import LanguageModelKeys, model_preset
from dat.experiments.language.problem import build_language_model, language_loss, prepare_text
from dat.training.config_io import read_config
from dat.training.configs import StepLoopConfig
from dat.training.metrics import read_rows
from dat.training.optim import build_optimizer, learning_rate
from dat.training.plan import StepPlan
from dat.training.runs import evaluate_run, resume_run, start_run
from dual_attention import LANGUAGE_PRESETS
from dual_attention.generation.tokenizer import BytePairTokenizer
from tests.support.refusals import refusals, refused
from tests.support.runs import assert_same_run, interrupted

from .conftest import MODEL, TEXT, named, tiny_config

pytestmark = pytest.mark.sweep(3)

RECIPE = Path(__file__).parents[4] / "examples" / "fineweb.yaml"
LANGUAGE = LanguageModelling()
FINAL = ("loss", "perplexity", "bits_per_byte", "steps", "tokens", "parameters")


def final(folder):
    return {key: folder.read_result()[key] for key in FINAL}


def test_a_run_leaves_everything_in_its_folder(whole):
    folder, config = whole, tiny_config(whole.path.parents[1])
    assert {path.name for path in folder.path.iterdir()} == {
        ".lock",
        "checkpoints",
        "checksums.json",
        "config.json",
        "config.yaml",
        "curves.png",
        "data.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
        "tokenizer",
    }
    assert {path.name for path in folder.path.parent.iterdir()} == {"run", "tokens"}
    assert read_config(LanguageConfig, folder.config) == config and experiment_of_run(folder).name == "language"
    rows = read_rows(folder.metrics)
    assert [row["step"] for row in rows] == [2, 3, 4, 5, 6, 7]
    assert [row["step"] for row in rows if "val_loss" in row] == [3, 6, 7]
    assert [row["tokens"] for row in rows] == [96 * row["step"] for row in rows]
    result = folder.read_result()
    last = rows[-1]
    assert result["loss"]["val"] == last["val_loss"] < math.log(257)
    assert result["perplexity"]["val"] == pytest.approx(math.exp(last["val_loss"]))
    # one byte a token, so bits per byte are bits per token
    assert result["bits_per_byte"]["val"] == pytest.approx(last["val_loss"] / math.log(2))
    assert result["val_tokens"] == 160 and result["tokens"] == 7 * 6 * 16
    checkpoints = sorted(path.name for path in folder.checkpoints.folder.iterdir())
    assert checkpoints == ["report-00004-step-00000005", "report-00006-step-00000007"]


@pytest.mark.parametrize("tokens", ["none", "whole", "damaged"])
def test_evaluation_writes_nothing_beside_the_run(whole, tmp_path, tokens):
    """With the tokens that runs share, or without them: they are made again in a place of their own."""
    run = shutil.copytree(whole.path, tmp_path / "runs" / "run")
    if tokens != "none":
        shutil.copytree(whole.path.parent / "tokens", tmp_path / "runs" / "tokens")
        (lock,) = tmp_path.glob("runs/tokens/*/.lock")
        lock.unlink()
    if tokens == "damaged":
        (shard,) = tmp_path.glob("runs/tokens/*/tokens-00000.npy")
        shard.write_bytes(b"damaged")
    expected = evaluate_run(LANGUAGE, whole.path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert evaluate_run(LANGUAGE, run) == expected
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_run_says_what_it_read(config, capsys):
    """Each time it goes on, but not when it is evaluated."""
    talking = replace(config, output=replace(config.output, progress=True))
    with interrupted(0):
        start_run(LANGUAGE, talking)
    folder = resume_run(LANGUAGE, Path(config.output.folder) / "run")
    printed = capsys.readouterr().out
    assert printed.count(f"text: 1 file, 1 document, {len(TEXT):,} characters\ntokens: ") == 2
    evaluate_run(LANGUAGE, folder.path)
    assert not capsys.readouterr().out


def test_training_learns(config):
    loop = replace(config.loop, steps=60, eval_every=0, checkpoint_every=0)
    result = start_run(LANGUAGE, replace(config, loop=loop)).read_result()
    assert result["loss"]["val"] < 3.4  # from log(257) = 5.5


@pytest.mark.parametrize("looks", [0, 3, 4, 9, 14, 17])
def test_stopped_anywhere_and_resumed_gives_the_same_numbers(config, whole, looks):
    """Looks fall between steps and between batches of evaluations."""
    with interrupted(looks):
        start_run(LANGUAGE, config)
    torch.manual_seed(99)
    run = Path(config.output.folder) / "run"
    assert not (run / "result.json").exists()
    parts = resume_run(LANGUAGE, run)
    assert final(parts) == final(whole)
    assert_same_run(parts, whole)


def test_micro_batches_change_rounding_alone(config):
    loop = replace(config.loop, micro_batch_size=None, steps=3)
    whole = named(config, "whole", model=replace(MODEL, dropout_rate=0.0), loop=loop)
    parts = named(whole, "parts", loop=replace(loop, micro_batch_size=1))
    losses = [start_run(LANGUAGE, c).read_result()["loss"]["val"] for c in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_bfloat16_and_checkpointed_blocks(config, tmp_path, checkpointing):
    machine = replace(config.machine, gradient_checkpointing=checkpointing)
    prepared = prepare_text(replace(config, machine=machine), cache=tmp_path / "cache")
    model, batch = prepared.problem.model.eval(), prepared.data.train.batch(torch.arange(2))
    exact = language_loss()(model, batch)[0]
    rounded = language_loss(torch.bfloat16)(model, batch)[0]
    rounded.backward()
    assert model.gradient_checkpointing is checkpointing
    assert rounded.item() == pytest.approx(exact.item(), rel=2e-2) and rounded.item() != exact.item()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())


def test_weight_decay_is_of_matrices_alone():
    model = build_language_model(MODEL.language_config(257), seed=0)
    groups = build_optimizer(model, LanguageOptimConfig()).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.dim() >= 2 for p in groups[0]["params"]) and all(p.dim() < 2 for p in groups[1]["params"])
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    assert {id(p) for group in groups for p in group["params"]} == trained
    assert len(trained) < len(list(model.parameters()))  # the symbol library is frozen


def test_learning_rate_of_the_paper():
    config = read_config(LanguageConfig, RECIPE).optim
    rates = [learning_rate(config, step, 19073) for step in (0, 714, 715, 19073)]
    assert rates == pytest.approx([6e-4 / 715, 6e-4, 6e-4, 6e-5])
    assert LanguageOptimConfig(lr=1.0).lowest_lr == 0.1


def test_a_plan_of_steps():
    plan = StepPlan(StepLoopConfig(steps=10, batch_size=3, report_every=4, eval_every=3, checkpoint_every=0))
    ends = [plan.first_step(span) for span in range(1, plan.spans)] + [plan.total_steps]
    assert ends == [3, 4, 6, 8, 9, 10]
    assert torch.cat([i for span in range(plan.spans) for i in plan.batches(span)]).tolist() == list(range(30))
    assert [plan.evaluates(span) for span in range(plan.spans)] == [True, False, True, False, True, True]
    assert not any(plan.saves(span) for span in range(plan.spans))


@pytest.mark.parametrize("name", LANGUAGE_PRESETS)
def test_presets_are_those_of_the_library(name):
    preset = LANGUAGE_PRESETS[name]
    assert model_preset(name).language_config(257 if preset.vocab_size == 257 else 50257) == preset


@pytest.mark.parametrize(
    "changes",
    [
        {"n_heads_ra": 0, "n_heads_sa": 2, "bias": True},
        {"symbols": "position_relative", "symmetric_rels": True, "rel_activation": "softmax"},
        {"symbols": "positional_symbols", "n_relations": None, "wr_init": "large", "pos_enc_type": "pos_emb"},
        {"ra_type": "rca", "update_symbols_each_layer": False, "tie_weights": False},
        {"shared_symbol_retriever": False, "weight_tie_symbol_library": True, "vocab_size": 300, "n_layers": 2},
    ],
)
def test_every_kind_of_model_learns_to_predict(changes):
    """A gradient reaches every parameter that trains."""
    model = build_language_model(replace(MODEL, **changes).language_config(257), seed=0)
    tokens = torch.randint(257, (2, 16))
    language_loss()(model, (tokens, tokens))[0].backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert not without


test_impossible_configurations = refused(
    (lambda: LanguageOptimConfig(lr=1.0, min_lr=2.0),
     r"optim\.min_lr: expected a number from 0 to optim\.lr or null, got 2"),
    (lambda: replace(MODEL, vocab_size=100).language_config(257), "model.vocab_size: expected null or at least 257"),
    (lambda: replace(MODEL, symbols="symbolic_attention", sinusoidal_symbols=True).language_config(257),
     "model.symbols"),
    (lambda: LanguageModelKeys(d_model=66), "model.d_model: expected a multiple of the 4 heads"),
)  # fmt: skip


def test_a_text_that_has_changed_is_not_gone_on_with(config, text):
    folder = start_run(LANGUAGE, config)
    folder.result.unlink()
    text.write_text(text.read_text() + "more")
    with pytest.raises(ValueError, match="the text is not the one that the run began with"):
        resume_run(LANGUAGE, folder.path)


@refusals(
    (True, r"tokenizer/about\.json: damaged or changed since it was written"),
    (False, "the text is not the one that the run began with"),
    of="checked",
)
def test_a_tokenizer_that_does_not_fit_is_refused(config, text, checked, error, message):
    folder = start_run(LANGUAGE, config)
    folder.result.unlink()
    if not checked:
        (folder.path / "checksums.json").unlink()
    before = {path: path.read_bytes() for path in folder.path.glob("*.*")}
    shutil.rmtree(folder.path / "tokenizer")
    BytePairTokenizer.train([text.read_text()], 257).save(folder.path / "tokenizer")
    with pytest.raises(error, match=message):
        resume_run(LANGUAGE, folder.path)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["DAT-tiny", "T-tiny", "DAT-343M-nr64", "T-1.31B"])
def test_every_kind_of_preset_trains(name, config, tmp_path):
    """Two steps of it, with the large ones made small; what they are in full is compared with the library's presets."""
    large = "tiny" not in name
    shipped = replace(read_config(LanguageConfig, RECIPE) if large else LanguageConfig(), model=LANGUAGE.presets[name])
    model = shipped.model
    assert shipped.tokens_per_step == (524_288 if large else 4096)
    if large:
        width = 4 * (model.n_heads_sa + model.n_heads_ra)
        model = replace(model, d_model=width, n_layers=1, vocab_size=None, context=16, rel_proj_dim=None, n_relations=8)
    loop = replace(shipped.loop, steps=2, batch_size=4, micro_batch_size=2, eval_batch_size=2)
    small = replace(
        shipped,
        model=model,
        loop=loop,
        data=replace(config.data, order=shipped.data.order, val_tokens=64),
        machine=replace(shipped.machine, device="cpu", threads=1),
        output=config.output,
    )
    result = start_run(LANGUAGE, small).read_result()
    assert result["steps"] == 2 and result["model"] == shipped.model.name
    assert json.loads((tmp_path / "runs" / "run" / "config.json").read_text())["d_model"] == model.d_model
