"""Do relational heads diverge where others do not? Short trainings of small language models at high learning rates."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from dat.experiments.language.config import LanguageDataConfig, LanguageOptimConfig
from dat.experiments.language.grid import LanguageGrid
from dat.training.configs import StepLoopConfig
from studies._lib.inference import equivalence_p, holm, mcnemar_p
from studies._lib.readings import p_text
from studies._lib.tables import Frame, by_seed, markdown, mean_text, read_results
from studies.divergence.models import MODELS, NAMES

EXPERIMENT = "language"
FOLDER = Path(__file__).parent / "results"
RULES = FOLDER / "rule.csv"
PRESETS = MODELS
STEPS, WORSE = 200, 0.3
"""Steps of a run; bits per byte above the median of RCA from which on it has diverged."""
MAIN = ("RA", "RCA", "RA-tanh", "RA-normalised")


def grid(name: str, lr: float, clip: float | None, models: tuple[str, ...], seeds: int) -> LanguageGrid:
    """Runs at one learning rate, with gradients clipped at a norm or not at all."""
    return LanguageGrid.with_presets(MODELS)(
        out=f"runs/divergence-{name}",
        seeds=seeds,
        first_seed=20,
        models=models,
        steps=(STEPS,),
        data=LanguageDataConfig(val_tokens=16_384),
        optim=LanguageOptimConfig(lr=lr, schedule="constant", warmup_steps=20, grad_clip=clip),
        loop=StepLoopConfig(steps=STEPS, batch_size=8, eval_batch_size=64, eval_every=0, checkpoint_every=0),
    )


GRIDS: dict[str, LanguageGrid] = {
    "unclipped": grid("unclipped", 1e-2, None, MAIN, 20),
    "clipped": grid("clipped", 1e-2, 1.0, MAIN, 20),
    "slow": grid("slow", 4e-3, None, ("RA", "RCA", "RA-tanh"), 10),
    "slow-clipped": grid("slow-clipped", 4e-3, 1.0, ("RA",), 10),
    "others": grid("others", 1e-2, None, ("T", "T-gated", "DAT"), 10),
    "relations": grid("relations", 1e-2, None, ("RA-R1", "RA-R32"), 10),
    "faster": grid("faster", 1.5e-2, 1.0, ("RA", "RCA", "RA-tanh"), 10),
    "width": grid("width", 1e-2, None, ("RA-wide", "RCA-wide"), 5),
}
REFERENCE = {"others": "unclipped", "relations": "unclipped", "slow-clipped": "slow"}
"""Grids without RCA, and the one whose RCA they are compared with."""
ROWS = {
    "untrained rule": "counts of pairs of bytes, as in studies/relation_or_product/rule.py",
    "linear gate": "T-gated",
    "rotary positions": "every arm",
    "steps": "200",
    "rates": "one rate",
    "failed": "0.3 bits per byte above the median of RCA at the same rate and clipping, or not finite",
}
DONE = tuple(name for name in GRIDS if (FOLDER / name / "results.csv").is_file())


def bits(name: str) -> Frame:
    """Bits per byte of validation text by seed and model."""
    return by_seed(read_results(FOLDER / name / "results.csv"), "model", "bits_per_byte")


def median(name: str) -> float:
    """That of RCA with which a grid is compared."""
    found = bits(REFERENCE.get(name, name))
    return float(found[[model for model in found if model.startswith("RCA")]].median().iloc[0])


def diverged(name: str) -> Frame:
    """Whether each run of a grid has diverged, by seed and model."""
    return ~(bits(name) < median(name) + WORSE)


def table_of_runs() -> str:
    """Runs that diverged, and bits per byte, by grid and model."""
    lines = []
    for name in DONE:
        found, bad = bits(name), diverged(name)
        optim = GRIDS[name].optim
        for model in [model for model in MODELS if model in found]:
            values = found[model].tolist()
            line = {"grid": name, "rate": f"{optim.lr:g}", "clipped at": f"{optim.grad_clip or '–'}"}
            line |= {"heads": NAMES[model], "failed": f"{bad[model].sum()} of {len(bad)}"}
            line |= {"bits per byte": mean_text(values, 3), "best": f"{min(values):.3f}", "worst": f"{max(values):.3f}"}
            lines.append(line)
    return markdown(pd.DataFrame(lines))


PAIRS = {
    "relational heads diverge more often than RCA": ("unclipped", "RA", "unclipped", "RCA"),
    "clipping helps them": ("unclipped", "RA", "clipped", "RA"),
    "a tanh helps them": ("unclipped", "RA", "unclipped", "RA-tanh"),
    "normalising helps them": ("unclipped", "RA", "unclipped", "RA-normalised"),
}
COSTS = {"clipping": ("slow-clipped", "RA", "slow", "RA"), "a tanh": ("slow", "RA-tanh", "slow", "RA")}


def more_often() -> dict[str, list[int]]:
    """For each of ``PAIRS`` by seed: 1 if only its first run diverged, -1 if only its second did, 0 otherwise."""
    return {
        name: (diverged(grid)[model].astype(int) - diverged(other_grid)[other].astype(int)).tolist()
        for name, (grid, model, other_grid, other) in PAIRS.items()
    }


def table_of_tests() -> str:
    """The announced comparisons of shares that diverged."""
    found = more_often()
    only = {name: (values.count(1), values.count(-1)) for name, values in found.items()}
    adjusted = holm([mcnemar_p([one > 0 for one in values], [one < 0 for one in values]) for values in found.values()])
    lines = [
        {
            "that": name,
            "diverged in the first only": only[name][0],
            "in the second only": only[name][1],
            "p (Holm)": p_text(p),
        }
        for name, p in zip(found, adjusted, strict=True)
    ]
    return markdown(pd.DataFrame(lines))


def costs() -> dict[str, list[float]]:
    """What a cure costs at the low rate, in bits per byte by seed."""
    return {
        name: (bits(grid)[model] - bits(other_grid)[other]).tolist()
        for name, (grid, model, other_grid, other) in COSTS.items()
    }


def table_of_costs() -> str:
    """The same, with the test that it is less than 0.02."""
    lines = [
        {"cure": name, "costs": mean_text(values, 3, sign=True).replace("-", "−")}
        | {"within ±0.02": "yes" if equivalence_p(values, 0.02) < 0.05 else "no"}
        for name, values in costs().items()
    ]
    return markdown(pd.DataFrame(lines))


def table_of_rules() -> str:
    """Bits per byte without training, and the runs that are no better."""
    table = read_results(RULES).rename(columns={"bits_per_byte": "bits per byte"})
    runs = [value for name in DONE for value in bits(name).to_numpy().ravel()]
    told = [f"{sum(value >= rule for value in runs)} of {len(runs)}" for rule in table["bits per byte"]]
    return markdown(table.assign(**{"runs no better": told}))


TABLES: dict[str, Callable[[], str]] = {"rules": table_of_rules}
if DONE:
    TABLES |= {"runs": table_of_runs, "tests": table_of_tests, "costs": table_of_costs}
