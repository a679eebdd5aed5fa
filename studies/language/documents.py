"""``python -m studies.language.documents GRID``: bits of validation documents, from the weights that ``rates`` keeps.

Writes ``results/rates/documents.csv``: for each document its bytes and, for each model, the bits that its bytes take,
mean over the seeds that all models have.
"""

import sys
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_model

from dat.experiments.language.data import load_data, make_tokenizer
from dat.experiments.language.problem import build_language_model
from dat.training.config_io import read_config
from dual_attention._base.files import write_atomically
from dual_attention.functional.losses import cross_entropy
from studies.language.models import PRESETS, RATED
from studies.language.study import Grid
from studies.language.tables import FOLDER

TABLE = FOLDER / "results/rates/documents.csv"


def complete_seeds(cells: Path, steps: int) -> list[int]:
    """Seeds of which every model has weights."""
    of = [{int(f.stem.rpartition("seed")[2]) for f in cells.glob(f"{m}__steps{steps}__*.safetensors")} for m in RATED]
    return sorted(set.intersection(*of))


@torch.inference_mode()
def main(folder: Path) -> None:
    grid = read_config(Grid, folder / "grid.yaml")
    tokenizer = make_tokenizer(grid.data)
    context, cache = PRESETS[grid.models[0]].context, folder / "tokens"
    data = load_data(grid.data, tokenizer, context=context, vocab_size=tokenizer.vocab_size, seed=0, cache=cache).val
    seeds = complete_seeds(folder / "cells", grid.steps[0])
    targets = torch.cat([data.batch(part)[1] for part in torch.arange(len(data)).split(256)]).flatten().numpy()
    document = np.concatenate([[0], np.cumsum(targets == tokenizer.end)[:-1]])  # an end token is its document's last
    table = pd.DataFrame({"bytes": np.bincount(document, targets != tokenizer.end).astype(int)})
    for name in RATED:
        total = np.zeros(len(targets))
        for seed in seeds:
            model = build_language_model(PRESETS[name].language_config(tokenizer.vocab_size), seed=seed).eval()
            load_model(model, folder / "cells" / f"{name}__steps{grid.steps[0]}__seed{seed}.safetensors")
            parts = []
            for part in torch.arange(len(data)).split(grid.loop.eval_batch_size):
                tokens, following = data.batch(part)
                parts.append(cross_entropy(model(tokens)[0], following, reduction="none").flatten())
            total += torch.cat(parts).double().numpy() / log(2)
        table[name] = np.bincount(document, total / len(seeds)).round(1)
    table.index.name = "document"
    write_atomically(TABLE, table.to_csv())
    print(f"{len(table)} documents, {table['bytes'].sum():,} bytes, seeds {seeds}")
    print(table[list(RATED)].sum() / table["bytes"].sum())


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "grid.yaml").is_file():
        sys.exit("usage: python -m studies.language.documents GRID, a folder of the grid `rates`")
    main(Path(sys.argv[1]))
