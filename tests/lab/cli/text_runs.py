"""A training of a language model on a short text, as a command, and what comes of it."""

import re
from pathlib import Path

from dat._native import ENABLED
from dat.training.metrics import read_rows
from tests.support.processes import Ended

TEXT = "".join(f"{i} times {i} is {i * i}. Ünïcödé is text, too.\n" for i in range(80))
OPTIONS = {
    "data.path": "text.txt",
    "data.val_tokens": 160,
    "model.context": 16,
    "model.d_model": 16,
    "model.n_layers": 2,
    "model.symbol_heads": 2,
    "model.dropout_rate": 0.0,
    "optim.lr": 0.01,
    "optim.warmup_steps": 2,
    "loop.steps": 8,
    "loop.batch_size": 4,
    "loop.eval_batch_size": 4,
    "loop.report_every": 1,
    "loop.eval_every": 4,
    "loop.checkpoint_every": 3,
    "machine.device": "cpu",
    "machine.threads": 1,
    "output.tensorboard": "false",
    "output.name": "run",
}
RESUME = ["train", "language", "--resume", "runs/run"]


def words(**changes: object) -> list[str]:
    options = {**OPTIONS, **{name.replace("__", "."): value for name, value in changes.items()}}
    return ["train", "language", *(f"--{name}={value}" for name, value in options.items() if value is not None)]


def losses(run: Path) -> list[float]:
    return [row["train_loss"] for row in read_rows(run / "metrics.jsonl")]


def one_line(ended: list[Ended]) -> str:
    """The only error that failed processes have printed; they may have said what they read."""
    printed = [line for process in ended for line in process.out.splitlines()]
    assert all(process.status == 2 for process in ended) and all(re.match("(text|tokens): ", line) for line in printed)
    lines = [line for process in ended for line in process.err.splitlines()]
    lines = [line for line in lines if not line.startswith(("[W", "[rank", "[Gloo", f"dat: {ENABLED}"))]  # no error
    assert len(lines) == 1, lines
    return lines[0]
