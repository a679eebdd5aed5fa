"""Observations of a call: its time, which kernels ran, and how much of the matrix units' rate it used."""

import contextlib
import functools
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.plan import LeftOut, Setting
from benchmarks.measuring import RateMeter, Rates, replay, seconds_per_call
from benchmarks.report import seconds
from benchmarks.results import Summary, summarise
from benchmarks.suites.layers import size

SAMPLES = 5
SAMPLE_SECONDS = 0.1
LIBRARY = "aten::_scaled_dot_product_"
"""Beginning of the operators by which PyTorch's attention runs; what follows names the library's kernel."""
BACKENDS = {
    "default": None,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


@functools.cache
def rates(setting: Setting) -> Rates:
    """Of a large product and a large copy, measured once in this process."""
    return RateMeter(setting.settings, quick=setting.dry_run).best


def timed(call: Callable[[], object], setting: Setting, *, launched: bool = False) -> list[float]:
    """Seconds a call: samples of enough calls each; two for a dry run. The first call has been made.

    On a GPU these are replays of a CUDA graph, where the call can be captured: the device's time, and none of Python's.
    ``launched``: from Python all the same.
    """
    if setting.dry_run:
        return [seconds_per_call(call, 1, setting.device) for _ in range(2)]
    if setting.device == "cuda" and not launched:
        call = replay(call) or call
    number = math.ceil(SAMPLE_SECONDS / max(seconds_per_call(call, 1, setting.device), 1e-6))
    return [seconds_per_call(call, number, setting.device) for _ in range(SAMPLES)]


def utilisation(multiply_adds: float, took: float, setting: Setting) -> float:
    """Part of the matrix units' measured rate that the least arithmetic of a call comes to."""
    return multiply_adds / took / rates(setting).multiply_adds


def described(samples: list[float], multiply_adds: float, setting: Setting) -> dict[str, Any]:
    """Entries of a result for a time and its utilisation."""
    summary: Summary = summarise(samples)
    part = utilisation(multiply_adds, summary.median, setting)
    rate = 2 * multiply_adds / summary.median / 1e12
    return {
        "samples": samples,
        "median": summary.median,
        "multiply_adds": multiply_adds,
        "matrix_rate": rates(setting).multiply_adds,
        "utilisation": part,
        "says": f"{seconds(summary.median)} ({seconds(summary.first_quartile)} – {seconds(summary.third_quartile)}), "
        f"{rate:.3g} TFLOP/s, {part:.1%} of the measured matrix rate",
    }


@contextlib.contextmanager
def library_attention(backend: str) -> Iterator[None]:
    """PyTorch's attention by one of :data:`BACKENDS` and no other; ``fa3`` where FlashAttention-3 is installed.

    Raises:
        LeftOut: if it is not there, or does not take what it is given.
    """
    if backend == "fa3":
        with flash_attention_3(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            yield
        return
    wanted = BACKENDS[backend]
    try:
        with contextlib.nullcontext() if wanted is None else sdpa_kernel(wanted):
            yield
    except RuntimeError as error:
        if any(words in str(error) for words in ("No available kernel", "No viable backend")):
            raise LeftOut(f"the library's {backend} attention does not take this, or is not there") from None
        raise


@contextlib.contextmanager
def flash_attention_3() -> Iterator[None]:
    """FlashAttention-3 in the place of the library's FlashAttention-2."""
    import torch.nn.attention as library

    activate = getattr(library, "activate_flash_attention_impl", None)
    if activate is None:
        raise LeftOut(f"torch {torch.__version__} cannot take FlashAttention-3 in")
    try:
        activate("FA3")
    except (ImportError, RuntimeError, ValueError) as error:
        raise LeftOut(f"FlashAttention-3 is not installed: {error}") from None
    try:
        yield
    finally:
        library.restore_flash_attention_impl()


class Choices(logging.Handler):
    """Implementations of relational attention that ran, from the library's log."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.found[record.getMessage().split(" (q ")[0]] = None


def kernels_in(ran: dict[str, Any], most: int = 3) -> str:
    """Launches, groups and the longest kernels of :func:`what_ran`, in words."""
    longest = ", ".join(f"{name[:60]} {share:.0%}" for name, share in list(ran["kernels"].items())[:most])
    groups = ", ".join(f"{group} {took:.3g} ms" for group, took in ran["groups"].items() if took)
    return f"{ran['launches']} launches; {groups}; longest kernels: {longest}"


@contextlib.contextmanager
def choices() -> Iterator[Choices]:
    log, handler = logging.getLogger("dual_attention.functional.relational"), Choices()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


GROUPS = {
    "relational": r"^(forward|combine|[qukw]|table|reach|pairs|receivers|senders)_kernel|dual_attention::",
    "attention": r"flash|fmha|attention",
    "products": r"gemm|cutlass|nvjet|cublas|splitk|aten::\w*mm\b",
    "loss": r"^errors_kernel|softmax|nll_loss|cross_entropy",
}
"""Groups of kernels by their names; the first that fits. Others are pointwise, copies among them."""


def grouped(times: Mapping[str, float]) -> dict[str, float]:
    """Times of kernels summed by :data:`GROUPS`."""
    sums = dict.fromkeys((*GROUPS, "pointwise"), 0.0)
    for name, took in times.items():
        sums[next((group for group, names in GROUPS.items() if re.search(names, name)), "pointwise")] += took
    return sums


def kind_of(queries: Sequence[int], setting: Setting) -> str:
    """Name of the attention of queries ``(B, heads, N, width)``; symbolic heads are wider than sensory ones."""
    sizes = size(setting.dry_run)
    of_symbols = sizes.symbol_heads, sizes.d_model // sizes.symbol_heads
    return "symbolic" if (queries[1], queries[3]) == of_symbols else "sensory"


def what_ran(call: Callable[[], object], setting: Setting, most: int = 30) -> dict[str, Any]:
    """One call under the profiler.

    Returns:
        ``library``: operators of SDPA; ``relational``: implementations of relational attention, unless the
        call is compiled; ``kernels``: the longest on the device, with their share of its time; ``groups``: milliseconds
        of :data:`GROUPS`, and in the place of ``attention`` those of SDPA's operators, ``sensory`` and ``symbolic``
        (relational attention by ``sdpa`` counts as sensory);
        ``launches``: kernels, or without a GPU operators.
    """
    cuda = setting.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with choices() as chosen, profile(activities=activities, record_shapes=True) as recorded:
        call()
    averages = recorded.key_averages()
    attention: dict[str, float] = {}
    for event in recorded.key_averages(group_by_input_shape=True):
        if event.key.startswith(LIBRARY):
            kind = kind_of(event.input_shapes[0], setting)
            attention[kind] = attention.get(kind, 0.0) + (event.device_time_total if cuda else event.cpu_time_total)
    times = {
        event.key: event.self_device_time_total if cuda else event.self_cpu_time_total
        for event in averages
        if not cuda or event.device_type.name == "CUDA"
    }
    launches = sum(event.count for event in averages if event.key in times)
    groups = grouped(times)
    if attention:
        groups = {group: took for group, took in groups.items() if group != "attention"} | attention
    whole = sum(times.values()) or 1.0
    longest = sorted(times, key=lambda name: -times[name])[:most]
    return {
        "library": sorted(event.key.removeprefix(LIBRARY) for event in averages if event.key.startswith(LIBRARY)),
        "relational": list(chosen.found),
        "kernels": {name[:120]: round(times[name] / whole, 4) for name in longest},
        "groups": {group: round(took / 1e3, 4) for group, took in groups.items()},
        "launches": launches,
    }
