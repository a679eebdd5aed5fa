"""Configuration of a run on Relational Games."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...training.configs import LoopConfig, MachineConfig, OptimConfig, OutputConfig, check
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


@dataclass(frozen=True)
class GamesDataConfig:
    """The images: generated from a seed, or taken from the official files."""

    n_train: int = 1000
    """Training images (pentominoes)."""
    n_val: int = 5000
    """Validation images (pentominoes), looked at during training."""
    n_test: int = 10000
    """Test images (pentominoes)."""
    n_heldout: int = 10000
    """Images of each held-out object set, hexominoes and stripes, in generated data; official files are used whole."""
    seed: int | None = None
    """Seed of the images and of their split; null takes the seed of the run."""
    official_folder: str | None = None
    """Folder with the official npz files; null generates the images."""

    def __post_init__(self) -> None:
        check(self.n_train >= 1, "data.n_train", "an integer of at least 1", self.n_train)
        for name in ("n_val", "n_test", "n_heldout"):
            check(getattr(self, name) >= 1, f"data.{name}", "an integer of at least 1", getattr(self, name))


@dataclass(frozen=True)
class GamesModelConfig:
    """A Dual Attention Transformer over image patches, a Transformer when it has no relational heads, or one of the
    relational architectures before it."""

    name: str = "dat-0+2-sym"
    """Name of the model in results and plots; a preset's name if it is one."""
    architecture: Literal["dat", "abstractor", "predinet", "corelnet", "esbn"] = "dat"
    """Architecture; each but dat has a group of keys of that name. Beside it, an Abstractor also uses the keys up to
    bias (without heads and final_norm), patch_size and the last four about symbols; the others use d_model and
    patch_size only."""
    d_model: int = 128
    """Width of the residual stream."""
    n_layers: int = 2
    """Encoder blocks."""
    n_heads_sa: int = 0
    """Sensory (self-attention) heads in each layer."""
    n_heads_ra: int = 2
    """Relational heads in each layer; 0 makes a standard Transformer, and the keys about relations and symbols idle."""
    dff: int = 256
    """Hidden width of the feed-forward blocks."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "swiglu"
    """Activation of the feed-forward blocks."""
    dropout_rate: float = 0.1
    """Dropout rate, of embeddings too."""
    norm_first: bool = True
    """Normalise before each sub-layer (pre-norm) instead of after it."""
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Kind of normalisation."""
    final_norm: bool = False
    """Normalise once more before pooling."""
    bias: bool = False
    """Biases in the linear maps of the blocks."""
    pool: Literal["mean", "cls"] = "mean"
    """How the tokens become one vector: their mean, class token included, or the class token."""
    patch_size: tuple[int, int] = (12, 12)
    """Width and height of a patch in pixels; 12 by 12 is one cell of the 3 by 3 grid."""
    ra_type: Literal["relational_attention", "rca", "disrca"] = "relational_attention"
    """Kind of relational heads: relational attention, relational cross-attention, or its disentangled form."""
    n_relations: int | None = 2
    """Relations, the dimension of the relation vector, in relational attention; null takes one for each such head."""
    rel_proj_dim: int | None = 64
    """Width of the query and key of one relation; null takes the width of all relational heads / n_relations."""
    symmetric_rels: bool = True
    """One projection for the queries and keys of relations, which makes every relation symmetric."""
    rel_activation: str = "identity"
    """Activation applied to relations."""
    n_kv_heads: int | None = None
    """Key-value heads of each kind of attention; null takes as many as there are query heads."""
    wr_init: Literal["published", "large"] = "large"
    """Initialisation of W_r: uniform in +-1/sqrt(n_relations) as in the published curves (large), or the published
    package's (published), smaller by the square root of the head width and clearly less sample-efficient."""
    symbols: Literal[
        "positional_symbols", "symbolic_attention", "position_relative", "position_relative_2d", "rel_sym_attn"
    ] = "positional_symbols"
    """Symbol mechanism: one symbol a position, a library read by attention, one a relative position (along the row of
    tokens or in the grid), or a library read by how a token compares with its neighbours (rel_sym_attn)."""
    n_symbols: int = 9
    """Symbols in the library of symbolic_attention and rel_sym_attn."""
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

    def __post_init__(self) -> None:
        check(0 <= self.dropout_rate < 1, "model.dropout_rate", "a number in [0, 1)", self.dropout_rate)
        for name in ("n_symbols", "symbol_heads", "symbol_neighbours"):
            check(getattr(self, name) >= 1, f"model.{name}", "an integer of at least 1", getattr(self, name))
        self._settle_groups()
        if self.architecture != "dat":
            return
        for name in ("n_heads_sa", "n_heads_ra"):
            check(getattr(self, name) >= 0, f"model.{name}", "an integer of at least 0", getattr(self, name))
        heads = self.n_heads_sa + self.n_heads_ra
        check(heads >= 1, "model.n_heads_sa + model.n_heads_ra", "at least 1", heads)
        check(self.d_model % heads == 0, "model.d_model", f"a multiple of the {heads} heads", self.d_model)

    def _settle_groups(self) -> None:
        """Check the groups of keys of the architectures, and fill in the defaults of the one that is chosen."""
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

    @property
    def baseline(self) -> BaselineConfig | None:
        """The group of keys of the architecture; None for a DAT."""
        return None if self.architecture == "dat" else getattr(self, self.architecture)

    @property
    def relational(self) -> bool:
        """Whether this is a DAT with relational heads."""
        return self.architecture == "dat" and self.n_heads_ra > 0


@dataclass(frozen=True)
class RelationalGamesConfig:
    """One run: train a model on one task and measure it on three object sets."""

    experiment: Literal["relational-games"] = "relational-games"
    """Experiment of the run."""
    task: Task = "occurs"
    """Task: the relation that the model must recognise."""
    seed: int = 0
    """Seed of the run; initial weights, order of the images, dropout and (by default) the images derive from it."""
    data: GamesDataConfig = field(default_factory=GamesDataConfig)
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

    @property
    def data_seed(self) -> int:
        """Seed of the images."""
        return self.seed if self.data.seed is None else self.data.seed

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"{self.task}-{self.model.name}-n{self.data.n_train}-seed{self.seed}"
