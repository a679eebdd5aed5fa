"""The study of Theorem 1: its grid, the construction of the proof without training, the figure, and the tables."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dat.sweeps.grid import GridConfig
from dat.sweeps.results import to_csv, values_by_point
from dat.training.metrics import Row
from dat.training.seeding import derive_seed
from dual_attention._base.colours import MUTED
from dual_attention._base.files import write_atomically
from dual_attention._base.plots import (
    house_style,
    matplotlib_figure,
    plain_number,
    save_figure,
    scale_log,
)
from studies._lib.paired import table
from studies.theorem_1.experiment import (
    COLOURS,
    Features,
    Theorem1,
    Theorem1Grid,
    draw,
    largest_error,
    relate_to_selected,
    relations,
    turned,
    wanted,
)

FOLDER = Path(__file__).parent
EXPERIMENT = "studies/theorem_1/experiment.py:Theorem1"
GRIDS: dict[str, GridConfig] = {"theorem-1": Theorem1Grid(out="runs/theorem-1")}
PRESETS: dict[str, Any] = {}
RESULTS = FOLDER / "results"
SHARPNESSES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
MARGINS = (0.01, 0.05, 0.2)
DRAWS = 20_000
SHADES = ("#b8d8ef", "#7fb5dc", "#4b93c9", "#1f5c96", "#0b2f52")
OF_MARGINS = ("#d1495b", "#e0a000", "#2e8b57")
PREFIX = "error_x"


class ConstructedErrors(NamedTuple):
    """Errors of the construction over draws, the largest of each draw.

    Attributes:
        mean, largest: of the errors.
        mean_bound, largest_bound: of what the theorem allows them: (1 - alpha_i*) max_j |R(x, y_j) - R(x, y_i*)|.
        exceeded: draws whose error is above its bound, by more than rounding.
    """

    mean: float
    largest: float
    mean_bound: float
    largest_bound: float
    exceeded: int


def constructed_errors(
    beta: float, margin: float, *, senders: int = 8, n: int = DRAWS, seed: int = 0
) -> ConstructedErrors:
    """Errors of relational attention with exact features, whose scores are ``beta`` times the utility; in float64."""
    x, y = (part.double() for part in draw(n, senders, margin, derive_seed(seed, "constructed")))
    target = wanted(x, y)
    output, weights = relate_to_selected(constructed_features(x, y), scale=beta)
    error = largest_error(output, target)
    farthest = (relations(x, y) - target[:, None]).abs().amax((1, 2))
    bound = (1 - weights.amax(-1)) * farthest
    exceeded = int((error > bound + 1e-12).sum())
    return ConstructedErrors(error.mean().item(), error.max().item(), bound.mean().item(), bound.max().item(), exceeded)


def constructed_rows(sharpnesses: Sequence[float] = SHARPNESSES, margins: Sequence[float] = MARGINS) -> list[Row]:
    """:func:`constructed_errors` of every sharpness and margin."""
    return [
        {"margin": margin, "sharpness": beta, **constructed_errors(beta, margin)._asdict()}
        for margin in margins
        for beta in sharpnesses
    ]


def constructed_features(x: Tensor, y: Tensor) -> Features:
    """Features whose inner products are the utility, up to a term of x only, and the relations."""
    zero, one = torch.zeros_like(x[..., 0]), torch.ones_like(x[..., 0])
    nil, unit = torch.zeros_like(y[..., 0]), torch.ones_like(y[..., 0])
    q = torch.cat((2 * turned(x), -one[..., None]), -1)
    k = torch.cat((y, y.square().sum(-1, keepdim=True)), -1)
    of_receiver = (
        (x[..., 0], x[..., 1], zero, zero),
        (x.square().sum(-1), one, -2 * x[..., 0], -2 * x[..., 1]),
        (torch.sin(3 * x[..., 0]), torch.cos(3 * x[..., 0]), zero, zero),
    )
    of_sender = (
        (y[..., 0], y[..., 1], nil, nil),
        (unit, y.square().sum(-1), y[..., 0], y[..., 1]),
        (torch.cos(2 * y[..., 1]), torch.sin(2 * y[..., 1]), nil, nil),
    )
    u = torch.stack([torch.stack(row, -1) for row in of_receiver], -2)
    w = torch.stack([torch.stack(row, -1) for row in of_sender], -2)
    return Features(q[:, None, None], k[:, None], u[:, None], w)


def draw_theorem(rows: Sequence[Row], path: Path) -> None:
    """Draw error against width for each attention, against the sharpness of trained relational attention for each
    width, and against that of the construction for each margin."""
    with house_style():
        figure, axes = matplotlib_figure(1, 3, figsize=(9.2, 5.4))
        _draw_widths(axes[0], rows)
        _draw_sharpened(axes[1], [row for row in rows if row["model"] == "relational"])
        _draw_constructed(axes[2])
        for axis in axes:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(plain_number)
            axis.xaxis.minorticks_off()
        widths = sorted({int(row["width"]) for row in rows})
        axes[0].set_xticks(widths)
        scale_log(axes[0])
        scale_log(axes[1])
        axes[2].set_yscale("log")
        axes[0].set_ylabel("largest error of three relations\n(mean over draws)")
        figure.suptitle(
            "Theorem 1: select by a preference of the receiver, relate to what is selected",
            fontsize=13,
            x=0.01,
            ha="left",
        )
        figure.tight_layout()
        save_figure(figure, path)


def _draw_widths(axis: Any, rows: Sequence[Row]) -> None:
    """Means over seeds as lines, seeds as dots."""
    experiment = Theorem1()
    for model in experiment.table.curve_axis.ordered(rows):
        values = values_by_point(experiment.table, rows, "error", "", model)
        colour, label = COLOURS[model], experiment.table.curve_axis.label(model)
        axis.plot(list(values), [fmean(v) for v in values.values()], color=colour, label=label)
        dots = [(width, value) for width, found in values.items() for value in found]
        axis.scatter(*zip(*dots, strict=True), color=colour, s=16, alpha=0.6, linewidths=0, zorder=4)
    axis.set_title("trained", loc="left", fontsize=11, fontweight="bold")
    axis.set_xlabel("width of hidden layers", fontsize=10)
    _legend(axis)


def _draw_sharpened(axis: Any, rows: Sequence[Row]) -> None:
    """Means over seeds."""
    for colour, width in zip(SHADES * 4, sorted({int(row["width"]) for row in rows}), strict=False):
        of_width = [row for row in rows if row["width"] == width]
        factors = sorted(float(key.removeprefix(PREFIX)) for key in of_width[0] if key.startswith(PREFIX))
        means = [fmean(float(row[f"{PREFIX}{factor:g}"]) for row in of_width) for factor in factors]
        axis.plot(factors, means, color=colour, marker="o", markersize=4, label=f"width {width}")
    axis.axvline(1, color=MUTED, linewidth=1, linestyle=":")
    axis.set_title("relational, then sharpened", loc="left", fontsize=11, fontweight="bold")
    axis.set_xlabel("factor of the trained scores\n(1 / temperature)", fontsize=10)
    if rows:
        _legend(axis)


def _draw_constructed(axis: Any) -> None:
    """Means as lines, their bounds dashed."""
    rows = constructed_rows()
    for colour, margin in zip(OF_MARGINS, sorted({row["margin"] for row in rows}), strict=True):
        found = [row for row in rows if row["margin"] == margin]
        beta = [row["sharpness"] for row in found]
        axis.plot(
            beta, [row["mean"] for row in found], color=colour, marker="o", markersize=4, label=f"margin {margin}"
        )
        axis.plot(beta, [row["mean_bound"] for row in found], color=colour, linestyle=(0, (3, 2)), linewidth=1.2)
    axis.set_ylim(2e-8, 5)  # errors of rounding are below
    axis.set_title("constructed, not trained", loc="left", fontsize=11, fontweight="bold")
    axis.set_xlabel("factor of the utility\n(1 / temperature)", fontsize=10)
    _legend(axis, title="dashed: mean bound", title_fontsize=9)


def _legend(axis: Any, **options: Any) -> None:
    """Below the panel, clear of its curves."""
    axis.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.45, -0.33), **options)


FIGURES: dict[str, Callable[[Sequence[Row], Path], None]] = {
    "theorem-1.png": draw_theorem,
    "constructed.csv": lambda _, path: write_atomically(path, to_csv(constructed_rows())),
}


def read(name: str) -> list[dict[str, str]]:
    """The lines of a file of results."""
    with open(RESULTS / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table_of_runs() -> str:
    """Means over seeds, by attention and width."""
    columns = ("parameters", "mean error (range of seeds)", "99 % below", "squared error", "best sender found")
    lines = [["attention", "width", *columns, "its weight", "mean error, scores × 16"]]
    found: dict[tuple[str, int, str], list[dict[str, str]]] = {}
    for row in read("results.csv"):
        found.setdefault((row["model"], int(row["width"]), row["parameters"]), []).append(row)
    for (model, width, parameters), rows in sorted(found.items(), key=lambda item: (_ORDER.index(item[0][0]), item[0])):
        errors = [float(row["error"]) for row in rows]
        mean = {name: fmean(float(row[name]) for row in rows) for name in rows[0] if name != "model"}
        lines.append(
            [
                model,
                str(width),
                f"{int(parameters):,}",
                f"{mean['error']:.3f} ({min(errors):.3f} to {max(errors):.3f})",
                f"{mean['error_99']:.2f}",
                f"{mean['loss']:.4f}",
                f"{mean['selected']:.1%}".replace("%", " %"),
                f"{mean['weight']:.3f}",
                f"{mean['error_x16']:.3f}",
            ]
        )
    return table(lines)


_ORDER = ("relational", "symmetric", "standard")

TABLES: dict[str, Callable[[], str]] = {"runs": table_of_runs}
