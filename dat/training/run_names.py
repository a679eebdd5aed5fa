"""Names of run folders: that of a configuration, numbered where other runs have it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from .config_io import read_config
from .run_folder import RunFolder


def with_free_name(config: Any) -> Any:
    """A configuration of a run, whose output has a name if others with the same one were trained with other settings.

    So a second attempt goes to ``<name>-2``. A run with the same settings keeps its name, and a name that the user
    gave is left as it is: its folder is refused if it exists.
    """
    if config.output.name is not None:
        return config
    own = config.run_name
    names = itertools.chain([own], (f"{own}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if _is_for(RunFolder(Path(config.output.folder) / name), config))
    return config if name == own else replace(config, output=replace(config.output, name=name))


def _is_for(folder: RunFolder, config: Any) -> bool:
    """Whether a folder is free, or its run has the settings of ``config``; machine and output do not count."""
    if not folder.config.is_file():
        return not folder.path.exists()
    try:
        found = read_config(type(config), folder.config)
    except (OSError, ValueError):
        return False
    given, kept = config.loop.continue_from, found.loop.continue_from
    if given is not None and kept is not None and Path(kept).is_relative_to(Path(given).resolve()):
        config = replace(config, loop=replace(config.loop, continue_from=kept))  # as it was when that run began
    return replace(found, machine=config.machine, output=config.output) == config
