"""``dat estimate``: what a model costs, by its preset, its configuration or its run."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from torch import nn

from dual_attention._base.checksums import check_checksums
from dual_attention._base.files import json_text, read_json
from dual_attention._base.words import listed, printable, suggestion
from dual_attention.language_presets import LANGUAGE_PRESETS

from ..checkpoints import empty_model_of_run
from ..description import told_inputs
from ..estimate.estimation import estimate as estimate_costs
from ..estimate.models import PLAIN, from_mapping
from ..estimate.parallel import Sharding, parallel_estimate
from ..estimate.result import Device, Estimate
from ..estimate.tracing import Implementation
from ..estimate.units import DTYPES, aligned, count, duration, flops
from ..experiments import experiment_named, experiment_of
from ..experiments.files import run_given, takes_file
from ..experiments.model_keys import named_by_keys
from ..training.config_data import read_mapping
from ..training.config_io import OptionParser, option_parser, parse_options, read_config
from ..training.configs import check_parts_given
from ..training.run_folder import RunFolder

LARGEST = 1_000_000_000
"""Examples, tokens of one, and devices."""
ESTIMATED = ("relational-games", "images", "mathematics", "language")
"""Experiments whose presets are known by name, beside those of language models."""
NEEDED = {
    **dict.fromkeys(("shard_size", "micro_batch"), ("shard",)),
    **dict.fromkeys(("tokens", "mfu"), ("rate",)),
    "devices": ("rate", "shard"),
}
"""Options that do nothing unless one of others is given."""
MODEL = "a preset; a YAML or JSON file with `model: CLASS` and its arguments; or the folder of a run or a checkpoint"


def estimate(prog: str, arguments: Sequence[str]) -> int:
    """``dat estimate``."""
    made = parser(prog)
    options = parse_options(made, arguments)
    if options.mfu > 1:
        raise ValueError(f"--mfu: expected a share in (0, 1], got {options.mfu}")
    check_together(options, made)
    run_given(options)
    name, model, told = find_model(options.model)
    own = options.batch if options.shard is None else options.batch // options.devices
    at_once = min(options.micro_batch or own, own)
    found = costs_of(model, name, at_once, options, told)
    shared = None
    if options.shard is not None:
        how = {"shard": options.shard, "devices": options.devices, "shard_size": options.shard_size}
        shared = parallel_estimate(model, found, passes=-(-own // at_once), **how)
    times = {} if options.rate is None else seconds(found, options)
    if options.json:
        parallel = {} if shared is None else {"parallel": shared.to_dict()}
        print(json_text({**found.to_dict(), **times, **parallel}, indent=2))
        return 0
    print(printable(str(found)))
    if shared is not None:
        print(f"\n{shared}")
    if times:
        print("\n".join(["", *aligned(times_in_words(times, options))]))
    return 0


def costs_of(model: nn.Module, name: str, batch: int, options: argparse.Namespace, told: Mapping[str, Any]) -> Estimate:
    """The estimate of a pass of so many sequences; what a configuration has ``told`` gives way to options."""
    same = ("length", "context_length", "dtype", "param_dtype", "device", "impl", "checkpointing")
    asked = {key: value for key in same if (value := getattr(options, key)) is not None}
    dtypes = {} if {"dtype", "param_dtype"}.isdisjoint(asked) else {"dtype": None, "param_dtype": None}
    given: dict[str, Any] = {**told, **dtypes, **asked}
    if "inputs" in told:
        given["inputs"] = tuple(x.new_empty(batch, *x.shape[1:], device="meta") for x in told["inputs"])
    given |= {"training": not options.inference, "fused_loss": False if options.all_logits else None}
    found = estimate_costs(model, name=name, batch=batch, **given)
    idle = {"context_length": not found.context_length, "length": "inputs" in told, "impl": type(model) in PLAIN}
    for key, value in asked.items():
        if idle.get(key) and value != "auto":
            raise ValueError(f"--{key}: expected none, as {name} makes no use of it, got {value}")
    return found


def check_together(options: argparse.Namespace, made: OptionParser) -> None:
    """Check the options together; ``ValueError`` naming one that another makes wrong or useless."""
    for name, others in NEEDED.items():
        if getattr(options, name) != made.get_default(name) and all(getattr(options, x) is None for x in others):
            raise ValueError(f"--{name}: needs --{' or --'.join(others)}")
    for name in ("shard", "checkpointing", "all_logits"):
        if options.inference and getattr(options, name):
            raise ValueError(f"--{name}: expected training, got --inference")
    if options.shard is None:
        return
    if options.batch % options.devices:
        raise ValueError(f"--batch: expected a multiple of the {options.devices} devices, got {options.batch}")
    if options.shard == "hsdp" and options.shard_size is None:
        raise ValueError("--shard hsdp: needs --shard_size, the devices that share one model")


def find_model(name: str) -> tuple[str, nn.Module, dict[str, Any]]:
    """The model that a preset, a file, or a folder with ``config.json`` or ``config.yaml`` names, with its name.

    Last come arguments of its estimate that its configuration tells.
    """
    if name in LANGUAGE_PRESETS:
        return name, LANGUAGE_PRESETS[name].build(device="meta"), {}
    experiments = [experiment_named(known) for known in ESTIMATED]
    for experiment in experiments:
        if name in experiment.presets:
            return name, experiment.empty_model(experiment.preset_config(name)), {}
    path = Path(name)
    files = (RunFolder.at(path)[0].config, path / "config.json")
    path = next((file for file in files if file.is_file()), path)
    if path.is_file():
        return read_model(path)
    if path.suffix in (".yaml", ".yml", ".json"):
        raise FileNotFoundError(f"{path}: no such file")
    known = (*LANGUAGE_PRESETS, *(preset for experiment in experiments for preset in experiment.presets))
    presets = list(dict.fromkeys(known))
    raise ValueError(
        f"MODEL: there is no file, folder or preset {name!r}{suggestion(name, presets)} (presets known by name: "
        f"{listed(presets)}, see dat train EXPERIMENT --help; those of other experiments by a run, "
        "or by a file that --print_config of dat train writes)"
    )


def read_model(path: Path) -> tuple[str, nn.Module, dict[str, Any]]:
    """The model that a configuration file describes, as :func:`find_model` returns it."""
    check_checksums(path.parent, [path.name])
    values = read_json(path) if path.suffix == ".json" else read_mapping(path)
    if not isinstance(values, Mapping):
        raise ValueError(f"{path}: expected a mapping, got {type(values).__name__}")
    try:
        return model_of(path, values)
    except (TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise ValueError(message if message.startswith(f"{path}: ") else f"{path}: {message}") from error


def model_of(path: Path, values: Mapping[str, Any]) -> tuple[str, nn.Module, dict[str, Any]]:
    """The model of a run's configuration, of one that transformers wrote, or of a class with its arguments."""
    if "model_type" in values:
        from dual_attention.hf.loading import model_from_config  # imports transformers

        model = model_from_config(values, source=str(path))[1]
        return type(model).__name__, model, {}
    if "experiment" not in values and not isinstance(values.get("model"), Mapping):
        return *from_mapping(values), {}
    experiment = experiment_of(values, path)
    config = named_by_keys(read_config(experiment.Config, path), experiment.presets)
    run, name = RunFolder(path.parent), getattr(getattr(config, "model", None), "name", experiment.name)
    told = told_inputs(experiment, config) | {"checkpointing": getattr(config.machine, "gradient_checkpointing", None)}
    if (precision := getattr(config.machine, "autocast", None)) is not None:
        told |= {"dtype": precision, "param_dtype": "float32"}
    if path != run.config:
        return name, experiment.empty_model(config), told
    check_parts_given(config, run.path)
    return name, empty_model_of_run(run, experiment, config, source=str(path))[1], told


def seconds(found: Estimate, options: argparse.Namespace) -> dict[str, float]:
    """Times at the rate asked for, of the whole batch."""
    tokens = options.batch * found.length
    times = {"step_seconds": found.time(options.rate, options.mfu, tokens=tokens, devices=options.devices)}
    times["tokens_per_second"] = tokens / times["step_seconds"]
    if options.tokens is not None:
        times["seconds"] = found.time(options.rate, options.mfu, tokens=options.tokens, devices=options.devices)
    return times


def times_in_words(times: Mapping[str, float], options: argparse.Namespace) -> list[tuple[str, str]]:
    """Times in words, by what they are of."""
    devices = "1 device" if options.devices == 1 else f"{options.devices} devices"
    at = f"at {options.mfu:.0%} of {flops(options.rate)}/s on {devices}"
    words = [("time of a batch", f"{duration(times['step_seconds'])} {at}, {times['tokens_per_second']:,.0f} tokens/s")]
    if "seconds" in times:
        words.append((f"time of {count(options.tokens)} tokens", duration(times["seconds"])))
    return words


def parser(prog: str) -> OptionParser:
    """The options of the command."""
    made = option_parser(
        prog=prog, description="Parameters, arithmetic, memory and time of a model, from a run on fake tensors."
    )
    add = made.add_argument
    add("model", metavar="MODEL", help=MODEL)
    add("--batch", type=integer, default=1, metavar="B", help="sequences or images (1)")
    add("--length", type=integer, metavar="N", help="tokens of a sequence (the model's context)")
    add("--context_length", type=integer, metavar="M", help="tokens of the source of an encoder-decoder model (N)")
    add("--dtype", choices=DTYPES, metavar="DTYPE", help="of products and activations (float32)")
    about = "of parameters, by default as --dtype; if the two differ, products run under autocast"
    add("--param_dtype", choices=DTYPES, metavar="DTYPE", help=about)
    kernels = "whose kernels run; some figures are approximate without a GPU"
    add("--device", choices=get_args(Device), default="cuda", help=kernels)
    add("--inference", action="store_true", help="a forward pass without gradients")
    add("--impl", choices=get_args(Implementation), default="auto", help="of relational attention")
    add("--checkpointing", action="store_true", default=None, help="blocks are computed again in the backward pass")
    add("--all_logits", action="store_true", help="the loss of a language model holds all logits")
    add("--rate", type=positive, metavar="FLOPS", help="operations a second of a device, such as 990e12: adds times")
    add("--mfu", type=positive, default=0.4, metavar="SHARE", help="share of that rate which is reached (0.4)")
    add("--tokens", type=positive, metavar="T", help="tokens to train on, such as 10e9")
    add("--devices", type=integer, default=1, metavar="D", help="devices that share the work (1)")
    ways = "ddp keeps a copy on each device, fsdp splits it over all devices, hsdp over groups of --shard_size devices"
    add(
        "--shard",
        choices=get_args(Sharding),
        metavar="WAY",
        help=f"how devices share the model in training: {ways}; adds memory and traffic of one device. The other "
        "figures are for one pass on one device, times for the whole batch on all",
    )
    add("--shard_size", type=integer, metavar="S", help="devices that share one copy of the model, with hsdp")
    add("--micro_batch", type=integer, metavar="B", help="sequences in one pass, with --shard (a device's share)")
    takes_file(made)
    add("--json", action="store_true", help="print JSON")
    return made


def integer(text: str) -> int:
    """A positive integer; ``1e3`` is one, too."""
    value = positive(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    if value > LARGEST:
        raise argparse.ArgumentTypeError(f"expected an integer from 1 to {LARGEST:,}, got {text!r}")
    return int(value)


def positive(text: str) -> float:
    """A positive number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return value
