"""The picture of the page on the paper's language models at equal arithmetic."""

from pathlib import Path

from gallery_pictures import Drawing, Variables, save

from dual_attention._base.colours import BLUE, GREY, MUTED, ORANGE
from dual_attention._base.plots import house_style, matplotlib_figure


def ratios(variables: Variables, path: Path) -> None:
    """Draw what a DAT needs for each perplexity beside a Transformer: tokens, and operations in two ways."""
    of_a_token, needed = variables["of_a_token"], variables["needed"]
    with house_style():
        figure, axes = matplotlib_figure(1, len(needed), figsize=(8.6, 3.1), sharey=True)
        for axis, (model, curve) in zip(axes, needed.items(), strict=True):
            best, dense = of_a_token[model]
            lines = (("tokens", 1.0, GREY, "--"), ("operations", best, BLUE, "-"), ("of all pairs", dense, ORANGE, ":"))
            for label, factor, colour, style in lines:
                values = [factor * ratio for ratio in curve.values()]
                axis.plot(list(curve), values, color=colour, linestyle=style, marker="o", markersize=4, label=label)
            axis.axhline(1, color=MUTED, linewidth=1, zorder=0)
            axis.invert_xaxis()
            axis.set_title(model)
            axis.set_xlabel("perplexity")
        axes[0].set_ylim(0.5, 1.42)
        axes[0].set_ylabel("needed by the DAT\n/ by the Transformer")
        axes[-1].legend(loc="lower right", fontsize=8)
        figure.tight_layout()
        save(figure, path)


PICTURES: dict[str, Drawing] = {"equal-arithmetic": ratios}
