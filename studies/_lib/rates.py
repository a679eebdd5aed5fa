"""Models of games at three learning rates, of which each takes its own from validation."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from .readings import interval
from .tables import Frame, markdown

USUAL = 1e-3
"""Learning rate of the presets."""
RATES = (3e-4, USUAL, 3e-3)


def at_rate(model: str, rate: float) -> str:
    """The name of a model at a learning rate."""
    return model if rate == USUAL else f"{model}-lr{rate:g}"


def at_rates(models: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Model and rate by name, at the rates that are not usual."""
    return {at_rate(model, rate): (model, rate) for model in models for rate in RATES if rate != USUAL}


def every_rate(table: Frame, models: Sequence[str]) -> Frame:
    """The columns of these models at all rates, for the seeds that have them all."""
    return table[[at_rate(model, rate) for model in models for rate in RATES]].dropna()


def own_rates(validation: Frame, models: Sequence[str]) -> dict[str, float]:
    """The rate of each model with the highest mean of :func:`every_rate`."""
    means: Any = validation.mean()
    return {model: max(RATES, key=lambda rate, model=model: means[at_rate(model, rate)]) for model in models}


def table_of_rates(test: Frame, own: Mapping[str, float], names: Mapping[str, str]) -> str:
    """Accuracy by model and learning rate, and the rate that validation chose."""
    lines = []
    for model, chosen in own.items():
        line = {"model": names[model], "seeds": len(test)}
        line |= {f"rate {rate:g}": interval(test[at_rate(model, rate)], sign=False) for rate in RATES}
        edge = " (at the edge)" if chosen in (RATES[0], RATES[-1]) else ""
        lines.append(line | {"own rate (validation)": f"{chosen:g}{edge}"})
    return markdown(pd.DataFrame(lines))
