"""Draw and read the ablation `rank` from its runs: ``python -m studies.relational_games.rank_of_relations``.

Accuracy on new pentominoes, for each seed the mean over tasks, against the number of relations R, all together 64 wide;
and the differences by which studies/relational_games/ANNOUNCED.md decides, paired by seed.
"""

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from dual_attention._base.intervals import half_width, paired_p
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure
from studies._lib.inference import holm

FOLDER = Path(__file__).parent / "results" / "rank"
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
KINDS = {"sym": ("symmetric", "#1f6fb4"), "asym": ("not symmetric", "#d1495b")}


def accuracies() -> dict[str, dict[int, list[float]]]:
    """Accuracy by kind of relations and their number: of each seed, the mean over tasks."""
    of_seed: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    with open(FOLDER / "results.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            of_seed[row["model"], int(row["seed"])].append(float(row["test"]))
    seeds = sorted({seed for _, seed in of_seed})
    names = {kind: {r: f"dat-0+2-nr{r}-p{64 // r}-{kind}" for r in NUMBERS} for kind in KINDS}
    return {
        kind: {r: [mean(of_seed[name, seed]) for seed in seeds] for r, name in of_number.items()}
        for kind, of_number in names.items()
    }


def less(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def told(differences: Sequence[float]) -> str:
    return f"{mean(differences):+.1f} ± {half_width(differences):.1f} (p = {paired_p(differences):.2g})"


def main() -> None:
    found = accuracies()
    with house_style():
        figure, axes = matplotlib_figure(figsize=(6, 3.6))
        for kind, (label, colour) in KINDS.items():
            of_number = found[kind]
            middles = [mean(of_number[r]) for r in NUMBERS]
            widths = [half_width(of_number[r]) for r in NUMBERS]
            places = [r * (1.0 if kind == "sym" else 1.07) for r in NUMBERS]  # beside, not behind each other
            axes.errorbar(places, middles, widths, label=label, color=colour, marker="o", markersize=4, capsize=2)
            best = max(NUMBERS, key=lambda r: mean(of_number[r]))
            listed = ", ".join(f"{r}: {m:.1f}" for r, m in zip(NUMBERS, middles, strict=True))
            print(f"{label}: best R = {best}; {listed}")
            others = [r for r in (1, 64) if r != best]
            corrected = holm([paired_p(less(of_number[best], of_number[r])) for r in others])
            for r, p in zip(others, corrected, strict=True):
                print(f"  R = {best} less {r}: {told(less(of_number[best], of_number[r]))}, after Holm {p:.2g}")
            print(f"  R = 64 less {best}: {told(less(of_number[64], of_number[best]))}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(NUMBERS, [str(r) for r in NUMBERS])
        axes.set_xlabel("relations R, each 64 / R wide")
        axes.set_ylabel("accuracy, new pentominoes (%)")
        axes.set_title("occurs and between, 1,000 images: mean of five seeds, 95 % t-intervals", fontsize=9)
        axes.set_ylim(top=92)
        axes.legend(frameon=False, loc="upper right", ncols=2)
        save_figure(figure, FOLDER / "rank.png")
    over_numbers = [less(found["sym"][r], found["asym"][r]) for r in NUMBERS]
    print(f"symmetric less not, mean over R: {told([mean(of_seed) for of_seed in zip(*over_numbers, strict=True)])}")


if __name__ == "__main__":
    main()
