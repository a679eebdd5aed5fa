"""Trials of attention: what a layer, a model or a part of your own keeps of what it takes, found out by calling it.

Inputs are changed where they must not be seen, and outputs that must not see them stay the same.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ._base.words import shortened
from .mechanisms import Align, Score
from .parts import OwnHeads, OwnSymbols, make_part, of_a_head, words_of_error

__all__ = ["PartReport", "Trial", "TrialEntry", "check_part"]

WIDTH, LENGTH = 8, 9
MASKED = 1088, 2176
"""Lengths between which the largest tensor doubles with a mask too: a smaller mask is built whole."""
REFUSALS = (TypeError, ValueError, NotImplementedError)

Call = Callable[..., Tensor]


class TrialEntry(NamedTuple):
    """Something to try.

    Attributes:
        make: a module for so many objects.
        call: of the module with inputs and the options that it takes; outputs have receivers on their second axis.
        inputs: so many objects, tokens or patches of two examples.
        bare: a call without symbols, of what is called with symbols.
        looks: whether something beside attention reads all objects, so that masks of pairs do not hide any.
        lengths: between which the largest tensor doubles, if memory grows with the length.

    >>> entry = TrialEntry(lambda n: Attention(8, 2), lambda layer, x, **options: layer(x, x, x, **options)[0])
    >>> list(Trial(entry).masks())
    ['pairs', 'padding', 'order', 'bias']
    """

    make: Callable[[int], nn.Module]
    call: Call
    inputs: Callable[[int], Tensor] = lambda n: torch.randn(2, n, WIDTH)
    bare: Call | None = None
    looks: bool = False
    lengths: tuple[int, int] = (384, 768)


class Trial:
    """One entry, made in float64 and tried.

    Args:
        entry: to try.

    >>> layer = TrialEntry(lambda n: Attention(8, 2), lambda layer, x, **options: layer(x, x, x, **options)[0])
    >>> Trial(layer).packs(), Trial(layer).caches(), Trial(layer).is_linear()
    (True, True, True)
    """

    def __init__(self, entry: TrialEntry) -> None:
        torch.manual_seed(0)
        self.entry = entry
        self.module: Any = self.built(LENGTH)
        x = entry.inputs(LENGTH)
        self.x = x.double() if x.is_floating_point() else x
        self.base = self.called(self.x)
        self.parameters = {*inspect.signature(self.module.forward).parameters}

    def built(self, n: int) -> nn.Module:
        """The module for so many objects, with other weights than it begins with."""
        module = self.entry.make(n).double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return module

    @torch.no_grad()
    def called(self, x: Tensor, **options: Any) -> Tensor:
        """Its output."""
        torch.manual_seed(1)  # of those that draw
        return self.entry.call(self.module, x, **options)

    def hides(self, places: list[int], seen_by: list[int], **options: Any) -> bool:
        """Whether objects at some places change nothing for receivers at others, or for all if they are pooled."""
        outputs = [self.called(x, **options) for x in (self.x, _changed(self.x, places))]
        return _equal(*(y[:, seen_by] if y.shape[1:2] == (LENGTH,) else y for y in outputs))

    def mask_cases(self) -> dict[str, tuple[dict[str, Any], list[int], list[int]]]:
        """Options that hide objects, places that they hide, and those for which these are hidden."""
        places = range(LENGTH)
        seen = [place for place in places if not self.hides([place], [i for i in places if i != place])]
        hidden = (seen or [0])[0]  # one that others look at
        others = [i for i in places if i != hidden]
        shown, padding = torch.ones(LENGTH, LENGTH, dtype=torch.bool), torch.ones(2, LENGTH, dtype=torch.bool)
        shown[:, hidden] = padding[:, hidden] = False
        bias = torch.zeros(LENGTH, LENGTH, dtype=torch.double).masked_fill(~shown, -torch.inf)
        return {
            "pairs": ({"attn_mask": shown}, [hidden], others),
            "padding": ({"padding_mask": padding}, [hidden], others),
            "order": ({"is_causal": True}, list(range(5, LENGTH)), list(range(5))),
            "bias": ({"attn_bias": bias}, [hidden], others),
        }

    def masks(self) -> Iterator[str]:
        """Names of the masks that hide what they should."""
        for name, (options, hidden, receivers) in self.mask_cases().items():
            ordered = name == "order"
            if ordered and self.base.shape[1:2] != (LENGTH,):
                continue
            if (ordered and self.hides(hidden, receivers)) or self.takes(options, hidden, receivers):
                yield name

    def takes(self, options: Mapping[str, Any], hidden: list[int], receivers: list[int]) -> bool:
        """Whether an option is taken. Then it must hide what it says, or else ``AssertionError`` is raised."""
        try:
            hides = self.hides(hidden, receivers, **options)
        except (*REFUSALS, KeyError, RuntimeError):
            return False
        if not hides and not self.entry.looks:
            raise AssertionError(f"{', '.join(options)}: taken, and does not do what it says")
        return hides

    def packs(self) -> bool:
        """Whether it keeps sequences apart that stand end to end."""
        options, first, second = {"segments": torch.tensor([[0] * 4 + [1] * 5])}, [0, 1, 2, 3], [4, 5, 6, 7, 8]
        return self.takes(options, second, first) and self.takes(options, first, second)

    def caches(self, real: Tensor | None = None) -> bool:
        """Whether decoding in two chunks gives what one call gives, for objects that are no padding."""
        order = {"is_causal": True} if "is_causal" in self.parameters else {}
        first, whole = ({**order, **({} if real is None else {"padding_mask": real[:, :n]})} for n in (5, LENGTH))
        try:
            cache = self.module.new_cache()
            parts = [self.called(x, cache=cache, **how) for x, how in ((self.x[:, :5], first), (self.x[:, 5:], whole))]
        except (*REFUSALS, AttributeError):
            return False
        if not _equal(torch.cat(parts, 1)[real], self.called(self.x, **whole)[real]):
            raise AssertionError("cache: decoding gives something else")
        return True

    def compiles(self) -> bool:
        """Whether ``torch.compile`` makes one graph of it, with the same numbers."""
        from torch._dynamo.exc import TorchDynamoException  # slow, as nothing else here

        torch._dynamo.reset()
        run = torch.compile(lambda x: self.entry.call(self.module, x), fullgraph=True, backend="eager")
        try:
            with torch.no_grad():
                return _equal(run(self.x), self.base)
        except (TorchDynamoException, *REFUSALS):
            return False

    def exports(self) -> bool:
        """Whether ``torch.export`` takes it, with the same numbers."""
        program = nn.Module()
        program.module, program.forward = self.module, lambda x: self.entry.call(self.module, x)
        try:
            with torch.no_grad():
                return _equal(torch.export.export(program, (self.x,), strict=False).module()(self.x), self.base)
        except Exception:  # of whatever kind the tracer's is
            return False

    def is_linear(self) -> bool:
        """Whether the largest tensor on the way grows with the length, not with its square.

        With padding and with packed sequences too, where these are taken.
        """
        if not self.grows_with(*self.entry.lengths):
            return False
        (short, long), masks = MASKED, {}
        if self.takes(*self.mask_cases()["padding"]):
            masks["padding_mask"] = torch.arange(long) < torch.tensor([[long], [short // 2]])
        if self.packs():
            masks["segments"] = torch.arange(long)[None] // 12
        return all(self.grows_with(short, long, **{name: mask}) for name, mask in masks.items())

    def grows_with(self, short: int, long: int, **masks: Tensor) -> bool:
        """Whether the largest tensor grows no faster than the length, between two, with masks of the longer."""
        sizes = []
        for n in (short, long):
            module, x = self.built(n).float(), self.entry.inputs(n)
            with torch.no_grad(), LargestTensor() as largest:
                self.entry.call(module, x, **{name: mask[:, :n] for name, mask in masks.items()})
            sizes.append(largest.numel)
        return sizes[1] < 3 * sizes[0]

    def keeps_examples_apart(self) -> bool:
        """Whether an example changes nothing for the other, also where there are as many as objects."""
        for x in (self.x, self.x[:1].repeat(LENGTH, *[1] * (self.x.dim() - 1)).cumsum(0).sin()):
            other = torch.cat([x[:1], 2 - 3 * x[1:].flip(-1)])
            if not _equal(self.called(x)[:1], self.called(other)[:1]):
                return False
        return True

    def lost_gradients(self) -> list[str]:
        """Names of parameters, and ``input``, whose gradients are missing, or no derivatives of the output."""
        named = {**dict(self.module.named_parameters()), "input": self.x.clone().requires_grad_()}
        factors = torch.linspace(-1, 2, self.base.numel(), dtype=self.base.dtype).view_as(self.base).cos()

        def value(*_: Tensor) -> Tensor:
            torch.manual_seed(1)
            return (self.entry.call(self.module, named["input"]) * factors).sum()

        trained = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
        total = value()
        if not total.requires_grad:
            return [*trained]
        gradients = torch.autograd.grad(total, [*trained.values()], allow_unused=True)
        check = {"fast_mode": True, "raise_exception": False, "nondet_tol": 1e-9, "check_undefined_grad": False}
        return [
            name
            for (name, tensor), gradient in zip(trained.items(), gradients, strict=True)
            if gradient is None or not gradient.any() or not torch.autograd.gradcheck(value, tensor, **check)
        ]


def _changed(x: Tensor, places: list[int]) -> Tensor:
    """Inputs with others at some places; no shift or multiple of the old ones, which norms may take away."""
    x, axis = x.clone(), 2 if x.dim() == 4 else 1
    old = x.index_select(axis, torch.tensor(places))
    new = 2 - 3 * old.flip(-1) if x.is_floating_point() else (old + 1) % (x.max() + 1)
    return x.index_copy(axis, torch.tensor(places), new)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-9, rtol=0)


class LargestTensor(TorchDispatchMode):
    """Watches the size of the largest tensor that comes out of an operation."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


# A part of your own --------------------------------------------------------------------------------------------------

Finding = bool | str | None
"""True if something holds, else False or what was found instead; None if a part has no such thing."""


def _hides(trial: Trial, name: str) -> bool:
    options, hidden, receivers = trial.mask_cases()[name]
    taken = {name: option for name, option in options.items() if name in trial.parameters}  # symbols take none
    return trial.hides(hidden, receivers, **taken)


def _decodes(trial: Trial) -> bool:
    """Whether a part can be decoded, with padding on the left too where it takes any."""
    real = torch.arange(LENGTH) >= torch.tensor([[0], [2]])
    return trial.caches() and ("padding_mask" not in trial.parameters or trial.caches(real))


@torch.no_grad()
def _in_bfloat16(trial: Trial, *, autocast: bool = False) -> Finding:
    """Whether a part computes about the same in bfloat16, and gives that dtype unless under autocast."""
    dtype = torch.float32 if autocast else torch.bfloat16
    module = copy.deepcopy(trial.module).to(dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = trial.entry.call(module, trial.x.to(dtype))
    if not autocast and out.dtype != dtype:
        return f"its output is of {out.dtype}"
    error = ((out.double() - trial.base).norm() / trial.base.norm().clamp(min=1e-9)).item()
    return error < 0.2 or f"its output differs by {error:.0%}"


TRIALS: dict[str, tuple[str, Callable[[Trial], Finding]]] = {
    "shape": ("called as a model calls it, it gives what the model expects", lambda t: t.base.shape == t.x.shape),
    "examples": ("an example sees nothing of another", Trial.keeps_examples_apart),
    "pairs": ("a pair that the mask hides is not seen", lambda t: _hides(t, "pairs")),
    "padding": ("padding is not seen", lambda t: _hides(t, "padding")),
    "order": ("later tokens are not seen", lambda t: _hides(t, "order")),
    "packing": ("sequences that stand end to end do not see each other", Trial.packs),
    "gradients": (
        "all parameters and the input have gradients, which are derivatives",
        lambda t: ", ".join(t.lost_gradients()) or True,
    ),
    "bfloat16": ("with weights and inputs of bfloat16 it computes about the same", _in_bfloat16),
    "autocast": ("so it does under autocast", lambda t: _in_bfloat16(t, autocast=True)),
    "cache": ("decoding in two chunks gives what one call gives", _decodes),
    "compile": ("torch.compile makes one graph of it", Trial.compiles),
    "export": ("torch.export takes it", Trial.exports),
    "linear": ("memory grows with the length, not with its square, with padding and packing too", Trial.is_linear),
}
"""Each line of a report: its meaning, if it holds, and how it is tried."""
OPTIONAL = ("compile", "export", "linear")
"""Trials that a model can do without."""
OF_MASKS = ("pairs", "padding", "packing")
"""Trials of masks, which symbols do not take."""


@dataclass
class PartReport:
    """Findings about a part; printed, a line for each trial.

    Attributes:
        part: its name, and what it was taken for.
        holds: by the name of a trial whether it holds; None if the part has no such thing.
        why: what was found instead.

    >>> print(PartReport("Mine", {"order": False}, {"order": "later tokens are seen"}))
    Mine
      order      NO   later tokens are not seen: later tokens are seen
    """

    part: str
    holds: dict[str, bool | None] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> list[str]:
        """The trials that a part must pass, and did not."""
        return [name for name, holds in self.holds.items() if holds is False and name not in OPTIONAL]

    def __str__(self) -> str:
        lines = [self.part]
        for name, holds in self.holds.items():
            word = {True: "yes", False: "no" if name in OPTIONAL else "NO", None: "-"}[holds]
            why = f": {self.why[name]}" if name in self.why else ""
            lines.append(f"  {name:10} {word:4} {TRIALS[name][0]}{why}")
        return "\n".join(lines)

    __repr__ = __str__


@torch.random.fork_rng(devices=[])
def check_part(part: Any, *, d_model: int = 16, n_heads: int = 2) -> PartReport:
    """Try a part of your own: shapes, masks, causal order, packing, padding, caches, gradients, dtypes, compiling.

    Args:
        part: a score, an alignment, heads or symbols, see docs/your-part.md; a class is made as :func:`.with_parts`
            makes it. A module whose ``forward`` takes one tensor is taken for symbols.
        d_model, n_heads: sizes of the layer that it is tried in.

    Returns:
        What holds; print it. ``report.wrong`` names what a model needs and the part does not do.

    Raises:
        TypeError: if it is neither a module nor a class or function that makes one.

    >>> from dual_attention.mechanisms import Cosine
    >>> check_part(Cosine).wrong
    []
    """
    if not callable(part):
        raise TypeError(f"part: expected a module or its class, got {shortened(repr(part))}")
    name = getattr(part, "__name__", type(part).__name__)
    if isinstance(part, nn.Module):
        part = copy.deepcopy(part)
    else:
        sizes = {"d_model": d_model, "n_heads": n_heads, "layer": 1, "n_relations": n_heads}
        make: Any = part
        part = make_part("part", make, sizes | of_a_head(d_model // n_heads), torch.device("cpu"))
    kind = _kind_of(part)
    standing = OwnSymbols(part, d_model) if kind == "symbols" else OwnHeads(part, d_model, n_heads)

    def call(module: nn.Module, x: Tensor, **options: Any) -> Tensor:
        return module(x, **options) if kind == "symbols" else module(x, x, x, **options)[0]

    entry = TrialEntry(lambda n: copy.deepcopy(standing), call, lambda n: torch.randn(2, n, d_model), lengths=(64, 128))
    title = f"{name}, as {kind}:"
    try:
        trial = Trial(entry)
    except Exception as error:
        return PartReport(title, {"shape": False}, {"shape": words_of_error(error)})
    report = PartReport(title)
    for trial_name, (_, run) in TRIALS.items():
        try:
            found = None if kind == "symbols" and trial_name in OF_MASKS else run(trial)
        except Exception as error:
            found = words_of_error(error)
        report.holds[trial_name] = found if found is None else found is True
        if isinstance(found, str):
            report.why[trial_name] = found
    return report


def _kind_of(part: nn.Module) -> str:
    if isinstance(part, Score | Align):
        return "a score of heads" if isinstance(part, Score) else "an alignment of heads"
    parameters = inspect.signature(part.forward).parameters
    needed = [p for p in parameters.values() if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD,)]
    return "heads" if len(needed) > 1 or {"mask", "attn_mask"} & parameters.keys() else "symbols"
