"""Everything against a reference in float64 on the device: implementations, gradients, models, decoding; sanitizers.

An implementation is right if no result and no gradient is further from the reference than half again as far as the
dense form in the same dtype, plus twice that dtype's precision.
"""

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from benchmarks.comparing import difference
from benchmarks.gpu.decode import built
from benchmarks.gpu.plan import MANY, Item, LeftOut, Phase, Result, Setting, Step
from benchmarks.gpu.running import ROOT
from benchmarks.runner import implementation
from benchmarks.suites.generation import SYMBOLS, language_model
from benchmarks.suites.layers import Size

DTYPES = ("bfloat16", "float16", "float32")
IMPLS = ("triton", "pairs", "sdpa", "linear", "blockwise", "dense")
LAYER = {"batch": 2, "groups": 2, "rep": 2, "n": 200, "key_dim": 64, "width": 64, "n_relations": 64, "p": 8}
PROBLEMS: dict[str, dict[str, Any]] = {
    "causal": {"causal": True},
    "few relations": {"causal": True, "n_relations": 8, "p": 64},
    "relative symbols": {"causal": True, "symbols": "offsets", "max_offset": 64},
    "no mask": {},
    "window": {"causal": True, "window": 50},
    "padding": {"causal": True, "padded": True},
    "packed": {"causal": True, "packed": "in order"},
    "packed, relative symbols": {"causal": True, "packed": "in order", "symbols": "offsets", "max_offset": 64},
    "step of decoding": {"causal": True, "n": 1, "m": 257, "offset": 256},
    "chunk of decoding, relative symbols": {"causal": True, "n": 40, "m": 250, "offset": 210, "symbols": "offsets"},
    "symbols of one example": {"symbols": "one batch"},
    "uneven sizes": {"causal": True, "key_dim": 40, "width": 24, "n_relations": 7, "p": 5},
    "narrow heads": {"causal": True, "key_dim": 32, "width": 32, "n_relations": 4},
    "narrowest": {"key_dim": 8, "width": 8, "n_relations": 7},
    "width 128": {"causal": True, "key_dim": 128, "width": 128, "p": 16},
}
DRY = {"batch": 2, "groups": 1, "rep": 2, "n": 9, "key_dim": 4, "width": 4, "n_relations": 3, "p": 2}
DRY_PROBLEMS = ("causal", "relative symbols", "padding")
KERNEL_TESTS = tuple(f"tests/library/functional/test_{name}.py" for name in ("triton", "triton_tiles", "pairs"))
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SMALL = Size(256, 512, 4, 2, 64, 4, 101, 192, (32, 4))
TINY = Size(16, 32, 2, 1, 8, 2, 31, 48, (4,))
NAMES = ("output", "dq", "dk", "du", "dw", "dsymbols", "dW_r")


def phases(setting: Setting) -> list[Phase]:
    """In several processes, since most of the time goes into compiling kernels."""
    problems = DRY_PROBLEMS if setting.dry_run else PROBLEMS
    dtypes = DTYPES[2:] if setting.device == "cpu" else DTYPES
    items = [
        Item(f"operation, {dtype}, {name}", functools.partial(operation, setting, name, dtype))
        for name in problems
        for dtype in dtypes
    ]
    items += [
        Item(f"language model, {dtype}, {symbols or 'plain'}", functools.partial(model, setting, symbols, dtype))
        for symbols in (*SYMBOLS, "")
        for dtype in dtypes
    ]
    items += [Item(f"compute-sanitizer, {tool}", functools.partial(sanitised, tool)) for tool in TOOLS]
    items += [Item(path, functools.partial(tests, setting, path)) for path in KERNEL_TESTS]
    return [Phase(items, processes=1 if setting.device == "cpu" else MANY)]


def problem_named(name: str, dry_run: bool) -> Any:
    """A problem of the kernels' own tests, which know the reference."""
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("triton") is None:
        raise LeftOut("needs the packages pytest and triton")
    from tests.library.functional.fused_problems import Problem

    if not dry_run:
        return Problem(**{**LAYER, **PROBLEMS[name]})
    return Problem(**{**PROBLEMS[name], **DRY})


def distances(found: list[Tensor], exact: list[Tensor]) -> dict[str, float]:
    """Largest difference of each result, relative to its largest entry."""
    pairs = zip(NAMES, found, exact, strict=True)
    return {name: float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for name, a, b in pairs if b.numel()}


def within(found: Mapping[str, float], yardstick: Mapping[str, float], dtype: torch.dtype) -> bool:
    """Whether errors are at most those of the yardstick and rounding; NaN never is."""
    least = 1e-5 if dtype == torch.float32 else 0.0
    limits = {name: max(1.5 * error + 2 * torch.finfo(dtype).eps, least) for name, error in yardstick.items()}
    return all(error <= limits[name] for name, error in found.items())


def operation(setting: Setting, name: str, dtype_name: str) -> Result:
    """Every implementation that can compute it: forward, all gradients, and the same bits twice."""
    problem, dtype = problem_named(name, setting.dry_run), getattr(torch, dtype_name)
    exact = problem.results("reference", torch.float64)
    errors: dict[str, dict[str, float]] = {}
    repeated: dict[str, bool] = {}
    refused: dict[str, str] = {}
    for impl in reversed(IMPLS):  # dense first, which the others are held against
        try:
            first = problem.results(impl, dtype)
        except ValueError as error:
            refused[impl] = str(error)
            continue
        errors[impl] = distances(first, exact)
        repeated[impl] = all(map(torch.equal, first, problem.results(impl, dtype)))
    wrong = [impl for impl, found in errors.items() if not within(found, errors["dense"], dtype)]
    changing = [impl for impl, same in repeated.items() if not same]
    worst = {impl: max(found.values()) for impl, found in errors.items()}
    return {
        "errors": errors,
        "refused": refused,
        "agrees": not wrong and not {"triton", "pairs"} & {*changing},  # only the kernels promise the same bits
        "says": "largest errors: "
        + ", ".join(f"{impl} {error:.1e}{' WRONG' if impl in wrong else ''}" for impl, error in worst.items())
        + (f"; other bits in a second run: {', '.join(changing)}" if changing else "; the same bits in a second run"),
    }


def model(setting: Setting, symbols: str, dtype_name: str) -> Result:
    """A small language model: loss and all gradients of packed texts, and cached decoding, against float64."""
    sizes, n = (TINY, 12) if setting.dry_run else (SMALL, 192)
    work = language_model(sizes, 2, n, sizes.relations[0] if symbols else None, symbols or SYMBOLS[0])
    torch.manual_seed(0)
    exact = built(work, setting.device, torch.float64).eval()
    dtype = getattr(torch, dtype_name)
    x, targets = (torch.randint(sizes.vocabulary, (2, n), device=setting.device) for _ in range(2))
    segments = (torch.arange(n, device=setting.device) >= n // 3).long()[None]

    def results(of: torch.dtype, impl: str | None) -> dict[str, Tensor]:
        low = built(work, setting.device, of).eval()
        low.load_state_dict(exact.state_dict())
        with implementation(impl):
            low.loss(x, targets, segments=segments).backward()
            grads = {f"gradient of {name}": p.grad for name, p in low.named_parameters() if p.grad is not None}
            with torch.no_grad():
                whole, stepped = low(x).logits, in_steps(low, x)
        return {"logits": whole, "logits with a cache": stepped, **grads}

    wanted = results(torch.float64, "reference")
    # The largest of all tensors, since in a single one the two round differently.
    ours, dense = (difference(results(dtype, impl), wanted) for impl in (None, "dense"))
    agrees = within({"all": ours.size}, {"all": dense.size}, dtype)
    says = f"largest error {ours.size:.1e}, in {ours.where}; dense {dense.size:.1e}"
    return {"error": ours.size, "dense": dense.size, "agrees": agrees, "says": says}


def in_steps(model: Any, x: Tensor) -> Tensor:
    """Logits of all tokens: a prompt, a chunk, and the last tokens one at a time."""
    cache, n = model.new_cache(x.shape[1]), x.shape[1]
    chunks = x.split([n - 9, 4, 1, 1, 1, 1, 1], dim=1)
    return torch.cat([model(chunk, cache=cache).logits for chunk in chunks], dim=1)


def command(arguments: list[str], **environment: str) -> tuple[int, list[str]]:
    """Exit status and last lines of a command in the checkout."""
    with_own = {**os.environ, **environment}
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, env=with_own)
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-15:]


def sanitised(tool: str) -> Result:
    """Each kernel once, on a small case, under a tool of compute-sanitizer; PyTorch's pool of memory would blind it."""
    found = shutil.which("compute-sanitizer")
    if found is None:
        raise LeftOut("compute-sanitizer is not on the PATH")
    program = [sys.executable, "-c", "from benchmarks.gpu.right import small_cases; small_cases()"]
    status, lines = command(
        [found, "--tool", tool, "--error-exitcode", "9", *program], PYTORCH_NO_CUDA_MEMORY_CACHING="1"
    )
    return {"lines": lines, "agrees": status == 0, "says": lines[-1] if lines else f"status {status}"}


def small_cases() -> None:
    """Every kernel in bfloat16: packed texts, a step of decoding whose senders are split, pairs, and the loss."""
    from dual_attention.functional.triton.loss import errors_of_logits
    from tests.library.functional.fused_problems import DEVICE, Problem

    sizes, dtype = {"batch": 2, "groups": 1, "rep": 2, "causal": True}, torch.bfloat16
    for symbols in ("shared", "offsets"):
        Problem(**sizes, n=40, packed="in order", symbols=symbols).results("triton", dtype)
    Problem(**sizes, n=40).results("pairs", dtype)
    with torch.no_grad():
        step = Problem(**sizes, n=1, m=300, offset=299)
        step.run([x.to(DEVICE, dtype) for x in step.leaves], "triton")
    labels = torch.arange(3, device=DEVICE)
    errors_of_logits(
        torch.randn(3, 5000, device=DEVICE, dtype=dtype), labels, torch.ones_like(labels, dtype=torch.float32)
    )


FEW = ("test_float64_is_refused", "test_order_and_symbols", "test_it_is_never_chosen")
"""Tests of a dry run, some in each file."""


def tests(setting: Setting, path: str) -> Result:
    """The kernels' own tests, compiled where there is a GPU."""
    if importlib.util.find_spec("pytest") is None:
        raise LeftOut("pytest is not installed")
    some = ["-k", " or ".join(FEW)] if setting.dry_run else []
    shared = ["-n", "4"] if importlib.util.find_spec("xdist") and not setting.dry_run else []
    status, lines = command([sys.executable, "-m", "pytest", "-q", "--no-header", *shared, *some, path])
    totals = [line for line in lines if " passed" in line or " failed" in line]
    return {"lines": lines, "agrees": status == 0, "says": totals[-1] if totals else f"status {status}"}


def conclude(results: Mapping[str, Result]) -> list[str]:
    held = [result["agrees"] for result in results.values() if "agrees" in result]
    return [f"{sum(held)} of {len(held)} checks hold"]


STEP = Step(
    "right", 2, "implementations, models and decoding against float64; sanitizers; the kernels' tests", phases, conclude
)
