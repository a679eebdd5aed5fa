"""Inputs of attention heads while a model is called, of which controls are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from dual_attention.model_analysis.sites import Site


@contextmanager
def what_enters(sites: Sequence[Site]) -> Iterator[dict[str, Tensor]]:
    """Keep what enters the heads of some layers, ``(B, N, d)`` by layer, from the last call within this context."""
    entered: dict[str, Tensor] = {}

    def remember(layer: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
            entered[layer] = args[0]

        return hook

    handles = [site.module.register_forward_pre_hook(remember(site.layer)) for site in sites]
    try:
        yield entered
    finally:
        for handle in handles:
            handle.remove()
