"""Choice of an implementation of relational attention, by measured rules, with its reason.

``impl="auto"`` takes ``dense`` under transforms of ``torch.func`` and forward derivatives, which need plain operations.
Else it takes the first that suits:

1. ``triton`` on CUDA in bfloat16 and float16, where the kernels can run, but not for a step of decoding;
2. ``linear`` for one receiver, a step of decoding, where the library in C for it can be had;
3. ``dense`` if maps are asked for, if there are few pairs (:data:`LARGEST_DENSE`), or if relative symbols have about a
   row for each pair;
4. ``sdpa`` on CUDA in bfloat16 and float16, without a mask but the causal one, for which the library has fused kernels;
5. ``linear``, and ``blockwise`` for activated relations.

Where ``torch.export`` or a compiler leaves lengths open, one graph must serve all: ``linear``, and ``dense`` for
activated relations. A program for ONNX or from ``torch.jit.trace`` is ``dense``: operations of this library are not
known where it runs. Choices on a GPU are not measured yet.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch

from ..activations import activation_name
from ..checks import is_open, leaves_pytorch
from ..symbols import RelativeSymbols, symbol_table
from ..triton.support import obstacle, preferred
from . import compiled
from .inputs import RelationalInputs
from .linear import is_step
from .relative_symbols import has_symbol_per_pair
from .tiles import multiplies_bfloat16, prefers_tiles

Implementation = Literal["auto", "reference", "dense", "linear", "blockwise", "sdpa", "triton"]
_NAMES = get_args(Implementation)

LARGEST_DENSE = 256 * 256
"""Pairs (receivers times senders) up to which ``impl="auto"`` may build all weights at once.

On a CPU it does so only while they are few (:data:`MOST_WEIGHTS`; :data:`FEWEST_WEIGHTS` where tiles of relations save
much, :func:`.tiles.prefers_tiles`), or in a step of decoding (:data:`FEWEST_RECEIVERS`). Measured forward and backward
on two cores, 16 to 256 objects: where tiles save much, dense was 1.0 to 1.8 times as fast with fewer weights than
``FEWEST_WEIGHTS``, linear 0.9 to 2.8 times with more; elsewhere dense was 1.0 to 2.1 times as fast with fewer than
``MOST_WEIGHTS``, linear 1.0 to 3.2 times with more. ``benchmarks/run.py --suite crossing`` measures it anew.
"""

MOST_WEIGHTS = 2**22
"""Weights of all examples and heads, about: 16 MB of float32."""

FEWEST_WEIGHTS = 2**17
"""The same where tiles of relations save much."""

FEWEST_RECEIVERS = 16
"""Fewer are a step of decoding."""


class Choice(NamedTuple):
    """An implementation and why it was chosen; prints as ``name: reason``."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def choose(x: RelationalInputs, impl: Implementation = "auto") -> Choice:
    """The implementation of a call; ``ValueError`` for one that is unknown or cannot compute it.

    Reasons are made of constants: a compiler walks through here too, and sizes may be symbols.
    """
    if impl != "auto":
        return _named(x, impl)
    if leaves_pytorch():
        return Choice("dense", "operations of this library are not known where ONNX or a trace runs")
    if x.needs_plain:
        return Choice("dense", "derivatives by torch.func, and forward ones, need plain operations")
    not_fused = ""
    if preferred(x.q):
        a_step = x.pattern.offset and x.n < FEWEST_RECEIVERS
        against = "in a step of decoding one program for each head would walk all senders" if a_step else obstacle(x)
        if against is None:
            return Choice("triton", "fused kernels suit bfloat16 and float16 on CUDA")
        not_fused = f" (not triton: {against})"
    if is_step(x) and not (x.need_weights or x.activated):
        return Choice("linear", "a library in C reads the senders of one receiver once")
    few = _reason_for_dense(x)
    if few is not None:
        return Choice("dense", few + not_fused)
    causal_at_most = x.bias is None and (x.pattern.only_causal or x.pattern.hides_nothing)
    if causal_at_most and preferred(x.q) and _library_can(x) and not is_open(x.n, x.m):
        return Choice("sdpa", "the library has fused kernels for no mask but the causal one" + not_fused)
    if is_open(x.n, x.m):
        return Choice("linear", "an export leaves lengths open, and linear suits long ones" + not_fused)
    if x.activated:
        return Choice("blockwise", "activated relations of so many pairs are built a block at a time" + not_fused)
    return Choice("linear", "there are too many weights to build all at once" + _form(x) + not_fused)


def _form(x: RelationalInputs) -> str:
    """The form that the linear way takes: in C, or why not in C, or another form of relations than in float32."""
    if not torch.compiler.is_compiling() and x.q.is_cpu and compiled.takes(x.q.dtype):
        table, relative = symbol_table(x.symbols), isinstance(x.symbols, RelativeSymbols)
        against = compiled.obstacle(x.q, x.k, x.u, x.w, table, x.bias, relative=relative)
        wide = "" if x.q.dtype == torch.float32 else ", in float32"
        return f", by the library in C{wide}" if against is None else f" (not in C: {against})"
    sizes = x.q.shape[1], x.u.shape[3]
    if multiplies_bfloat16(x.u) and prefers_tiles(*sizes) and not prefers_tiles(*sizes, in_bfloat16=True):
        return ", and large products suit a processor that multiplies bfloat16"
    return ""


def _named(x: RelationalInputs, impl: Implementation) -> Choice:
    """The implementation that was asked for, or ``ValueError``."""
    if impl not in _NAMES:
        raise ValueError(f"impl: expected one of {', '.join(_NAMES)}, got {impl!r}")
    refusal = _refusal(x, impl)
    if refusal is not None:
        raise ValueError(f"impl={impl!r} {refusal}")
    if impl == "linear" and x.activated:
        return Choice("blockwise", "impl='linear' was asked for, and activated relations must be built, block by block")
    return Choice(impl, f"impl={impl!r} was asked for" + (_form(x) if impl == "linear" else ""))


def _refusal(x: RelationalInputs, impl: Implementation) -> str | None:
    """Reason why an implementation cannot compute this; None if it can."""
    if impl in ("linear", "blockwise", "triton") and x.needs_plain:
        return "has no derivatives by torch.func, and no forward ones: they need impl='dense'"
    if impl in ("linear", "blockwise"):
        if x.need_weights:
            return "builds neither weights nor relations whole: it needs need_weights=False"
        if isinstance(x.symbols, RelativeSymbols) and has_symbol_per_pair(x.symbols, x.n, x.m):
            return (
                f"needs a library of relative symbols with at most 2 (N + M) = {2 * (x.n + x.m)} rows, "
                f"got {x.symbols.library.shape[0]}"
            )
    if impl == "sdpa" and not _library_can(x):
        return (
            "needs need_weights=False, dropout=0 (its calls would draw different masks), relations with the activation "
            f"'identity' and shared symbols, got need_weights={x.need_weights}, dropout={x.dropout}, "
            f"{activation_name(x.rel_activation)!r} and {type(x.symbols).__name__}"
        )
    if impl == "triton":
        against = obstacle(x)
        return None if against is None else f"cannot compute this: {against}"
    return None


def _library_can(x: RelationalInputs) -> bool:
    """Whether library attention can compute this at all."""
    return not (x.need_weights or x.dropout or x.activated or isinstance(x.symbols, RelativeSymbols))


def _reason_for_dense(x: RelationalInputs) -> str | None:
    """Why to build all weights at once; None if it is better not to. Also while an export leaves sizes open."""
    if x.need_weights:
        return "weights and relations were asked for, and are built whole"
    (batch, heads, n, _), m = x.q.shape, x.k.shape[2]
    if is_open(n, m):
        few = "an export leaves lengths open, and relations are activated" if x.activated else None
    else:
        known = 1 if is_open(batch) else batch
        in_bfloat16 = multiplies_bfloat16(x.u) and not compiled.takes(x.u.dtype)
        tiles = prefers_tiles(heads, x.u.shape[3], in_bfloat16=in_bfloat16)
        few = few_pairs(known, heads, n, m, tiles=tiles, on_cpu=x.q.is_cpu, activated=x.activated)
    if few is None and has_symbol_per_pair(x.symbols, n, m):
        return "relative symbols have about a row for each pair"
    return few


def few_pairs(batch: int, heads: int, n: int, m: int, *, tiles: bool, on_cpu: bool, activated: bool) -> str | None:
    """Why there are so few pairs that it is best to build all weights at once, see :data:`LARGEST_DENSE`; or None."""
    if n * m > LARGEST_DENSE:
        return None
    if activated:
        return f"there are at most {LARGEST_DENSE} pairs, whose activated relations are fastest built at once"
    if not on_cpu:
        return f"there are at most {LARGEST_DENSE} pairs"
    if n < FEWEST_RECEIVERS:
        return f"a step of decoding has fewer than {FEWEST_RECEIVERS} receivers"
    most = FEWEST_WEIGHTS if tiles else MOST_WEIGHTS
    return f"there are fewer than {most} weights" if batch * heads * n * m < most else None
