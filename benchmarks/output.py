"""Files with results: data, report and picture under one name, never over those of another run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.plot import draw_plot
from benchmarks.report import markdown
from benchmarks.results import Row

KINDS = (".json", ".md", ".png")


class Output:
    """A name of its own in a folder, taken when the run begins.

    Args:
        folder: made if it is missing.
        stem: ``<date>-<device>[-suite]``; a number is added where that is taken.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            name = stem if number == 1 else f"{stem}-{number}"
            self.paths = {kind: folder / f"{name}{kind}" for kind in KINDS}
            number += 1
            if any(path.exists() for path in self.paths.values()):
                continue
            try:
                self.paths[".json"].open("x").close()
            except FileExistsError:  # another run was faster
                continue
            return

    def save(self, about: dict[str, Any], rows: Sequence[Row]) -> None:
        """Write the data as far as they go; a run that is cut short leaves them whole."""
        data = {**about, "rows": [row.to_json() for row in rows]}
        path = self.paths[".json"]
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)

    def finish(self, about: dict[str, Any], rows: Sequence[Row], conclusions: Sequence[str]) -> list[Path]:
        """Write everything; the files that there are."""
        self.save({**about, "conclusions": list(conclusions)}, rows)
        self.paths[".md"].write_text(markdown(about, rows, conclusions), encoding="utf-8")
        draw_plot(rows, self.paths[".png"])
        return [path for path in self.paths.values() if path.exists()]
