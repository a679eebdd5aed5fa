"""Settings of runs: all that a result depends on beside its seed, kept with it and compared between runs.

A cell keeps the settings of its run. A table of results has digests of groups of them, one column each, so that results
of several grids are merged only if they were made alike. What a cell or a table lacks, since an older version wrote it,
is not known and hinders nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from ..training.metrics import Row
from .table import ResultTable

CONFIG = "config"
"""Entry of the result of a cell: the settings of its run, before what its arm alone is given."""
UNCOMPARED = ("experiment", "seed", "machine", "output")
"""Keys of a run's configuration that are no settings; the folder of a grid has one device and one precision."""
IDLE = (
    *("eval_batch_size", "micro_batch_size", "report_every", "eval_every", "checkpoint_every", "measure_at"),
    *("milestones", "milestone_tokens", "milestone_words", "activation_stats"),
)
"""Keys of the loop that change no result, or only by rounding."""


def settings_of(config: Any) -> dict[str, Any]:
    """The settings of a run as JSON has them."""
    settings = {name: value for name, value in json.loads(json.dumps(asdict(config))).items() if name not in UNCOMPARED}
    return settings | {"loop": {name: value for name, value in settings["loop"].items() if name not in IDLE}}


def differing_settings(
    older: Mapping[str, Any], newer: Mapping[str, Any], group: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys, and both values, in which two runs differ, of those that both have."""
    for name in (name for name in older if name in newer):
        before, now = older[name], newer[name]
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from differing_settings(before, now, f"{group}{name}.")
        elif before != now:
            yield group + name, before, now


def short_digest(values: Any) -> str:
    """A short digest of something that is JSON."""
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def digest_columns(table: ResultTable) -> dict[str, str]:
    """Columns of digests, by what each is of."""
    return {name: f"{name}_digest" for name in table.digests}


def digests(table: ResultTable, entries: Mapping[str, Any]) -> Row:
    """The digests of a run, of those that are known.

    Args:
        entries: of its result: digests by their columns, and the :data:`CONFIG` from which the others follow.
    """
    settings, apart = entries.get(CONFIG, {}), {*(axis.key for axis in table.axes), *table.locations}
    found: Row = {}
    for name, column in digest_columns(table).items():
        if column in entries:
            found[column] = entries[column]
        elif name in settings:
            # Without those that are null, so that a key that is added later changes nothing.
            values = {key: x for key, x in settings[name].items() if x is not None and f"{name}.{key}" not in apart}
            found[column] = short_digest(values)
    return found
