"""The ``dat`` command itself: help, versions, missing packages, unexpected errors."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dual_attention
from dat.cli import demo
from dat.cli import main as cli
from tests.lab.cli.commands import dat, fails, printed, shown

pytestmark = pytest.mark.usefixtures("here")


def test_help_lists_every_command(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        out = printed(capsys, *arguments)
        listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
        commands = cli.every_command()
        for word in {word for command in commands for word in command.words}:
            assert listed.count(word) == 1, word
        assert all(command.summary in out for command in commands if command.experiment is None)
        more = out.partition("\nmore:\n")[2].split()
        assert more[0] == "babylm" and "recall" not in more


def test_help_of_a_command_lists_its_experiments(capsys):
    out = printed(capsys, "reproduce", "--help")
    commands = [command for command in cli.every_command() if command.words[0] == "reproduce"]
    assert len(commands) > 5 and all(f"  {' '.join(c.words)} " in out and c.summary in out for c in commands)


@pytest.mark.parametrize("command", cli.every_command(), ids=lambda command: "-".join(command.words))
def test_every_command_has_help(command, capsys):
    assert f"usage: dat {' '.join(command.words)}" in shown(capsys, *command.words, "--help")


@pytest.mark.parametrize("words", [("help",), ("help", "train"), ("help", "train", "language")])
def test_help_is_a_word_too(words, capsys):
    def shown(*words):
        with contextlib.suppress(SystemExit):
            assert dat(*words) == 0
        return capsys.readouterr().out

    assert shown(*words) == shown(*words[1:], "--help") != ""


@pytest.mark.parametrize("word", ["--version", "-v", "-V"])
def test_version(word, capsys):
    assert printed(capsys, word) == f"relational-attention {dual_attention.__version__}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("buffered", [True, False])
def test_an_output_that_takes_nothing_is_named(buffered, capsys, monkeypatch):
    with io.TextIOWrapper(open("/dev/full", "wb", -1 if buffered else 0), write_through=not buffered) as full:
        monkeypatch.setattr("sys.stdout", full)
        assert dat("--version") == 2
    assert capsys.readouterr().err == "dat: error: [Errno 28] No space left on device: 'standard output'\n"


def test_the_module_runs_as_a_program():
    environment = {**os.environ, "PYTHONPATH": str(Path(dual_attention.__file__).parents[1])}
    call = [sys.executable, "-m", "dat"]
    done = subprocess.run([*call, "frobnicate"], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.startswith("dat: error: unknown command 'frobnicate'")
    assert "Traceback" not in done.stderr


def test_help_and_version_do_not_wait_for_torch():
    """Nor do incomplete commands; and what they print says nothing of an import."""
    script = (
        "import sys\nfrom dat.cli.main import main\n"
        "print([main(words.split()) for words in ('', '--help', '--version', 'train', 'frobnicate', 'train --help')])\n"
        "print(sorted({'torch', 'numpy', 'yaml', 'transformers'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(dual_attention.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-2:] == ["[0, 0, 0, 2, 2, 0]", "[]"]


@pytest.mark.slow
def test_a_missing_package_names_the_extra(tmp_path):
    script = (
        "import sys\nsys.modules['numpy'] = None\nfrom dat.cli.main import main\n"
        "sys.exit(main(['train', 'language', '--config', 'c.yaml', '--loop.steps=1']))"
    )
    (tmp_path / "c.yaml").write_text("seed: 1")
    environment = {**os.environ, "PYTHONPATH": str(Path(dual_attention.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "NumPy" not in done.stderr  # of which torch itself would warn
    assert last.startswith("dat: error: ") and 'pip install "relational-attention[train]"' in last


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
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert 'pip install "relational-attention[train]"' in fails(capsys, "demo", "--seeds=1")


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
