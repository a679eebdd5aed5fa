"""Configuration of a run on mathematics; what it leaves open is the paper's optimiser (section 4.2)."""

from dataclasses import dataclass, field, replace
from typing import Literal

from ...data.mathematics import LEVELS, Module
from ...training.configs import (
    MOST_EXAMPLES,
    LoopConfig,
    OptimConfig,
    OutputConfig,
    PrecisionMachineConfig,
    check,
    check_integers,
    check_seed,
)
from .model_keys import PRESETS, MathematicsModelKeys

MOST_BEAMS = 1024


@dataclass(frozen=True)
class QuestionsConfig:
    """The questions: made by DeepMind's generator, or those of the official files."""

    n_train: int = 3000
    """Training questions, equal shares of easy, medium and hard ones; the official files have 1,999,998. Those that are
    in another set, too, are left out."""
    n_val: int = 600
    """Validation questions, drawn like the training questions and evaluated during training; 0 evaluates the
    interpolation questions instead."""
    n_test: int = 1000
    """Test questions for interpolation, and as many for extrapolation. The official files have 10,000 for
    interpolation, and none for extrapolation in the five modules."""
    n_answered: int = 200
    """Questions of each set that are answered freely at the end, greedily and by beam search."""
    beams: int = 4
    """Hypotheses of that beam search."""
    padding: Literal["masked", "attended"] = "masked"
    """Padding of questions: masked, and no longer than the longest of a batch, which saves most of the time; or
    attended to like any character, up to 161 positions, as in the paper's models."""
    seed: int = 0
    """Seed of generated questions, which runs with other seeds share."""
    official_folder: str | None = None
    """Folder of the official files, with train-easy/ and so on in it; null generates questions, once for all runs
    beside each other (the extra "mathematics")."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_train", least=len(LEVELS), most=MOST_EXAMPLES)
        check_integers(self, "data", "n_val", least=0, most=MOST_EXAMPLES)
        check_integers(self, "data", "n_test", "n_answered", most=MOST_EXAMPLES)
        check_integers(self, "data", "beams", least=2, most=MOST_BEAMS)
        check_seed(self, "data")
        check(self.official_folder != "", "data.official_folder", "a folder or null", self.official_folder)

    @property
    def n_evaluated(self) -> int:
        """Questions that are not trained on."""
        return self.n_val + 2 * self.n_test


def paper_optim() -> OptimConfig:
    """Adam at a constant rate."""
    return OptimConfig(lr=6e-4, betas=(0.9, 0.995))


def tiny_optim() -> OptimConfig:
    """The same at a higher rate, for tiny models and few steps."""
    return replace(paper_optim(), lr=2e-3)


@dataclass(frozen=True)
class MathematicsConfig:
    """One run: train a model on one module and measure it on questions within and beyond what it was trained on."""

    experiment: Literal["mathematics"] = "mathematics"
    """Experiment of the run."""
    seed: int = 0
    """Seed of the run; initial weights, order of the questions and dropout derive from it."""
    module: Module = "algebra__linear_1d"
    """Module: the kind of questions."""
    data: QuestionsConfig = field(default_factory=QuestionsConfig)
    """Questions."""
    model: MathematicsModelKeys = field(default_factory=lambda: PRESETS["DAT-tiny"])
    """Model; --preset NAME fills these keys with one of the paper's models."""
    optim: OptimConfig = field(default_factory=tiny_optim)
    """Optimiser."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(epochs=10, batch_size=64, eval_batch_size=500, eval_every=1)
    )
    """Length of training, batch sizes, evaluation and checkpoints."""
    machine: PrecisionMachineConfig = field(default_factory=PrecisionMachineConfig)
    """Device, threads and precision."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        task = self.module.rpartition("__")[2]
        return self.output.name or f"mathematics-{task}-{self.model.folder_name}-n{self.data.n_train}-seed{self.seed}"
