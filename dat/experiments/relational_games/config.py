"""Configuration of a run on Relational Games."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import nn

from dual_attention.configs import Pool, RelationInit, SymbolConfig, SymbolRetrieval

from ...training.config_data import PartName
from ...training.configs import (
    MOST_EXAMPLES,
    LoopConfig,
    MachineConfig,
    OptimConfig,
    OutputConfig,
    check,
    check_integers,
    check_seed,
)
from ...training.seeding import derive_seed
from ..model_keys import ActivationName, VisionModelKeys
from .baseline_config import (
    BASELINE_CONFIGS,
    AbstractorConfig,
    BaselineConfig,
    CoRelNetConfig,
    ESBNConfig,
    PrediNetConfig,
)

Task = Literal["same", "occurs", "xoccurs", "between", "match_pattern", "left_of", "colour_and_or_shape"]
TASK_NAMES: tuple[Task, ...] = ("same", "occurs", "xoccurs", "between", "match_pattern")
"""The five tasks of the paper."""

IMAGE_SHAPE = (3, 36, 36)
"""Channels, width and height of every image."""

EPOCHS = 100
"""Passes through the training set that fit the published runs; the paper says 50. How they were settled:
studies/relational_games/PROTOCOL.md."""


@dataclass(frozen=True)
class GridData:
    """Images of every cell of a grid."""

    n_val: int = 1000
    """Validation images (pentominoes); in a grid they are measured once, after training."""
    n_test: int = 10000
    """Test images (pentominoes)."""
    n_heldout: int = 5000
    """Images of each held-out object set, hexominoes and stripes, in generated data; official files are used whole."""
    official_folder: str | None = None
    """Folder with the official npz files; null generates the images."""
    independent_share: float | None = None
    """Share of independent draws among the non-matching objects of same, occurs and xoccurs, the others being near
    misses; null takes the task's own, 0 for same and 1/2 for the others."""

    gone: ClassVar[Mapping[str, Any]] = {"canvas": None}
    """Key of images without a grid."""

    def __post_init__(self) -> None:
        check_integers(self, "data", "n_val", "n_test", "n_heldout", most=MOST_EXAMPLES)
        share, official = self.independent_share, self.official_folder
        expected = "null with data.official_folder" if official else "null or a number between 0 and 1"
        fits = share is None or (official is None and 0 <= share <= 1)
        check(fits, "data.independent_share", expected, share)


@dataclass(frozen=True)
class GamesDataConfig(GridData):
    """The images: generated from a seed, or taken from the official files."""

    n_train: int = 1000
    """Training images (pentominoes)."""
    n_val: int = 5000
    n_heldout: int = 10000
    seed: int | None = None
    """Seed of the images and of their split; null takes the seed of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "data", "n_train", most=MOST_EXAMPLES)
        check_seed(self, "data")

    @property
    def n_images(self) -> int:
        """Images of a run in all."""
        return self.n_train + self.n_val + self.n_test + 2 * self.n_heldout


@dataclass(frozen=True, kw_only=True)
class GamesModelConfig(VisionModelKeys):
    """A Dual Attention Transformer over image patches, a Transformer when it has no relational heads, or one of the
    relational architectures before it."""

    name: str = "dat-0+2-sym"
    architecture: Literal["dat", "abstractor", "predinet", "corelnet", "esbn"] = "dat"
    """Architecture; each but dat has a group of keys of that name. Beside it, an Abstractor uses d_model, n_layers,
    dff, dropout_rate, activation, norm_first, norm_type, bias, patch_size and the keys about symbols; the others
    use d_model and patch_size only."""
    d_model: int = 128
    dff: int | None = 256
    activation: ActivationName = "swiglu"
    dropout_rate: float = 0.1
    pool: Pool = "mean"
    patch_size: tuple[int, int] = (12, 12)
    n_relations: int | None = 2
    rel_proj_dim: int | None = 64
    symmetric_rels: bool = True
    wr_init: RelationInit = "large"
    symbols: SymbolRetrieval | PartName = "positional_symbols"
    """Symbol mechanism: one symbol a position, a library read by attention, one a relative position (along the row of
    tokens or in the grid), or a library read by how a token compares with its neighbours (rel_sym_attn)."""
    n_symbols: int = 9
    symbol_heads: int = 4
    """Heads of symbolic_attention; in rel_sym_attn also the relations with each neighbour."""
    symbol_neighbours: int = 2
    """Neighbours on each side, along the row of tokens, that rel_sym_attn compares a token with."""
    abstractor: AbstractorConfig | None = None
    """Keys of an Abstractor; null otherwise."""
    predinet: PrediNetConfig | None = None
    """Keys of a PrediNet; null otherwise."""
    corelnet: CoRelNetConfig | None = None
    """Keys of a CoRelNet; null otherwise."""
    esbn: ESBNConfig | None = None
    """Keys of an ESBN; null otherwise."""

    gone: ClassVar[Mapping[str, Any]] = {
        "toolbox": None,
        "front_end": "patches",
        "slots": None,
        "slot_abstractor": None,
        "ocra": None,
    }
    """Keys of heads that only studies have, studies/relational_games/toolbox.py, and of models over slots."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integers(self, "model", "symbol_neighbours")
        for name, kind in BASELINE_CONFIGS.items():
            group = getattr(self, name)
            if name != self.architecture:
                check(group is None, f"model.{name}", f"null with model.architecture={self.architecture}", group)
            elif group is None:
                object.__setattr__(self, name, kind())
        if self.abstractor is not None:
            heads = self.abstractor.n_heads
            check(self.d_model % heads == 0, "model.d_model", f"a multiple of the {heads} heads", self.d_model)
            fits = not self.symbols.startswith("position_relative")
            check(fits, "model.symbols", "symbols that are not relative to positions in an Abstractor", self.symbols)

    def check_heads(self) -> None:
        if self.architecture == "dat":
            super().check_heads()

    def finished(self, model: nn.Module) -> nn.Module:
        """A DAT or Transformer that was built; a subclass, such as a study's, may put other heads into it."""
        return model

    @property
    def has_class_token(self) -> bool:
        return self.architecture == "dat"

    def symbol_config(self, n_tokens: int, farthest: int | tuple[int, int]) -> SymbolConfig:
        if self.symbols != "rel_sym_attn":
            return super().symbol_config(n_tokens, farthest)
        heads = {"rel_n_heads": self.symbol_heads, "symbolic_attn_n_heads": self.symbol_heads}
        return SymbolConfig.of(vars(self), **heads, nbhd_delta=self.symbol_neighbours, causal_nbhd=False)

    @property
    def baseline(self) -> BaselineConfig | None:
        """The group of keys of the architecture; None for a DAT."""
        return None if self.architecture == "dat" else getattr(self, self.architecture)

    @property
    def relational(self) -> bool:
        """Whether this is a DAT with relational heads."""
        return self.architecture == "dat" and super().relational

    @property
    def kind(self) -> str:
        return super().kind if self.architecture == "dat" else self.architecture


@dataclass(frozen=True, kw_only=True)
class GamesRunConfig:
    """One run on images of a task, whatever their objects are."""

    experiment: str
    task: str
    seed: int = 0
    """Seed of the run; initial weights, order of the images, dropout and (by default) the images derive from it."""
    data: Any
    """Images."""
    model: GamesModelConfig = field(default_factory=GamesModelConfig)
    """Model; --preset NAME fills these keys with one of the paper's models."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    """Length of training, evaluation and checkpoints."""
    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""
    output: OutputConfig = field(default_factory=OutputConfig)
    """Run folder and display."""

    def __post_init__(self) -> None:
        check_seed(self)

    @property
    def data_seed(self) -> int:
        """Seed of the images."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def weight_seed(self) -> int:
        """Seed of the initial weights, another one for each task: one lucky draw does not count for all tasks."""
        return derive_seed(self.seed, self.task)

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"{self.task}-{self.model.folder_name}-n{self.data.n_train}-seed{self.seed}"


@dataclass(frozen=True, kw_only=True)
class RelationalGamesConfig(GamesRunConfig):
    """One run: train a model on one task and measure it on three object sets."""

    experiment: Literal["relational-games"] = "relational-games"
    """Experiment of the run."""
    task: Task = "occurs"
    """Task: the relation that the model must recognise."""
    data: GamesDataConfig = field(default_factory=GamesDataConfig)
    """Images."""
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(epochs=EPOCHS))
    """Length of training, evaluation and checkpoints."""
