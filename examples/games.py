"""Play a Relational Game: are the two objects the same? Train three models on few images, test on objects never seen.

python examples/games.py

Put a model of your own into MODELS: any module that takes images ``(n, 3, 36, 36)`` and gives scores ``(n, 2)``. The
command `dat train relational-games` trains these and others as the paper did; see docs/relational-games.md.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dat.data.relational_games import GameImages, make_splits
from dual_attention import VisionDualAttnTransformer, VisionTransformer
from dual_attention.baselines import VisionCoRelNet

IMAGE, CELL, CLASSES = (3, 36, 36), (12, 12), 2
MODELS: dict[str, Callable[[], nn.Module]] = {
    "Transformer": lambda: VisionTransformer(
        IMAGE, CELL, CLASSES, d_model=128, n_layers=2, n_heads=2, dff=256, pool="mean"
    ),
    "DAT": lambda: VisionDualAttnTransformer(
        IMAGE,
        CELL,
        CLASSES,
        d_model=128,
        n_layers=2,
        n_heads_sa=0,
        n_heads_ra=2,
        dff=256,
        pool="mean",
        symbol_retrieval="positional_symbols",
        ra_kwargs={"n_relations": 2, "rel_proj_dim": 64, "symmetric_rels": True, "rel_score": "squared_distance"},
    ),
    "CoRelNet": lambda: VisionCoRelNet(IMAGE, CELL, CLASSES, d_model=128),
}


def pixels(games: GameImages, of: slice | Tensor = slice(None)) -> Tensor:
    return games.images[of].float() / 255


def train(model: nn.Module, games: GameImages, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(games.labels)).split(50):
            loss = F.cross_entropy(model(pixels(games, batch)), games.labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, games: GameImages) -> float:
    return (model.eval()(pixels(games)).argmax(-1) == games.labels).float().mean().item()


def main(
    n_train: int = 500, epochs: int = 30, seeds: int = 2, names: Sequence[str] = tuple(MODELS)
) -> dict[str, list[float]]:
    print(f"{'accuracy (chance 50%)':22}{'as trained':>12}{'hexominoes':>12}{'stripes':>12}")
    means = {}
    for name in names:
        trials = []
        for seed in range(seeds):
            games = make_splits("same", n_train, n_val=1, n_test=1000, n_heldout=1000, seed=seed)
            torch.manual_seed(seed)
            model = MODELS[name]()
            train(model, games["train"], epochs)
            trials.append([accuracy(model, games[objects]) for objects in ("test", "hexominoes", "stripes")])
        means[name] = [fmean(of_seeds) for of_seeds in zip(*trials, strict=True)]
        print(f"{name:22}" + "".join(f"{mean:12.1%}" for mean in means[name]))
    print(f"means of {seeds} trials with {n_train} images each; trials differ by several points")
    return means


if __name__ == "__main__":
    main()
