"""Effects of every part of a model over a corpus: means with intervals over documents, beside random directions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from torch import nn

from ..._layers.inputs import check_choice, check_members, check_not_negative
from ..sites import LayerChoice, choose_sites
from .effects import Effect, measure_effects
from .kinds import Ablate, Intervention
from .predictions import Predict, predict_next_tokens
from .rotated import Rotated
from .targets import TAPS, Mediator, Target


@dataclass(frozen=True)
class PartEffect:
    """Effect of taking one part of a model away, over documents, beside changes as large in random directions.

    Attributes:
        layer, kind, mediator, number: of the part, such as ``("blocks.0", "relational", "relation", 3)``.
        effect: of the part.
        random: of each draw of a random direction.

    >>> random = (Effect("draw", "kl", (0.1, 0.1, 0.2)),)
    >>> part = PartEffect("blocks.0", "relational", "relation", 3, Effect("part", "kl", (0.4, 0.5, 0.6)), random)
    >>> round(part.row["mean"], 3), part.row["beyond"]
    (0.5, True)
    """

    layer: str
    kind: str
    mediator: str
    number: int
    effect: Effect
    random: tuple[Effect, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """This as a row of a table.

        Beside the part: the ``metric``; the number of ``documents``; the ``mean`` over them and its 95 % interval from
        ``low`` to ``high``, None for one document; the same of the mean of all random directions; the ``least`` and the
        ``largest`` of them; and whether the whole interval is ``beyond`` them, further from zero than each.
        """
        (low, high), draws = _interval(self.effect.values), [one.mean for one in self.random]
        beyond = None
        if low is not None and high is not None and draws:
            beyond = low * high > 0 and min(abs(low), abs(high)) > max(map(abs, draws))
        means = [fmean(one) for one in zip(*(draw.values for draw in self.random), strict=True)]
        random_low, random_high = _interval(means)
        part = {name: getattr(self, name) for name in ("layer", "kind", "mediator", "number")}
        about = {"metric": self.effect.metric, "documents": len(self.effect.values), "mean": self.effect.mean}
        of_random = {
            "random_mean": fmean(means) if means else None,
            "random_low": random_low,
            "random_high": random_high,
        }
        ends = {"random_least": min(draws, default=None), "random_largest": max(draws, default=None), "beyond": beyond}
        return {**part, **about, "low": low, "high": high, **of_random, **ends}


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
        change: what is put in the place of a part: zero, or its mean over the batch, which is that of
            the document where each comes by itself.
        draws: random directions of each part, see :class:`~.rotated.Rotated`.
        metrics, predict: as of :func:`~.effects.measure_effects`.

    Returns:
        An effect for each part and metric, in the order of the model; ``[one.row for one in ...]`` is a table.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> found = effects_over(lm, torch.randint(50, (3, 1, 9)), draws=2, metrics=["kl"])
    >>> found[0].mediator, found[0].row["documents"], len(found[0].random)
    ('head', 3, 2)
    """
    check_members("mediators", mediators)
    for mediator in mediators:
        check_choice("mediators", mediator, Mediator)
    check_not_negative(draws=draws)
    parts: list[tuple[str, str, Mediator, int]] = []
    study: dict[str, Intervention] = {}
    for site in (choice.site for choice in choose_sites(model, sites)):
        for mediator in mediators:
            count = site.n_relations if mediator == "relation" else site.n_heads
            for number in range(count if site.tap(TAPS[mediator]) is not None else 0):
                parts.append((site.layer, site.kind, mediator, number))
                chosen: Any = {"relations": [number]} if mediator == "relation" else {"heads": {site.kind: [number]}}
                removal = Ablate(Target(mediator, layers=[site.layer], **chosen), change)
                for one in (removal, *(Rotated(removal, seed=draw) for draw in range(draws))):
                    study[f"{len(study)}"] = one
    if not study:
        raise ValueError(f"mediators: expected some that the chosen layers have, got {', '.join(mediators)}")
    found = measure_effects(model, inputs, study, metrics=metrics, predict=predict)
    ours = {(int(one.name), one.metric): one for one in found}
    return [
        PartEffect(*part, ours[first, metric], tuple(ours[first + draw, metric] for draw in range(1, draws + 1)))
        for first, part in zip(range(0, len(study), draws + 1), parts, strict=True)
        for metric in metrics
    ]
