"""What a run folder names on the network: asked for only if the user says so, too."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dat.cli.main import main
from dat.data.text import hub_datasets
from dat.training import saved_weights
from dat.training.trackers import WANDB_ID
from tests.support.runs import stopping

from .commands import dat, fails, refusal
from .text_runs import RESUME, words

WORD = "(read config.yaml first): --online\n"


@pytest.fixture(autouse=True)
def place(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(autouse=True)
def asked(monkeypatch) -> list[str]:
    """What would have been asked for on the network."""
    found: list[str] = []

    def ask(name: Any, *_: Any, **how: Any) -> Any:
        found.append(str(how.get("id", name)))
        raise OSError("no network")

    nothing = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    init = lambda **how: found.append(how["id"]) or nothing  # noqa: E731
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setattr(hub_datasets, "hub_answers", lambda: found.append("hub"))
    monkeypatch.setattr(saved_weights, "CheckpointFiles", ask)
    return found


def stop(**changes: Any) -> None:
    with stopping(5):
        assert main(words(**changes)) == 130


def changed(text: str, into: str) -> None:
    """The run as a stranger hands it on: with other settings, and no checksum of them."""
    config, checksums = Path("runs/run/config.yaml"), Path("runs/run/checksums.json")
    before = config.read_text()
    assert text in before
    config.write_text(before.replace(text, into))
    kept = json.loads(checksums.read_text())
    (kept.get("files") or kept).pop("config.yaml", None)
    checksums.write_text(json.dumps(kept))


def test_a_tracker_of_a_found_run(capsys, asked):
    stop()
    changed("  tracker: null", "  tracker: wandb")
    changed("  project: null", "  project: victim")
    said = fails(capsys, *RESUME)
    assert said.startswith("dat: error: runs/run: names output.tracker wandb (project victim), ") and said.endswith(
        WORD
    )
    Path("runs/run", WANDB_ID).write_text("../../victim-id")
    assert f"{WANDB_ID}: expected 16 digits from 0 to f, got" in fails(capsys, *RESUME, "--online")
    Path("runs/run", WANDB_ID).write_text("0123456789abcdef\n")
    assert asked == [] and dat(*RESUME, "--online") == 0
    assert asked == ["0123456789abcdef"]


def test_a_run_of_the_user_goes_on(capsys, asked):
    """The line that says how has the option; and settings that the same command names need none."""
    stop(output__tracker="wandb")
    assert "continue with: dat train language --resume runs/run --online\n" in capsys.readouterr().err
    assert main([*words(output__tracker="wandb"), "--resume=auto"]) == 0
    assert len(asked) == 2 and asked[0] == asked[1]


def test_a_command_that_names_something_else(capsys, asked):
    stop()
    changed("  tracker: null", "  tracker: wandb")
    assert refusal(capsys, *words(), "--resume=auto").endswith(WORD) and asked == []


def test_weights_of_a_found_run(capsys, asked):
    stop()
    changed("  weights_from: null", "  weights_from: OWNER/NAME")
    shutil.copytree("runs/run", "runs/begun")
    shutil.rmtree("runs/run/checkpoints")
    assert "names loop.weights_from OWNER/NAME, " in fails(capsys, *RESUME) and asked == []
    assert dat(*RESUME, "--online") == 2 and asked == ["OWNER/NAME"]
    assert dat("train", "language", "--resume=runs/begun") == 0  # it has its weights


def test_data_of_a_found_run(capsys, asked):
    stop()
    changed("  path: text.txt\n", "  path: null\n")
    changed("  dataset: null", "  dataset: OWNER/NAME")
    for command in (["evaluate", "runs/run"], RESUME):
        assert "names data.dataset OWNER/NAME, " in fails(capsys, *command) and asked == []
        assert dat(*command, "--online") == 2 and asked.pop() == "hub"
    assert dat("evaluate", "runs/run", "--text=text.txt") == 0 and asked == []
