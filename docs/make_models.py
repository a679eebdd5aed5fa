"""Write models.md: every layer, mechanism, baseline and model with what it takes and has, each entry tried.

    python docs/make_models.py

tests/test_models_page.py tries all again, and fails where the page says something else.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from model_entries import ENTRIES, GROUPS, VOCAB, Entry, N
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch.utils._python_dispatch import TorchDispatchMode

from dual_attention import symbol_retrieval

PAGE = Path(__file__).resolve().parent / "models.md"
COLUMNS = ("name", "symbols", "masks", "packing", "cache", "compile", "export", "linear")
NO = "–"
MASKED = 1088, 2176
"""Lengths between which it doubles with a mask too: a smaller mask is built whole."""
REFUSALS = (TypeError, ValueError, NotImplementedError)


def changed(x: Tensor, places: list[int]) -> Tensor:
    """Inputs with others at some places; no shift or multiple of the old ones, which norms may take away."""
    x, axis = x.clone(), 2 if x.dim() == 4 else 1
    old = x.index_select(axis, torch.tensor(places))
    new = 2 - 3 * old.flip(-1) if x.is_floating_point() else (old + 1) % VOCAB
    return x.index_copy(axis, torch.tensor(places), new)


def equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-9, rtol=0)


class Trial:
    """One entry, made and tried."""

    def __init__(self, entry: Entry) -> None:
        torch.manual_seed(0)
        self.entry = entry
        self.module: Any = self.built(N)
        x = entry.inputs(N)
        self.x = x.double() if x.is_floating_point() else x
        self.base = self.called(self.x)
        self.parameters = {*inspect.signature(self.module.forward).parameters}

    def built(self, n: int) -> nn.Module:
        module = self.entry.make(n).double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return module

    @torch.no_grad()
    def called(self, x: Tensor, **options: Any) -> Tensor:
        torch.manual_seed(1)  # of those that draw
        return self.entry.call(self.module, x, **options)

    def hides(self, places: list[int], seen_by: list[int], **options: Any) -> bool:
        """Whether objects at some places change nothing for receivers at others, or for all if they are pooled."""
        outputs = [self.called(x, **options) for x in (self.x, changed(self.x, places))]
        return equal(*(y[:, seen_by] if y.shape[1:2] == (N,) else y for y in outputs))

    def masks(self) -> Iterator[str]:
        """Names of the masks that hide what they should."""
        seen = [place for place in range(N) if not self.hides([place], [i for i in range(N) if i != place])]
        hidden = seen[0]  # one that others look at
        others = [i for i in range(N) if i != hidden]
        shown, padding = torch.ones(N, N, dtype=torch.bool), torch.ones(2, N, dtype=torch.bool)
        shown[:, hidden] = padding[:, hidden] = False
        bias = torch.zeros(N, N, dtype=torch.double).masked_fill(~shown, -torch.inf)
        for name, options in {"pairs": {"attn_mask": shown}, "padding": {"padding_mask": padding}}.items():
            if self.takes(options, [hidden], others):
                yield name
        later, earlier = list(range(5, N)), list(range(5))
        if self.base.shape[1:2] == (N,) and (
            self.hides(later, earlier) or self.takes({"is_causal": True}, later, earlier)
        ):
            yield "order"
        if self.takes({"attn_bias": bias}, [hidden], others):
            yield "bias"

    def takes(self, options: Mapping[str, Any], hidden: list[int], receivers: list[int]) -> bool:
        """Whether an option is taken. Then it must hide what it says."""
        try:
            hides = self.hides(hidden, receivers, **options)
        except (*REFUSALS, KeyError, RuntimeError):
            return False
        if not hides and not self.entry.looks:
            raise AssertionError(f"{', '.join(options)}: taken, and does not do what it says")
        return hides

    def packs(self) -> bool:
        segments = torch.tensor([[0] * 4 + [1] * 5])
        return self.takes({"segments": segments}, [4, 5, 6, 7, 8], [0, 1, 2, 3]) and self.takes(
            {"segments": segments}, [0, 1, 2, 3], [4, 5, 6, 7, 8]
        )

    def caches(self) -> bool:
        """Whether decoding in two chunks gives what one call gives."""
        order = {"is_causal": True} if "is_causal" in self.parameters else {}
        try:
            cache = self.module.new_cache()
            parts = [self.called(x, cache=cache, **order) for x in (self.x[:, :5], self.x[:, 5:])]
        except (*REFUSALS, AttributeError):
            return False
        if not equal(torch.cat(parts, 1), self.called(self.x, **order)):
            raise AssertionError("cache: decoding gives something else")
        return True

    def compiles(self) -> bool:
        """As one graph."""
        torch._dynamo.reset()
        run = torch.compile(lambda x: self.entry.call(self.module, x), fullgraph=True, backend="eager")
        try:
            with torch.no_grad():
                return equal(run(self.x), self.base)
        except (TorchDynamoException, *REFUSALS):
            return False

    def exports(self) -> bool:
        program = nn.Module()
        program.module, program.forward = self.module, lambda x: self.entry.call(self.module, x)
        try:
            with torch.no_grad():
                return equal(torch.export.export(program, (self.x,), strict=False).module()(self.x), self.base)
        except Exception:  # of whatever kind the tracer's is
            return False

    def is_linear(self, **masks: Tensor) -> bool:
        """Whether the largest tensor on the way grows with the length, not with its square.

        Args:
            masks: options that it takes, for sequences of the lengths :data:`MASKED`; they may not change that.
        """
        sizes = []
        for n in MASKED if masks else self.entry.lengths:
            module, x = self.built(n).float(), self.entry.inputs(n)
            with torch.no_grad(), Largest() as largest:
                self.entry.call(module, x, **{name: mask[:, :n] for name, mask in masks.items()})
            sizes.append(largest.numel)
        return sizes[1] < 3 * sizes[0]

    def symbols(self) -> str:
        if self.entry.bare is None:
            kinds = tuple(getattr(symbol_retrieval, name) for name in symbol_retrieval.__all__)
            return "own" if any(isinstance(part, kinds) for part in self.module.modules()) else NO
        try:
            self.entry.bare(self.module, self.x)
        except REFUSALS:
            return "needs"
        return "takes"


class Largest(TorchDispatchMode):
    """Watches the size of the largest tensor that comes out of an operation."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


def row(name: str) -> str:
    """The line of the page on an entry, as it turns out."""
    trial = Trial(ENTRIES[name])
    masks, packs, linear = [*trial.masks()], trial.packs(), trial.is_linear()
    if linear and "padding" in masks:
        linear = trial.is_linear(padding_mask=torch.arange(MASKED[1]) < torch.tensor([[MASKED[1]], [MASKED[0] // 2]]))
    if linear and packs:
        linear = trial.is_linear(segments=torch.arange(MASKED[1])[None] // N)
    flags = (packs, trial.caches(), trial.compiles(), trial.exports(), linear)
    cells = (f"`{name}`", trial.symbols(), ", ".join(masks) or NO, *("yes" if flag else NO for flag in flags))
    return f"| {' | '.join(cells)} |"


INTRODUCTION = """# What each model supports

After this page you know what every layer, mechanism, baseline and model of the library supports. `make models` tries
each one and writes this page; a test tries them again and compares. [The list of entries](model_entries.py) shows how
each is built and called; with other arguments it may support more or less.

- **symbols**: *needs* them in each call, *takes* features in their place, or retrieves its *own*.
- **masks**: *pairs* (`attn_mask`), *padding* (`padding_mask` or its equivalent), *order* (`is_causal`, or always
  causal), *bias* (`attn_bias`, where minus infinity hides). The test changes what is hidden, and checks that outputs
  that must not see it stay the same. In multi-token and location-aware attention, queries see each other whatever the
  mask, so there the test keeps the queries fixed.
- **packing**: sequences end to end (`segments`) do not see each other.
- **cache**: decoding in two chunks gives what one call gives.
- **compile**, **export**: one graph without a break, of `torch.compile` and `torch.export`, with the same numbers.
- **linear**: on a CPU the largest tensor on the way grows with the length, not with its square: fused kernels, tiles
  or blocks. So it does with padding and with packed sequences, where these are taken.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, group in GROUPS.items():
        head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
        parts.append("\n".join([f"## {title}", "", *head, *map(row, group)]) + "\n")
    return "\n".join(parts)


def rows_of_page() -> dict[str, str]:
    """Lines of the page by the name of their entry."""
    return {match[1]: match[0] for match in re.finditer(r"^\| `(\w+)` \|.*$", PAGE.read_text(encoding="utf-8"), re.M)}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
