"""Names of run folders: that of a configuration, numbered where other runs have it."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from .config_data import differing
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
        return not settings_that_differ(folder, config)
    except (OSError, ValueError):
        return False


def settings_that_differ(folder: RunFolder, config: Any) -> list[tuple[str, Any, Any]]:
    """The keys in which the run in a folder differs from a configuration, with both values.

    Machine and output do not count, nor does a checkpoint that was the newest of ``loop.continue_from`` when it began.
    """
    found = read_config(type(config), folder.config)
    given, kept = config.loop.continue_from, found.loop.continue_from
    if given is not None and kept is not None and Path(kept).is_relative_to(Path(given).resolve()):
        config = replace(config, loop=replace(config.loop, continue_from=kept))
    return list(differing(found, config, free=("experiment", "machine", "output")))
