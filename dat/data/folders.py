"""The files of a folder."""

import os
from pathlib import Path


def files_below(folder: Path, *, hidden: bool = False) -> list[Path]:
    """Files of a folder and of the folders in it, in order; each folder once, so that links in a circle come to an end.

    Args:
        hidden: also those whose name, or the name of whose folder, begins with a dot.
    """
    found: list[Path] = []
    entered = set()
    for place, inner, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        inner[:] = sorted(name for name in inner if real not in entered and (hidden or name[0] != "."))
        found += [Path(place, name) for name in names if real not in entered and (hidden or name[0] != ".")]
        entered.add(real)
    return sorted(path for path in found if path.is_file())
