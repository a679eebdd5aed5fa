"""The same training twice: by this library's own loop and by the Trainer of transformers.

A tiny DAT learns the documentation of Python, as with ``dat train language`` but on shorter sequences. Both trainings
have the same initial weights, sequences in the same order, AdamW, learning rates and clipping. In float64 their losses
have to agree at every step. In float32 rounding tells them apart; how far it may, is told by a control, our own loop
with the gradient of each step added up from two halves, which is another order of summation and nothing else. Then each
trained model continues a text by transformers' ``generate`` and by our own.

    pip install -c constraints.txt -e '.[train,hf]'
    python benchmarks/compare_trainer.py     # a few minutes
"""

import argparse
import datetime
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.utils.data import Dataset

from dat.checkpoints import open_checkpoint
from dat.estimate.units import dtype_name
from dat.experiments.language.config import LanguageConfig, LanguageDataConfig, LanguageMachineConfig
from dat.experiments.language.data import TextSequences
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.problem import PreparedText, prepare_text
from dat.training.configs import OutputConfig, StepLoopConfig
from dat.training.metrics import read_rows
from dat.training.optim import learning_rate
from dat.training.runs import start_run
from dat.training.seeding import derive_seed
from dual_attention._base.files import write_json
from dual_attention._base.plots import house_style, matplotlib_figure, save_figure
from dual_attention.generation import generate
from dual_attention.generation.tokenizer import Tokenizer
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM

RESULTS = Path(__file__).resolve().parents[1] / "studies" / "language" / "results"
CONTEXT = 96
PROMPT = "Return a list of "
NEW_TOKENS = 72
TOLERANCE = 1e-10
"""Of a step's loss in float64, which rounds to 1e-16; another batch, weight or learning rate is seen at once."""
OURS, CONTROL, TRAINER = "our loop", "our loop, gradients in two halves", "transformers' Trainer"


@dataclass(frozen=True)
class Training:
    """Results of a training.

    Attributes:
        losses: of the batch of each step, in nats.
        val_loss: of the text kept apart, after the last step.
        model: in evaluation mode.
    """

    losses: list[float]
    val_loss: float
    model: DualAttnForCausalLM


class Rows(Dataset):
    """Sequences as transformers takes them: the labels are the tokens themselves, which the model shifts.

    Args:
        count: how many; training goes on where a pass through the text ends, in a new order.
    """

    def __init__(self, sequences: TextSequences, count: int) -> None:
        self.sequences, self.count = sequences, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens, targets = self.sequences.batch(torch.tensor([index]))
        row = torch.cat([tokens[0], targets[0, -1:]])
        return {"input_ids": row, "labels": row}


class SameSchedule(transformers.Trainer):
    """The Trainer with the learning rates of our loop, whose warm-up has its first step above zero."""

    schedule: LanguageConfig

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        optim = self.schedule.optim
        chosen: Any = optimizer or self.optimizer
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            chosen, lambda step: learning_rate(optim, step, num_training_steps) / optim.lr
        )
        return self.lr_scheduler


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Floating-point tensors are made in this precision; then as before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def by_our_loop(config: LanguageConfig) -> Training:
    """Train as ``dat train language`` does, with a row of metrics for each step."""
    folder = start_run(LanguageModelling(), config)
    losses = [row["train_loss"] for row in read_rows(folder.metrics)]
    opened = open_checkpoint(folder.path)
    model = DualAttnForCausalLM(transformers_config(opened.config, opened.tokenizer()), opened.model)
    return Training(losses, folder.read_result()["loss"]["val"], model.eval())


def by_trainer(config: LanguageConfig) -> Training:
    """The same, by a script such as a user of transformers writes; the model is saved and loaded again."""
    folder = Path(config.output.folder)
    saved = folder / config.run_name
    prepared = prepare_text(config, cache=folder)  # for its text, and to compare its initial weights
    model = fresh_model(config, prepared)
    optim, loop = config.optim, config.loop
    arguments = transformers.TrainingArguments(
        output_dir=str(saved),
        max_steps=loop.steps,
        per_device_train_batch_size=loop.batch_size,
        per_device_eval_batch_size=loop.eval_batch_size,
        train_sampling_strategy="sequential",
        learning_rate=optim.lr,
        adam_beta1=optim.betas[0],
        adam_beta2=optim.betas[1],
        adam_epsilon=optim.eps,
        weight_decay=optim.weight_decay,
        max_grad_norm=optim.grad_clip or 0.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = SameSchedule(
        model,
        arguments,
        train_dataset=Rows(prepared.data.train, loop.steps * loop.batch_size),
        eval_dataset=Rows(prepared.data.val, len(prepared.data.val)),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.schedule = config
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    val_loss = trainer.evaluate()["eval_loss"]
    trainer.save_model(str(saved))
    again: Any = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.get_default_dtype())
    return Training(losses, val_loss, again)


def transformers_config(config: Any, tokenizer: Tokenizer) -> DualAttnConfig:
    """Rows that transformers shifts hold a token more than the sequences of our loop, and so does the context."""
    longer = replace(config, max_block_size=config.max_block_size + 1)
    return DualAttnConfig.from_language_config(longer, eos_token_id=tokenizer.end, pad_token_id=tokenizer.end)


def fresh_model(config: LanguageConfig, prepared: PreparedText) -> DualAttnForCausalLM:
    """The model for transformers, drawn from the seed as our loop draws it.

    Raises:
        RuntimeError: if its weights are not those of our loop to the bit.
    """
    torch.manual_seed(derive_seed(config.seed, "weights"))
    model = DualAttnForCausalLM(transformers_config(prepared.model_config, prepared.tokenizer))
    ours, theirs = prepared.problem.model.state_dict(), model.model.state_dict()
    if ours.keys() != theirs.keys() or not all(torch.equal(ours[name], theirs[name]) for name in ours):
        raise RuntimeError("the two models do not begin with the same weights")
    return model


def continuations(training: Training, tokenizer: Tokenizer) -> dict[str, str]:
    """Continuations of the prompt, by the likeliest tokens with both ways of generation, and by chance."""
    model: Any = training.model
    idx = torch.tensor([tokenizer.encode(PROMPT)])
    common: dict[str, Any] = {"max_new_tokens": NEW_TOKENS}
    ours = generate(model.model, idx, temperature=0, stop_tokens=tokenizer.end, **common)
    theirs = model.generate(idx, attention_mask=torch.ones_like(idx), do_sample=False, **common)
    drawn = generate(model.model, idx, temperature=0.8, seed=0, stop_tokens=tokenizer.end, **common)
    rows = {"our generate": ours, "transformers' generate": theirs, "drawn, temperature 0.8": drawn}
    return {name: tokenizer.decode_bytes(row[0].tolist()).decode(errors="replace") for name, row in rows.items()}


def compare(config: LanguageConfig, folder: Path, dtype: torch.dtype) -> tuple[dict[str, Training], dict[str, Any]]:
    """Train in each way in a precision.

    Args:
        folder: for the run folders, and for the tokens, which both precisions share.

    Returns:
        The trainings by name; and the numbers of the comparison, as JSON.

    Raises:
        FileExistsError: if the folder has such trainings already.
    """
    precision = dtype_name(dtype)

    def run(name: str, **loop: Any) -> LanguageConfig:
        output = replace(config.output, folder=str(folder), name=f"{name}-{precision}")
        return replace(config, loop=replace(config.loop, **loop), output=output)

    with default_dtype(dtype):
        trainings = {OURS: by_our_loop(run("loop")), TRAINER: by_trainer(run("trainer"))}
        tokenizer = open_checkpoint(folder / f"loop-{precision}").tokenizer()
        texts = {name: continuations(training, tokenizer) for name, training in trainings.items()}
        if dtype == torch.float32:
            trainings[CONTROL] = by_our_loop(run("control", micro_batch_size=-(-config.loop.batch_size // 2)))
    others = {name: training for name, training in trainings.items() if name != OURS}
    numbers: dict[str, Any] = {
        "losses": {name: ends(training) for name, training in trainings.items()},
        "differences": {name: difference(trainings[OURS], training) for name, training in others.items()},
        "texts": texts,
    }
    return trainings, numbers


def ends(training: Training) -> dict[str, float]:
    """Losses of the first step, of the last ten and of validation."""
    last = training.losses[-10:]
    return {"first step": training.losses[0], "last ten steps": sum(last) / len(last), "validation": training.val_loss}


def difference(ours: Training, other: Training) -> dict[str, float]:
    """Largest differences of losses and weights."""
    steps = differences(ours, other)
    weights = zip(ours.model.parameters(), other.model.parameters(), strict=True)
    return {
        "first step": steps[0],
        "first 50 steps": max(steps[:50]),
        "all steps": max(steps),
        "validation": abs(ours.val_loss - other.val_loss),
        "weights": max(float((a - b).detach().abs().max()) for a, b in weights),
    }


def differences(ours: Training, other: Training) -> list[float]:
    """Of the losses, step by step."""
    return [abs(a - b) for a, b in zip(ours.losses, other.losses, strict=True)]


def plot(trainings: dict[str, dict[str, Training]], path: Path) -> None:
    """Losses of both ways in float32; and how far the losses of a step are apart."""
    with house_style():
        figure, (left, right) = matplotlib_figure(1, 2, figsize=(9.5, 3.6))
        single = trainings["float32"]
        steps = range(1, len(single[OURS].losses) + 1)
        left.plot(steps, single[OURS].losses, color="#1f77b4", linewidth=3.5, alpha=0.5, label=OURS)
        left.plot(steps, single[TRAINER].losses, color="#d62728", linewidth=1, label=TRAINER)
        left.set(xlabel="step", ylabel="loss of the batch in nats", title="float32")
        left.legend()
        for name, dtype, colour in (
            (CONTROL, "float32", "#7f7f7f"),
            (TRAINER, "float32", "#d62728"),
            (TRAINER, "float64", "#9467bd"),
        ):
            apart = differences(trainings[dtype][OURS], trainings[dtype][name])
            points = [(step, value) for step, value in zip(steps, apart, strict=True) if value]  # no zero on this scale
            x, y = [step for step, _ in points], [value for _, value in points]
            right.plot(x, y, ".", color=colour, markersize=3, label=f"{name}, {dtype}")
        right.set(xlabel="step", ylabel="nats", yscale="log", title="difference from our loop, where there is one")
        figure.tight_layout()
        figure.legend(*right.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3)
        save_figure(figure, path, dpi=110)


def about(config: LanguageConfig, threads: int) -> dict[str, Any]:
    """On what, and when."""
    names = ("transformers", "accelerate")
    return {
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "threads": threads,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            **{name: importlib.metadata.version(name) for name in names},
        },
        "text": config.data.path or f"documentation of Python {platform.python_version()}",
        "seed": config.seed,
        "loop": {name: value for name, value in asdict(config.loop).items() if name in ("steps", "batch_size")},
        "model": asdict(config.model),
        "optim": asdict(config.optim),
    }


def agrees(numbers: dict[str, Any]) -> bool:
    """Whether float64 agrees at every step, and each model writes the same by both ways of generation."""
    exact = numbers["float64"]
    texts = [text for dtype in ("float32", "float64") for text in numbers[dtype]["texts"].values()]
    return (
        exact["differences"][TRAINER]["all steps"] < TOLERANCE
        and all(text["our generate"] == text["transformers' generate"] for text in texts)
        and exact["texts"][OURS] == exact["texts"][TRAINER]
    )


def show(numbers: dict[str, Any], dtype: str) -> None:
    """The comparison in one precision in words."""
    found = numbers[dtype]
    for name, losses in found["losses"].items():
        print(f"{dtype}, {name}: loss " + ", ".join(f"{key} {loss:.6f}" for key, loss in losses.items()))
    for name, apart in found["differences"].items():
        print(f"{dtype}, {name}, differs by: " + ", ".join(f"{key} {value:.1e}" for key, value in apart.items()))
    for name, texts in found["texts"].items():
        for way, text in texts.items():
            print(f"{dtype}, {name}, {way}: {text!r}")
    print(flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison and write it down; 1 if it disagrees."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="Optimiser steps of each training.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the weights and of the order of the sequences.")
    parser.add_argument("--path", nargs="+", help="Text; by default the documentation of Python.")
    parser.add_argument("--threads", type=int, help="CPU threads; by default PyTorch's choice.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="Folder for trainer.json and trainer.png.")
    options = parser.parse_args(arguments)
    config = LanguageConfig(
        seed=options.seed,
        data=LanguageDataConfig(path=None if options.path is None else tuple(options.path), val_tokens=8192),
        model=LanguageModelKeys(context=CONTEXT),
        loop=StepLoopConfig(
            steps=options.steps, batch_size=8, eval_batch_size=16, report_every=1, eval_every=0, checkpoint_every=0
        ),
        machine=LanguageMachineConfig(device="cpu", threads=options.threads),
        output=OutputConfig(tensorboard=False, progress=False),
    )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    trainings, numbers = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in (torch.float32, torch.float64):
            name = dtype_name(dtype)
            trainings[name], numbers[name] = compare(config, Path(folder), dtype)
            show(numbers, name)
    options.out.mkdir(parents=True, exist_ok=True)
    numbers["agrees"] = agrees(numbers)
    write_json(options.out / "trainer.json", {**about(config, torch.get_num_threads()), **numbers})
    plot(trainings, options.out / "trainer.png")
    print(f"{'they agree' if numbers['agrees'] else 'THEY DISAGREE'}: {options.out}/trainer.json, trainer.png")
    return int(not numbers["agrees"])


if __name__ == "__main__":
    raise SystemExit(main())
