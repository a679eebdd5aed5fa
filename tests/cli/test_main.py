"""The ``dat`` command as a user meets it: help, errors in one line, exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import dual_attention
from dual_attention.cli import demo
from dual_attention.cli import main as cli
from dual_attention.cli.train import expand_presets
from dual_attention.experiments.relational_games.config import RelationalGamesConfig
from dual_attention.experiments.relational_games.experiment import RelationalGames
from dual_attention.experiments.relational_games.presets import PRESETS
from dual_attention.training.config_io import build_parser, parse_config

TINY = [
    "--task=same",
    "--data.n_train=24",
    "--data.n_val=8",
    "--data.n_test=8",
    "--data.n_heldout=8",
    "--model.d_model=16",
    "--model.dff=16",
    "--model.n_layers=1",
    "--model.rel_proj_dim=4",
    "--loop.epochs=2",
    "--loop.batch_size=16",
    "--machine.threads=1",
    "--output.tensorboard=false",
]
GAMES = RelationalGames()
CONFIGS = sorted((Path(__file__).parents[2] / "experiments" / "relational_games" / "configs").glob("*.yaml"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAT_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "120")


def dat(*arguments: str) -> int:
    return cli.main(list(arguments))


def fails(capsys, *arguments: str) -> str:
    """The one line that a wrong command prints."""
    assert dat(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dat: error: ") and err.count("\n") == 1
    return err


def test_help_lists_every_command(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        assert dat(*arguments) == 0
        out = capsys.readouterr().out
        assert all(" ".join(command.words) in out and command.summary in out for command in cli.every_command())


@pytest.mark.parametrize("command", cli.every_command(), ids=lambda command: "-".join(command.words))
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        dat(*command.words, "--help")
    assert caught.value.code == 0
    assert f"usage: dat {' '.join(command.words)}" in capsys.readouterr().out


def test_version(capsys):
    assert dat("--version") == 0
    assert capsys.readouterr().out == f"dual-attention {dual_attention.__version__}\n"


def test_the_module_runs_as_a_program():
    environment = {**os.environ, "PYTHONPATH": str(Path(dual_attention.__file__).parents[1])}
    call = [sys.executable, "-m", "dual_attention"]
    done = subprocess.run([*call, "frobnicate"], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.startswith("dat: error: unknown command 'frobnicate'")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "unknown command 'frobnicate': expected .*train"),
        (["train", "chess"], "unknown command 'chess': expected language or relational-games"),
        (["train", "language", "--model.n_heads_sa=0", "--model.n_heads_ra=0"], "at least 1, got 0"),
        (["train", "language", "--data.path", "none.txt"], r"data\.path: no such file or folder: none\.txt"),
        (["train", "language", "--preset", "gpt"], "preset: expected one of .*got 'gpt'"),
        (["train", "language", "--resume", "none"], "none: not a run folder"),
        (["train", "language", "--optim.min_lr=1"], r"optim\.min_lr: expected a number from 0 to optim\.lr"),
        (["generate"], "checkpoint"),
        (["generate", "none", ""], "prompt: expected a text"),
        (["info", "none"], "none: no such folder, and no name on the Hugging Face hub"),
        (["train", "relational-games", "--task", "chess"], "task: expected one of 'same', 'occurs', .*, got chess$"),
        (["train", "relational-games", "--optim.lr=-1"], r"optim\.lr: expected a positive number, got -1"),
        (["train", "relational-games", "--data.n_train=many"], r"data\.n_train.*many"),
        (["train", "relational-games", "--bogus", "1"], "bogus"),
        (["train", "relational-games", "--preset", "resnet"], "preset: expected one of .*got 'resnet'"),
        (["train", "relational-games", "--preset"], "preset: expected one of .*got ''"),
        (["train", "relational-games", "--config", "none.yaml"], r"none\.yaml"),
        (["train", "relational-games", "--resume", "none"], "none: not a run folder"),
        (["train", "relational-games", "--resume", "none", "--seed=1"], "--resume RUN stands alone"),
        (["evaluate"], "run"),
        (["evaluate", "none"], "none: not a run folder"),
        (["reproduce", "relational-games", "--models=[resnet]"], "models: expected names among"),
        (["reproduce", "relational-games", "--sizes=[0]"], "sizes: expected integers of at least 1"),
        (["data", "relational-games"], "out"),
        (["data", "relational-games", "--out", "none/x.png"], "no folder none"),
        (["data", "relational-games", "--out", "x.png", "--tasks=[chess]"], "chess"),
        (["demo", "--trials=0"], "trials"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys, tmp_path):
    import re

    assert re.search(message, fails(capsys, *arguments))
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(monkeypatch):
    with pytest.raises(ValueError, match="unknown command"):
        dat("frobnicate", "--debug")
    monkeypatch.setenv("DAT_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown command"):
        dat("frobnicate")


def test_unexpected_errors_say_how_to_see_more(capsys, monkeypatch):
    def broken(*_):
        raise KeyError("x")

    monkeypatch.setattr(demo, "demo", broken)
    assert "(KeyError; DAT_DEBUG=1 shows where)" in fails(capsys, "demo")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "demo", interrupted)
    assert dat("demo") == 130


def test_a_missing_extra_names_the_command_that_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonargparse", None)
    assert 'pip install "dual-attention[train]"' in fails(capsys, "demo")


def test_train_evaluate_and_refuse_to_overwrite(capsys):
    assert dat("train", "relational-games", *TINY, "--output.name=one") == 0
    out = capsys.readouterr().out
    assert "stripes, never trained on" in out and "run folder: runs/one" in out
    assert dat("evaluate", "runs/one", "--json", "--machine.threads=1") == 0
    numbers = json.loads(capsys.readouterr().out)
    expected = json.loads(Path("runs/one/result.json").read_text())["accuracy"]
    assert {name: value["accuracy"] for name, value in numbers.items()} == expected
    assert dat("evaluate", "runs/one", "--machine.threads=1") == 0
    assert f"{100 * expected['test']:.1f} %" in capsys.readouterr().out
    assert "runs/one: a finished run is never overwritten" in fails(
        capsys, "train", "relational-games", *TINY, "--output.name=one"
    )
    assert "the run is finished" in fails(capsys, "train", "relational-games", "--resume", "runs/one")


def test_resume_by_command(capsys, monkeypatch):
    from dual_attention.training import loop

    step = loop.Trainer.train_step
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_step", lambda self, *a: step(self, *a) if self.step < 3 else 1 / 0)
        assert dat("train", "relational-games", *TINY, "--loop.checkpoint_every=1", "--output.name=one") == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert "unfinished run" in fails(capsys, "train", "relational-games", *TINY, "--output.name=one")
    assert dat("train", "relational-games", "--resume", "runs/one") == 0
    assert dat("train", "relational-games", *TINY, "--output.name=two") == 0
    results = [json.loads(Path(f"runs/{name}/result.json").read_text()) for name in ("one", "two")]
    assert results[0]["loss"] == results[1]["loss"]


def test_interruption_says_how_to_continue(capsys, monkeypatch):
    from dual_attention.training import interrupt

    monkeypatch.setattr(interrupt.StopOnSignal, "__call__", lambda self: True)
    assert dat("train", "relational-games", *TINY, "--output.name=one") == 130
    assert "continue with: dat train relational-games --resume runs/one" in capsys.readouterr().err


def test_quiet_training_prints_nothing(capsys):
    assert dat("train", "relational-games", *TINY, "--output.progress=false") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_trains(path):
    """A step of each model at its full size."""
    small = ["--data.n_train=8", "--data.n_val=4", "--data.n_test=4", "--data.n_heldout=4", "--loop.epochs=1"]
    quiet = ["--output.progress=false", "--output.tensorboard=false", "--machine.threads=1", "--output.name=run"]
    assert dat("train", "relational-games", "--config", str(path), *small, *quiet) == 0
    assert json.loads(Path("runs/run/result.json").read_text())["model"] == path.stem


def test_there_is_a_config_for_every_model_of_the_comparison():
    from dual_attention.experiments.relational_games.presets import ORDER

    assert {path.stem for path in CONFIGS} >= set(ORDER)


def test_a_preset_overrides_what_precedes_it_and_yields_to_what_follows():
    words = expand_presets(GAMES, ["--model.d_model=1", "--preset=transformer-144-h8", "--seed", "3"])
    assert words[0] == "--model.d_model=1" and words[-2:] == ["--seed", "3"]
    assert "--model.d_model=144" in words and "--model.n_heads_ra=0" in words
    assert len(words) == 3 + len(vars(PRESETS["transformer-144-h8"]))


def test_a_preset_replaces_the_architecture_of_another():
    """Also what it says in groups of keys; what follows may change a part of them."""
    config = next(path for path in CONFIGS if path.stem == "corelnet")
    words = ["--config", str(config), "--preset=predinet", "--preset=abstractor", "--model.abstractor.n_heads=8"]
    parser = build_parser(RelationalGamesConfig, prog="dat", description="")
    parser.add_argument("--preset")
    model = parse_config(parser, RelationalGamesConfig, expand_presets(GAMES, words))[0].model
    wanted = replace(PRESETS["abstractor"], abstractor=replace(PRESETS["abstractor"].abstractor, n_heads=8))
    assert model == wanted


def test_an_architecture_by_its_keys(capsys):
    words = ["--model.architecture=corelnet", "--model.corelnet.activation=tanh", "--model.name=mine"]
    assert dat("train", "relational-games", *TINY, *words, "--output.name=one") == 0
    capsys.readouterr()
    assert "activation: tanh" in Path("runs/one/config.yaml").read_text()
    assert dat("evaluate", "runs/one", "--json", "--machine.threads=1") == 0
    numbers = json.loads(capsys.readouterr().out)
    result = json.loads(Path("runs/one/result.json").read_text())
    assert {name: value["accuracy"] for name, value in numbers.items()} == result["accuracy"]
    message = "model.corelnet: expected null with model.architecture=dat"
    assert message in fails(capsys, "train", "relational-games", "--model.corelnet.activation=tanh")


def test_print_config_shows_the_preset(capsys):
    with pytest.raises(SystemExit):
        dat("train", "relational-games", "--preset", "rca-1+1", "--model.dff=7", "--print_config")
    out = capsys.readouterr().out
    assert "ra_type: rca" in out and "dff: 7" in out


def test_contact_sheet(capsys):
    assert dat("data", "relational-games", "--out", "sheet.png", "--tasks=[same]", "--per_class=1") == 0
    assert Path("sheet.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == "sheet.png\n"
    assert "sheet.png exists already" in fails(capsys, "data", "relational-games", "--out", "sheet.png")


def test_reproduce_dry_run(capsys):
    words = ["--tasks=[same]", "--sizes=[8]", "--models=[transformer-128-h2]", "--loop.batch_size=8", "--dry_run"]
    assert dat("reproduce", "relational-games", *words, "--out=grid", "--seeds=2") == 0
    assert "2 cells, 0 done, 2 to run" in capsys.readouterr().out
    assert not Path("grid").exists()


def test_train_a_language_model_and_let_it_write(capsys, tmp_path):
    (tmp_path / "text.txt").write_text("one two three\n" * 40)
    words = ["--data.path=text.txt", "--preset=T-tiny", "--model.d_model=16", "--model.context=8", "--loop.steps=3"]
    quick = ["--loop.batch_size=2", "--machine.threads=1", "--output.tensorboard=false", "--output.name=one"]
    assert dat("train", "language", *words, *quick) == 0
    out = capsys.readouterr().out
    assert "T-tiny, 48 tokens: validation loss " in out and "bits per byte" in out
    assert 'dat generate runs/one "..."' in out
    assert dat("evaluate", "runs/one", "--json", "--machine.threads=1") == 0
    numbers = json.loads(capsys.readouterr().out)["val"]
    assert numbers["loss"] == json.loads(Path("runs/one/result.json").read_text())["loss"]["val"]
    assert dat("evaluate", "runs/one", "--machine.threads=1") == 0
    assert f"perplexity {numbers['perplexity']:.2f}" in capsys.readouterr().out
    assert "a finished run is never overwritten" in fails(capsys, "train", "language", *words, *quick)
    assert "the run is finished" in fails(capsys, "train", "language", "--resume", "runs/one")
    assert dat("generate", "runs/one", "one", "--max_new_tokens=5", "--seed=0", "--threads=1") == 0
    assert capsys.readouterr().out.startswith("one")
    assert dat("info", "runs/one") == 0
    assert "TransformerLM, language run (finished)" in capsys.readouterr().out


def test_an_interrupted_language_model_says_how_to_continue(capsys, monkeypatch, tmp_path):
    from dual_attention.training import interrupt

    (tmp_path / "text.txt").write_text("one two three\n" * 40)
    monkeypatch.setattr(interrupt.StopOnSignal, "__call__", lambda self: True)
    words = ["--data.path=text.txt", "--model.context=8", "--output.name=one", "--output.tensorboard=false"]
    assert dat("train", "language", *words, "--machine.threads=1") == 130
    assert "continue with: dat train language --resume runs/one" in capsys.readouterr().err
