"""An untrained rule on games between objects: one threshold on how near the first object is to the nearest other one.

python -m studies.better_dat.rule
"""

import pandas as pd

from dat.experiments.relational_games.config import GamesDataConfig, RelationalGamesConfig
from dat.experiments.relational_games.problem import load_splits
from studies.better_dat.study import FIRST_SEED, GRIDS, RULE, SEEDS, SETS
from studies.emoji_games.rule import FEATURES, fitted_threshold, nearest


def main() -> None:
    """Write ``results/rule.csv``: the images and seeds of the runs."""
    grid, features, lines = GRIDS["chosen"], FEATURES["pixels"], []
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        for task in grid.tasks:
            data = GamesDataConfig(n_train=grid.sizes[0], **vars(grid.data))
            splits = load_splits(RelationalGamesConfig(task=task, seed=seed, data=data))
            train = splits["train"]
            threshold = fitted_threshold(nearest(train.images, features), train.labels)
            shares = {
                name: 100
                * float(((nearest(splits[name].images, features) < threshold) == splits[name].labels).double().mean())
                for name in SETS
            }
            lines.append({"task": task, "seed": seed, **shares})
        pd.DataFrame(lines).round(2).to_csv(RULE, index=False)


if __name__ == "__main__":
    main()
