"""Write models.md: every layer, mechanism, baseline and model with what it takes and has, each entry tried.

    python docs/make_models.py

tests/test_models_page.py tries all again, and fails where the page says something else.
"""

import re
from pathlib import Path

from model_entries import ENTRIES, GROUPS

from dual_attention import symbol_retrieval
from dual_attention.part_trials import REFUSALS, Trial

PAGE = Path(__file__).resolve().parent / "models.md"
COLUMNS = ("name", "symbols", "masks", "packing", "cache", "compile", "export", "linear")
NO = "–"


def symbols(trial: Trial) -> str:
    """Whether an entry needs symbols, takes features in their place, has its own, or has none."""
    if trial.entry.bare is None:
        kinds = tuple(getattr(symbol_retrieval, name) for name in symbol_retrieval.__all__)
        return "own" if any(isinstance(part, kinds) for part in trial.module.modules()) else NO
    try:
        trial.entry.bare(trial.module, trial.x)
    except REFUSALS:
        return "needs"
    return "takes"


def row(name: str) -> str:
    """The line of the page on an entry, as it turns out."""
    trial = Trial(ENTRIES[name])
    masks, packs = [*trial.masks()], trial.packs()
    flags = (packs, trial.caches(), trial.compiles(), trial.exports(), trial.is_linear())
    cells = (f"`{name}`", symbols(trial), ", ".join(masks) or NO, *("yes" if flag else NO for flag in flags))
    return f"| {' | '.join(cells)} |"


INTRODUCTION = """# What each model supports

After this page you know what every layer, mechanism, baseline and model of the library supports. `make models` tries
each one and writes this page; a test tries them again and compares. [The list of entries](model_entries.py) shows how
each is built and called; with other arguments it may support more or less.

- **symbols**: *needs* them in each call, *takes* features in their place, or retrieves its *own*.
- **masks**: *pairs* (`attn_mask`), *padding* (`padding_mask` or its equivalent), *order* (`is_causal`, or always
  causal), *bias* (`attn_bias`, where minus infinity hides). The test changes what is hidden, and checks that outputs
  that must not see it stay the same. In multi-token and location-aware attention, queries see each other whatever the
  mask, so there the test keeps the queries fixed.
- **packing**: sequences end to end (`segments`) do not see each other.
- **cache**: decoding in two chunks gives what one call gives.
- **compile**, **export**: one graph without a break, of `torch.compile` and `torch.export`, with the same numbers.
- **linear**: on a CPU the largest tensor on the way grows with the length, not with its square: fused kernels, tiles
  or blocks. So it does with padding and with packed sequences, where these are taken.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, group in GROUPS.items():
        head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
        parts.append("\n".join([f"## {title}", "", *head, *map(row, group)]) + "\n")
    return "\n".join(parts)


def rows_of_page() -> dict[str, str]:
    """Lines of the page by the name of their entry."""
    return {match[1]: match[0] for match in re.finditer(r"^\| `(\w+)` \|.*$", PAGE.read_text(encoding="utf-8"), re.M)}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
