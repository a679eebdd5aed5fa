"""Print and draw the coordinate check of docs/mup.md: ``python docs/coordinate_check.py``, a minute on one core.

One block of a small language model, d 64 to 512, four steps on one batch; three seeds each. Under standard
parametrisation the changes of relations and scores grow with the width; under muP, with base width 64, they do not.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

import torch
from coordinates import Sizes, coordinate_check
from gallery_pictures import save

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.training.configs import OptimConfig
from dat.training.mup import scale_by_mup
from dat.training.optim import build_optimizer
from dual_attention._base.colours import BLUE, GREEN, INK, LIGHT_BLUE, RED
from dual_attention._base.plots import house_style, legend_below, matplotlib_figure

PICTURE = Path(__file__).parent / "images" / "coordinate-check.png"
WIDTHS = (64, 128, 256, 512)
SEEDS, STEPS, VOCABULARY = 3, 4, 64
OPTIM = OptimConfig(optimizer="adamw", lr=2e-3)
KEYS = LanguageModelKeys(
    d_model=WIDTHS[0], n_layers=1, n_kv_heads=None, n_relations=2, rel_proj_dim=None, context=16, n_symbols=8
)
ROWS = (
    ("standard parametrisation", False, KEYS),
    ("muP", True, KEYS),
    ("standard, symmetric relations", False, replace(KEYS, symmetric_rels=True)),
    ("muP, symmetric relations", True, replace(KEYS, symmetric_rels=True)),
)
DISTANCES = replace(KEYS, rel_score="squared_distance")
PRINTED = (("standard, squared distances", False, DISTANCES), ("muP, squared distances", True, DISTANCES))
"""Rows that the page quotes and the picture leaves out."""
COLOURS = {
    "relations": BLUE,
    "W_r r": LIGHT_BLUE,
    "scores": RED,
    "symbols": GREEN,
    "W_s s": "#9acd7d",
    "heads": "#7b3fa0",
    "blocks": "#8c564b",
    "output": INK,
}


def measured(keys: LanguageModelKeys, width: int, seed: int, *, mup: bool) -> dict[str, Sizes]:
    """The check of one model from one seed."""
    torch.manual_seed(seed)
    model = keys.at_width(width).language_config(VOCABULARY).build()
    factors = scale_by_mup(model, keys.language_config(VOCABULARY).build()) if mup else None
    optimizer = build_optimizer(model, OPTIM, factors)
    for group in optimizer.param_groups:
        group["lr"] = OPTIM.lr * group["lr_scale"]
    tokens = torch.randint(VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(seed))
    x, targets = tokens[:, :-1], tokens[:, 1:]
    return coordinate_check(
        model, optimizer, lambda: model.loss(x, targets), lambda: model.layers.final_out(model.hidden(x)), STEPS
    )


def curves(keys: LanguageModelKeys, *, mup: bool) -> Iterator[tuple[str, list[float], list[float]]]:
    """For each kind of activation, sizes at first and of changes over widths."""
    found = [[measured(keys, width, seed, mup=mup) for seed in range(SEEDS)] for width in WIDTHS]
    for kind in COLOURS:
        initial = [geometric_mean(sizes[kind].initial for sizes in of_width) for of_width in found]
        yield kind, initial, [geometric_mean(sizes[kind].change for sizes in of_width) for of_width in found]


def printed(title: str, keys: LanguageModelKeys, *, mup: bool) -> Iterator[tuple[str, list[float], list[float]]]:
    """The curves, which it prints."""
    print(title)
    for kind, initial, change in curves(keys, mup=mup):
        print(f"  {kind:10}", *(" ".join(f"{size:9.4f}" for size in sizes) for sizes in (initial, change)), sep="  | ")
        yield kind, initial, change


def draw() -> None:
    """Measure, print and draw it."""
    for title, mup, keys in PRINTED:
        list(printed(title, keys, mup=mup))
    with house_style():
        figure, axes = matplotlib_figure(2, len(ROWS), figsize=(9.2, 5.6), sharex=True, sharey="row")
        for column, (title, mup, keys) in enumerate(ROWS):
            for kind, *both in printed(title, keys, mup=mup):
                for row, sizes in enumerate(both):
                    label = f"${kind}$" if "_" in kind else kind
                    look = {"color": COLOURS[kind], "marker": "o", "markersize": 3}
                    axes[row][column].plot(WIDTHS, sizes, label=label, **look)
            axes[0][column].set_title(title.replace(", ", ",\n"), fontsize=10)
            axes[1][column].set_xlabel("width")
            for row in range(2):
                axis = axes[row][column]
                axis.set_xscale("log", base=2)
                axis.set_yscale("log")
                axis.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
                axis.minorticks_off()
        axes[0][0].set_ylabel("size at first")
        axes[1][0].set_ylabel(f"change in {STEPS} steps")
        figure.tight_layout()
        legend_below(figure, axes[0][0].get_legend_handles_labels()[0], fontsize=9)
        save(figure, PICTURE)


if __name__ == "__main__":
    torch.set_num_threads(1)
    draw()
