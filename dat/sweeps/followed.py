"""Whether an analysis was followed: what was planned when the first cell was run, and what was run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

from dual_attention._files import read_json_object, write_atomically, write_json
from dual_attention._words import listed

from ..training.config_io import commented_yaml, read_config
from ..training.metrics import Row
from .analysis import AnalysisConfig, Planned
from .experiment import AnySwept
from .grid import GridConfig, GridFolder
from .results import cell_files

ANALYSIS, RECORD = "analysis.yaml", "analysis.json"
"""Files of the folder of a grid: the analysis, and when it came there, with its SHA-256 and the grid it plans."""
FREE = ("out", "workers", "keep_weights", "seeds", "first_seed")
"""Keys of a grid that are no settings of its runs; its seeds are compared by themselves."""


def digest(analysis: AnalysisConfig) -> str:
    """SHA-256 of the values of an analysis, whatever the comments of its file."""
    return sha256(json.dumps(asdict(analysis), sort_keys=True).encode()).hexdigest()


def settle(folder: GridFolder, analysis: AnalysisConfig | None) -> AnalysisConfig | None:
    """The analysis that a grid is run under: the one given, or the one that its folder has.

    Raises:
        ValueError: if the folder has another one, or its file was changed since it was recorded.
    """
    record = read_record(folder.path)
    if record is None:
        if analysis is not None:
            analysis.check_against(folder.experiment)
        return analysis
    kept = read_config(AnalysisConfig, folder.path / ANALYSIS)
    if digest(kept) != record["analysis"]:
        raise ValueError(
            f"{folder.path / ANALYSIS}: changed since it was recorded ({record['recorded']}); restore it, or run the "
            "grid with another analysis in another --out"
        )
    if analysis is not None and digest(analysis) != record["analysis"]:
        raise ValueError(
            f"analysis: {folder.path} was begun with another one ({record['recorded']}); give that one, or another "
            "--out"
        )
    return kept


def record_analysis(folder: GridFolder, grid: GridConfig, analysis: AnalysisConfig) -> None:
    """Keep an analysis in the folder of a grid, with the time and the number of cells that are done already."""
    if read_record(folder.path) is not None:
        return
    planned = folder.experiment.grids.get(analysis.grid, grid) if analysis.grid is not None else grid
    write_atomically(folder.path / ANALYSIS, commented_yaml(analysis))
    write_json(
        folder.path / RECORD,
        {
            "recorded": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "cells_done": len(cell_files(folder.path)),
            "analysis": digest(analysis),
            "grid": asdict(planned),
        },
    )


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record that :func:`record_analysis` wrote into a folder; None, if there is none.

    Raises:
        ValueError: naming the file, if it is damaged.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    record = read_json_object(path)
    kinds = {"recorded": str, "cells_done": int, "analysis": str, "grid": dict}
    if any(not isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise ValueError(f"{path}: damaged; expected {', '.join(kinds)}")
    return record


def recorded_analysis(folder: Path) -> AnalysisConfig | None:
    """The analysis in the folder of a grid; None, if it has none."""
    path = folder / ANALYSIS
    return read_config(AnalysisConfig, path) if path.is_file() else None


@dataclass(frozen=True)
class Followed:
    """One point in which an analysis was followed or not; ``well`` is None where nothing tells."""

    what: str
    well: bool | None
    words: str


def followed(
    experiment: AnySwept,
    analysis: AnalysisConfig,
    rows: Sequence[Row],
    planned: Planned,
    folder: GridFolder | None = None,
) -> list[Followed]:
    """Whether an analysis was followed, point by point.

    Args:
        rows: all results.
        planned: what it plans to be run.
        folder: of the grid that the results are of, if they are all of one.
    """
    record = None if folder is None else read_record(folder.path)
    of_plan = (
        record["grid"] if record is not None else asdict(experiment.grids[analysis.grid]) if analysis.grid else None
    )
    if record is None:
        unknown = "not recorded beside the runs, so that it was fixed before them is not shown here"
        points = [Followed("analysis", None, unknown)]
    else:
        points = [_analysis(analysis, record)]
    if folder is not None and of_plan is not None and folder.config.is_file():
        points.append(_settings(folder, of_plan))
    return [*points, _seeds(analysis, experiment, rows), _cells(experiment, analysis, rows, planned)]


def _analysis(analysis: AnalysisConfig, record: Mapping[str, Any]) -> Followed:
    own = digest(analysis)
    if own != record["analysis"]:
        return Followed(
            "analysis",
            False,
            f"another than the one recorded with the runs: SHA-256 {own[:12]}, recorded {record['analysis'][:12]} "
            f"({record['recorded']})",
        )
    done = record["cells_done"]
    when = "before the first cell" if not done else f"after {done} cells had been run, so not before the runs"
    return Followed("analysis", not done, f"recorded {record['recorded']}, {when}; SHA-256 {own[:12]}")


def _settings(folder: GridFolder, of_plan: Mapping[str, Any]) -> Followed:
    """Whether the settings of a grid are those of the planned one; keys that one of them lacks have their defaults."""
    grids = of_plan, asdict(read_config(folder.experiment.Grid, folder.config)), asdict(folder.experiment.Grid())
    planned, own, default = (dict(_flat(json.loads(json.dumps(grid)))) for grid in grids)
    keys = [key for key in {**planned, **own} if key.partition(".")[0] not in FREE]
    missing = object()
    others = [
        f"{key} {own.get(key)} in place of {planned.get(key)}"
        for key in keys
        if own.get(key, default.get(key, missing)) != planned.get(key, default.get(key, missing))
    ]
    if others:
        return Followed("settings", False, f"others than planned: {listed(others)}")
    return Followed("settings", True, "as planned")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _seeds(analysis: AnalysisConfig, experiment: AnySwept, rows: Sequence[Row]) -> Followed:
    planned, run = set(analysis.planned_seeds), {int(row["seed"]) for row in rows}
    words = f"{analysis.seeds} planned ({_span(sorted(planned))}), {len(planned & run)} of them run"
    if more := sorted(run - planned):
        words += f"; {len(more)} others were run, too, and are left out ({_span(more)})"
    return Followed("seeds", planned == run, words)


def _span(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return listed([str(seed) for seed in seeds])


def _cells(experiment: AnySwept, analysis: AnalysisConfig, rows: Sequence[Row], planned: Planned) -> Followed:
    curve, point = experiment.curve_axis.name, experiment.point_axis.name
    run = {(experiment.panel(row), int(row[point]), row[curve], int(row["seed"])) for row in rows}
    cells = [
        (panel, at, arm, seed)
        for seed in analysis.planned_seeds
        for (panel, _), points in planned.items()
        for arm, at in points.items()
    ]
    missing = [
        " ".join([*(str(part) for part in cell[:3] if part), f"seed {cell[3]}"]) for cell in cells if cell not in run
    ]
    if missing:
        return Followed("cells", False, f"{len(missing)} of {len(cells)} are missing: {listed(missing)}")
    return Followed("cells", True, f"all {len(cells)} that count have been run")


def planned_cells(
    experiment: AnySwept, analysis: AnalysisConfig, rows: Sequence[Row], folder: GridFolder | None = None
) -> Planned:
    """The runs that an analysis plans: panels and points that it names, of its grid, or else of the results.

    With ``ends``, these are the panels at the last point of the reference.
    """
    record = None if folder is None else read_record(folder.path)
    points: Sequence[Mapping[str, Any]] = rows
    if folder is not None and record is not None and folder.config.is_file() and analysis.grid is None:
        points = read_config(experiment.Grid, folder.config).points()
    elif analysis.grid is not None:
        points = experiment.grids[analysis.grid].points()
    arms, curve = (analysis.reference, *analysis.arms), experiment.curve_axis.name
    found = [(experiment.panel(dict(point)), int(point[experiment.point_axis.name]), point[curve]) for point in points]
    found = [one for one in found if analysis.counts(one[:2])]
    order = {panel: n for n, panel in enumerate(experiment.panels(rows))}
    panels = sorted({panel for panel, *_ in found}, key=lambda panel: (order.get(panel, len(order)), panel))
    if analysis.of != "ends":
        return {
            (panel, at): dict.fromkeys(arms, at)
            for panel in panels
            for at in sorted({at for own, at, _ in found if own == panel})
        }
    ends: dict[str, dict[str, int]] = {panel: {} for panel in panels}
    for panel, at, arm in found:
        if arm in arms:
            ends[panel][arm] = max(at, ends[panel].get(arm, at))
    return {(panel, own[analysis.reference]): own for panel, own in ends.items() if analysis.reference in own}
