"""Effects to first order, of many interventions from one forward and one backward pass (attribution patching).

Math: effect = <d measure / d x, new - x>, x what passes a tap and ``new`` what the intervention puts there
(Nanda 2023, "Attribution patching"; Syed et al. 2023, arXiv 2310.10348)

The first order of a divergence is zero, so only the loss and logit differences have one. How good it is,
:func:`.effects.faithfulness` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...generation import evaluating
from ..capture import is_recomputing, uncompiled
from .applying import check_edits_applied, hook_reads
from .edits import Edit, edits_of
from .effects import Effect, Source, check_metrics, effects_from
from .kinds import Intervention
from .predictions import MEASURES, Predict, predict_next_tokens


def approximate_effects(
    model: nn.Module,
    documents: Iterable[Any],
    interventions: Mapping[str, Intervention | Sequence[Intervention]],
    *,
    metrics: Sequence[str] = ("loss",),
    predict: Predict = predict_next_tokens,
    source: Source = None,
) -> list[Effect]:
    """As :func:`.effects.measure_effects`, to first order; effects of several interventions at once add up.

    The time is that of one forward and one backward pass a metric, however many interventions there are. ``predict``
    is to call the model once for a document.

    Raises:
        TypeError, ValueError: as there; also for ``"kl"``, if the model is called twice for a document or in inference
            mode, and if the examples of a batch share symbols that an intervention changes: such documents are to come
            one by one.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> study = {"no relation": Ablate(Target("relation"), "mean")}
    >>> approximate_effects(lm, torch.randint(50, (2, 3, 9)), study)[0].name
    'no relation'
    """
    check_metrics(metrics, MEASURES)
    if not interventions:
        raise ValueError("interventions: expected at least one, got none")
    if torch.is_inference_mode_enabled():
        raise ValueError("approximate_effects: needs gradients, which inference mode does not keep; call it outside")
    values: dict[tuple[str, str], list[float]] = {(name, metric): [] for name in interventions for metric in metrics}
    with evaluating(model), torch.enable_grad():
        for document in documents:
            maps = source(document) if callable(source) else source
            edits = {name: edits_of(model, given, maps) for name, given in interventions.items()}
            probes = _Probes([edit for found in edits.values() for edit in found])
            with probes.attached():  # in the backward pass, too: checkpointed blocks are computed again
                prediction = predict(model, document)
                for metric in metrics:
                    measure = MEASURES[metric](prediction)
                    gradients = probes.gradients(measure)
                    for name, found in edits.items():
                        values[name, metric] += probes.first_order(found, gradients, len(measure)).tolist()
            check_edits_applied(probes.edits)
    return effects_from(values)


class _Probes:
    """Zeros added to what passes taps, whose gradients are those of the taps, whether or not parameters have any."""

    def __init__(self, edits: list[Edit]) -> None:
        self.edits = edits
        self.passed: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # tap -> what passed it, and the probe

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Context in which the model is called."""
        with ExitStack() as stack:
            for handle in hook_reads(self.edits):
                stack.enter_context(handle)
            for tap in dict.fromkeys(edit.choice.site.tap(edit.tap) for edit in self.edits):
                assert tap is not None
                stack.enter_context(tap.register_forward_hook(self.add))
            stack.enter_context(uncompiled())
            yield

    def add(self, tap: nn.Module, _args: Any, x: Tensor) -> Tensor:
        """Hook that adds a probe."""
        probe = torch.zeros_like(x, requires_grad=True)
        if not is_recomputing():
            if tap in self.passed:
                raise ValueError("predict: expected one call of the model, got a second; measure_effects takes several")
            self.passed[tap] = x.detach(), probe
        return x + probe

    def gradients(self, measure: Tensor) -> dict[nn.Module, Tensor | None]:
        """Gradients of the measure of each document, ``(B,)``, at each tap; documents do not depend on each other."""
        probes = [probe for _, probe in self.passed.values()]
        found = torch.autograd.grad(measure.sum(), probes, retain_graph=True, allow_unused=True)
        return dict(zip(self.passed, found, strict=True))

    @torch.no_grad()
    def first_order(self, edits: list[Edit], gradients: dict[nn.Module, Tensor | None], examples: int) -> Tensor:
        """Sum of the effects of edits on each document, ``(B,)``."""
        effects = []
        for edit in edits:
            tap = edit.choice.site.tap(edit.tap)
            if tap not in self.passed:
                raise ValueError(f"predict: expected it to call the model, which did not pass {edit.choice.site.layer}")
            x, _ = self.passed[tap]
            gradient = gradients[tap]
            change = edit(x) - x
            if len(x) != examples:
                raise ValueError(
                    f"documents: expected one at a time, as they share {edit.mediator}s in {edit.choice.site.layer}"
                )
            if gradient is not None:
                effects.append((gradient * change).double().flatten(1).sum(1))
        return torch.stack(effects).sum(0) if effects else torch.zeros(examples, dtype=torch.float64)
