"""The sub-commands of ``dat`` about training language models."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...language_presets import LANGUAGE_PRESETS
from ...training.config_io import as_options, build_parser, check_resume_alone, parse_config, replace_presets
from ...training.configs import MachineConfig
from ...training.interrupt import Interrupted
from ...training.run_folder import RunFolder
from .config import LanguageConfig
from .model_config import model_preset

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it."""


def train(prog: str, arguments: Sequence[str]) -> int:
    """``dat train language``."""
    from .train import resume_run, start_run

    parser = build_parser(
        LanguageConfig,
        prog=prog,
        description="Train a language model on text, in a new run folder. Without options: a tiny model on the "
        "documentation of Python, byte by byte, in a few minutes.",
    )
    parser.add_argument(
        "--preset", metavar="NAME", help=f"Fill the keys of the model with a named one: {', '.join(LANGUAGE_PRESETS)}."
    )
    parser.add_argument("--resume", metavar="RUN", help="Continue the unfinished run in this folder; given alone.")
    words = replace_presets(arguments, lambda name: as_options("--model", asdict(model_preset(name))))
    config, options = parse_config(parser, LanguageConfig, words)
    check_resume_alone(options.resume, arguments)
    path = Path(options.resume or Path(config.output.folder) / config.run_name)
    try:
        folder = resume_run(path) if options.resume is not None else start_run(config)
    except Interrupted:
        print(f"dat: interrupted; continue with: {prog} --resume {path}", file=sys.stderr)
        return INTERRUPTED
    if options.resume is not None or config.output.progress:
        show_run(folder)
    return 0


def show_run(folder: RunFolder) -> None:
    """Print the numbers of a finished run, where its files are, and how to hear from it."""
    result = folder.read_result()
    numbers = {key: result[key]["val"] for key in ("loss", "perplexity", "bits_per_byte")}
    print(f"{result['model']}, {result['tokens']:,} tokens: {described({**numbers, 'tokens': result['val_tokens']})}")
    print(
        f"{result['parameters']:,} parameters, {result['steps']:,} steps, {result['seconds']:.0f} s of training "
        f"({result['tokens_per_second']:,.0f} tokens a second)\nrun folder: {folder.path}\n"
        f'it continues a text:  dat generate {folder.path} "..."'
    )


def described(numbers: dict[str, Any]) -> str:
    """The numbers of a validation in words."""
    words = f"validation loss {numbers['loss']:.4f}, perplexity {numbers['perplexity']:.2f}"
    if numbers["bits_per_byte"] is not None:
        words += f", {numbers['bits_per_byte']:.3f} bits per byte"
    return f"{words} ({numbers['tokens']:,} tokens)"


def evaluate(run: str, machine: MachineConfig, *, as_json: bool) -> int:
    """``dat evaluate`` of a run of language modelling."""
    from .evaluate import evaluate_run

    results = evaluate_run(run, machine)
    print(json.dumps(results, indent=2) if as_json else described(results["val"]))
    return 0
