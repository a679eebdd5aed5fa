"""``python -m dat.experiments FOLDER``: write the configurations that come with the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from ..training.config_io import commented_yaml
from . import EXPERIMENTS


def shipped_files(name: str) -> dict[Path, str]:
    """Text of every configuration that comes with an experiment, by its path below ``experiments/``."""
    folder = Path(name.replace("-", "_"))
    return {folder / path: commented_yaml(config) for path, config in EXPERIMENTS[name].load().shipped.items()}


def write_shipped_files(folder: Path) -> None:
    """Write those of every experiment below ``folder``."""
    for name in EXPERIMENTS:
        for path, text in shipped_files(name).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            print(target)


if __name__ == "__main__":
    write_shipped_files(Path(sys.argv[1]))
