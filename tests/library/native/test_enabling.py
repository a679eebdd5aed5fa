"""Nothing is compiled until somebody asks; what happens then, and where nothing can be."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
import torch

from dual_attention import native
from dual_attention.functional import explain_relational_attention, relational_attention
from dual_attention.functional.relational.asked_for import FEWEST_SENDERS
from dual_attention.functional.relational.table import IMPLEMENTATIONS, Implementation, Verdict, register_implementation
from dual_attention.native import building, implementation, kernels, step
from dual_attention.native.library import Library

SCALES = {"scale": 0.6, "rel_scale": 0.4}


def drawn(n=300, dtype=torch.float32):
    m = 300 if n > 1 else FEWEST_SENDERS
    shapes = (2, 4, n, 8), (2, 4, m, 8), (2, n, 3, 2), (2, m, 3, 2), (2, 4, m, 6), (4, 6, 3)
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def told(leaves, **options):
    return str(explain_relational_attention(*leaves, **SCALES, **options))


def test_it_is_asked_for():
    assert not native.is_enabled()
    hint = "(not native: dual_attention.native.enable() offers C kernels)"
    assert told(drawn()).startswith("linear: ") and told(drawn()).endswith(hint)
    assert told(drawn(n=1)).startswith("dense: ") and told(drawn(n=1)).endswith(hint)
    for other in (drawn(n=20), drawn(dtype=torch.float64)):
        assert "native" not in told(other)
    assert "native" not in told(drawn(), rel_activation="relu")
    message = r"impl='native' is not enabled: dual_attention\.native\.enable\(\)"
    with pytest.raises(ValueError, match=message):
        relational_attention(*drawn(), **SCALES, impl="native")
    native.disable()  # what is not enabled may be disabled
    assert not native.is_enabled()


def test_enabled_and_disabled_again(enabled):
    leaves = drawn()
    assert native.is_enabled() and told(leaves).startswith("native: ")
    native.enable()
    ours = relational_attention(*leaves, **SCALES, impl="native").output
    native.disable()
    assert not native.is_enabled() and told(leaves).startswith("linear: ")
    torch.testing.assert_close(relational_attention(*leaves, **SCALES).output, ours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("module", [kernels, step])
def test_without_a_compiler_the_reason_is_told_in_a_line(module, tmp_path, monkeypatch):
    for built in (kernels, step):
        built.LIBRARY.find()  # while there is one: what is found is kept for all later tests
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(building.SWITCH, raising=False)
    monkeypatch.setattr(module, "LIBRARY", Library(module.SOURCE, {}))
    with pytest.raises(RuntimeError) as error:
        native.enable()
    reason = "found no compiler" if sys.platform != "win32" else "nothing is compiled on Windows"
    assert reason in str(error.value) and "\n" not in str(error.value)
    assert not native.is_enabled()


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is compiled on Windows")
def test_an_interrupt_ends_a_compiler_that_does_not(tmp_path):
    compiler, begun = tmp_path / "cc", tmp_path / "begun"
    compiler.write_text(f'#!/bin/sh\necho "$$" >> "{begun}"\nexec sleep 60\n')
    compiler.chmod(0o700)
    environment = {name: value for name, value in os.environ.items() if name != building.SWITCH}
    environment |= {"DUAL_ATTENTION_CACHE": str(tmp_path / "cache"), "CC": str(compiler)}
    # Background jobs of a shell ignore interrupts, and so do their children unless they say otherwise.
    take = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{take}; from dual_attention import native; native.enable()"
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    pids: list[str] = []
    try:
        while len(pids) < 2:  # one for each library
            assert process.poll() is None
            time.sleep(0.05)
            pids = begun.read_text().split() if begun.exists() else []
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
        assert len([pid for pid in pids if is_running(int(pid))]) < 2
    finally:
        process.kill()
        for pid in filter(is_running, map(int, pids)):
            os.kill(pid, signal.SIGKILL)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("n", [1, 300])
def test_kernels_that_cannot_be_built_when_they_first_run_are_done_without(n, compiled, monkeypatch, caplog):
    monkeypatch.setenv(building.SWITCH, "0")
    for module in (kernels, step):
        monkeypatch.setattr(module, "LIBRARY", Library(module.SOURCE, {}))
    implementation._told.cache_clear()
    leaves = drawn(n)
    expected = relational_attention(*leaves, **SCALES).output
    native.enable_when_used()
    try:
        call = partial(relational_attention, **SCALES)
        if compiled:
            torch._dynamo.reset()
            call = torch.compile(call, backend="eager", fullgraph=True)
        torch.testing.assert_close(call(*leaves).output, expected)
        assert "(not native: the C kernels cannot be had: DUAL_ATTENTION_NATIVE=0)" in told(leaves)
        with pytest.raises(RuntimeError, match="the C kernels cannot be had: DUAL_ATTENTION_NATIVE=0"):
            relational_attention(*leaves, **SCALES, impl="native")
    finally:
        native.disable()
    (message,) = [record.getMessage() for record in caplog.records if record.name == "dual_attention.native"]
    assert message.endswith("left to PyTorch: the C kernels cannot be had: DUAL_ATTENTION_NATIVE=0")


ENVIRONMENT = """
import sys
import torch
from dual_attention import RelationalAttention, SymbolicAttention, native
print("dual_attention.native.kernels" in sys.modules, native.is_enabled())
from dual_attention.functional.relational import api
print(native.is_enabled())
"""


@pytest.mark.parametrize(("switch", "enabled"), [("1", "True"), ("0", "False"), (None, "False")])
def test_the_environment_asks_for_it(switch, enabled, tmp_path):
    """Nothing is compiled at an import all the same."""
    environment = {name: value for name, value in os.environ.items() if name != building.SWITCH}
    environment |= {"DUAL_ATTENTION_CACHE": str(tmp_path)} | ({} if switch is None else {building.SWITCH: switch})
    done = subprocess.run(
        [sys.executable, "-c", ENVIRONMENT], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == [enabled] * 3, done.stderr
    assert not list(tmp_path.iterdir())


def test_an_implementation_of_ones_own(monkeypatch):
    """The table alone says what there is: nothing else knows of this one."""
    before = dict(IMPLEMENTATIONS)
    ours = Implementation(
        "ones",
        run=lambda x: x.output(x.q.new_ones(*x.q.shape[:3], x.w_r.shape[1]), x.q.new_zeros(*x.q.shape[:3], 3)),
        obstacle=lambda x: "takes no bias" if x.bias is not None else None,
        suits=lambda x: Verdict(x.n == 20, "there are twenty" if x.n == 20 else "there are not twenty"),
        priority=70,
    )
    try:
        register_implementation(ours)
        assert told(drawn(n=20)) == "ones: there are twenty"
        assert (relational_attention(*drawn(n=20), **SCALES).output == 1).all()
        assert "(not ones: there are not twenty)" in told(drawn(n=21))
        with pytest.raises(ValueError, match=r"impl='ones' takes no bias"):
            told(drawn(), impl="ones", bias=torch.zeros(1, 1, 1, 1))
        with pytest.raises(ValueError, match=r"impl: expected one of auto, .*, ones, .*, got 'others'"):
            told(drawn(), impl="others")
    finally:
        IMPLEMENTATIONS.clear()
        IMPLEMENTATIONS.update(before)
