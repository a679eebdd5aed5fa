"""An untrained rule beside the models: one threshold on how near the first object is to the nearest other one.

python -m studies.emoji_games.rule
"""

from collections.abc import Callable, Mapping

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from dat.data.relational_games.dataset import GameImages
from dat.data.relational_games.render import CELL_SIZE
from studies.emoji_games.experiment import TEST_SETS, EmojiDataConfig, load_splits
from studies.emoji_games.study import RESULTS, SEEDS, STUDY

FEATURES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "pixels": lambda cells: cells.flatten(2),
    "mean colour": lambda cells: cells.mean((3, 4)),
    "cosine": lambda cells: normalize(cells.flatten(2), dim=2),
}
"""What two cells, (n, 9, 3, 12, 12), are compared by; distances of unit vectors order pairs as their cosines do."""


def nearest(images: Tensor, features: Callable[[Tensor], Tensor]) -> Tensor:
    """Distance of the first object of each image, (n, 3, 36, 36), to the nearest other one; empty cells are black."""
    side = images.shape[-1] // CELL_SIZE
    cells = images.double().unflatten(3, (side, CELL_SIZE)).unflatten(2, (side, CELL_SIZE))
    cells = cells.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    there = cells.flatten(2).any(2)
    first = there & (there.cumsum(1) == 1)
    found = features(cells)
    distances = (found - found[first].unsqueeze(1)).norm(dim=2)
    return distances.masked_fill(first | ~there, torch.inf).amin(1)


def fitted_threshold(distances: Tensor, labels: Tensor) -> float:
    """The threshold with which most labels are right, if nearer means 1: halfway between two distances."""
    found, order = distances.sort()
    ones = labels[order].cumsum(0)
    right = 2 * ones - torch.arange(1, len(labels) + 1)  # ones up to a distance, less zeros up to it
    place = int(right[:-1].argmax())
    return float(found[place : place + 2].mean())


def rule_accuracy(splits: Mapping[str, GameImages], features: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """Accuracy in percent on the sets that models are measured on; the threshold is fitted on their training set."""
    train = splits["train"]
    threshold = fitted_threshold(nearest(train.images, features), train.labels)
    return {
        name: 100 * float(((nearest(split.images, features) < threshold) == split.labels).double().mean())
        for name, split in splits.items()
        if name in TEST_SETS
    }


def main() -> None:
    """Write ``results/emoji/rule.csv``: the scenes and seeds of the runs."""
    lines = []
    for task in STUDY.tasks:
        for seed in range(SEEDS):
            data = EmojiDataConfig(n_train=STUDY.sizes[0], **vars(STUDY.data))
            splits = load_splits(task, data, seed)
            about = {"task": task, "seed": seed}
            lines += [{**about, "rule": kind, **rule_accuracy(splits, of)} for kind, of in FEATURES.items()]
    pd.DataFrame(lines).round(3).to_csv(RESULTS.parent / "rule.csv", index=False)


if __name__ == "__main__":
    main()
