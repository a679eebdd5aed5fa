"""Nothing is compiled until somebody asks; what happens then, and where nothing can be."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from dual_attention import native
from dual_attention.functional import explain_relational_attention, relational_attention
from dual_attention.functional.relational.table import IMPLEMENTATIONS, Implementation, Verdict, register_implementation
from dual_attention.native import building, kernels
from dual_attention.native.library import Library
from tests.support.refusals import refused

SCALES = {"scale": 0.6, "rel_scale": 0.4}


def drawn(n=300, m=300, d=8, p=2, dtype=torch.float32):
    shapes = (2, 4, n, d), (2, 4, m, d), (2, n, 3, p), (2, m, 3, p), (2, 4, m, 6), (4, 6, 3)
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def told(leaves, **options):
    return str(explain_relational_attention(*leaves, **SCALES, **options))


test_what_is_not_enabled = refused(
    (lambda: relational_attention(*drawn(), **SCALES, impl="native"),
     r"impl='native' is not enabled: dual_attention\.native\.enable\(\)"),
)  # fmt: skip


def test_it_is_asked_for():
    assert not native.is_enabled()
    hint = "(not native: dual_attention.native.enable() offers C kernels)"
    assert told(drawn()).startswith("linear: ") and told(drawn()).endswith(hint)
    for other in (drawn(n=20), drawn(dtype=torch.float64), *map(few_senders_of, ["heads", "relations", "decoding"])):
        assert "native" not in told(other)
    assert "native" not in told(drawn(), rel_activation="relu")
    native.disable()  # what is not enabled may be disabled
    assert not native.is_enabled()


def few_senders_of(kind):
    """So many pairs that not all weights are built at once, which still make a small part of a model."""
    return drawn(**{"heads": {"d": 75}, "relations": {"p": 75}, "decoding": {"n": 1, "m": 70_000}}[kind])


@pytest.mark.parametrize("kind", ["heads", "relations", "decoding"])
def test_it_is_not_taken_where_it_gains_less_than_a_tenth(kind, enabled):
    leaves = few_senders_of(kind)
    assert told(leaves).endswith("(not native: with so few senders C gains less than a tenth)")
    assert told(leaves, impl="native") == "native: impl='native' was asked for"
    assert told(drawn(d=74, p=74)).startswith("native: ")


def test_enabled_and_disabled_again(enabled):
    leaves = drawn()
    assert native.is_enabled() and told(leaves).startswith("native: ")
    native.enable()
    ours = relational_attention(*leaves, **SCALES, impl="native").output
    native.disable()
    assert not native.is_enabled() and told(leaves).startswith("linear: ")
    torch.testing.assert_close(relational_attention(*leaves, **SCALES).output, ours, rtol=1e-4, atol=1e-4)


def test_without_a_compiler_the_reason_is_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("DUAL_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv(building.SWITCH, raising=False)
    monkeypatch.setattr(native, "LIBRARY", Library(kernels.SOURCE, kernels._Call))
    with pytest.raises(RuntimeError) as error:
        native.enable()
    reason = "found no compiler" if sys.platform != "win32" else "nothing is compiled on Windows"
    assert reason in str(error.value) and "\n" not in str(error.value)
    assert not native.is_enabled()


@pytest.mark.slow
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
        while not pids:
            assert process.poll() is None
            time.sleep(0.05)
            pids = begun.read_text().split() if begun.exists() else []
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
        assert not any(is_running(int(pid)) for pid in pids)
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


def test_an_implementation_of_ones_own(monkeypatch):
    """The table alone says what there is: nothing else knows of this one."""
    before = dict(IMPLEMENTATIONS)
    ours = Implementation(
        "ones",
        run=lambda x: x.output(x.q.new_ones(*x.q.shape[:3], x.w_r.shape[1]), x.q.new_zeros(*x.q.shape[:3], 3)),
        obstacle=lambda x: "takes no bias" if x.bias is not None else None,
        suits=lambda x: Verdict(x.n() == 20, "there are twenty" if x.n() == 20 else "there are not twenty"),
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
