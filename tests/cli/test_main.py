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
        # Wrong types, in the words of this package
        (["train", "language", "--optim", "3"], r"optim: expected a group of keys \(optimizer, lr, .*\), got 3$"),
        (["train", "language", "--machine.threads=many"], r"machine\.threads: expected an integer or null, got many$"),
        (["train", "language", "--optim.grad_clip=big"], r"optim\.grad_clip: expected a number or null, got big$"),
        (["train", "language", "--optim.betas=[1]"], r"optim\.betas: expected a list of two numbers, got \[1\]$"),
        (["train", "language", "--output.progress=perhaps"], r"output\.progress: expected true or false, got perhaps$"),
        (["train", "language", "--optim.lr"], r"optim\.lr: expected a number, got nothing$"),
        (
            ["train", "relational-games", "--model.corelnet", "3"],
            r"model\.corelnet: expected a group .* got 3$",
        ),
        (["generate", "x", "y", "--top_k=few"], "top_k: expected an integer, got few$"),
        (["generate", "x", "y", "--device=tpu"], "device: expected one of 'auto', 'cpu', 'cuda', got tpu$"),
        (["estimate", "DAT-tiny", "--batch=few"], "batch: .*expected a positive number, got 'few'"),
        (["train", "language", "--model.d_model", "null"], r"model\.d_model: expected an integer, got null$"),
        (["train", "language", "--resume"], "resume: expected a value, got nothing$"),
        (
            ["train", "relational-games", "--model.abstractor.n_heads=x"],
            r"model\.abstractor\.n_heads: expected an integer, got x$",
        ),
        (
            ["train", "relational-games", "--model.corelnet.typo=3"],
            r"typo: there is no such key; .* of model\.corelnet\.dff",
        ),
        (["train", "language", "more", "words"], "expected no further word, got more words$"),
        (["plot", "language", "x"], "expected also out;"),
        # Names that are nearly right
        (["train", "language", "--confi=x"], r"there is no option --confi; did you mean --config\?$"),
        (["train", "language", "--lr=1"], r"there is no option --lr; did you mean --optim\.lr\?$"),
        (["train", "language", "--optim.learning_rate=1"], r"--optim\.learning_rate"),
        (["train", "language", "--data.paht=x"], r"did you mean --data\.path\?$"),
        (["train", "language", "--n_layers", "3"], r"did you mean --model\.n_layers\?$"),
        (
            ["train", "language", "--preset=DAT-tny"],
            r"preset: .*got 'DAT-tny'; did you mean DAT-tiny\?",
        ),
        (["reproduce", "language", "--models=[T-tny]"], r"got 'T-tny'; did you mean T-tiny\?"),
        (["estimate", "DAT-tny"], r"did you mean DAT-tiny\?"),
        (["estimate", "DAT-tiny", "--bach=3"], r"there is no option --bach; did you mean --batch\?"),
        (["trian", "language"], r"did you mean train\?"),
        (["train", "langauge"], r"did you mean language\?"),
        # Incomplete commands
        (["train"], "dat train: expected language or relational-games next"),
        (["reproduce", "--dry_run"], "dat reproduce: expected language or relational-games next"),
        (["data"], "dat data: expected relational-games next"),
        (["estimate"], "MODEL|model"),
        (["completion"], "SHELL|shell"),
        # Absurd sizes
        (["train", "language", "--machine.threads=1000000"], r"machine\.threads: expected an integer from 1 to 1,024"),
        (
            ["train", "language", "--model.n_layers=1000000000"],
            r"model\.n_layers: expected .* from 1 to 1,000,",
        ),
        (["train", "language", "--loop.steps=1000000000"], r"loop\.steps: expected an integer from 1 to 10,000,000"),
        (
            ["train", "language", "--model.context=1000000000"],
            r"model\.context: expected .* from 1 to 16,777,216",
        ),
        (["train", "language", "--model.d_model=1048576"], r"model: its weights take .* GiB, more than the .* GiB of"),
        (["train", "language", "--loop.batch_size=10000000"], r"loop\.batch_size \* model\.context: expected at most"),
        (["train", "language", "--optim.lr=.inf"], r"optim\.lr: expected a positive number, got inf"),
        (["train", "language", "--optim.lr=.nan"], r"optim\.lr: expected a positive number, got nan"),
        (["train", "relational-games", "--data.n_train=3000000000"], r"data\.n_train: expected .* to 10,000,000"),
        (
            ["train", "relational-games", "--model.corelnet.dff=9999999", "--model.architecture=corelnet"],
            r"corelnet\.dff",
        ),
        (["reproduce", "relational-games", "--seeds=1000000000"], "seeds: expected an integer from 1 to 10,000"),
        (["reproduce", "relational-games", "--sizes=[9000000000]"], "sizes: expected integers of at most 10,000,000"),
        (["reproduce", "relational-games", "--workers=1000000"], "workers: expected an integer from 1 to 1,024"),
        (["demo", "--workers=1000000"], "workers: expected an integer from 1 to 1,024"),
        (["data", "relational-games", "--out=x.png", "--per_class=100000"], "per_class: expected .* to 100"),
        (["generate", "none", "x", "--threads=1000000"], "threads: expected an integer from 1 to 1,024"),
        (["generate", "none", "x", "--num_beams=1000000"], "num_beams: expected an integer from 1 to 1,024"),
        (["estimate", "DAT-tiny", "--batch=1e30"], "expected an integer from 1 to 1,000,000,000"),
        # Seeds, names, and texts
        (["train", "language", "--seed=99999999999999999999"], "seed: expected an integer of 64 bits"),
        (["train", "relational-games", "--data.seed=-99999999999999999999"], r"data\.seed: expected an integer of 64"),
        (["reproduce", "language", "--first_seed=99999999999999999999"], "first_seed: expected an integer of 64"),
        (["generate", "none", "x", "--seed=-1"], "seed: expected an integer from 0 to"),
        (["generate", "none", "x", "--seed=99999999999999999999"], "seed: expected an integer from 0 to"),
        (["train", "language", "--output.name=../../x"], r"output\.name: expected the name of a folder inside"),
        (["train", "language", "--output.name=/tmp/x"], r"output\.name: expected the name of a folder inside"),
        (["train", "language", "--output.name=\x1b[31mred"], r"output\.name: .*\\x1b\[31mred"),
        (["train", "language", "--model.name=../x"], r"model\.name: expected the name of a folder inside"),
        (["train", "language", "--output.name=a\0b"], "expected options without zero bytes"),
        (["info", "\x1b]0;title\x07"], r"\\x1b\]0;title\\x07"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys, tmp_path):
    import re

    assert re.search(message, fails(capsys, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train", "reproduce"])
@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"optim: 3", r"optim: expected a group of keys \(optimizer, lr, .*\), got 3$"),
        (b"lr: 3", r"lr: there is no such key; did you mean optim\.lr\?$"),
        (b"optim: {lr: fast}", r"optim\.lr: expected a number, got fast$"),
        (b"optim: {lr: 1}\noptim: {lr: 2}", "the key optim is there twice, the second time in line 2$"),
        (b"optim: [1", "not YAML: "),
        (b"\x89PNG\r\n\x1a\n\x00", "not UTF-8 text"),
        (b"optim: \x00", "not text"),
        (b"- 1", "expected a mapping, got list"),
    ],
)
def test_a_wrong_file_is_named(command, contents, message, capsys):
    import re

    Path("c.yaml").write_bytes(contents)
    error = fails(capsys, command, "language", "--config=c.yaml")
    assert error.startswith("dat: error: c.yaml: ") and re.search(message, error.strip())
    assert error.strip().isprintable()


def test_a_file_with_a_byte_order_mark(capsys):
    Path("c.yaml").write_bytes(b"\xef\xbb\xbfoptim: {lr: 7e-2}\n")
    with pytest.raises(SystemExit):
        dat("train", "language", "--config", "c.yaml", "--print_config")
    assert "lr: 0.07" in capsys.readouterr().out


def test_help_and_version_do_not_wait_for_torch():
    """Nor do incomplete commands; and what they print says nothing of an import."""
    script = (
        "import sys\nfrom dual_attention.cli.main import main\n"
        "print([main(words.split()) for words in ('', '--help', '--version', 'train', 'frobnicate', 'train --help')])\n"
        "print(sorted({'torch', 'numpy', 'jsonargparse', 'transformers'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(dual_attention.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-2:] == ["[0, 0, 0, 2, 2, 0]", "[]"]


@pytest.mark.parametrize("module", ["numpy"])
def test_a_missing_package_names_the_extra(module, tmp_path):
    script = (
        f"import sys\nsys.modules[{module!r}] = None\nfrom dual_attention.cli.main import main\n"
        "sys.exit(main(['train', 'language', '--config', 'c.yaml', '--loop.steps=1']))"
    )
    (tmp_path / "c.yaml").write_text("seed: 1")
    environment = {**os.environ, "PYTHONPATH": str(Path(dual_attention.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]  # torch itself warns before it, if numpy is missing
    assert last.startswith("dat: error: ") and 'pip install "dual-attention[train]"' in last


def test_a_second_attempt_has_a_folder_of_its_own(capsys):
    words = ["train", "relational-games", *TINY, "--output.progress=false"]
    name = "same-dat-0+2-sym-n24-seed0"
    assert dat(*words) == 0
    assert f"{name}: a finished run is never overwritten" in fails(capsys, *words)
    assert dat(*words, "--optim.lr=0.01") == 0
    assert dat(*words, "--optim.lr=0.02") == 0
    assert f"{name}-2: a finished run is never overwritten" in fails(capsys, *words, "--optim.lr=0.01")
    assert sorted(path.name for path in Path("runs").iterdir()) == [name, f"{name}-2", f"{name}-3"]
    assert "lr: 0.01" in Path(f"runs/{name}-2/config.yaml").read_text()


def test_after_a_diverged_run_the_advice_leads_somewhere(capsys):
    words = ["train", "relational-games", *TINY, "--output.progress=false"]
    error = fails(capsys, *words, "--optim.lr=1e30")
    assert "try a smaller optim.lr" in error and "the same command with others trains in a new folder" in error
    assert dat(*words, "--optim.lr=0.001") == 0


def test_a_warm_up_longer_than_training_is_said(capsys, tmp_path):
    (tmp_path / "text.txt").write_text("one two three\n" * 40)
    words = ["--data.path=text.txt", "--model.context=8", "--output.progress=false", "--output.tensorboard=false"]
    assert dat("train", "language", *words, "--loop.steps=2", "--machine.threads=1") == 0
    err = capsys.readouterr().err
    assert "the warm-up of 50 steps (optim.warmup_steps) is not shorter than the training of 2 (loop.steps)" in err


def test_a_context_longer_than_the_text_is_refused_before_the_model_is_built(capsys, tmp_path, monkeypatch):
    from dual_attention.experiments.language import problem

    (tmp_path / "text.txt").write_text("one two three\n")
    monkeypatch.setattr(problem, "build_language_model", None)
    error = fails(capsys, "train", "language", "--data.path=text.txt", "--model.context=100000")
    assert "expected a text of more than 100000 tokens, the context length" in error


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
