"""The images of a run on Relational Games."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from ...data.relational_games import make_splits, official_splits, supported_objects
from ...data.relational_games.official import official_path
from .config import GamesDataConfig, RelationalGamesConfig


def load_splits(config: RelationalGamesConfig) -> dict[str, Any]:
    """The splits of a run by name, each with ``images`` (n, 3, 36, 36) uint8 and ``labels`` (n,) int64."""
    return _splits(config.task, config.data, config.data_seed)


@lru_cache(maxsize=2)  # for the models of a sweep that come next on the same task, size and seed
def _splits(task: str, data: GamesDataConfig, seed: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {"n_val": data.n_val, "n_test": data.n_test, "seed": seed}
    if data.official_folder is not None:
        check_official_folder(data.official_folder, task)
        return official_splits(data.official_folder, task, data.n_train, **sizes)
    share = data.independent_share
    return make_splits(task, data.n_train, n_heldout=data.n_heldout, independent_share=share, **sizes)


def check_official_folder(folder: str, task: str) -> None:
    """Check that the files of a task are all there. Raises FileNotFoundError naming those that are not."""
    paths = [official_path(folder, task, objects) for objects in supported_objects(task)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        found = ", ".join(sorted(path.name for path in Path(folder).glob("*.npz"))) or "no npz file"
        raise FileNotFoundError(
            f"data.official_folder: expected {', '.join(path.name for path in paths)} in {folder}, which lacks "
            f"{', '.join(missing)} and holds {found}"
        )
