"""Checks of the state in a checkpoint, before any of it is used.

Optimisers write where the tensors of their state lie, and take their sizes from the parameters, so a state that does
not fit would let them write anywhere. Nothing of a state is handed on that has not been compared with the model, the
plan of training and the optimiser.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .average import AVERAGE, DECAY
from .configs import check
from .plan import Plan
from .sharding import is_sharded, local, placed
from .weights_file import tied_names

KEYS = ("epoch", "step", "seconds", "sums", "count", "optimizer", "random")
"""Keys of every state."""
LATER_KEYS = ("metrics", "measured", "watched", "names")
"""Keys that states of older versions lack."""
OF_ADAM = ("betas", "amsgrad", "maximize")
OF_MUON = ("momentum", "nesterov", "ns_coefficients", "ns_steps", "adjust_lr_fn")
GROUP_KEYS = ("params", "lr_scale", "eps", "weight_decay", DECAY, *OF_ADAM, *OF_MUON)
"""Settings of a group of parameters that are compared, where both have them."""
MEANS = {False: ("step", "exp_avg", "exp_avg_sq"), True: ("momentum_buffer",)}
"""State of a parameter: Adam's, or Muon's."""


def check_state(
    state: Mapping[str, Any], plan: Plan, optimizer: torch.optim.Optimizer, device: torch.device, *, own: bool = True
) -> None:
    """Compare the state of a checkpoint with what it is to continue.

    Args:
        own: whether that is the run it is of, and has the settings of the optimiser that it was trained with.

    Raises:
        ValueError: naming the entry, and what it was expected to be.
    """
    missing = [key for key in KEYS if key not in state]
    unknown = [key for key in state if key not in (*KEYS, *LATER_KEYS)]
    check(not missing and not unknown, "its keys", f"{', '.join(KEYS)}", list(state))
    _check_position(state, plan)
    _check_means(state, plan)
    for name in ("measured", "watched"):
        _check_measured(name, state.get(name, []), plan)
    _check_optimizer(state["optimizer"], optimizer, state["step"], GROUP_KEYS if own else ("params",))
    _check_random(state["random"], device)
    names = state.get("names")
    fits = names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))
    check(fits, "names", "names of parameters", _kind(names))
    _check_metrics(state.get("metrics"))


def optimizer_state(saved: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state dict for ``optimizer`` from one that was checked: its own settings, and copies of the saved tensors.

    Each copy lies in memory as its parameter does, as fused optimisers expect, and is sharded as that is.
    """
    parameters = _parameters(optimizer)
    entries = {
        index: {name: _copy_like(value, parameters[index], name) for name, value in entry.items()}
        for index, entry in saved["state"].items()
    }
    return {"state": entries, "param_groups": optimizer.state_dict()["param_groups"]}


def names_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of parameters by their numbers in the state dict of an optimiser; of several, that in files."""
    weights = model.state_dict(keep_vars=True)
    names = {id(weights[name]): same[0] for same in tied_names(weights) for name in same}
    return [names[id(parameter)] for parameter in _parameters(optimizer)]


def _copy_like(value: Tensor, parameter: Tensor, name: str) -> Tensor:
    """A tensor of a parameter's state, as the parameter lies; its count of steps as it is."""
    value = value.detach()
    if name != "step" and is_sharded(parameter):
        return placed(value, parameter)
    return torch.empty_like(value if name == "step" else parameter, device="cpu").copy_(value)


def _check_position(state: Mapping[str, Any], plan: Plan) -> None:
    epoch, step, seconds = state["epoch"], state["step"], state["seconds"]
    check(_is_integer(epoch) and 0 <= epoch <= plan.spans, "epoch", f"an integer from 0 to {plan.spans}", epoch)
    first = plan.first_step(epoch)
    last = first if epoch == plan.spans else plan.first_step(epoch + 1)
    check(_is_integer(step) and first <= step <= last, "step", f"an integer from {first} to {last}", step)
    check(type(seconds) in (int, float) and 0 <= seconds < math.inf, "seconds", "a number of at least 0", seconds)


def _check_means(state: Mapping[str, Any], plan: Plan) -> None:
    """The running means of an epoch are sums over the examples that were taken in it."""
    epoch, taken = state["epoch"], state["step"] - plan.first_step(state["epoch"])
    examples = sum(map(len, plan.batches(epoch)[:taken])) if taken else 0
    check(_is_integer(state["count"]) and state["count"] == examples, "count", f"{examples}", state["count"])
    sums = state["sums"]
    check(isinstance(sums, dict) and ("loss" in sums) == (examples > 0), "sums", "the sums of an epoch", sums)
    for name, value in sums.items():
        fits = isinstance(name, str) and _is_plain(value, (), torch.float64)
        check(fits, f"sums[{name!r}]", "a float64 scalar", _described(value))
    check(not examples or bool(sums["loss"].isfinite()), "sums['loss']", "a finite number", sums.get("loss"))


def _check_optimizer(saved: Any, optimizer: torch.optim.Optimizer, step: int, keys: Sequence[str]) -> None:
    own = optimizer.state_dict()
    check(isinstance(saved, dict) and saved.keys() == own.keys(), "optimizer", "a state of an optimiser", _kind(saved))
    groups, entries = saved["param_groups"], saved["state"]
    ours, theirs = _optimizer_name(own["param_groups"]), _optimizer_name(groups)
    check(theirs in (ours, None), "optimizer", f"the state of {ours}, which optim.optimizer names", theirs)
    fits = isinstance(groups, list) and len(groups) == len(own["param_groups"])
    check(fits, "optimizer.param_groups", f"a list of {len(own['param_groups'])}", _kind(groups))
    for number, (group, expected) in enumerate(zip(groups, own["param_groups"], strict=True)):
        name = f"optimizer.param_groups[{number}]"
        check(isinstance(group, dict) and "params" in group, name, "a group of parameters", _kind(group))
        rate = group.get("lr")
        check(type(rate) is float and 0 <= rate < math.inf, f"{name}.lr", "a number of at least 0", rate)
        for key in keys:
            if (key in group and key in expected) or key == DECAY:
                before, now = group.get(key), expected.get(key)
                check(repr(before) == repr(now), f"{name}.{key}", f"{now!r}", before)
    check(isinstance(entries, dict), "optimizer.state", "a dict", _kind(entries))
    parameters = _parameters(optimizer)
    of_muon = {index for group in own["param_groups"] if "momentum" in group for index in group["params"]}
    averaged = any(DECAY in group for group in own["param_groups"]) and any(map(_has_average, entries.values()))
    for index, entry in entries.items():
        name = f"optimizer.state[{index!r}]"
        known = _is_integer(index) and 0 <= index < len(parameters)
        check(known, name, f"the number of one of {len(parameters)} parameters", index)
        kind, average = MEANS[index in of_muon], (AVERAGE,) * averaged
        _check_entry(entry, (*kind, *average), parameters[index], name, step)
    check(bool(entries) == (step > 0), "optimizer.state", f"that of step {step}", f"{len(entries)} parameters")


def _optimizer_name(groups: Any) -> str | None:
    """The value of ``optim.optimizer`` for groups of parameters; None if they do not say."""
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return None
    if any("momentum" in group for group in groups):
        return "muon"
    decoupled = [group.get("decoupled_weight_decay") for group in groups] or [None]
    return next((name for name, flag in (("adamw", True), ("adam", False)) if all(d is flag for d in decoupled)), None)


def _check_entry(entry: Any, expected: Sequence[str], parameter: Tensor, name: str, step: int) -> None:
    """State of one parameter: running means, and for Adam its own count of steps."""
    _check_names(entry, {*expected}, name)
    for key in expected:
        if key != "step":
            _check_mean(entry[key], parameter, f"{name}.{key}")
    if "step" in expected:
        count = entry["step"]
        check(_is_plain(count, (), torch.float32), f"{name}.step", "a float32 scalar", _described(count))
        taken = float(count.detach())
        check(taken == taken // 1 and 1 <= taken <= step, f"{name}.step", f"an integer from 1 to {step}", taken)
        squares = local(entry["exp_avg_sq"])
        check(bool((squares >= 0).all()), f"{name}.exp_avg_sq", "numbers of at least 0", "negative ones")


def _has_average(entry: Any) -> bool:
    return isinstance(entry, dict) and AVERAGE in entry  # where training goes on from a run without, it is yet to begin


def _check_names(entry: Any, expected: set[str], name: str) -> None:
    fits = isinstance(entry, dict) and entry.keys() == expected
    check(fits, name, f"the entries {', '.join(sorted(expected))}", list(entry) if isinstance(entry, dict) else entry)


def _check_mean(value: Any, parameter: Tensor, name: str) -> None:
    shape, dtype = tuple(parameter.shape), parameter.dtype
    fits = _is_plain(value, shape, dtype) or _is_part(value, parameter)
    check(fits, name, f"{dtype} {shape}", _described(value))
    check(bool(local(value).isfinite().all()), name, "finite numbers", "NaN or infinity")


def _check_random(saved: Any, device: torch.device) -> None:
    needed = {"cpu", "cuda"} if device.type == "cuda" else {"cpu"}
    fits = isinstance(saved, dict) and "cpu" in saved and saved.keys() <= {"cpu", "cuda"}
    check(fits, "random", f"the states of the generators of {', '.join(sorted(needed))}", _kind(saved))
    for name, value in saved.items():
        kind = f"the state of a random generator of the {name}"
        plain = isinstance(value, Tensor) and _is_plain(value, (value.numel(),), torch.uint8)
        check(plain, f"random[{name!r}]", kind, _described(value))
        if name not in needed:
            continue
        try:
            torch.Generator(device if name == "cuda" else "cpu").set_state(value.contiguous().clone())
        except RuntimeError as error:
            raise ValueError(f"random[{name!r}]: expected {kind}, got another one ({error})") from error


def _check_metrics(mark: Any) -> None:
    """Length and checksum of ``metrics.jsonl`` at the time of the checkpoint."""
    if mark is not None:
        fits = isinstance(mark, dict) and mark.keys() == {"bytes", "sha256"} and isinstance(mark["sha256"], str)
        check(fits and _is_integer(mark["bytes"]) and mark["bytes"] >= 0, "metrics", "a length and a checksum", mark)


def _check_measured(name: str, rows: Any, plan: Plan) -> None:
    """Rows of the spans after which sets were measured: texts, and numbers under them."""
    fits = isinstance(rows, list) and len(rows) <= plan.total_steps
    fits = fits and all(isinstance(row, dict) for row in rows)
    fits = fits and all(_is_integer(row.get(key)) for row in rows for key in (plan.unit, "step"))
    fits = fits and all(type(key) is str and type(row[key]) in (int, float) for row in rows for key in row)
    check(fits, name, f"rows of numbers, each with its {plan.unit} and step", _kind(rows))


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters by their numbers in a state dict."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_integer(value: object) -> bool:
    return type(value) is int


def _is_plain(value: object, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a value is a dense tensor in the memory of the CPU, of that shape and dtype."""
    return (
        type(value) is Tensor
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype == dtype
        and tuple(value.shape) == shape
    )


def _is_part(value: object, parameter: Tensor) -> bool:
    """Whether a value was read in parts, as the parameter has them."""
    return (
        isinstance(value, Tensor)
        and is_sharded(value)
        and is_sharded(parameter)
        and (value.shape, value.dtype, value.placements) == (parameter.shape, parameter.dtype, parameter.placements)  # pyright: ignore[reportAttributeAccessIssue]
        and value.device_mesh is parameter.device_mesh  # pyright: ignore[reportAttributeAccessIssue]
    )


def _described(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else _kind(value)


def _kind(value: object) -> str:
    return type(value).__name__
