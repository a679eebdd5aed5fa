"""The command: a whole run in small sizes, its files, and bad input."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.main import main
from benchmarks.output import Output
from dual_attention.native import is_enabled
from tests.support.compilers import HAS_COMPILER

from .conftest import ROOT

QUICK = ["--quick", "--threads", "1", "--suite", "step", "--lengths", "16"]


def results(folder: Path) -> dict:
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_whole_run(make_published: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "results"
    assert main([*QUICK, "--published", str(make_published()), "--out", str(out)]) == 0
    assert {path.suffix for path in out.iterdir()} == {".json", ".md"}
    data = results(out)
    assert data["quick"] and data["unfinished"] == "" and data["schema"] == 1
    assert data["published"]["dual_attention"] == "0.0.7"
    assert data["hardware"]["threads"] == 1 and data["hardware"]["cpu"]
    assert data["rates"]["multiply_adds"] > 0 and data["rates"]["bytes"] > 0
    assert [row["quantity"] for row in data["rows"]] == ["forward", "step"]
    for row in data["rows"]:
        sides = {side["name"]: side for side in row["sides"]}
        for name in ("ours", "published", "reference", "plain"):
            side = sides[name]
            assert len(side["samples"]) == 2 and side["summary"]["median"] > 0 and side["ratio"] > 0
            assert side["floor_arithmetic"] == side["multiply_adds"] / data["rates"]["multiply_adds"]
            assert side["floor_bytes"] == side["traffic"] / data["rates"]["bytes"]
        for name in ("ours", "published"):
            assert sides[name]["agrees"] and sides[name]["yardstick"] == "reference"
    printed = capsys.readouterr().out
    report = next(out.glob("*.md")).read_text(encoding="utf-8")
    for text in (printed, report):
        assert "published" in text and "a quick trial" in text and "least: arithmetic" in text


def test_generation(tmp_path: Path):
    arguments = ["--quick", "--threads", "1", "--suite", "generation", "--sides", "plain", "--out", str(tmp_path)]
    assert main(arguments) == 0
    (row,) = results(tmp_path)["rows"]
    assert [side["status"] for side in row["sides"]] == ["measured", "measured"]
    assert row["quantity"] == "generate"


@pytest.mark.slow
def test_quick_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Compiled sides by the part of the compiler that needs no C++."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    arguments = ["--quick", "--threads", "1", "--suite", "decoding", "--repeats", "1", "--out", str(tmp_path)]
    assert main([*arguments, "--lengths", "16"]) == 0
    for row in results(tmp_path)["rows"]:
        ours = row["sides"][0]
        assert ours["agrees"] and ours["yardstick"] == "one pass"
        assert ours["samples"] and ours["floor_bytes"] > 0 and ours["floor_arithmetic"] > 0


def test_a_side_with_c_kernels(tmp_path: Path):
    if not HAS_COMPILER:
        pytest.skip("needs a C compiler")
    # The text is too short for kernels to be taken.
    arguments = ["--quick", "--threads", "1", "--suite", "step", "--lengths", "16", "--repeats", "1", "--native"]
    assert main([*arguments, "--sides", "ours+native", "--out", str(tmp_path)]) == 0
    for row in results(tmp_path)["rows"]:
        ours, native = row["sides"]
        assert (ours["name"], native["name"]) == ("ours", "ours+native") and native["samples"]
    assert not is_enabled()


@pytest.mark.slow
def test_the_script_measures_its_own_checkout(tmp_path: Path):
    """Started from elsewhere, with another package of that name in the way."""
    (tmp_path / "dual_attention").mkdir()
    (tmp_path / "dual_attention" / "__init__.py").write_text("raise ImportError('the wrong package')\n")
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *QUICK, "--sides", "plain", "--repeats", "1"]
    done = subprocess.run([*command, "--out", "out"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [side["name"] for side in results(tmp_path / "out")["rows"][0]["sides"]] == ["ours", "plain"]


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from benchmarks.comparing import Bench

    run = Bench.run

    def interrupted(self: Bench, case):
        yield next(run(self, case))
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "run", interrupted)
    assert main([*QUICK, "--sides", "plain", "--out", str(tmp_path)]) == 130
    data = results(tmp_path)
    assert data["unfinished"] == "interrupted"
    assert len(data["rows"]) == 1


def test_independent_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for _ in range(2):
        assert main([*QUICK, "--sides", "plain", "--out", str(tmp_path)]) == 0
    found = [line.split(" of ours")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("spread")]
    assert found == [f"spread, step, 2 layers, d=64, R=4: {what}" for what in ("quartiles", "medians of 2 runs")]


def test_runs_of_something_else_are_not(tmp_path: Path):
    """Of another commit or machine, or not finished."""
    about = {"hardware": 1, "versions": 2, "settings": 3, "quick": False, "unfinished": "", "git": {"commit": "a"}}
    others = [{}, {"hardware": 2}, {"git": {"commit": "b"}}, {"quick": True}, {"unfinished": "interrupted"}]
    for changes in others:
        Output(tmp_path, "x").save({**about, **changes}, [])
    assert Output(tmp_path, "x").other_runs(about) == [[]]


def test_results_are_never_overwritten(tmp_path: Path):
    first = Output(tmp_path, "2026-01-02-cpu")
    second = Output(tmp_path, "2026-01-02-cpu")
    (tmp_path / "2026-01-02-cpu-3.txt").write_bytes(b"of another run")
    third = Output(tmp_path, "2026-01-02-cpu")
    names = [output.name for output in (first, second, third)]
    assert names == ["2026-01-02-cpu", "2026-01-02-cpu-2", "2026-01-02-cpu-4"]
    assert {path.name for path in tmp_path.glob("*.json")} == {f"{name}.json" for name in names}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "stepp"], "argument --suite: expected some of step, memory"),
        (["--suite", ","], "argument --suite: expected names"),
        (["--lengths", "64,x"], "argument --lengths: expected a positive integer, got 'x'"),
        (["--lengths", "0"], "argument --lengths: expected a positive integer, got '0'"),
        (["--suite", "short", "--lengths", "64"], "argument --lengths: those of short are fixed"),
        (["--repeats", "-1"], "argument --repeats"),
        (["--suite", "decoding", "--sides", "plain,compild"], "argument --sides: expected some of compiled, compiled"),
        (["--device", "tpu"], "argument --device"),
        (["--dtype", "int8"], "argument --dtype"),
        (["--threads", "none"], "argument --threads: expected a positive integer"),
        (["--published", "/no/such/python"], "argument --published: expected a Python interpreter"),
        (["--published", sys.executable], "argument --published: "),
        (["--out", __file__], "argument --out: expected a folder"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    try:
        status = main(arguments)
    except SystemExit as error:
        status = error.code
    assert status == 2
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1 and not said.out


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        main(["--device", "cuda"])
    assert "argument --device: no CUDA device is available to torch" in capsys.readouterr().err
