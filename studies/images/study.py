"""Images: a Vision Transformer beside a ViDAT of equal parameters on handwritten digits."""

from pathlib import Path

import pandas as pd

from dat.experiments.images.config import ImageModelConfig
from dat.experiments.images.grid import ImageGrid
from studies._lib.tables import by_seed, differences, markdown, mean_text, read_results

EXPERIMENT = "images"
RESULTS = Path(__file__).parent / "results"

PRESETS: dict[str, ImageModelConfig] = {}
# As announced; rerun at 2e-3 and 4e-3 with --optim.lr.
GRIDS = {"digits": ImageGrid(out="runs/images-digits", seeds=10, sizes=(250, 500, 1000))}

# Tables of README.md --------------------------------------------------------------------------------------------------

PAIR = ("ViDAT-digits", "ViT-digits")
BOUND = 1.0


def sizes_table() -> str:
    """Top-1 accuracy by training images, and ViDAT less ViT; the mean over sizes is the primary measure."""
    rows = read_results(RESULTS / "digits/results.csv")
    tables = {f"{n:,}": by_seed(own, "model", "test") for n, own in rows.groupby("n_train")}
    lines = [
        {"": f"`{model}`", **{n: mean_text(table[model].tolist()) for n, table in tables.items()}, "all": ""}
        for model in reversed(PAIR)
    ]
    tables["all"] = by_seed(rows, "model", "test", points=["n_train"])
    less = {n: mean_text((table[PAIR[0]] - table[PAIR[1]]).tolist(), sign=True) for n, table in tables.items()}
    return markdown(pd.DataFrame([*lines, {"": "ViDAT less ViT, paired by seed", **less, "all": f"**{less['all']}**"}]))


def rates_table() -> str:
    """The primary difference at three peak learning rates, with the test of equivalence within a point."""
    lines = []
    for rate, folder in (("2e-3", "digits-2e-3"), ("3e-3, announced", "digits"), ("4e-3", "digits-4e-3")):
        table = by_seed(read_results(RESULTS / folder / "results.csv"), "model", "test", points=["n_train"])
        found = differences(table, [PAIR], bound=BOUND).iloc[0]
        within = "yes" if found["equivalence"] < 0.025 else "no"
        lines.append(
            {
                "peak learning rate": rate,
                "ViDAT less ViT": f"{found['mean']:+.1f} ± {found['half']:.1f} (p = {found['p']:.2g})",
                "within a point": f"{within} (p = {found['equivalence']:.2g})",
            }
        )
    return markdown(pd.DataFrame(lines))


TABLES = {"sizes": sizes_table, "rates": rates_table}
