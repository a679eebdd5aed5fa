"""What one side has to do, as plain data that travels to another process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Draw:
    """A random input.

    Attributes:
        shape: of the tensor.
        below: integers in ``[0, below)``; None for normal numbers.
        gradient: whether a training step needs its gradient, as the inputs of an inner layer's do; integers never.
    """

    shape: tuple[int, ...]
    below: int | None = None
    gradient: bool = True


@dataclass(frozen=True)
class Generation:
    """Generation from a prompt of ``start`` tokens by ``new``; ``checked`` after the first ``check`` are compared."""

    start: int
    new: int
    check: int
    checked: int = 4


@dataclass(frozen=True)
class Decoding:
    """One token after ``context`` earlier ones, of which there are as many examples as ``batch``, all alike.

    Attributes:
        cached: from a cache of the earlier tokens; otherwise in one pass over all of them.
        only_read: no token: a sum of as many numbers as one needs, in a row.
    """

    context: int
    batch: int = 1
    cached: bool = True
    only_read: bool = False


@dataclass(frozen=True)
class Work:
    """A module, its inputs, and how it is to be run.

    Attributes:
        subject: name in :mod:`benchmarks.subjects`.
        kwargs: arguments of that constructor, of types that JSON has.
        inputs: arguments of the module's call.
        impl: implementation of relational attention; None for the library's own choice.
        generation: for the quantity ``generate``.
        decoding: for the quantity ``decode``.
        compiled: whether the forward pass of its ``model`` is compiled.
        native: whether the library's C kernels are enabled.
    """

    subject: str
    kwargs: dict[str, Any]
    inputs: dict[str, Draw]
    impl: str | None = None
    generation: Generation | None = None
    decoding: Decoding | None = None
    compiled: bool = False
    native: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Work:
        """From :meth:`to_json`."""
        inputs = {name: Draw(**{**draw, "shape": tuple(draw["shape"])}) for name, draw in data["inputs"].items()}
        generation = data["generation"] and Generation(**data["generation"])
        decoding = data["decoding"] and Decoding(**data["decoding"])
        return cls(**{**data, "inputs": inputs, "generation": generation, "decoding": decoding})


@dataclass(frozen=True)
class Settings:
    """Where and how precisely everything runs.

    Attributes:
        device: ``"cpu"`` or ``"cuda"``.
        dtype: of parameters and of real inputs: a name in torch.
        threads: of the CPU, in each process.
    """

    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
