"""Models made without values, which are drawn when each process has its part, the same whatever that part is.

The generator of the CPU draws the values of a whole tensor at a time, in the order of a model that is made at once. So
no more than one tensor is ever held whole, and every number of processes, and every device, has the same model.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .sharding import is_sharded, placed

Model = TypeVar("Model", bound=nn.Module)


def deferred(build: Callable[[], Model]) -> tuple[Model, Callable[[], None]]:
    """A model on the meta device, and the function that draws its values once it is on another one.

    Args:
        build: seeds the generator of the CPU, and makes a model whose constructor ends with ``init_weights``.

    Returns:
        The model, and the function; that leaves the generator as ``build`` would have left it.
    """
    with torch.device("meta"), _WholeDraws():
        model = build()
    state = torch.get_rng_state()

    def draw() -> None:
        torch.set_rng_state(state)
        with torch.no_grad(), _WholeDraws():
            model.init_weights()  # pyright: ignore[reportCallIssue]

    return model, draw


class _WholeDraws(TorchDispatchMode):
    """Random numbers for whole tensors, from the generator of the CPU.

    A tensor on the meta device gets none, but they are drawn all the same; a sharded one gets its part of them.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if not (args and isinstance(args[0], Tensor)):  # makes a tensor, from its shape
            drawn = func(*args, **{**kwargs, "device": torch.device("cpu")})
            return drawn.to(kwargs.get("device", "cpu"))
        target, *others = args
        if not func.name().partition(".")[0].endswith("_"):
            raise TypeError(f"{func.name()}: expected only random functions that fill a tensor")
        drawn = func(torch.empty(target.shape, dtype=target.dtype, device="cpu"), *others, **kwargs)
        if is_sharded(target):
            target.to_local().copy_(placed(drawn, target).to_local())
        elif not target.is_meta:
            target.copy_(drawn)
        return target
