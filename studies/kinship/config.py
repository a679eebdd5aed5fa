"""Configuration of runs on family relations, and of grids of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from dat.experiments.language.config import LanguageOptimConfig
from dat.experiments.model_keys import LONGEST
from dat.experiments.sequences.config import LengthGrid, LengthSets, SequencesConfig, adamw, in_batches
from dat.experiments.sequences.model import SequenceModelKeys
from dat.training.configs import StepLoopConfig, check, check_integers, check_seed
from dat.training.problem import Batch
from dual_attention._base.digests import stream_seed
from dual_attention.configs import AttentionConfig
from studies.kinship.data import FIRST_NAME, FIRST_WORD, LONGEST_CHAIN, draw_stories

TaskName = Literal["in-order", "shuffled"]
TASKS: tuple[TaskName, ...] = ("in-order", "shuffled")
MOST_NAMES = 10_000
MOST_NOISE = 100


@dataclass(frozen=True, kw_only=True)
class KinshipModelKeys(SequenceModelKeys):
    """A causal Dual Attention Transformer, or a Transformer, of four blocks."""

    n_layers: int = 4
    relative_positions: int | None = None
    """Largest relative position in the keys and values of sensory heads, as of Shaw et al. 2018 (arXiv 1803.02155);
    beyond it they share one vector. null gives none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "model", "relative_positions", most=LONGEST)

    @property
    def sa_kwargs(self) -> AttentionConfig:
        reach = self.relative_positions
        given = {} if reach is None else {"shaw_max_rel_pos": reach, "shaw_values": True}
        return AttentionConfig(**{**super().sa_kwargs, **given})


TRANSFORMER = KinshipModelKeys(name="T", n_heads_sa=2, n_heads_ra=0, dff=300)
SYMBOLIC = KinshipModelKeys(name="DAT-symbolic", dff=268)
PRESETS = {
    model.name: model
    for model in (
        TRANSFORMER,
        replace(TRANSFORMER, name="T-positions", dff=284, pos_enc_type="pos_emb"),
        replace(TRANSFORMER, name="T-relative", dff=284, pos_enc_type="none", relative_positions=16),
        replace(TRANSFORMER, name="T-none", pos_enc_type="none"),
        replace(TRANSFORMER, name="T-gate", dff=268, output_gate="identity"),
        SYMBOLIC,
        replace(SYMBOLIC, name="DAT-symbolic-sym", dff=284, symmetric_rels=True),
        replace(SYMBOLIC, name="DAT-relative", dff=272, symbols="position_relative"),
        replace(SYMBOLIC, name="RCA", dff=301, ra_type="rca"),
        replace(SYMBOLIC, name="DAT-none", pos_enc_type="none"),
    )
}
"""Width 64, four blocks, two heads. Positions are rotary, or learned and added to tokens (T-positions), or of Shaw et
al. in sensory heads (T-relative), or none. T-gate has a linear output gate. Feed-forward widths make them equal in
trained parameters to 1 %."""


@dataclass(frozen=True)
class KinshipSets(LengthSets):
    """Stories that are measured, and names and noise."""

    lengths: tuple[int, ...] = (3, 4, 5, 6, 7, 8, 9, 10)
    """Lengths of the chains of test stories, which are evaluated after training."""
    shortest: int = 2
    """Shortest chain that is trained on."""
    noise: int = 1
    """Facts beside the chain that do not matter."""
    more_noise: int = 6
    """The same in the test set noise, whose chains are as long as in training."""
    names: int = 40
    """Names that are trained on."""
    new_names: int = 20
    """Names in the test set names, which are not trained on; its chains are as long as in training."""
    blind: bool = False
    """Tell all relations as one. What is then above chance has not been told by them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(max(self.lengths) <= LONGEST_CHAIN, "data.lengths", f"at most {LONGEST_CHAIN}", self.lengths)
        check_integers(self, "data", "names", "new_names", most=MOST_NAMES)
        check_integers(self, "data", "noise", "more_noise", least=0, most=MOST_NOISE)


@dataclass(frozen=True)
class KinshipDataConfig(KinshipSets):
    """The stories of a run; every step of training has stories of its own."""

    longest: int = 4
    """Longest chain that is trained on; all from data.shortest to this are, equally often."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "longest", most=LONGEST_CHAIN)
        check_integers(self, "data", "shortest", most=self.longest)
        for key, longest, noise, names in (
            ("longest", self.longest, self.noise, "names"),
            ("lengths", max(self.lengths), self.noise, "names"),
            ("more_noise", self.longest, self.more_noise, "names"),
            ("new_names", self.longest, self.noise, "new_names"),
        ):
            there, needed = getattr(self, names), longest + 1 + noise
            expected = (
                f"no more persons than data.{names}={there}, needs {needed} for {longest} relations and {noise} of"
            )
            check(needed <= there, f"data.{key}", f"{expected} noise", getattr(self, key))


@dataclass(frozen=True, kw_only=True)
class KinshipConfig(SequencesConfig):
    """One run: train a causal model on short chains of relations, and measure it on longer ones and on new names."""

    experiment: str = "kinship"
    """Experiment of the run."""
    task: TaskName = "shuffled"
    """Order of the facts: along the chain, with noise between them, or shuffled."""
    data: KinshipDataConfig = field(default_factory=KinshipDataConfig)
    """Stories."""
    model: KinshipModelKeys = SYMBOLIC
    """Model; --preset NAME fills these keys."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(2e-3))
    """Optimiser."""
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(2000, 250, eval_every=200, checkpoint_every=500))
    """Length of training in steps, evaluation and checkpoints."""

    def __post_init__(self) -> None:
        check_seed(self)
        self.model.check_length(self.length)

    @property
    def size(self) -> int:
        return self.data.longest

    @property
    def vocab_size(self) -> int:
        return FIRST_NAME + self.data.names + self.data.new_names

    @property
    def sets(self) -> Mapping[str, tuple[int, int, int]]:
        data = self.data
        trained = data.shortest, data.longest
        by_length = {str(length): (data.n_test, length, length) for length in data.lengths}
        others = {name: (data.n_test, *trained) for name in ("names", "noise")}
        return {"train": (0, *trained), "val": (data.n_val, *trained), **by_length, **others}

    def noise_of(self, name: str) -> int:
        """Facts of noise in a set."""
        return self.data.more_noise if name == "noise" else self.data.noise

    @property
    def trained_length(self) -> int:
        return 3 * (self.data.longest + self.data.noise) + 3

    @property
    def length(self) -> int:
        return max(3 * (size + self.noise_of(name)) + 3 for name, (_, _, size) in self.sets.items())

    def draw(self, name: str, n: int, seed: int) -> Batch:
        """Stories of a set: tokens, targets and sources of sequences, and the answers of the untrained rule."""
        (_, shortest, longest), noise, data = self.sets[name], self.noise_of(name), self.data
        sequences, guesses = draw_stories(
            n,
            shortest=shortest,
            longest=longest,
            noise=noise,
            names=(data.names, data.new_names) if name == "names" else (0, data.names),
            shuffled=self.task == "shuffled",
            length=3 * (longest + noise) + 3,
            generator=torch.Generator().manual_seed(stream_seed("kinship", name, seed)),
        )
        if data.blind:
            told = (sequences.tokens >= FIRST_WORD) & (sequences.tokens < FIRST_NAME)
            sequences.tokens.masked_fill_(told, FIRST_WORD)
        return *sequences, guesses

    @property
    def run_name(self) -> str:
        blind, data = "-blind" if self.data.blind else "", self.data
        name = f"kinship-{self.task}-to-{data.longest}{blind}-{self.model.folder_name}-seed{self.seed}"
        return self.output.name or name


@dataclass(frozen=True)
class KinshipGrid(LengthGrid):
    """Every model on stories in both orders, from several seeds."""

    out: str = "runs/reproduce-kinship"
    tasks: tuple[TaskName, ...] = ("shuffled",)
    """Orders of the facts."""
    longest: tuple[int, ...] = (4,)
    models: tuple[str, ...] = tuple(PRESETS)
    data: KinshipSets = field(default_factory=KinshipSets)
    """Stories."""
    optim: LanguageOptimConfig = field(default_factory=lambda: adamw(2e-3))
    loop: StepLoopConfig = field(default_factory=lambda: in_batches(2000, 250, eval_every=0, checkpoint_every=0))

    presets = PRESETS
    run = KinshipConfig
    run_data = KinshipDataConfig
    known = TASKS
