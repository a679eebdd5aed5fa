"""Results of one step in a file, whole at every moment."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.plan import Result
from dual_attention._base.files import read_json_object, write_json

FINISHED = ("measured", "left out")
"""Statuses of items that are not run again."""


class Record:
    """Results by key.

    Args:
        path: of the file, which is read if it is there.
        about: what results depend on: ``step``, ``device``, ``versions``, ``dry_run``, which must be those of the file;
            and the commit, which is noted with each result.

    Raises:
        ValueError: if the file is of another step, machine or version, or not whole.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.data: dict[str, Any] = {"about": dict(about), "spent_s": 0.0, "items": {}}
        if path.exists():
            self.data = read_json_object(path)
            for key in ("step", "device", "versions", "dry_run"):
                found, wanted = self.data.get("about", {}).get(key), about[key]
                if found != wanted:
                    raise ValueError(f"{path} has results with {key} {found}, and this is {wanted}: give another --out")
        self.commit = about["git"]["commit"]

    @property
    def items(self) -> dict[str, Result]:
        """Results by key, each with its ``status``: measured, left out, failed or unfinished."""
        return self.data["items"]

    def finished(self, key: str) -> bool:
        """Whether the item need not be run again."""
        return self.items.get(key, {}).get("status") in FINISHED

    def put(self, key: str, result: Result) -> None:
        """Keep a result and write the file."""
        with self._lock:
            self.items[key] = {**result, "commit": self.commit}
            write_json(self.path, self.data)

    def spend(self, seconds: float) -> None:
        """Add to the time that the step has taken, over all calls of the command."""
        with self._lock:
            self.data["spent_s"] = round(self.data["spent_s"] + seconds, 1)
            write_json(self.path, self.data)
