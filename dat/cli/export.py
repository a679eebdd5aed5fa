"""``dat export``: a trained model as a folder for transformers, or of the hub's format."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dual_attention._base.extras import require
from dual_attention._base.files import folder_made_atomically
from dual_attention._base.words import printable
from dual_attention.generation.tokenizer import write_tokenizer_json
from dual_attention.language_models import LanguageModel
from dual_attention.language_presets import LanguageModelConfig
from dual_attention.parts import own_parts

from .._terminal import tell
from ..checkpoints import CHECKPOINT, Checkpoint, open_checkpoint
from ..estimate.units import DTYPES
from ..experiments import experiment_of_run
from ..experiments.files import run_given, takes_file
from ..training.config_io import option_parser, parse_options
from ..training.configs import check

SIZE = re.compile(r"[1-9]\d*[KMGT]i?B")
"""Sizes of files, as transformers reads them."""


def export(prog: str, arguments: Sequence[str]) -> int:
    """``dat export``."""
    parser = option_parser(
        prog=prog,
        description="Write a trained model into a new folder for transformers, whose Auto classes and pipelines load "
        "it after `import dual_attention.hf`: a language model with its tokenizer, also in the format of the published "
        "models on the hub; a model of images, with how they are normalised; a model of sequences.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT)
    takes_file(parser)
    parser.add_argument("--to", type=Literal["transformers", "hub"], default="transformers", help="Format.")
    parser.add_argument("--out", type=str, required=True, metavar="FOLDER", help="New folder; nothing is overwritten.")
    parser.add_argument("--tokenizer", type=str, help="As of `dat generate`; by default that of the checkpoint.")
    dtypes = Literal["float32", "bfloat16", "float16"]
    parser.add_argument("--dtype", type=dtypes, default="float32", help="Of the weights.")
    parser.add_argument(
        "--max_shard_size",
        type=str,
        metavar="SIZE",
        help="Most bytes of a file of weights, such as 5GB: larger models have several and an index. By default that "
        "of transformers; the format of the hub has one file.",
    )
    options = parse_options(parser, arguments)
    run_given(options)
    if options.max_shard_size is not None:
        check(options.to == "transformers", "--max_shard_size", "--to transformers", f"--to {options.to}")
        fits = SIZE.fullmatch(options.max_shard_size) is not None
        check(fits, "--max_shard_size", "a size such as 5GB", options.max_shard_size)
    out = Path(options.out)
    if out.exists():
        raise FileExistsError(f"--out: {out} exists already and is not overwritten")
    checkpoint = open_checkpoint(options.checkpoint, dtype=DTYPES[options.dtype], without_text=True)
    write_export(checkpoint, out, to=options.to, tokenizer=options.tokenizer, max_shard_size=options.max_shard_size)
    if checkpoint.run is not None:
        tell(checkpoint.whose)
    print(printable(str(out)))
    return 0


def write_export(
    checkpoint: Checkpoint,
    out: Path,
    *,
    to: Literal["transformers", "hub"],
    tokenizer: str | None = None,
    max_shard_size: str | None = None,
) -> None:
    """Write a model, and what makes its inputs, into a folder, which appears when all is written.

    Args:
        tokenizer: see :meth:`~dat.checkpoints.Checkpoint.tokenizer`.
        max_shard_size: most bytes of a file of weights for transformers, ``"5GB"``; None: what that does by itself.

    Raises:
        ValueError: if there is no such form of the model, or its tokenizer is not known.
        OSError: if the folder is there, or cannot be written, for instance to a full disk.
    """
    require("huggingface_hub", extra="hf")
    saving: dict[str, Any] = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
    model: Any = checkpoint.model
    if own_parts(model):
        raise ValueError(f"{checkpoint.source}: a model with parts of your own has no form but that of a run folder")
    if isinstance(model, LanguageModel) and isinstance(checkpoint.config, LanguageModelConfig):
        _write_language_model(checkpoint, model, out, to, tokenizer, saving)
        return
    if checkpoint.run is None:
        raise ValueError(f"{checkpoint.source}: is in the format of transformers already")
    experiment = experiment_of_run(checkpoint.run)
    check(to == "transformers", "--to", f"transformers for a run of {experiment.name}", to)
    check(tokenizer is None, "--tokenizer", f"none for a run of {experiment.name}", tokenizer)
    with folder_made_atomically(out) as folder:
        experiment.export(checkpoint.config, model, folder, **saving)


def _write_language_model(
    checkpoint: Checkpoint, model: LanguageModel, out: Path, to: str, tokenizer: str | None, saving: dict[str, Any]
) -> None:
    found = checkpoint.tokenizer(tokenizer)
    from dual_attention.hf.convert import to_hub, to_transformers

    with folder_made_atomically(out) as folder:
        if to == "hub":
            to_hub(model, checkpoint.config).save_pretrained(folder)
        else:
            tokens = {"bos_token_id": found.begin, "eos_token_id": found.end, "pad_token_id": found.end}
            to_transformers(model, checkpoint.config, **tokens).save_pretrained(folder, **saving)
        write_tokenizer_json(found, folder, context=model.block_size)
