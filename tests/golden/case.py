"""One configuration of the golden files, and how its inputs are drawn."""

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Case:
    """One call. `inputs` maps a name to a function that draws the tensor; `args` maps an argument to an input."""

    name: str
    target: str  # module path and name, without the leading `dual_attention.`
    kwargs: dict[str, Any] = field(default_factory=dict)  # constructor arguments
    inputs: dict[str, Callable[[], torch.Tensor]] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)  # if not every input has its argument's name
    options: dict[str, Any] = field(default_factory=dict)  # arguments of the call that are not tensors
    outputs: tuple[str, ...] = ("output",)
    loss: tuple[str, ...] = ()  # outputs the functional is of, if not the first only
    weights: bool = False  # ask for attention weights (`need_weights=True`)
    note: str = ""

    def __post_init__(self):
        self.args = self.args or {name: name for name in self.inputs}
        self.loss = self.loss or self.outputs[:1]


def narrow(tensor):
    """Round to float16 values, held in float64."""
    return tensor.half().double()


def real(*shape):
    return lambda: narrow(torch.randn(shape))


def mask(rows, columns):
    """A random boolean mask (True: may attend) in which every row attends to something."""

    def draw():
        allowed = torch.rand(rows, columns) < 0.5
        allowed[torch.arange(rows), torch.randint(columns, (rows,))] = True
        return allowed

    return draw


def tokens(vocab_size, *shape, ignore_first=False):
    def draw():
        drawn = torch.randint(vocab_size, shape)
        if ignore_first:
            drawn[0, 0] = -1  # the published losses skip this index
        return drawn

    return draw


def rope(head_dim, length):
    """The published rotary tables: float32 numbers, so they are inputs rather than something to recompute."""
    tables = importlib.import_module("dual_attention.attention_utils").precompute_freqs_cis
    parts = ("freqs_cos", "freqs_sin")
    return {name: lambda part=part: tables(head_dim, length)[part].double() for part, name in enumerate(parts)}
