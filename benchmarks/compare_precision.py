"""Validation losses of equal trainings in float32 and in bfloat16, paired by seed.

    for seed in 0 1 2 3 4; do for precision in float32 bfloat16; do
        dat train language --loop.steps 300 --loop.eval_every 20 --machine.precision $precision --seed $seed \\
            --output.name $precision-$seed
    done; done
    python -m benchmarks.compare_precision runs/float32-* runs/bfloat16-* --out benchmarks/results/precision
"""

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.machine import cpu_model, versions
from dat.training.metrics import read_rows
from dat.training.run_folder import RunFolder
from dual_attention._base.files import write_atomically
from dual_attention._base.intervals import half_width
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure

PRECISIONS = ("float32", "bfloat16")
COLOURS = ("#8c8c8c", "#1f6fb4")

Curves = dict[str, dict[int, dict[int, float]]]
"""Losses by precision, seed and step."""


def curves(folders: Sequence[Path]) -> Curves:
    """The curves of finished runs.

    Raises:
        ValueError: if runs differ in more than precision and seed, or a seed was not run in both precisions.
    """
    found: Curves = {precision: {} for precision in PRECISIONS}
    common: dict[str, Any] | None = None
    for path in folders:
        run = RunFolder.open(path)
        config = run.read_values()
        seed, precision = config.pop("seed"), config["machine"].pop("precision")
        del config["output"]
        if common is not None and config != common:
            raise ValueError(f"{path}: differs from {folders[0]} in more than seed and precision")
        if precision not in found or seed in found[precision]:
            raise ValueError(f"{path}: expected one run of each seed in {' and '.join(PRECISIONS)}")
        common = config
        found[precision][seed] = {row["step"]: row["val_loss"] for row in read_rows(run.metrics) if "val_loss" in row}
    seeds = [set(by_seed) for by_seed in found.values()]
    if len(seeds[0]) < 2 or seeds[0] != seeds[1]:
        raise ValueError(f"runs: expected two or more seeds, each in both precisions, got {seeds[0]} and {seeds[1]}")
    return found


def differences(found: Curves) -> dict[int, tuple[float, ...]]:
    """Loss in bfloat16 less that in float32, by step: one of each seed."""
    single, half = (found[precision] for precision in PRECISIONS)
    steps = next(iter(single.values()))
    return {step: tuple(half[seed][step] - single[seed][step] for seed in sorted(single)) for step in steps}


def table(found: Curves) -> str:
    """Means, the spread of seeds and paired differences in Markdown, at every evaluation; drawn up where they ran."""
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if version is not None)
    about = ["# Validation loss in nats, in float32 and in bfloat16", "", f"- {cpu_model()}", f"- {used}"]
    about += [f"- drawn up on {date.today().isoformat()}", ""]
    lines = [*about, "| step | float32 | SD of seeds | bfloat16 less float32, 95 % t-interval |", "|---|---|---|---|"]
    for step, pairs in differences(found).items():
        single = [losses[step] for losses in found["float32"].values()]
        apart = f"{fmean(pairs):+.4f} ± {half_width(pairs):.4f}"
        lines.append(f"| {step} | {fmean(single):.4f} | {stdev(single):.4f} | {apart} |")
    return "\n".join(lines) + "\n"


def rows(found: Curves) -> str:
    """Every loss as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("precision", "seed", "step", "val_loss"))
    for precision, by_seed in found.items():
        for seed, losses in sorted(by_seed.items()):
            writer.writerows((precision, seed, step, f"{loss:.6f}") for step, loss in losses.items())
    return out.getvalue()


def draw(found: Curves, path: Path) -> None:
    """Both curves of every seed; and the mean of the differences, with its interval, beside the spread of seeds."""
    pairs = differences(found)
    steps = list(pairs)
    with house_style():
        figure, (left, right) = matplotlib_figure(1, 2, figsize=(9.5, 3.6))
        for precision, colour, style in zip(PRECISIONS, COLOURS, ("-", "--"), strict=True):
            for number, losses in enumerate(found[precision].values()):
                label = {} if number else {"label": precision}
                left.plot(steps, list(losses.values()), style, color=colour, linewidth=1.2, **label)
        left.set(xlabel="step", ylabel="validation loss in nats", title="every seed in both precisions")
        left.legend()
        spread = [stdev(losses[step] for losses in found["float32"].values()) for step in steps]
        band = [-value for value in spread]
        right.fill_between(steps, band, spread, color="#e9e9e9", label="standard deviation of seeds")
        means, halves = [fmean(pairs[step]) for step in steps], [half_width(pairs[step]) for step in steps]
        right.errorbar(steps, means, yerr=halves, color=COLOURS[1], marker="o", markersize=3, label="mean of the pairs")
        right.axhline(0, color="#606060", linewidth=1, linestyle=":")
        right.set(xlabel="step", ylabel="nats", title="bfloat16 less float32, 95 % t-intervals")
        figure.tight_layout()
        handles, labels = right.get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.75, 0.03), ncols=2)
        save_figure(figure, path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the runs that are named, and write ``OUT.md``, ``OUT.csv`` and ``OUT.png``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="Run folders of both precisions.")
    parser.add_argument("--out", type=Path, required=True, help="Files to write, without their suffix.")
    options = parser.parse_args(arguments)
    try:
        found = curves(options.runs)
    except (OSError, ValueError) as error:
        print(f"compare_precision: error: {error}", file=sys.stderr)
        return 2
    text = table(found)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out.with_suffix(".md"), text)
    write_atomically(options.out.with_suffix(".csv"), rows(found))
    draw(found, options.out.with_suffix(".png"))
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
