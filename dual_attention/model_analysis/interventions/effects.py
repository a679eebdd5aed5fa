"""Effects of interventions on what a model predicts, with intervals over documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import torch
from torch import nn

from ..._layers.inputs import check_choice
from ...generation import evaluating
from ..maps import CallMaps, Maps
from .applying import intervene
from .direct import intervene_directly
from .kinds import Intervention
from .predictions import METRICS, Predict, change_of, predict_next_tokens

Source = Maps | CallMaps | Callable[[Any], Maps | CallMaps] | None
"""Maps of other inputs, or a function that makes them for a document."""


@dataclass(frozen=True)
class Effect:
    """Effect of an intervention on documents.

    Attributes:
        name: of the intervention.
        metric: ``"loss"`` or ``"logit_difference"``: the change of it; or ``"kl"``: the divergence from what the model
            predicts without.
        values: of each document.

    >>> effect = Effect("without", "loss", (0.1, 0.2, 0.3))
    >>> round(effect.mean, 3)
    0.2
    """

    name: str
    metric: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over documents."""
        return fmean(self.values)

    @property
    def p(self) -> float:
        """p of the two-sided t-test that the mean over two or more documents is zero."""
        from ..._base.intervals import paired_p  # measures imports this room, for selectivity

        return paired_p(self.values)

    def interval(
        self, level: float = 0.95, *, method: Literal["t", "bootstrap"] = "t", samples: int = 10_000, seed: int = 0
    ) -> tuple[float, float]:
        """Interval of the mean over two or more documents, which are taken to be independent; NaN if a value is.

        Args:
            level: probability that the interval covers the mean.
            method: Student's t; or the quantiles of means of resampled documents, where effects are far from normal.
            samples, seed: of the bootstrap.
        """
        check_choice("method", method, ("t", "bootstrap"))
        if not 0 < level < 1:
            raise ValueError(f"level: expected a probability between 0 and 1, got {level}")
        if len(self.values) > 1 and any(map(math.isnan, self.values)):  # a recovery, say
            return math.nan, math.nan
        if method == "t":
            from ..._base.intervals import half_width

            half = half_width(self.values, level=level)
            return self.mean - half, self.mean + half
        if len(self.values) < 2:
            raise ValueError(f"values: expected at least 2, got {len(self.values)}")
        generator = torch.Generator().manual_seed(seed)
        values = torch.tensor(self.values, dtype=torch.float64)
        drawn = torch.randint(len(values), (samples, len(values)), generator=generator)
        tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = values[drawn].mean(1).quantile(tails).tolist()
        return low, high

    def __str__(self) -> str:
        if len(self.values) < 2:
            return f"{self.name}: {self.metric} {self.mean:+.4f} (one document)"
        low, high = self.interval()
        return f"{self.name}: {self.metric} {self.mean:+.4f} [{low:+.4f}, {high:+.4f}], {len(self.values)} documents"


def measure_effects(
    model: nn.Module,
    documents: Iterable[Any],
    interventions: Mapping[str, Intervention | Sequence[Intervention]],
    *,
    metrics: Sequence[str] = ("loss",),
    predict: Predict = predict_next_tokens,
    source: Source = None,
    direct: bool = False,
) -> list[Effect]:
    """Effects of interventions on the predictions of a model, in evaluation mode and without gradients.

    Args:
        documents: token ids ``(B, N)`` of B documents of one length, or whatever ``predict`` takes; they pass once.
        interventions: by name; each one, or several at once.
        metrics: ``"loss"``, ``"logit_difference"`` (which needs foils) and ``"kl"``.
        predict: calls the model with a document.
        source: maps of other inputs for all documents, or a function of a document that makes them.
        direct: measure direct effects only, see :func:`.direct.intervene_directly`.

    Returns:
        An effect for each intervention and metric, in their order.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> study = {"no relation": Ablate(Target("relation"), "mean")}
    >>> effects = measure_effects(lm, torch.randint(50, (2, 3, 9)), study)
    >>> effects[0].name, effects[0].metric, len(effects[0].values)
    ('no relation', 'loss', 6)
    """
    check_metrics(metrics, METRICS)
    if not interventions:
        raise ValueError("interventions: expected at least one, got none")
    apply = intervene_directly if direct else intervene
    values: dict[tuple[str, str], list[float]] = {(name, metric): [] for name in interventions for metric in metrics}
    with evaluating(model):
        for document in documents:
            maps = source(document) if callable(source) else source
            before = predict(model, document)
            for name, given in interventions.items():
                with apply(model, given, source=maps):
                    after = predict(model, document)
                for metric in metrics:
                    values[name, metric] += change_of(metric, before, after).tolist()
    return effects_from(values)


def check_metrics(metrics: Sequence[str], known: Iterable[str]) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless metrics are some of the known ones."""
    known = tuple(known)
    if isinstance(metrics, str):
        raise TypeError(f"metrics: expected several names, got {metrics!r}")
    for metric in metrics:
        if metric not in known:
            raise ValueError(f"metrics: expected some of {', '.join(known)}, got {metric!r}")
    if not metrics:
        raise ValueError("metrics: expected at least one, got none")
    if len(set(metrics)) < len(metrics):
        raise ValueError(f"metrics: expected each once, got {', '.join(metrics)}")


def effects_from(values: Mapping[tuple[str, str], Sequence[float]]) -> list[Effect]:
    """Effects by name and metric; ``ValueError`` without documents."""
    if not all(values.values()):
        raise ValueError("documents: expected at least one, got none")
    return [Effect(name, metric, tuple(found)) for (name, metric), found in values.items()]


@dataclass(frozen=True)
class Faithfulness:
    """Agreement of approximate effects with exact ones, over interventions.

    Attributes:
        n: interventions.
        correlation: Pearson's, of the mean effects; NaN if one kind does not vary.
        slope: of the exact effects as a multiple of the approximate ones, by least squares; 1 is right.
        same_sign: share of interventions whose effects have the same sign.
        mean_error: mean distance of the two, in the unit of the metric.
        mean_size: mean size of the exact effects, to compare that with.

    >>> exact = [Effect("a", "loss", (0.1, 0.2)), Effect("b", "loss", (0.3, 0.2))]
    >>> faithfulness(exact, exact).n
    2
    """

    n: int
    correlation: float
    slope: float
    same_sign: float
    mean_error: float
    mean_size: float


def faithfulness(exact: Sequence[Effect], approximate: Sequence[Effect]) -> Faithfulness:
    """Compare approximate effects with exact ones of the same interventions, two or more, documents and metric.

    >>> exact = [Effect("a", "loss", (0.1, 0.2)), Effect("b", "loss", (0.4, 0.2))]
    >>> faithfulness(exact, exact).same_sign
    1.0
    """
    keys = [
        [(effect.name, effect.metric, len(effect.values)) for effect in effects] for effects in (exact, approximate)
    ]
    if keys[0] != keys[1]:
        raise ValueError(f"approximate: expected effects of {keys[0]}, got {keys[1]}")
    if len({effect.metric for effect in exact}) > 1:
        raise ValueError("exact: expected effects by one metric, got several")
    if len(exact) < 2:
        raise ValueError(f"exact: expected effects of at least two interventions, got {len(exact)}")
    x = torch.tensor([effect.mean for effect in approximate], dtype=torch.float64)
    y = torch.tensor([effect.mean for effect in exact], dtype=torch.float64)
    varies = bool(x.std() > 0 and y.std() > 0)
    return Faithfulness(
        n=len(exact),
        correlation=float(torch.corrcoef(torch.stack((x, y)))[0, 1]) if varies else math.nan,
        slope=float(x @ y / (x @ x)) if x.any() else math.nan,
        same_sign=float((x.sign() == y.sign()).double().mean()),
        mean_error=float((x - y).abs().mean()),
        mean_size=float(y.abs().mean()),
    )
