"""A baseline without training: the category of the nearest picture by pixels, on the splits of the runs.

python -m studies.emoji.nearest
"""

from typing import Any

import pandas as pd
import torch

from dat.data.images import LabelledImages, split_images
from studies.emoji.experiment import by_the_other_vendor
from studies.emoji.study import CATEGORY, RESULTS, SEEDS


def nearest(train: LabelledImages, asked: LabelledImages) -> float:
    """Share, in percent, of pictures whose nearest neighbour in ``train`` has their label."""
    distances = torch.cdist(asked.images.flatten(1).float(), train.images.flatten(1).float())
    labels = train.labels[distances.argmin(1)]
    return round(100 * float((labels == asked.labels).double().mean()), 3)


def main() -> None:
    """Write ``results/category/nearest.csv``."""
    data, (n_train,), lines = CATEGORY.data, CATEGORY.sizes, []
    sizes: Any = {"n_train": n_train, "n_val": data.n_val, "n_test": data.tested("folder")}
    for seed in range(SEEDS):
        parts = split_images("folder", **sizes, seed=seed, folder=data.folder)
        train = parts.pop("train")
        parts |= by_the_other_vendor(data, n_train, seed)
        lines.append({"seed": seed, **{name: nearest(train, part) for name, part in parts.items()}})
    pd.DataFrame(lines).to_csv(RESULTS / "category" / "nearest.csv", index=False)


if __name__ == "__main__":
    main()
