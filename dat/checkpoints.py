"""Opening trained models: a run folder, a folder in the hub's or transformers' format, or a name on the hub.

A run folder is one that ``dat train`` made; ``RUN/checkpoints/NAME`` is one of its checkpoints. A folder of the hub's
format holds ``config.json``, the arguments of the model's class, and ``model.safetensors``, its weights; so do the
repositories of the published models, such as ``awni00/DAT-sa8-ra8-ns1024-sh8-nkvh4-343M``. Those of transformers are
what ``save_pretrained`` of the classes of :mod:`dual_attention.hf` writes. Folders of ``babylm_dat_2026`` open, too.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dual_attention._base.checksums import CHECKSUMS
from dual_attention.checkpoints.files import ADAPTER, CONFIG, CheckpointFiles
from dual_attention.checkpoints.language import empty_language_model, language_config
from dual_attention.checkpoints.weights import filled
from dual_attention.generation.tokenizer import (
    FOLDER,
    TOKENIZER_JSON,
    BytePairTokenizer,
    ByteTokenizer,
    Tokenizer,
    load_tokenizer,
)
from dual_attention.language_models import LanguageModel

from .experiments import experiment_of_run
from .training.checkpoint import WEIGHTS
from .training.config_io import read_config
from .training.configs import check_parts_given, model_parts
from .training.experiment import Experiment
from .training.run_folder import RunFolder
from .training.saved_weights import load_by_name, weights_of_run, whose_weights

__all__ = ["Checkpoint", "open_checkpoint"]

CHECKPOINT = """Run folder or one of its checkpoints (RUN/checkpoints/NAME), folder that save_pretrained wrote (the \
hub's format, transformers', or an adapter's), or OWNER/NAME on the Hugging Face hub."""
"""The names that :func:`open_checkpoint` takes, in words."""

_GPT2_SIZES = (50257, 50304)  # as it is, and padded to a multiple of 128 as in the paper


@dataclass(frozen=True)
class Checkpoint:
    """A trained model, opened.

    Attributes:
        source: the name that the user gave.
        kind: of its folder: ``"<experiment> run"``, ``"hub format"``, ``"transformers format"``, ``"babylm
            format"`` or ``"adapter"``.
        config: the arguments of a language model's class, the configuration of a run of another experiment, or that
            of transformers for encoders and image classifiers.
        model: in evaluation mode, of this library.
        files: those of its weights.
        weights_dtype: of most of the floating-point tensors in them.
        state: of a run, for instance that it is not finished, or of its checkpoint; empty otherwise.
        checkpoint: the one of the run that was named, if it was.
        run: the folder of the run, if it is one.
    """

    source: str
    kind: str
    config: Any
    model: nn.Module
    files: tuple[Path, ...]
    weights_dtype: torch.dtype
    state: str = ""
    run: RunFolder | None = None
    checkpoint: Path | None = None

    @property
    def whose(self) -> str:
        """The line that says which weights of a run these are; empty if it is none."""
        return f"{self.source}: {whose_weights(self.run, self.checkpoint)}" if self.run else ""

    def tokenizer(self, name: str | None = None) -> Tokenizer:
        """The tokenizer of a language model.

        Args:
            name: ``"bytes"``, ``"gpt2"``, a ``tokenizer.json``, or a folder that holds one. By default that of the run
                or the folder, or else the one that the size of the vocabulary suggests.

        Raises:
            ValueError: if it is not known, has more tokens than the model, or is of another kind than that of the run.
            OSError: if it cannot be found.
        """
        tokenizer = self._tokenizer(name)
        if name is None and self.run is not None:
            trained = read_config(experiment_of_run(self.run).Config, self.run.config).data.tokenizer
            if tokenizer.kind != trained:
                raise ValueError(
                    f"tokenizer: {self.source} was trained with one of the kind {trained} (data.tokenizer in "
                    f"{self.run.config.name}), and has one of the kind {tokenizer.kind} now; restore it, or name it"
                )
        if tokenizer.vocab_size > self.config.vocab_size:
            raise ValueError(
                f"tokenizer: the {tokenizer.kind} tokenizer has {tokenizer.vocab_size} tokens, the model of "
                f"{self.source} {self.config.vocab_size}"
            )
        return tokenizer

    def _tokenizer(self, name: str | None) -> Tokenizer:
        if name is None:
            homes = [file.parent for file in self.files] if self.run is None else [self.run.path]
            for home in homes:  # of an adapter, then of the model that it is for
                if (home / FOLDER).is_dir():
                    return load_tokenizer(home / FOLDER)
                if (home / TOKENIZER_JSON).is_file():
                    return BytePairTokenizer.read(home)
            size = self.config.vocab_size
            names = {ByteTokenizer.vocab_size: "bytes", **dict.fromkeys(_GPT2_SIZES, "gpt2")}
            if size not in names:
                raise ValueError(
                    f"tokenizer: {self.source} does not say which tokenizer it was trained with, and its vocabulary "
                    f"of {size} is none that is known; name one: bytes, gpt2, or a folder"
                )
            name = names[size]
        if name == "bytes":
            return ByteTokenizer()
        if name == "gpt2":
            return BytePairTokenizer.find_gpt2(self.files[0].parent)
        for place in (Path(name), Path(name) / FOLDER):
            if (place / "about.json").is_file():
                return load_tokenizer(place)
        if any((Path(name) / file).is_file() for file in ("encoder.json", "vocab.json")):
            return BytePairTokenizer.find_gpt2(Path(name))
        if Path(name).suffix == ".json" or (Path(name) / TOKENIZER_JSON).is_file():
            return BytePairTokenizer.read(Path(name))
        raise ValueError(
            f"tokenizer: expected bytes, gpt2, a {TOKENIZER_JSON}, or a folder that holds a tokenizer, got {name!r}"
        )


def open_checkpoint(
    name: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    without_text: bool = False,
) -> Checkpoint:
    """Open a trained model by the folder, or the name on the hub, that it has.

    Args:
        without_text: open runs that train a language model on other tokens than those of a text, too.
        device: of the model; on ``"meta"`` its weights are compared with the model by name and shape, but not read.
        dtype: of the model's parameters; by default torch's default.

    Raises:
        FileNotFoundError: if there is nothing of that name, or no weights in it.
        TypeError, ValueError: if it is not a checkpoint of this library, if weights are missing, unexpected or
            misshapen, all of which the message names, or if they are a pickle that would run code.
        OSError: if it is on the hub and the hub cannot be reached.
        ImportError: if the extra ``hf`` is not installed, which the hub needs, and transformers' format of models that
            are not language models.
    """
    source = str(name)
    path = Path(os.path.expanduser(name))
    if path.is_file():
        if path.suffix in (".bin", ".ckpt", ".pkl", ".pt", ".pth"):
            raise ValueError(
                f"{source}: a pickle, which could run code when it is read, and does not say which model it is of; "
                f"name a folder with {CONFIG} and {WEIGHTS}"
            )
        beside = (RunFolder.at(path.parent)[0].config, path.parent / CONFIG, path.parent / ADAPTER)
        perhaps = f" ({path.parent}, perhaps)" if any(file.is_file() for file in beside) else ""
        raise ValueError(f"{source}: a file; name the folder of the checkpoint{perhaps}")
    run, checkpoint = RunFolder.at(path)
    if run.config.is_file() or (path / CHECKSUMS).exists():
        return _open_run(source, run, checkpoint, device, dtype, without_text)
    if path.is_dir() and not any((path / name).is_file() for name in (CONFIG, ADAPTER)):
        raise ValueError(f"{source}: not a checkpoint (it has neither config.yaml, as runs have, nor {CONFIG})")
    loaded = load_by_name(path if path.is_dir() else source, device=device, dtype=dtype)
    kind = loaded.format if loaded.format == "adapter" else f"{loaded.format} format"
    return Checkpoint(source, kind, loaded.config, loaded.model, loaded.files, loaded.dtype)


def _open_run(
    source: str,
    run: RunFolder,
    checkpoint: Path | None,
    device: torch.device | str,
    dtype: torch.dtype | None,
    without_text: bool,
) -> Checkpoint:
    experiment = experiment_of_run(run)
    run.check_beginning()
    settings = read_config(experiment.Config, run.config)
    check_parts_given(settings, run.path)
    weights, state = weights_of_run(run, checkpoint, meta=torch.device(device).type == "meta")
    config, model = empty_model_of_run(run, experiment, settings, source=source, dtype=dtype)
    if isinstance(model, LanguageModel) and not (run.path / CONFIG).is_file():
        if experiment.name == "language":
            raise FileNotFoundError(f"{run.path / CONFIG}: missing, though a run of a language model has one")
        if not without_text:
            raise ValueError(
                f"{source}: a run of {experiment.name}, no language model; dat evaluate, dat estimate and dat "
                "export take it"
            )
    filled(model, weights, source=str(weights.files[0]), device=device)
    kind = f"{experiment.name.replace('-', ' ')} run"
    return Checkpoint(source, kind, config, model.eval(), weights.files, weights.dtype, state, run, checkpoint)


def empty_model_of_run(
    run: RunFolder, experiment: Experiment, settings: Any, *, source: str, dtype: torch.dtype | None = None
) -> tuple[Any, nn.Module]:
    """The model of a run on the meta device, with its configuration as :class:`Checkpoint` has it.

    Args:
        settings: the run's ``config.yaml``, read.
        source: of it, for errors.
        dtype: of the model's parameters; by default torch's default.
    """
    if not (run.path / CONFIG).is_file():
        return settings, experiment.model_of_run(settings, run.path).to(dtype)
    # the arguments of a language model, which know the size of its vocabulary
    config = language_config(CheckpointFiles(run.path).config(), source=source)
    if model_parts(settings):
        config = settings.model.language_config(config.vocab_size)
    return config, empty_language_model(config, source=source, dtype=dtype)
