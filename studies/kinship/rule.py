"""The untrained rule on family relations: parent, child or sibling, by the sum of the generations of all facts.

python -m studies.kinship.rule
"""

from dataclasses import replace
from statistics import fmean

import pandas as pd

from dat.experiments import experiment_named
from dat.sweeps.experiment import swept
from dat.sweeps.grid import cells
from dat.training.seeding import derive_seed
from studies.kinship.study import EXPERIMENT, GRIDS, RULE


def main() -> None:
    """Write ``results/rule.csv``: the stories and seeds of the runs."""
    grid, lines = GRIDS["chosen"], []
    for cell in cells(swept(experiment_named(EXPERIMENT)), replace(grid, models=grid.models[:1], lr_of=None)):
        config = grid.run_config(cell)
        shares: dict[bool, list[float]] = {False: [], True: []}
        for length in config.data.lengths:
            _, targets, _, guesses = config.draw(str(length), config.data.n_test, derive_seed(cell.seed, str(length)))
            right = (guesses == targets.max(1).values).float().mean()
            shares[length > config.data.longest].append(100 * float(right))
        line = {"seed": cell.seed, "within": fmean(shares[False]), "beyond": fmean(shares[True])}
        lines.append(line)
    pd.DataFrame(lines).round(3).to_csv(RULE, index=False)


if __name__ == "__main__":
    main()
