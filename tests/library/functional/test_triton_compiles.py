"""The fused kernels compile for GPUs, which need not be present, and fit into their shared memory.

Triton chooses between its interpreter, which the other tests use, and its compiler when it is first imported: hence
:mod:`.compile_kernels` runs in a process of its own. It is one test, not one for each case, so that workers that share
the tests do not each compile everything.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")

ROOT = Path(__file__).parents[3]
OTHERS = [pytest.param(path, marks=pytest.mark.slow) for path in sorted((ROOT / "build" / "tritons").glob("*"))]


def missing_compiler() -> str | None:
    """Why Triton cannot compile for CUDA here; None if it can."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend

    try:
        make_backend(GPUTarget("cuda", 90, 32)).hash()  # of the backend and the version of its ptxas
    except RuntimeError as error:
        return f"triton cannot compile for CUDA: {error}"
    return None


def complaint_about(
    case: str, kernel: str, limit: int, shared: int | None = None, error: str | None = None
) -> str | None:
    if error is not None:
        return f"{case}: {kernel} does not compile: {error}"
    if shared is None or shared > limit:
        return f"{case}: {kernel} needs {shared} bytes of shared memory, and may have {limit}"
    return None


def compiled(scratch: Path, *cases: str, triton: Path | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of all kernels, and what was said of each launch of the cases, by the Triton in a folder or installed."""
    if reason := missing_compiler():
        pytest.skip(reason)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{triton}:{ROOT}" if triton else str(ROOT),
        "TRITON_CACHE_DIR": str(scratch),
        "TMPDIR": str(scratch),
    }
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.library.functional.compile_kernels", *cases]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    printed = done.stdout.splitlines()
    assert done.returncode == 0, "\n".join([*printed[-3:], done.stderr])
    kernels, *launches = map(json.loads, printed)
    return kernels, launches


@pytest.mark.slow
def test_kernels_compile_and_fit_into_shared_memory(tmp_path):
    kernels, launches = compiled(tmp_path)
    assert {launch["kernel"] for launch in launches} == set(kernels) != set()
    problems = [complaint for launch in launches if (complaint := complaint_about(**launch))]
    assert not problems, "\n".join(problems)


SPILLED = {"forward_kernel": 232, "q_kernel": 40, "k_kernel": 40, "w_kernel": 64, "senders_kernel": 120}
"""Bytes of registers that do not fit, at most, by the Triton that spills most of 3.6 to 3.8; none elsewhere."""
BESIDE = {"forward_kernel": 1250, "q_kernel": 460, "k_kernel": 540, "w_kernel": 1050}
"""Clocks beside the products, at most; masks in whole tiles cost forward and w a hundred more."""


@pytest.mark.parametrize("triton", [None, *OTHERS], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        "machine code",
        *(pytest.param(f"machine code, {more}", marks=pytest.mark.slow) for more in ("many relations", "pairs")),
    ],
)
def test_machine_code_keeps_the_matrix_units_busy(tmp_path, case, triton):
    """Facts that hold without a GPU: few registers are spilled, products are not made to wait for one another, and all
    else in the main loop is issued while they run. ``make tritons`` looks at other versions of Triton, too."""
    _, launches = compiled(tmp_path, case, triton=triton)
    assert len(launches) == (3 if case == "machine code, pairs" else 5)
    for launch in launches:
        assert "error" not in launch and launch["waits"] <= 8, launch
        assert launch["stack"] <= SPILLED.get(launch["kernel"], 0), launch
        if case == "machine code, pairs":  # products that are issued like all else
            assert launch["programs"] >= 1 and launch["beside"] <= 1500, launch
        elif launch["kernel"] == "u_kernel":  # multiplies no matrices
            assert launch["programs"] >= 4 and launch["products"] == 0, launch
        else:
            assert launch["programs"] >= 1 and launch["beside"] <= BESIDE[launch["kernel"]], launch
            assert launch["beside"] < launch["products"], launch
