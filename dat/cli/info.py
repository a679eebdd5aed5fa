"""``dat info``: a trained model, from its configuration and the names and shapes of its weights only."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dual_attention._base.files import json_text
from dual_attention._base.words import printable

from ..checkpoints import CHECKPOINT, open_checkpoint
from ..description import PARAMETERS, describe, sections_of
from ..estimate.units import DTYPES, aligned
from ..experiments.files import run_given, takes_file
from ..training.config_io import option_parser, parse_options

DTypeName = Literal["float32", "bfloat16", "float16", "float64"]


def report(found: Mapping[str, Any]) -> str:
    """The description in lines for a terminal."""
    state = f" ({found['state']})" if found["state"] else ""
    lines = [f"{found['checkpoint']}: {found['model']}, {found['kind']}{state}"]
    for heading, rows in sections_of(found).items():
        columns = aligned(rows, right=[1] if heading == PARAMETERS else [])
        lines += ["", heading, *(f"  {row}" for row in columns)]
    return "\n".join(lines)


def info(prog: str, arguments: Sequence[str]) -> int:
    """``dat info``."""
    parser = option_parser(
        prog=prog,
        description="Say what a trained model is: its configuration, parameters by part, and estimates of memory and "
        "arithmetic (`dat estimate` takes other sizes). Its weights are not read, only their names and shapes, which "
        "are checked.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT)
    takes_file(parser)
    parser.add_argument("--dtype", type=DTypeName, help="Of inference; by default that of the weights.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    options = parse_options(parser, arguments)
    run_given(options)
    checkpoint = open_checkpoint(options.checkpoint, device="meta")
    found = describe(checkpoint, DTYPES[options.dtype] if options.dtype else checkpoint.weights_dtype)
    print(json_text(found, indent=2) if options.json else printable(report(found)))
    return 0
