"""Models that score the answers of a matrix, each beside the eight panels of the context.

Shapes: B matrices, A answers, d width; nine panels are the objects of a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dat.experiments.model_keys import ModelKeys
from dat.experiments.own_parts import with_named_parts
from dat.experiments.sequences.model import scale_weights
from dat.training.experiment import without_values
from dat.training.seeding import derive_seed
from dual_attention.baselines import ESBN, Abstractor, CoRelNet, PrediNet, SlotAbstractor
from dual_attention.baselines.vision import two_layers
from dual_attention.configs import AttentionConfig, PositionsConfig, SymbolConfig, TokenPositions
from dual_attention.encoder_models import DualAttnTransformerEncoder, TransformerEncoder
from studies.matrices.baselines import ScatteringLearner, WReN
from studies.matrices.data import CONTEXT

OBJECTS = CONTEXT + 1
Architecture = Literal["dat", "corelnet", "predinet", "esbn", "abstractor", "slot_abstractor", "wren", "scl"]
BASELINES: dict[str, Any] = {
    "corelnet": CoRelNet,
    "predinet": PrediNet,
    "esbn": ESBN,
    "abstractor": Abstractor,
    "slot_abstractor": SlotAbstractor,
    "wren": WReN,
    "scl": ScatteringLearner,
}


@dataclass(frozen=True, kw_only=True)
class MatricesModelKeys(PositionsConfig, ModelKeys):
    """A Dual Attention Transformer over panels, a Transformer when it has no relational heads, or an architecture that
    was made for relations."""

    name: str = "dat"
    architecture: Architecture = "dat"
    """Architecture. Those other than dat use d_model and dff; predinet and scl n_relations; predinet and both kinds of
    Abstractor n_heads_ra; corelnet and abstractor rel_activation; wren and Abstractors n_layers; and Abstractors
    activation and dropout_rate. They know places by definition, and have no rotary positions."""
    d_model: int = 64
    dff: int | None = 128
    n_heads_sa: int = 2
    n_heads_ra: int = 2
    output_gate: Literal["none", "identity", "sigmoid"] = "none"
    """Gate on what each sensory head brings, computed from the receiver: none, linear, or a sigmoid."""
    pos_enc_type: TokenPositions = "RoPE"
    places: bool = True
    """Add a learned vector to each panel that tells its place, beside pos_enc_type."""
    n_relations: int | None = 8
    symbols: Literal["symbolic_attention", "positional_symbols", "position_relative"] = "positional_symbols"
    """Symbol mechanism: a library read by attention, one symbol a position, or one a relative position."""
    n_symbols: int = OBJECTS
    """Symbols in the library of symbolic attention."""
    n_objects: ClassVar = OBJECTS
    initial_scale: float = 4.0
    """Factor of the initial weights of a DAT or a Transformer, N(0, 0.02), which are small for so small a width."""

    def check_heads(self) -> None:
        if self.architecture == "dat":
            super().check_heads()

    @property
    def n_heads(self) -> int:
        """Heads of a Transformer, or of an architecture that has one kind."""
        return self.n_heads_sa if self.architecture == "dat" else self.n_heads_ra

    @property
    def attn_kwargs(self) -> AttentionConfig:
        """Options of a Transformer's heads."""
        return self.sa_kwargs

    @property
    def sa_kwargs(self) -> AttentionConfig:
        gate = None if self.output_gate == "none" else self.output_gate
        return AttentionConfig.of(vars(self), output_gate=gate)

    @property
    def symbol_retrieval_kwargs(self) -> SymbolConfig:
        """Options of the symbol mechanism."""
        return self.symbol_config(OBJECTS, OBJECTS)

    def build(self, panel: tuple[int, ...], *, seed: int) -> PanelScorer:
        """The model for panels of that shape; its initial weights depend on ``seed`` only."""
        torch.manual_seed(derive_seed(seed, "weights"))
        return PanelScorer(self, panel)

    def empty(self, panel: tuple[int, ...]) -> PanelScorer:
        """The model on the meta device; random generators are left as they are."""
        with without_values():
            return PanelScorer(self, panel)


class PanelScorer(nn.Module):
    """A score of each answer, from the nine panels of a matrix that it completes.

    Panels are embedded by a linear map, drawings by two convolutions before. Answers do not see each other, so in
    another order they have the same scores.
    """

    def __init__(self, keys: MatricesModelKeys, panel: tuple[int, ...]) -> None:
        super().__init__()
        self.embed, features, self.architecture = nn.Identity(), panel[0], keys.architecture
        if len(panel) == 2:
            features = 32 * ((panel[0] + 3) // 4) ** 2
            first, second = (nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((1, 16), (16, 32)))
            self.embed = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten())
        self.project = nn.Linear(features, keys.d_model)
        self.core = _core(keys)
        told = keys.architecture == "slot_abstractor" or (keys.architecture == "dat" and keys.places)
        self.places = nn.Parameter(torch.randn(OBJECTS, keys.d_model)) if told else None
        self.score = two_layers(getattr(self.core, "out_features", keys.d_model), keys.d_model, 1)

    def forward(self, panels: Tensor) -> Tensor:
        """Panels ``(B, 8 + A, ...)`` to scores ``(B, A)``; drawings are uint8."""
        batch = panels.shape[:2]
        if panels.dtype == torch.uint8:
            panels = panels.unsqueeze(2).to(self.project.weight.dtype) / 255
        objects = self.project(self.embed(panels.flatten(0, 1))).unflatten(0, batch)
        context, answers = objects[:, :CONTEXT], objects[:, CONTEXT:]
        whole = torch.cat((context[:, None].expand(-1, answers.shape[1], -1, -1), answers[:, :, None]), 2)
        return self.score(self._summary(whole.flatten(0, 1))).view(answers.shape[:2])

    def _summary(self, x: Tensor) -> Tensor:
        """Features ``(B, ...)`` of nine objects ``(B, 9, d)``."""
        if self.architecture == "dat":
            found = self.core(None, embeddings=x if self.places is None else x + self.places)
        else:
            found = self.core(x) if self.places is None else self.core(x, self.places.expand_as(x))
        return found.mean(1) if found.dim() == 3 else found


def _core(keys: MatricesModelKeys) -> Any:
    """The part of a model that sees objects."""
    if keys.architecture == "dat":
        kind: Any = DualAttnTransformerEncoder if keys.relational else TransformerEncoder
        core = kind(**keys.arguments_for(kind), vocab_size=1, max_block_size=OBJECTS)  # panels are its tokens
        core = with_named_parts(core, keys)
        scale_weights(core, keys.initial_scale)
        return core
    kind = BASELINES[keys.architecture]
    more: dict[str, Any] = {}
    if keys.architecture == "corelnet":
        more = {"activation": keys.rel_activation}
    if keys.architecture == "esbn":
        more = {"hidden_dim": keys.dff or 4 * keys.d_model, "key_dim": keys.d_model, "scale": None}
    return kind(**{**keys.arguments_for(kind), **more})


DAT = MatricesModelKeys()
TRANSFORMER = replace(DAT, name="transformer", n_heads_sa=4, n_heads_ra=0)
PRESETS = {
    model.name: model
    for model in (
        TRANSFORMER,
        replace(TRANSFORMER, name="transformer-places", pos_enc_type="none"),
        replace(TRANSFORMER, name="transformer-rope", places=False),
        replace(TRANSFORMER, name="transformer-gate", output_gate="identity"),
        DAT,
        replace(DAT, name="dat-rope", places=False),
        replace(DAT, name="dat-0+4", n_heads_sa=0, n_heads_ra=4),
        replace(DAT, name="rca", ra_type="rca"),
        replace(DAT, name="corelnet", architecture="corelnet", rel_activation="softmax", symmetric_rels=True),
        replace(DAT, name="predinet", architecture="predinet", n_heads_ra=16),
        replace(DAT, name="abstractor", architecture="abstractor", n_heads_ra=4, rel_activation="softmax"),
        replace(DAT, name="slot-abstractor", architecture="slot_abstractor", n_heads_ra=4),
        replace(DAT, name="wren", architecture="wren", n_layers=4),
        *(replace(DAT, name=name, architecture=name) for name in ("esbn", "scl")),
    )
}
"""Two blocks of width 64. Transformers and DATs have places and rotary positions, unless they are named after one."""
COMPARISON = tuple(name for name in PRESETS if name not in ("transformer-places", "transformer-rope", "dat-rope"))
