"""Untrained rules on games between matched emoji: they are to be at chance.

python -m studies.emoji_matched.rule
"""

from pathlib import Path

import pandas as pd
from torch import Tensor
from torch.nn.functional import avg_pool2d

from studies.emoji_games.experiment import EmojiDataConfig
from studies.emoji_games.rule import FEATURES, rule_accuracy
from studies.emoji_matched.experiment import matched_splits

SEEDS, N_TRAIN, N_TEST = 10, 1000, 4000
FILE = Path(__file__).parent / "results" / "rule.csv"


def blurred(cells: Tensor) -> Tensor:
    """The means of sixteen blocks of 3 x 3 pixels of each cell."""
    return avg_pool2d(cells.flatten(0, 1), 3).unflatten(0, cells.shape[:2]).flatten(2)


def outlines(cells: Tensor) -> Tensor:
    """The steps in grey from each pixel to the next, whatever their sign."""
    return (cells[..., 1:] - cells[..., :-1]).abs().flatten(2)


RULES = {**FEATURES, "blurred": blurred, "outlines": outlines}


def main() -> None:
    """Write ``results/rule.csv``."""
    lines = []
    for seed in range(SEEDS):
        for task in ("same", "occurs"):
            data = EmojiDataConfig(n_train=N_TRAIN, n_val=1, n_test=N_TEST, n_unseen=N_TEST)
            splits = matched_splits(task, data, seed)
            about = {"task": task, "seed": seed}
            lines += [{**about, "rule": kind, **rule_accuracy(splits, of)} for kind, of in RULES.items()]
        pd.DataFrame(lines).round(3).to_csv(FILE, index=False)


if __name__ == "__main__":
    main()
