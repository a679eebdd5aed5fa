"""The untrained rule on progressive matrices: the answer whose values occur most often in the context.

python -m studies.matrices.rule
"""

from dataclasses import replace

import pandas as pd

from dat.experiments import experiment_named
from dat.sweeps.experiment import swept
from dat.sweeps.grid import cells
from studies.matrices.study import EXPERIMENT, GRIDS, RULE


def main() -> None:
    """Write ``results/rule.csv``: the matrices and seeds of the runs."""
    grid, lines = GRIDS["chosen"], []
    for cell in cells(swept(experiment_named(EXPERIMENT)), replace(grid, models=grid.models[:1], lr_of=None)):
        config = grid.run_config(cell)
        line = {"seed": cell.seed}
        for name in config.data.sets:
            words = "test" if name == "train" else name
            _, labels, guesses = config.draw(name, config.data.n_test, config.seed_of(words))
            line[words] = round(100 * float((labels == guesses).float().mean()), 3)
        lines.append(line)
    pd.DataFrame(lines).to_csv(RULE, index=False)


if __name__ == "__main__":
    main()
