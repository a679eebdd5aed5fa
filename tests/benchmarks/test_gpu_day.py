"""The day on a GPU: each step in tiny sizes on a CPU, resuming, minutes that are over, bad input."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import main as command
from benchmarks.gpu import observing, parts, process, right, running, versus
from benchmarks.gpu.plan import DAY, Item, Phase, Setting, step_named
from tests.support.documents import ROOT
from tests.support.refusals import refusals

DRY = Setting("cpu", dry_run=True)
DRY_RUN = ["--device", "cpu", "--dry-run"]

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def items(step: str) -> dict[str, Item]:
    return {item.key: item for phase in step_named(step).phases(DRY) for item in phase.items}


def measured(step: str, *beginnings: str) -> dict[str, dict]:
    """Results of the items whose keys begin so, measured in this process."""
    chosen = {key: item for key, item in items(step).items() if key.startswith(beginnings)}
    assert len(chosen) >= len(beginnings)
    return {key: process.measure(item)[0] for key, item in chosen.items()}


# ---- Steps


def test_every_shape_of_the_real_day_is_planned():
    assert sum(step_named(name).minutes for name in DAY) <= 15
    for name in DAY:
        phases = step_named(name).phases(Setting("cuda"))
        keys = [item.key for phase in phases for item in phase.items]
        assert len(keys) == len(set(keys)) > 1
        assert phases[-1].processes == 1 or name == "right"  # nothing beside what is timed


def test_a_dry_run_has_tests_of_every_file():
    """Pytest that finds none ends with an error, and so would the day."""
    items = [item for phase in step_named("right").phases(Setting("cpu", dry_run=True)) for item in phase.items]
    files = [Path(item.key) for item in items if item.key.startswith("tests/")]
    assert len(files) == 3 and all(any(name in file.read_text() for name in right.FEW) for file in files)


@pytest.mark.slow
@needs_triton
def test_right():
    found = measured("right", "operation, float32, padding", "language model, float32, position_relative")
    assert all(result["agrees"] for result in found.values())
    operation = found["operation, float32, padding"]
    assert operation["errors"].keys() == {"triton", "pairs", "sdpa", "linear", "blockwise", "dense"}
    assert 0 < operation["errors"]["triton"]["dq"] < 1e-5
    assert "the same bits" in operation["says"]


@needs_triton
def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch):
    from dual_attention.functional.relational.table import IMPLEMENTATIONS

    right = IMPLEMENTATIONS["sdpa"]

    def wrong(inputs):
        out = right.run(inputs)
        return out._replace(output=1.001 * out.output)

    monkeypatch.setitem(IMPLEMENTATIONS, "sdpa", right._replace(run=wrong))
    (result,) = measured("right", "operation, float32, causal").values()
    assert result["agrees"] is False
    assert "sdpa" in result["says"] and "WRONG" in result["says"]


def test_a_sanitizer_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    results = measured("right", "compute-sanitizer")
    assert {result["note"] for result in results.values()} == {"compute-sanitizer is not on the PATH"}
    assert {result["status"] for result in results.values()} == {"left out"}


@pytest.mark.parametrize(("status", "agrees"), [(0, True), (9, False)])
def test_a_sanitizer_that_is(status: int, agrees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\necho $1 $2 no pool: $PYTORCH_NO_CUDA_MEMORY_CACHING\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (result,) = measured("right", "compute-sanitizer, racecheck").values()
    assert result["agrees"] is agrees
    assert result["says"] == "--tool racecheck no pool: 1"


@pytest.mark.slow
def test_rival():
    """The plain model and ours; a kernel of the library that is not there is left out with the reason."""
    compiled, more = "R=4, compiled graph, default attention", "R=4, graph, impl linear"
    other = "R=4, positional_symbols, compiled graph"
    found = measured(
        "rival", "plain, launched", "R=4, launched", "plain, graph, cudnn", "plain, compiled", compiled, other, more
    )
    assert found["plain, graph, cudnn attention"]["status"] == "left out"
    plain, ours = found["plain, launched, default attention"], found["R=4, launched, default attention"]
    for result in (plain, ours, found["plain, compiled graph, default attention"]):
        assert result["ran"]["library"] == ["flash_attention_for_cpu", "flash_attention_for_cpu_backward"]
        assert result["ran"]["kernels"] and 0 < sum(result["ran"]["kernels"].values()) <= 1.001
        assert result["utilisation"] > 0 and result["median"] > 0
    assert ours["ran"]["relational"] and not plain["ran"]["relational"]
    for key in ("plain, compiled graph, default attention", compiled, other):  # with retriever and loss
        assert (
            found[key]["graphs"] == 1
            and found[key]["agrees"]
            and "; 1 graphs of the compiler, 0 breaks" in found[key]["says"]
        )
    assert found[more]["ran"]["relational"] == ["linear: impl='linear' was asked for"]
    assert found[more]["loss_seconds"] < found[more]["median"] and "; loss " in found[more]["says"]
    assert ours["ran"]["launches"] > plain["ran"]["launches"] > 10 and "products" in ours["says"]
    assert ours["ran"]["groups"]["symbolic"] > 0 < ours["ran"]["groups"]["sensory"]
    assert plain["ran"]["groups"]["sensory"] > 0 and "symbolic" not in plain["ran"]["groups"]
    assert plain["loss"] == pytest.approx(found["plain, compiled graph, default attention"]["loss"], rel=1e-4)
    rival, *others = step_named("rival").conclude(found)
    assert rival.startswith("the rival is plain")
    assert any(line.startswith("R=4, launched, default attention: ") for line in others)


@pytest.mark.slow
def test_broken_graphs_are_wrong(monkeypatch: pytest.MonkeyPatch):
    """As those of which the first day's table was, unseen."""
    from dual_attention.functional.relational import choice

    chosen = choice.choose
    monkeypatch.setattr(choice, "choose", lambda x, *a, **b: torch._dynamo.graph_break() or chosen(x, *a, **b))
    (found,) = measured("rival", "R=4, compiled graph").values()
    assert (
        found["graphs"] > 1
        and found["breaks"]
        and found["agrees"] is False
        and command.wrong({"status": "measured", **found})
    )


def kernels() -> list[str]:
    """Names of the library's own."""
    folder = ROOT / "dual_attention" / "functional" / "triton"
    return re.findall(r"^def (\w+_kernel)\(", "".join(file.read_text() for file in folder.glob("*.py")), re.MULTILINE)


@needs_triton
def test_our_kernels_are_none_of_the_pointwise_ones():
    names = kernels()
    found = observing.grouped(dict.fromkeys(names, 1.0))
    assert found["relational"] == len(names) - 1 > 10 and found["loss"] == 1


@needs_triton
def test_small_cases_run_every_kernel(monkeypatch: pytest.MonkeyPatch):
    """In a process that has asked for Triton's interpreter."""
    program = (
        "from triton.runtime.interpreter import InterpretedFunction as F; run = F.run; "
        "F.run = lambda self, *a, **b: (print(self.__name__), run(self, *a, **b))[1]; "
        "from benchmarks.gpu.right import small_cases; small_cases()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=running.environment(DRY),
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == {*kernels()}


def test_groups_of_kernels():
    times = {
        "k_kernel": 1.0,
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT": 2.0,
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma": 4.0,
        "void at::native::vectorized_elementwise_kernel<4, ...>": 8.0,
        "void cunn_SoftMaxForward": 16.0,
        "aten::addmm": 32.0,
        "aten::add": 64.0,
    }
    wanted = {"relational": 1.0, "attention": 4.0, "products": 34.0, "loss": 0.0, "pointwise": 88.0}
    assert observing.grouped(times) == wanted


@pytest.mark.slow
def test_two_checkouts_in_one_process(tmp_path: Path):
    """Each by its own library, in a process of the day: PyTorch forgets operations that are registered twice."""
    import dual_attention

    (left_out,) = measured("versus", "R=4").values()
    assert left_out["note"] == "needs --against, another checkout"
    other = shutil.copytree(Path(dual_attention.__file__).parent, tmp_path / "dual_attention").parent
    with versus.package_of(other):
        assert "dual_attention" not in sys.modules and sys.path[0] == str(other)
    assert sys.modules["dual_attention"] is dual_attention
    marked = other / "dual_attention" / "language_models.py"
    marked.write_text(marked.read_text() + f"\nopen({str(tmp_path / 'was here')!r}, 'w').close()\n")
    setting = Setting("cpu", dry_run=True, against=str(other))
    task = json.dumps({"step": "versus", "setting": asdict(setting), "keys": ["R=4"]})
    command_line = [sys.executable, "-m", "benchmarks.gpu.process", task]
    with subprocess.Popen(command_line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        *_, last = child.stdout.read().splitlines()
    found = json.loads(last)["result"]
    assert (tmp_path / "was here").exists()
    assert found["samples"].keys() == {"this", "other"} and len(found["samples"]["this"]) == 5
    (line,) = step_named("versus").conclude({"R=4": found})
    assert line.startswith("R=4: ") and line.endswith("x the other checkout's time")


def test_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found = measured("parts", "symbolic attention", "projections", "stalls")
    assert {key for key, result in found.items() if result["status"] == "left out"} == {
        *(f"symbolic attention, {layout}, cudnn" for layout in parts.LAYOUTS),
        *(f"stalls, {kernel}" for kernel in parts.STALLED),
    }
    lines = step_named("parts").conclude(found)
    assert lines[0].startswith("symbolic attention, expanded, default: ") and lines[-1].startswith("projections, seven")


def test_wrong_results_end_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    item = Item("a kernel", lambda: {"agrees": False, "says": "off"})

    class Here(command.Run):
        def run_share(self, keys):
            self.put(item.key, process.measure(item)[0])

    monkeypatch.setattr(command, "Run", Here)
    monkeypatch.setattr(right, "STEP", replace(right.STEP, phases=lambda _: [Phase([item])]))
    assert command.main([*DRY_RUN, "--steps", "right,decode", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "wrong results are not timed" in said and "== decode" not in said


@pytest.mark.slow
@needs_triton
def test_slices():
    beginning = "B=2, H=2, G=1, d_h=8, R=4, p=4, causal, n = 16: "
    ways = ("triton", "pairs", "triton, keys of 128 senders", "default, width 128")
    found = measured("slices", *(beginning + way for way in (*ways, "cudnn, width 128")))
    assert found[beginning + "cudnn, width 128"]["status"] == "left out"
    for way in ways:
        assert found[beginning + way]["agrees"] and found[beginning + way]["step"]["median"] > 0
    (line,) = step_named("slices").conclude(found)
    assert "a step is fastest by default, width 128" in line and "triton takes" in line


def test_decode():
    relative = "R=4, position_relative"
    ways = ("recorded", "growing")
    names = [f"{name}, {way}" for name in ("plain", "R=4, symbolic_attention") for way in ways]
    names += ["R=4, positional_symbols, recorded", f"{relative}, recorded", f"{relative}, impl triton, growing"]
    found = measured("decode", *(f"{name}, batch 1" for name in names))
    for result in found.values():
        assert result["agrees"] and result["difference"] < 1e-5
        assert result["median"] > 0 and result["floor"] > 0
    lines = step_named("decode").conclude(found)
    assert len(lines) == len(names) - 2 and all("x a plain model's step" in line for line in lines)


# ---- The command


@pytest.mark.slow
def test_a_dry_run_and_the_same_command_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A second run finds all results and measures nothing; only the recorded time changes."""
    item = items("parts")["projections, one product"]
    monkeypatch.setattr(parts, "STEP", replace(parts.STEP, phases=lambda _: [Phase([item])]))
    arguments = [*DRY_RUN, "--steps", "decode,parts", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    said = capsys.readouterr().out
    assert said.index("== parts") < said.index("== decode")
    assert "nothing is a measurement" in said and "plain, recorded, batch 8: " in said
    assert {path.name for path in tmp_path.iterdir()} == {"decode.json", "parts.json", "report.md"}
    before = json.loads((tmp_path / "decode.json").read_text())
    assert before["items"].keys() == items("decode").keys()
    assert {item["status"] for item in before["items"].values()} == {"measured"}
    assert "projections, one product: " in (tmp_path / "report.md").read_text()

    assert command.main(arguments) == 0
    again = json.loads((tmp_path / "decode.json").read_text())
    assert again["items"] == before["items"] and "plain, recorded, batch 8: " not in capsys.readouterr().out

    assert command.main([*DRY_RUN, "--steps", "decode", "--out", str(tmp_path)]) == 0
    assert "## parts" in (tmp_path / "report.md").read_text()  # of the step that was done before


@pytest.mark.slow
@needs_triton
def test_the_whole_day_by_its_one_command(tmp_path: Path):
    """Two minutes of an idle core. A kernel or a tool that is not here is left out; nothing fails or is wrong."""
    program = [sys.executable, ROOT / "benchmarks" / "gpu_day.py", *DRY_RUN, "--minutes", "60", "--out", tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name in DAY:
        found = json.loads((tmp_path / f"{name}.json").read_text())["items"]
        assert found.keys() == items(name).keys()
        assert {result["status"] for result in found.values()} <= {"measured", "left out"}
        assert name == "versus" or any(result["status"] == "measured" for result in found.values())
        assert f"## {name}: " in (tmp_path / "report.md").read_text()


@refusals(
    ([], "no CUDA device is available to torch"),
    (["--dry-run"], "no CUDA device is available to torch"),
    (["--device", "cpu"], "cpu is for --dry-run only"),
    ([*DRY_RUN, "--steps", "right,wrong"], "expected some of right, rival, versus, slices, parts, decode, got wrong"),
    ([*DRY_RUN, "--steps", ","], "argument --steps: expected names"),
    ([*DRY_RUN, "--minutes", "-1"], "argument --minutes: expected a positive number, got '-1'"),
    ([*DRY_RUN, "--minutes", "0"], "argument --minutes: expected a positive number, got '0'"),
    ([*DRY_RUN, "--minutes", "ten"], "argument --minutes: expected a positive number, got 'ten'"),
    ([*DRY_RUN, "--against", "/no/such"], "argument --against: expected a checkout with dual_attention/"),
    ([*DRY_RUN, "--nonsense"], "unrecognized arguments: --nonsense"),
    of="arguments",
    error=SystemExit,
)
def test_bad_input_is_one_line(arguments, error, message, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(error) as exit_of:
        command.main(arguments)
    said = capsys.readouterr()
    assert exit_of.value.code == 2
    assert message in said.err and len(said.err.strip().splitlines()) == 1 and not said.out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "decode.json"),
        ('{"about": {"step": "decode", "device": "nvidia-h100"}}', "results with device nvidia-h100, and this is cpu"),
    ],
)
def test_results_of_something_else_are_not_added_to(content, message, tmp_path, capsys):
    (tmp_path / "decode.json").write_text(content)
    assert command.main([*DRY_RUN, "--steps", "decode", "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "decode.json").read_text() == content


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    assert command.main([*DRY_RUN, "--steps", "decode", "--out", str(tmp_path / "file")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_exit_status_tells_what_came_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """0 done, 3 minutes over, 1 something wrong or failed."""
    results: dict[str, dict] = {}
    missing = 0

    class Done:
        def __init__(self, step, setting, record, seconds, say):
            assert seconds == pytest.approx(60 * 4 / 2 * {"decode": 2 / 2.5, "slices": 3 / 2.5}[step.name])
            for key, result in results.items():
                record.put(key, result)

        def __call__(self):
            return missing

    monkeypatch.setattr(command, "Run", Done)

    def status(name: str) -> int:
        arguments = ["--steps", "slices,decode", "--minutes", "4", "--out", str(tmp_path / name)]
        return command.main([*DRY_RUN, *arguments])

    assert status("done") == 0
    missing = 2
    assert status("unfinished") == 3
    results = {"a": {"status": "measured", "agrees": False, "says": "off by one"}}
    assert status("wrong") == 1
    assert "- a: WRONG: off by one" in (tmp_path / "wrong" / "report.md").read_text()
    results = {"a": {"status": "failed", "note": "broke"}}
    assert status("failed") == 1
