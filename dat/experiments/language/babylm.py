"""The BabyLM comparison as a grid of language-model runs, with learned byte pairs and document masks."""

from dataclasses import dataclass, field
from typing import ClassVar

from ...sweeps.grid import AT_THEIR_END
from ...training.configs import StepLoopConfig
from .config import LanguageDataConfig, LanguageOptimConfig
from .experiment import LanguageModelling
from .grid import LanguageGrid


@dataclass(frozen=True)
class BabyLMGrid(LanguageGrid):
    """Small versions of the two models of arXiv 2609.20530 and of a Transformer, trained for a few minutes."""

    out: str = "runs/babylm-tiny"
    models: tuple[str, ...] = ("DAT-babylm-tiny", "DAT-babylm-tiny-rca", "T-babylm-tiny")
    steps: tuple[int, ...] = (150, 300)
    data: LanguageDataConfig = field(
        default_factory=lambda: LanguageDataConfig(
            tokenizer="bpe", bpe_vocab_size=2048, document_mask=True, val_tokens=16_384
        )
    )
    """Text."""
    optim: LanguageOptimConfig = field(default_factory=lambda: LanguageOptimConfig(lr=4e-3, warmup_steps=30))
    """Optimiser."""
    loop: StepLoopConfig = field(
        default_factory=lambda: StepLoopConfig(steps=300, batch_size=8, eval_batch_size=16, **AT_THEIR_END)
    )
    """Batch sizes. Cells are not evaluated before their end and write no checkpoints; loop.steps is not used."""


class BabyLM(LanguageModelling):
    """The comparison of arXiv 2609.20530; its runs are language models like any other."""

    name = "babylm"
    title = "BabyLM"
    about: ClassVar = {
        **LanguageModelling.about,
        "reproduce": "Perplexity of BabyLM's two Dual Attention Transformers beside a Transformer, in sizes for a "
        "laptop: learned byte pairs, documents that do not see each other. The defaults are 12 runs, some minutes "
        "(--dry_run says how long here), on the documentation of Python; --data.path takes a corpus.",
    }
    Grid = BabyLMGrid
    scales: ClassVar = {"tiny": BabyLMGrid()}
