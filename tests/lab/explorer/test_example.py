"""The model that is trained on first use: kept whole or not at all."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from dat.checkpoints import open_checkpoint
from dat.explorer import example
from dat.explorer.example import NAME, cache_folder, example_model
from dat.explorer.opening import open_session
from dat.explorer.session import DEFAULT_TEXT
from dat.training.interrupt import Interrupted

pytest.importorskip("tiktoken", reason="byte pairs need the extra language")


@pytest.mark.slow
def test_it_is_trained_once_and_read_by_the_explorer(tmp_path, monkeypatch):
    run = example_model(tmp_path / "cache", steps=1, progress=False)
    assert run == tmp_path / "cache" / NAME and [path.name for path in run.parent.iterdir()] == [NAME]
    assert open_checkpoint(run).state == "finished"
    monkeypatch.setattr(example, "start_run", lambda *_: pytest.fail("trained again"))
    assert example_model(tmp_path / "cache") == run
    session = open_session(str(run), title="the small model")
    recording = session.record(DEFAULT_TEXT)
    assert "".join(recording.sequences["tokens"]).replace("␣", " ") == DEFAULT_TEXT
    assert {heads.kind for heads in recording.heads} == {"sensory", "relational"}


def test_training_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(_experiment, config):
        (Path(config.output.folder) / "half").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(example, "start_run", fail)
    with pytest.raises(KeyboardInterrupt):
        example_model(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_training_says_that_it_begins_again(tmp_path, monkeypatch):
    def stopped(_experiment, config):
        raise Interrupted

    monkeypatch.setattr(example, "start_run", stopped)
    with pytest.raises(Interrupted, match="from its beginning the next time"):
        example_model(tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_process_was_faster(tmp_path, monkeypatch):
    class Run:
        path = tmp_path / "elsewhere"

    def train(_experiment, config):
        Run.path.mkdir()
        (tmp_path / NAME).mkdir()
        (tmp_path / NAME / "theirs").touch()
        return Run

    monkeypatch.setattr(example, "start_run", train)
    assert (example_model(tmp_path) / "theirs").exists()


def test_where_it_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("DUAL_ATTENTION_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/relational-attention")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "relational-attention"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "relational-attention"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder() == Path("/local/relational-attention")


def test_a_user_without_a_home_is_told_what_to_name(monkeypatch):
    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "DUAL_ATTENTION_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FileNotFoundError, match="no such home folder; name a folder with DUAL_ATTENTION_CACHE"):
        cache_folder()
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", "/kept")
    assert cache_folder() == Path("/kept")
    with pytest.raises(FileNotFoundError, match=r"~/run: no such folder"):
        open_checkpoint("~/run")
