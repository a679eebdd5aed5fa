"""Models on one's own data as an experiment: their runs, the choice of learning rates, tables and a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.colours import MUTED
from dual_attention._base.extras import require
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure

from ...sweeps.durations import EVALUATION_SHARE
from ...sweeps.experiment import Cost, SweptExperiment
from ...sweeps.report import differences, digits_of, mean_text
from ...sweeps.results import LR
from ...sweeps.table import Axis, ResultTable
from ...training.device import prepare_device
from ...training.experiment import Prepared, without_values
from ...training.metrics import Row
from ...training.problem import Batch, Examples, Problem
from ...training.seeding import derive_seed
from .config import OWN, RATES, RULE, ComparisonConfig, ComparisonGrid, RatesGrid
from .kinds import ACCURACY, BITS, RMSE, OwnData, load_own
from .models import Rule, build_arm

TITLES = {ACCURACY: "accuracy", RMSE: "root mean squared error", BITS: "bits per byte"}
"""Measures in words."""
COLOURS = {
    "dat": "#1f6fb4",
    "transformer": "#8c8c8c",
    "gated": "#2e8b57",
    "relational": "#63b0e8",
    "distances": "#08306b",
    OWN: "#e08214",
    RULE: "#c44e52",
}


@dataclass
class _First:
    """The first of some examples."""

    examples: Examples
    n: int

    def __len__(self) -> int:
        return self.n

    def batch(self, indices: Tensor) -> Batch:
        return self.examples.batch(indices)


class Comparison(SweptExperiment[ComparisonConfig, Prepared]):
    """Models on one's own data."""

    name = "compare"
    title = "a comparison on own data"
    Config = ComparisonConfig
    Grid = ComparisonGrid
    table = ResultTable(
        metrics=(ACCURACY, RMSE, BITS, "loss"),
        axes=(
            Axis("model", "model.name", "model", "models"),
            Axis("n_train", "data.n_train", "training examples", "training examples", number=True, prefix="n"),
        ),
        measures={"test": "test set"},
        tabled={"val": "validation set"},
    )

    def prepare(self, config: ComparisonConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        device = prepare_device(config.machine)
        data = load_own(config.data, device)
        train, val, test = (data.sets[part] for part in ("train", "val", "test"))
        torch.manual_seed(derive_seed(config.seed, "weights"))
        problem = Problem(
            model=built_model(data, config).to(device),
            train=_First(train, config.data.n_train or len(train)),
            loss=data.loss,
            evaluation={"val": val} if config.tuning else {"val": val, "test": test},
            derive=data.derive,
        )
        return Prepared(problem, device)

    def empty_model(self, config: ComparisonConfig) -> nn.Module:
        with without_values():
            return built_model(load_own(config.data), config)

    def row(self, result: Mapping[str, Any]) -> Row:
        measure = next(metric for metric in self.table.metrics if metric in result)
        scale = 100.0 if measure == ACCURACY else 1.0
        means = {name: scale * value for name, value in result[measure].items()}
        means |= {f"{name}_loss": value for name, value in result["loss"].items()}
        rounded = {name: float(f"{mean:.6g}") for name, mean in means.items()}
        return {**self.table.columns_of_run(result), **rounded, **{key: result[key] for key in ("steps", "seconds")}}

    def cost(self, config: ComparisonConfig) -> Cost:
        sizes = load_own(config.data).sizes
        evaluated = sizes["val"] + (0 if config.tuning else sizes["test"])
        return Cost(config.loop.epochs * (config.data.n_train or sizes["train"]) + EVALUATION_SHARE * evaluated)

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['model']}, {result['n_train']:,} examples"


def built_model(data: OwnData, config: ComparisonConfig) -> nn.Module:
    """The model of a run, drawn from the global generator."""
    return Rule(data.answer(config.data.n_train)) if config.model.arm == RULE else build_arm(data.build, config.model)


def told_of(data: OwnData, grid: ComparisonGrid) -> Comparison:
    """The experiment whose tables and figure speak of these data."""
    choice, title = isinstance(grid, RatesGrid), TITLES[data.measure]
    part, of_part = ("val", "validation") if choice else ("test", "test")
    unit, better = (" %", "") if data.measure == ACCURACY else ("", " (lower is better)")
    (axis, points), labels = Comparison.table.axes, {RULE: f"{RULE} ({data.in_words(data.answer(grid.n_train))})"}
    table = replace(
        Comparison.table,
        axes=(replace(axis, order=tuple(grid.arms()), labels=labels), points),
        measures={part: f"{of_part} set"},
        tabled={} if choice else Comparison.table.tabled,
        unit=unit,
        caption=f"{title.capitalize()} of {data.sizes[part]:,} {of_part} {data.noun}s{better}",
        y_title=title,
        figures={} if choice else {"comparison.png": lambda rows, path: draw_comparison(table, rows, path)},
    )
    found = Comparison()
    vars(found).update(table=table)
    return found


def chosen_rates(rows: Sequence[Row], grid: RatesGrid, measure: str) -> dict[str, float]:
    """The learning rate of each model whose runs are all done: the best on the validation set, then by its loss."""
    sign, tried = -1.0 if measure == ACCURACY else 1.0, grid.lr_of or {}
    first = [row for row in rows if row["seed"] == grid.first_seed]  # others are of folders of earlier versions
    of = {row["model"]: (sign * row["val"], row["val_loss"], row[LR]) for row in first}
    arms_of = {model: [arm for arm in tried if arm.rpartition("-lr")[0] == model] for model in grid.models}
    done = {model: [of[arm] for arm in arms] for model, arms in arms_of.items() if of.keys() >= {*arms}}
    return {model: min(runs)[-1] if runs else RATES[0] for model, runs in done.items()}


def lines_of_comparison(table: ResultTable, rows: Sequence[Row], grid: ComparisonGrid) -> Any:
    """A rich table: means over seeds, and differences from the first model, paired by seed."""
    title, first = f"{table.caption}{table.unit and ','}{table.unit}:", grid.models[0]
    shown = require("rich.table", extra="train").Table(title=title, title_justify="left")
    for column in ("model", "weights", "rate", "validation", "test", f"− {first}"):
        shown.add_column(column, justify="left" if column == "model" else "right")
    less = _paired(table, rows, first)
    of = {arm: [row for row in rows if row["model"] == arm] for arm in grid.arms()}
    digits = digits_of(table, "test", [[row["test"] for row in found] for found in of.values()])
    for arm, found in of.items():
        own = [f"{found[0]['parameters']:,}", f"{found[0][LR]:g}"] if arm != RULE else ["", ""]
        means = [mean_text([row[name] for row in found], digits) for name in ("val", "test")]
        gap = f"{fmean(less[arm]):+.{digits}f} ± {half_width(less[arm]):.{digits}f}" if arm in less else ""
        shown.add_row(arm, *own, *means, gap)
    return shown


def _paired(table: ResultTable, rows: Sequence[Row], first: str) -> dict[str, list[float]]:
    """Differences of each model from the first one, paired by seed, where there are two or more."""
    return {arm: [*by_seed.values()] for _, _, arm, by_seed in differences(table, rows, "test", first)}


def draw_comparison(table: ResultTable, rows: Sequence[Row], path: Path) -> None:
    """Draw each model's trials with their mean and interval, and beside them the differences from the first model."""
    arms = table.curve_axis.ordered(rows)
    pairs = {**_paired(table, rows, arms[0]), RULE: []}  # its difference would hide the others
    unit = f" ({table.unit.strip()})" if table.unit else ""
    with house_style():
        figure, axes = matplotlib_figure(1, 2, figsize=(8.4, 1.4 + 0.42 * len(arms)), sharey=True)
        for place, arm in enumerate(arms):
            trials = [row["test"] for row in rows if row["model"] == arm]
            axes[0].scatter(trials, [place + 0.2] * len(trials), color=COLOURS[arm], s=14, alpha=0.5, linewidths=0)
            for axis, values in zip(axes, (trials, pairs.get(arm)), strict=True):
                if values:
                    half = half_width(values) if len(values) > 1 else 0.0
                    axis.errorbar(fmean(values), place, xerr=half, fmt="o", color=COLOURS[arm], markersize=5)
        axes[1].axvline(0, color=MUTED, linewidth=1.2, linestyle=":")
        axes[0].set_yticks(range(len(arms)), [table.curve_axis.label(arm).replace(" (", "\n(") for arm in arms])
        axes[0].set_ylim(len(arms) - 0.5, -0.5)
        axes[0].set_xlabel(f"{table.caption}{unit}\nmean, 95 % t-interval, trials below")
        without = f"; {RULE} is not shown" if RULE in arms else ""
        axes[1].set_xlabel(f"{table.y_title} less that of {arms[0]}{unit}\nmean of pairs, 95 % t-interval{without}")
        for axis in axes:
            axis.grid(axis="y", visible=False)
        figure.tight_layout()
        save_figure(figure, path)
