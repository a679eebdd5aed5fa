"""Arms of a grid matched to one of them: in parameters, in operations, or in time.

Parameters follow from the width of the feed-forward blocks. Operations and time of a run follow from its length, of
which the warm-up and the cosine of its learning rate keep their share: an arm whose steps cost half trains for twice as
long. Operations are those that ``dat estimate`` counts of a step, forward and backward; time is that of a step on one
thread. What was found is kept in the folder of the grid, so that a sweep that is continued goes on with the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dual_attention._files import read_json_object, write_json

from ..estimate.estimation import estimate
from ..training.configs import StepLoopConfig
from ..training.experiment import count_parameters
from .durations import one_thread, timed_rates
from .experiment import MATCH, AnySwept
from .grid import Cell, Given, GridConfig, changed, reference_arm
from .results import LENGTHS, OPERATIONS, SECONDS, WIDTH, cell_files

FILE = "matching.json"
"""File of the folder of a grid with what was found of its arms."""
DFF = "model.dff"
TOLERANCE = {"parameters": 0.01, "operations": 0.05, "time": 0.05}
"""Largest share by which a matched arm may differ from its reference, since widths and lengths are whole numbers."""
TIMED_STEPS = 7
"""Steps of each arm whose shortest is its time."""


@dataclass(frozen=True)
class Cost:
    """Cost of a step of an arm, and the width by which its parameters match, where these are matched."""

    step_operations: int
    step_seconds: float | None = None
    dff: int | None = None

    def rescaled(self, before: Cost, now: Cost) -> Cost:
        """The cost with the time that it would have had when the reference took that of ``before``, not of ``now``."""
        if self.step_seconds is None or not before.step_seconds or not now.step_seconds:
            return self
        return replace(self, step_seconds=_rounded(self.step_seconds * before.step_seconds / now.step_seconds))


def _rounded(seconds: float) -> float:
    """Seconds as they are kept, so that a grid that is continued has exactly the same; not 0."""
    return max(round(seconds, 6), 1e-6)


def match_cells(experiment: AnySwept, grid: GridConfig, every: Sequence[Cell], folder: Path) -> list[Cell]:
    """The cells of a grid with what their arms are given so that they match; as they are, if the grid matches nothing.

    Args:
        folder: of the grid, whose file :data:`FILE` says what was found before, if it is there.

    Raises:
        ValueError: if an arm cannot be matched.
    """
    if grid.match is None:
        return list(every)
    costs = find_costs(experiment, grid, every, read_costs(folder))
    return [replace(cell, given=cell.given + given_to(experiment, grid, cell, costs)) for cell in every]


def find_costs(
    experiment: AnySwept, grid: GridConfig, every: Sequence[Cell], known: Mapping[str, Cost]
) -> dict[str, Cost]:
    """The cost of the arm of each cell, by :func:`point_name`: those ``known``, and those of the other cells."""
    costs, cached = dict(known), {}
    for arms in _points(experiment, every):
        reference = reference_cell(experiment, grid, arms)
        others = [cell for cell in arms if cell is not reference and point_name(cell.values) not in costs]
        if not others and point_name(reference.values) in costs:
            continue
        together = [reference, *others]
        configs = [grid.config(cell) for cell in together]
        key = repr([_costing(experiment, config) for config in configs])
        if key not in cached:
            cached[key] = _costs_of(experiment, grid, configs)
        now = cached[key][0]
        before = costs.setdefault(point_name(reference.values), now)
        for cell, cost in zip(others, cached[key][1:], strict=True):
            costs[point_name(cell.values)] = cost.rescaled(before, now)
    return costs


def _costing(experiment: AnySwept, config: Any) -> tuple[Any, ...]:
    """All that the cost of a step depends on: the model with its sizes, which data set some, and what it is given."""
    call = {name: _shapes(given) for name, given in experiment.example_call(config).items()}
    return config.model, config.loop.batch_size, count_parameters(experiment.empty_model(config)), call


def _shapes(given: Any) -> Any:
    """Shapes in place of tensors."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [_shapes(part) for part in given]
    return tuple(given.shape) if isinstance(given, Tensor) else given


def _costs_of(experiment: AnySwept, grid: GridConfig, configs: list[Any]) -> list[Cost]:
    """Costs of arms of a point, the first of which is the reference."""
    widths: list[int | None] = [None] * len(configs)
    if grid.match == "parameters":
        target = count_parameters(experiment.empty_model(configs[0]))
        widths = [matching_width(experiment, config, target) for config in configs]
        configs = [changed(config, [] if w is None else [(DFF, w)]) for config, w in zip(configs, widths, strict=True)]
    seconds: list[float | None] = [None] * len(configs)
    if grid.match == "time":
        if grid.device != "cpu":
            raise ValueError(f"match: time is measured on the CPU, got --device {grid.device}; match operations")
        with one_thread():
            rates = timed_rates(experiment, configs, TIMED_STEPS)
        seconds = [_rounded(rate * config.loop.batch_size) for rate, config in zip(rates, configs, strict=True)]
    operations = [step_operations(experiment, config, grid) for config in configs]
    return [Cost(*numbers) for numbers in zip(operations, seconds, widths, strict=True)]


def step_operations(experiment: AnySwept, config: Any, grid: GridConfig) -> int:
    """Operations of a step of training, as ``dat estimate`` counts them."""
    try:
        return estimate(
            experiment.empty_model(config),
            batch=config.loop.batch_size,
            device=grid.device,
            **experiment.example_call(config),
        ).step_flops
    except ValueError as error:
        raise ValueError(f"match: the operations of {config.model.name} cannot be counted ({error})") from error


def matching_width(experiment: AnySwept, config: Any, target: int) -> int | None:
    """The width of feed-forward blocks with which a model has about ``target`` parameters; None if it has them already.

    Raises:
        ValueError: if it has no such width, or none that matches.
    """

    def parameters(*changes: tuple[str, Any]) -> int:
        return count_parameters(experiment.empty_model(changed(config, changes)))

    name, own = config.model.name, parameters()
    if own == target:
        return None
    narrow, wide = 8, 16
    least = parameters((DFF, narrow)) if hasattr(config.model, "dff") else own
    slope = (parameters((DFF, wide)) - least) / (wide - narrow) if hasattr(config.model, "dff") else 0
    if not slope:
        raise ValueError(f"match: {name} is of a fixed recipe, its feed-forward width (model.dff) changes nothing")
    width = round(narrow + (target - least) / slope)
    if width < 1:
        raise ValueError(
            f"match: {name} has {round(least - (narrow - 1) * slope):,} parameters at a feed-forward width of 1 "
            f"(model.dff), which is more than the {target:,} to match; name a larger arm with --match_to"
        )
    found = parameters((DFF, width))
    _check_close("parameters", name, found, target, "parameters")
    return width


def given_to(experiment: AnySwept, grid: GridConfig, cell: Cell, costs: Mapping[str, Cost]) -> Given:
    """Changes and numbers by which the arm of a cell matches."""
    arm, config = experiment.curve_axis.name, grid.config(cell)
    own = costs[point_name(cell.values)]
    numbers: dict[str, Any] = {MATCH: grid.match, OPERATIONS: own.step_operations}
    changes: list[tuple[str, Any]] = []
    length_key = "steps" if isinstance(config.loop, StepLoopConfig) else "epochs"
    length = getattr(config.loop, length_key)
    if grid.match == "parameters":
        width = getattr(config.model, "dff", None) if own.dff is None else own.dff
        changes += [(DFF, width)] if own.dff is not None else []
        numbers |= {} if width is None else {WIDTH: width}
    else:
        first = tuple((name, reference_arm(experiment, grid) if name == arm else x) for name, x in cell.values)
        reference = costs[point_name(first)]
        if grid.match == "time":
            numbers[SECONDS] = own.step_seconds
            factor = (reference.step_seconds or 0) / (own.step_seconds or 1)
        else:
            factor = reference.step_operations / own.step_operations
        wanted, length = length * factor, max(1, round(length * factor))
        _check_close(str(grid.match), cell[arm], length, wanted, length_key)
        changes += length_changes(config, length_key, length)
    return Given(tuple(changes), tuple({**numbers, LENGTHS[length_key]: length}.items()))


def length_changes(config: Any, key: str, length: int) -> list[tuple[str, Any]]:
    """Changes that make training so long, and stretch the schedule of its learning rate likewise."""
    before = getattr(config.loop, key)
    if length == before:
        return []
    changes: list[tuple[str, Any]] = [(f"loop.{key}", length)]
    for name in ("warmup_steps", "cosine_length"):
        if steps := getattr(config.optim, name, None):
            changes.append((f"optim.{name}", max(1, round(steps * length / before))))
    if key == "epochs":
        changes.append(("loop.measure_at", tuple(epoch for epoch in config.loop.measure_at if epoch <= length)))
    return changes


def _check_close(match: str, name: str, found: float, wanted: float, what: str) -> None:
    if abs(found / wanted - 1) > TOLERANCE[match]:
        raise ValueError(
            f"match: {name} would need {wanted:,.4g} {what} to match in {match}, and {found:,} are too far from that; "
            "expected a longer training, or another --match_to"
        )


def reference_cell(experiment: AnySwept, grid: GridConfig, arms: Sequence[Cell]) -> Cell:
    """The cell of the reference arm among those of a point."""
    name = reference_arm(experiment, grid)
    found = [cell for cell in arms if cell[experiment.curve_axis.name] == name]
    if not found:
        raise ValueError(f"match_to: {name} is not run at {point_name(arms[0].values)}, so nothing is matched to it")
    return found[0]


def _points(experiment: AnySwept, every: Sequence[Cell]) -> list[list[Cell]]:
    """For each point, one cell of each arm."""
    arm = experiment.curve_axis.name
    points: dict[Any, dict[str, Cell]] = {}
    for cell in every:
        points.setdefault(tuple(pair for pair in cell.values if pair[0] != arm), {}).setdefault(cell[arm], cell)
    return [list(cells.values()) for cells in points.values()]


def point_name(values: Sequence[tuple[str, Any]]) -> str:
    """Name of a point of an arm."""
    return "__".join(str(value) for _, value in values)


def read_costs(folder: Path) -> dict[str, Cost]:
    """Costs of arms that the folder of a grid has; none, if it has no such file, or no cell that was run with them.

    Without a cell another grid may begin there, whose arms match in something else.
    """
    path = folder / FILE
    if not path.is_file() or not cell_files(folder):
        return {}
    try:
        return {name: Cost(**numbers) for name, numbers in read_json_object(path).items()}
    except TypeError as error:
        raise ValueError(f"{path}: expected what arms cost, got something else ({error})") from error


def write_costs(folder: Path, every: Sequence[Cell]) -> None:
    """Keep what was found of the arms of ``every`` cell, beside what is there already."""
    found = read_costs(folder)
    for cell in every:
        numbers = dict(cell.given.numbers)
        width = dict(cell.given.changes).get(DFF)
        found.setdefault(point_name(cell.values), Cost(numbers[OPERATIONS], numbers.get(SECONDS), width))
    write_json(folder / FILE, {name: vars(cost) for name, cost in found.items()})
