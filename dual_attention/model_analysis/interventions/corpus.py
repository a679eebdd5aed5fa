"""Effects of every part of a model over a corpus: means with intervals over documents, beside random directions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

from torch import nn

from ..sites import LayerChoice, choose_sites
from .effects import Effect, measure_effects
from .kinds import Ablate, Intervention
from .predictions import Predict, predict_next_tokens
from .rotated import Rotated
from .targets import TAPS, Mediator, Target


@dataclass(frozen=True)
class PartEffect:
    """Effect of taking one part of a model away, over documents.

    Attributes:
        layer, kind, mediator, number: of the part, such as ``("blocks.0", "relational", "relation", 3)``.
        metric: as of :class:`~.effects.Effect`.
        documents: number of them.
        mean: effect, the mean over documents.
        low, high: 95 % interval of it; None for one document.
        random: mean effects of changes as large in random directions, of each draw.
        random_low, random_high: 95 % interval of the mean of all draws.
        beyond: whether the whole interval is further from zero than every draw; None where this cannot be told.

    >>> one = PartEffect.of("blocks.0", "relational", "relation", 3, "kl", [0.4, 0.5, 0.6], [[0.1, 0.1, 0.2]])
    >>> round(one.mean, 3), one.beyond
    (0.5, True)
    """

    layer: str
    kind: str
    mediator: str
    number: int
    metric: str
    documents: int
    mean: float
    low: float | None
    high: float | None
    random: tuple[float, ...]
    random_low: float | None
    random_high: float | None
    beyond: bool | None

    @classmethod
    def of(
        cls,
        layer: str,
        kind: str,
        mediator: str,
        number: int,
        metric: str,
        values: Sequence[float],
        random: Sequence[Sequence[float]],
    ) -> PartEffect:
        """Summarise the effects on each document, and those of each draw of a random direction."""
        draws = tuple(fmean(one) for one in random)
        low, high = _interval(values)
        of_random = _interval([fmean(one) for one in zip(*random, strict=True)]) if random else (None, None)
        beyond = None
        if low is not None and high is not None and draws:
            nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
            beyond = nearest > max(map(abs, draws))
        name = layer, kind, mediator, number, metric
        return cls(*name, len(values), fmean(values), low, high, draws, *of_random, beyond)

    @property
    def row(self) -> dict[str, Any]:
        """This as a row of a table, with the least and the largest draw."""
        found = asdict(self)
        draws = found.pop("random")
        return {**found, "random_least": min(draws, default=None), "random_largest": max(draws, default=None)}


def _interval(values: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    return Effect("", "", tuple(values)).interval() if len(values) > 1 else (None, None)


def effects_over(
    model: nn.Module,
    inputs: Iterable[Any],
    *,
    sites: LayerChoice = None,
    mediators: Sequence[Mediator] = ("head", "relation"),
    change: Literal["zero", "mean"] = "zero",
    draws: int = 5,
    metrics: Sequence[str] = ("kl", "loss"),
    predict: Predict = predict_next_tokens,
) -> list[PartEffect]:
    """Take every head and relation of a model away in turn, and measure that over a corpus.

    Args:
        inputs: documents, or batches of them, as of :func:`~.effects.measure_effects`; they pass once.
        sites: layers, as of :func:`~dual_attention.model_analysis.capture.capture`; by default all.
        mediators: kinds of parts, of ``"head"``, ``"relation"`` and ``"symbol"``.
        change: what is put in the place of a part: zero, or its mean over the document.
        draws: random directions of each part, see :class:`~.rotated.Rotated`.
        metrics, predict: as of :func:`~.effects.measure_effects`.

    Returns:
        An effect for each part and metric, in the order of the model; ``[one.row for one in ...]`` is a table.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> found = effects_over(lm, torch.randint(50, (3, 1, 9)), draws=2, metrics=["kl"])
    >>> found[0].mediator, found[0].documents, len(found[0].random)
    ('head', 3, 2)
    """
    parts: list[tuple[str, str, Mediator, int]] = []
    for choice in choose_sites(model, sites):
        for mediator in mediators:
            if choice.site.tap(TAPS[mediator]) is not None:
                count = choice.site.n_relations if mediator == "relation" else choice.site.n_heads
                for number in range(count):
                    parts.append((choice.site.layer, choice.site.kind, mediator, number))
    study: dict[str, Intervention] = {}
    for layer, kind, mediator, number in parts:
        chosen: Any = {"relations": [number]} if mediator == "relation" else {"heads": {kind: [number]}}
        removal = Ablate(Target(mediator, layers=[layer], **chosen), change)
        for change_of_part in (removal, *(Rotated(removal, seed=draw) for draw in range(draws))):
            study[f"{len(study)}"] = change_of_part
    effects = measure_effects(model, inputs, study, metrics=metrics, predict=predict)
    values = [[one.values for one in effects[place :: len(metrics)]] for place in range(len(metrics))]
    return [
        PartEffect.of(*part, metric, found[start], found[start + 1 : start + 1 + draws])
        for start, part in zip(range(0, len(study), 1 + draws), parts, strict=True)
        for metric, found in zip(metrics, values, strict=True)
    ]
