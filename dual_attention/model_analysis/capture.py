"""Capture of what the attention heads of a model compute, in any call of it.

::

    with capture(model, layers=0, heads="relational", relations=[2, 5]) as maps:
        model(tokens)
    maps["blocks.0"].relational.relations  # (B, N, M, 2)

What is kept is chosen before the call. A layer of which something is kept builds its weights, and its relations if they
are, where it otherwise might not; others compute as ever. Outputs are the same to rounding.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .maps import QUANTITIES, CallMaps, HeadMaps, Maps, Quantity
from .sites import ChosenSite, HeadChoice, LayerChoice, RelationChoice, Site, choose_sites, find_retrievers

__all__ = ["capture"]


@contextmanager
def capture(
    model: nn.Module,
    quantities: Quantity | Sequence[Quantity] | None = None,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    relations: RelationChoice = None,
    device: torch.device | str | None = None,
) -> Iterator[Maps]:
    """Keep what the attention heads of a model compute while it is called within this context.

    Works with every model of this library, with those of :mod:`dual_attention.hf`, with baselines, and with modules of
    one's own that contain its layers; with batches, padding and caches, in training and in evaluation. The mode of the
    model, gradients and generators of random numbers are left alone (in training with dropout, a layer that builds its
    weights may draw other numbers than one that does not). Code that ``torch.compile`` made runs uncompiled meanwhile.

    Each call of the model is kept apart. A call begins when the model is entered, or when a layer is entered again
    without that, as in decoding token by token. What gradient checkpointing computes again is not kept again; with it,
    run the backward pass inside the context, too.

    Interventions entered before are seen, others are not.

    Args:
        quantities: what to keep, see :class:`~dual_attention.model_analysis.maps.HeadMaps`; by default everything.
            Relations, ``(B, N, M, R)``, take most memory, then weights, ``(B, H, N, M)``, and contributions,
            ``(B, H, N, d)``.
        layers: names (``"blocks.0"``, ``"decoder.1.cross"``), their beginnings (``"decoder"``), or numbers in a model
            with one stack of blocks; by default all.
        heads: numbers; or a kind, ``"sensory"`` or ``"relational"``; or a mapping from kinds to numbers, or to None for
            all of a kind. By default all.
        relations: numbers; by default all.
        device: to which copies are moved; by default they stay where they are.

    Yields:
        :class:`~dual_attention.model_analysis.maps.Maps`, which fills while the model is called.

    Raises:
        TypeError, ValueError: if the model has no attention of this library, or not the layers, heads, relations or
            quantities that are asked for.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), capture(lm) as maps:
    ...     logits = lm(torch.randint(50, (2, 9))).logits
    >>> maps["blocks.0"].relational.relations.shape
    torch.Size([2, 9, 9, 1])
    """
    chosen = choose_sites(model, layers, heads, relations)
    names = _quantities(quantities, chosen)
    recorder = _Recorder(device)
    with ExitStack() as stack:
        stack.callback(recorder.forget)
        stack.enter_context(model.register_forward_pre_hook(lambda *_: recorder.begin()))
        retrievers = find_retrievers(model) if "assignment" in names else []
        for handle in itertools.chain(recorder.follow(retrievers), *(recorder.watch(one, names) for one in chosen)):
            stack.enter_context(handle)
        stack.enter_context(uncompiled())
        yield recorder.maps


_EAGER = ExitStack()  # holds the stance while any context below is open
_EAGER_LOCK = RLock()  # an abandoned generator may end while its thread holds it
_eager_contexts = 0


@contextmanager
def uncompiled() -> Iterator[None]:
    """Context in which code compiled by ``torch.compile`` runs eagerly, since taps are not in its graphs.

    Contexts may end in another order than they began, as those of threads and of abandoned generators do. PyTorch's
    stance is one for the process, and leaving it restores what was before, so it is taken once and left once.
    """
    global _eager_contexts
    # Unless dynamo is imported nothing is compiled, and importing it takes long.
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with _EAGER_LOCK:
        if _eager_contexts == 0:
            _EAGER.enter_context(torch.compiler.set_stance("force_eager"))
        _eager_contexts += 1
    try:
        yield
    finally:
        with _EAGER_LOCK:
            _eager_contexts -= 1
            if _eager_contexts == 0:
                _EAGER.close()


_COMPUTES_AGAIN: ContextVar[bool] = ContextVar("computes_again", default=False)


@contextmanager
def computing_again() -> Iterator[None]:
    """Context in which a layer computes once more what it has computed in this call; captures keep the first."""
    token = _COMPUTES_AGAIN.set(True)
    try:
        yield
    finally:
        _COMPUTES_AGAIN.reset(token)


def is_recomputing() -> bool:
    """Whether layers compute again: in a backward pass, for gradient checkpointing, or :func:`computing_again`."""
    return _COMPUTES_AGAIN.get() or torch._C._current_graph_task_id() != -1


def _quantities(given: Quantity | Sequence[Quantity] | None, chosen: list[ChosenSite]) -> tuple[str, ...]:
    """Names of what to keep, after checking that the chosen heads compute it."""
    if given is None:
        return QUANTITIES
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in QUANTITIES:
            raise ValueError(f"quantities: expected some of {', '.join(QUANTITIES)}, got {name!r}")
        if not any(choice.site.tap_of(name) for choice in chosen):
            raise ValueError(f"quantities: the chosen layers and heads compute no {name}")
    if not names:
        raise ValueError("quantities: expected at least one, got none")
    return names


@dataclass
class _Recorder:
    """Fills maps from the hooks of taps."""

    device: torch.device | str | None
    maps: Maps = field(default_factory=Maps)
    _open: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _is_new: bool = True
    _retrieved: tuple[Tensor, Tensor] | None = None  # symbols, and the weights they were retrieved with
    _assignment: Tensor | None = None

    def begin(self) -> None:
        """The model is entered."""
        if not is_recomputing():
            self._is_new = True

    def forget(self) -> None:
        """Let go of what is not kept."""
        self._retrieved = self._assignment = None
        self._open = {}

    def follow(self, retrievers: list[Any]) -> Iterator[RemovableHandle]:
        """Remember the last symbols retrieved, and their weights, until a layer is given them."""

        def weighed(_module: nn.Module, _args: Any, weights: Tensor) -> None:
            self._assignment = weights

        def retrieved(_module: nn.Module, _args: Any, symbols: Tensor) -> None:
            if self._assignment is not None:
                self._retrieved, self._assignment = (symbols, self._assignment), None

        for retriever in retrievers:
            yield retriever.taps.assignment.register_forward_hook(weighed)
            yield retriever.register_forward_hook(retrieved)

    def watch(self, choice: ChosenSite, names: tuple[str, ...]) -> Iterator[RemovableHandle]:
        """Hooks that keep quantities of chosen heads."""
        for name in names:
            tap = choice.site.tap_of(name)
            if tap is not None:
                yield tap.register_forward_hook(self._hook(choice, name))

    def _hook(self, choice: ChosenSite, name: str) -> Callable[..., None]:
        def keep(_module: nn.Module, args: tuple[Tensor], values: Tensor) -> None:
            if is_recomputing():
                return
            with torch.no_grad():
                found = self._assigned(args[0]) if name == "assignment" else chosen_values(choice, name, values)
                if found is not None:
                    self._keep(choice, name, found)

        return keep

    def _assigned(self, symbols: Tensor) -> Tensor | None:
        """The weights with which these symbols were retrieved; None if by no attention."""
        if self._retrieved is None or self._retrieved[0] is not symbols:
            return None
        return self._retrieved[1].detach().clone()

    def _keep(self, choice: ChosenSite, name: str, values: Tensor) -> None:
        site = choice.site
        key = site.layer, site.kind
        if self._is_new or name in self._open.get(key, {}):
            self._is_new, self._open = False, {}
            self.maps.calls.append(CallMaps(()))
        taps = site.module.taps
        places = {name: getattr(taps, name) for name in ("first_receiver", "first_sender", "crosses")}
        self._open.setdefault(key, places)[name] = values if self.device is None else values.to(self.device)
        self.maps.calls[-1].put(_record(choice, self._open[key]))


def _record(choice: ChosenSite, kept: dict[str, Any]) -> HeadMaps:
    site = choice.site
    about = {"relation_numbers": choice.relations, "relative_symbols": site.has_relative_symbols}
    return HeadMaps(site.layer, site.kind, choice.heads, **about, **kept)


def chosen_values(choice: ChosenSite, name: str, values: Tensor) -> Tensor:
    """A copy of the part of a tap's tensor that belongs to the chosen heads and relations."""
    site: Site = choice.site
    if name == "contribution":
        return site.contributions(values, choice.heads).detach()
    values = values.detach()
    if name == "relations":
        numbers, axis, n = choice.relations, 3, site.n_relations
    elif name == "symbols" or values.shape[1] == 1 != site.n_heads:  # the same for all heads
        return values.clone()
    else:
        numbers, axis, n = choice.heads, 1, site.n_heads
    if numbers == tuple(range(n)):
        return values.clone()
    return values.index_select(axis, torch.tensor(numbers, device=values.device))
