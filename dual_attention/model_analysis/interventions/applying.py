"""Applying interventions to a model while it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..capture import uncompiled
from ..maps import CallMaps, Maps
from .edits import Edit, edits_of
from .kinds import Intervention


@contextmanager
def intervene(
    model: nn.Module, interventions: Intervention | Sequence[Intervention], *, source: Maps | CallMaps | None = None
) -> Iterator[None]:
    """Change what the attention of a model computes while it is called within this context.

    Interventions act in their order, and those of outer contexts before those of inner ones; a capture sees those
    entered before it. They are differentiable, and hold in training and evaluation, with padding, caches and gradient
    checkpointing, if the backward pass runs inside the context, too. Parameters are not changed. What has no
    intervention computes as ever.

    Args:
        interventions: one or several.
        source: maps of other inputs, of one call, for :class:`.Patch` and for ablations that take mean or samples from
            there. A patch needs inputs of the same lengths.

    Raises:
        TypeError, ValueError: if a target is not in the model, or the source lacks it; from the call, if lengths
            differ, or symbols of some pairs are changed while weights are dropped; at the end, if a place that a target
            names was in no call.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> tokens = torch.randint(50, (2, 9))
    >>> with torch.no_grad(), intervene(lm, Ablate(Target("relation"))):
    ...     changed = lm(tokens).logits
    >>> torch.equal(changed, lm(tokens).logits)
    False
    """
    with edited(model, interventions, source) as (edits, stack):
        for handle in hook(edits):
            stack.enter_context(handle)
        stack.enter_context(uncompiled())
        yield


@contextmanager
def edited(
    model: nn.Module, interventions: Intervention | Sequence[Intervention], source: Maps | CallMaps | None
) -> Iterator[tuple[list[Edit], ExitStack]]:
    """The edits of interventions, and a stack for hooks, which are removed when the context ends."""
    edits = edits_of(model, interventions, source)
    with ExitStack() as stack:
        for edit in edits:
            stack.callback(edit.seen.clear)
        yield edits, stack
    check_edits_applied(edits)


def hook(edits: Sequence[Edit], when: Callable[[], bool] = lambda: True) -> Iterator[RemovableHandle]:
    """Hooks that put what edits make of the tensors that pass their taps, while ``when`` returns True."""

    def changing(edit: Edit) -> Any:
        return lambda _module, _args, x: edit(x) if when() else x

    for edit in edits:
        tap = edit.choice.site.tap(edit.tap)
        assert tap is not None
        yield tap.register_forward_hook(changing(edit))
    yield from hook_reads(edits)


def hook_reads(edits: Sequence[Edit]) -> Iterator[RemovableHandle]:
    """Hooks that show edits what passes other taps; registered last, they see what all interventions left."""

    def reading(edit: Edit, name: str) -> Any:
        def read(_module: nn.Module, _args: Any, x: Tensor) -> None:
            edit.seen[name] = x

        return read

    for edit in edits:
        for name in edit.reads:
            tap = (edit.places if name == "visible" else edit.choice.site).tap(name)
            assert tap is not None
            yield tap.register_forward_hook(reading(edit, name))


def check_edits_applied(edits: Sequence[Edit]) -> None:
    """Raise ``ValueError`` if a place that a target names was in no call, after some call was made."""
    for edit in edits:
        missed = edit.region.missed()
        if missed and edit.region.called:
            target = edit.intervention.target
            raise ValueError(f"target: {edit.choice.site.layer} was never given the places {missed} of {target}")
