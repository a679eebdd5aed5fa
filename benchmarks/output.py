"""Files with results: data and report under one name, never over those of another run."""

import contextlib
import glob
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import markdown
from benchmarks.results import Row
from dual_attention._base.files import write_atomically


class Output:
    """The files of one run, whose name is taken when the run begins.

    Args:
        folder: made if it is missing.
        stem: ``<date>-<device>[-suite]``; a number is added where that is taken.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.stem = folder, stem
        for number in itertools.count(1):
            self.name = stem if number == 1 else f"{stem}-{number}"
            if not any(folder.glob(f"{glob.escape(self.name)}.*")):
                with contextlib.suppress(FileExistsError):  # another run was faster
                    self._path(".json").open("x").close()
                    return

    def _path(self, kind: str) -> Path:
        return self.folder / f"{self.name}{kind}"

    def save(self, about: dict[str, Any], rows: Sequence[Row]) -> None:
        """Write the data so far; a run that is cut short leaves a whole file."""
        data = {**about, "rows": [row.to_json() for row in rows]}
        write_atomically(self._path(".json"), json.dumps(data, indent=1) + "\n")

    def finish(self, about: dict[str, Any], rows: Sequence[Row], conclusions: Sequence[str]) -> list[Path]:
        """Write everything; returns the files written."""
        self.save({**about, "conclusions": list(conclusions)}, rows)
        report = self._path(".md")
        report.write_text(markdown(about, rows, conclusions), encoding="utf-8")
        return [self._path(".json"), report]

    def other_runs(self, about: dict[str, Any]) -> list[list[Row]]:
        """Rows of finished runs under the same stem: of the same commit, machine and settings."""
        same = "hardware", "versions", "settings", "quick"
        runs = []
        for path in sorted(self.folder.glob(f"{glob.escape(self.stem)}*.json")):
            if path == self._path(".json") or not path.stat().st_size:
                continue
            other, rows = load(path)
            alike = all(other[key] == about[key] for key in same) and other["git"]["commit"] == about["git"]["commit"]
            if alike and not other["unfinished"]:
                runs.append(rows)
        return runs


def load(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """What a run depended on, and its rows.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it has no results.
    """
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return about, [Row.from_json(row) for row in about.pop("rows")]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has no results of benchmarks ({type(error).__name__}: {error})") from None
