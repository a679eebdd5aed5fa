"""Models that score the answers of a matrix, each beside the eight panels of the context.

Shapes: B matrices, A answers, d width; nine panels are the objects of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dual_attention.baselines import (
    ESBN,
    Abstractor,
    CoRelNet,
    PrediNet,
    ScatteringLearner,
    SlotAbstractor,
    WReN,
)
from dual_attention.baselines.vision import two_layers
from dual_attention.configs import AttentionConfig, PositionsConfig, SymbolConfig, TokenPositions
from dual_attention.encoder_models import DualAttnTransformerEncoder, TransformerEncoder

from ...data.matrices import CONTEXT
from ...training.experiment import without_values
from ...training.seeding import derive_seed
from ..model_keys import ModelKeys
from ..sequences.model import scale_weights

OBJECTS = CONTEXT + 1
Architecture = Literal["dat", "corelnet", "predinet", "esbn", "abstractor", "slot_abstractor", "wren", "scl"]


@dataclass(frozen=True, kw_only=True)
class MatricesModelKeys(PositionsConfig, ModelKeys):
    """A Dual Attention Transformer over panels, a Transformer when it has no relational heads, or an architecture that
    was made for relations."""

    name: str = "dat"
    architecture: Architecture = "dat"
    """Architecture. Those other than dat use d_model and dff; predinet n_relations and, as both kinds of Abstractor do,
    n_heads_ra; corelnet and abstractor rel_activation; and Abstractors n_layers, activation and dropout_rate. Of rotary
    positions and places they have none: they know places as they are defined."""
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
    initial_scale: float = 4.0
    """Factor of the initial weights of a DAT or a Transformer, N(0, 0.02), which are small for so small a width."""

    def check_heads(self) -> None:
        if self.architecture == "dat":
            super().check_heads()

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
        self.embed, features = nn.Identity(), panel[0]
        if len(panel) == 2:
            features = 32 * ((panel[0] + 3) // 4) * ((panel[1] + 3) // 4)
            first, second = (nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((1, 16), (16, 32)))
            self.embed = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten())
        self.project = nn.Linear(features, keys.d_model)
        self.core, self.core_name, out = _core(keys)
        places = keys.architecture == "slot_abstractor" or (keys.architecture == "dat" and keys.places)
        self.places = nn.Parameter(torch.randn(OBJECTS, keys.d_model)) if places else None
        self.score = two_layers(out, keys.d_model, 1)

    def forward(self, panels: Tensor) -> Tensor:
        """Panels ``(B, 8 + A, ...)`` to scores ``(B, A)``; drawings are uint8."""
        batch = panels.shape[:2]
        if panels.dtype == torch.uint8:
            panels = panels.unsqueeze(2).to(self.score[0].weight.dtype) / 255
        objects = self.project(self.embed(panels.flatten(0, 1))).unflatten(0, batch)
        context, answers = objects[:, :CONTEXT], objects[:, CONTEXT:]
        whole = torch.cat((context[:, None].expand(-1, answers.shape[1], -1, -1), answers[:, :, None]), 2)
        return self.score(self._summary(whole.flatten(0, 1))).view(answers.shape[:2])

    def _summary(self, x: Tensor) -> Tensor:
        """Features ``(B, ...)`` of nine objects ``(B, 9, d)``."""
        if self.core_name == "slot_abstractor":
            assert self.places is not None
            return self.core(x, self.places.expand_as(x)).mean(1)
        if self.core_name == "dat":
            x = x if self.places is None else x + self.places
            return self.core(None, embeddings=x).mean(1)
        found = self.core(x)
        return found.mean(1) if self.core_name == "abstractor" else found


def _core(keys: MatricesModelKeys) -> tuple[Any, str, int]:
    """The part of a model that sees objects, its architecture, and the number of features that it gives."""
    if keys.architecture == "dat":
        kind: Any = DualAttnTransformerEncoder if keys.relational else TransformerEncoder
        given = keys.arguments_for(kind)
        core = kind(**given, vocab_size=1, max_block_size=OBJECTS)  # panels take the place of tokens
        scale_weights(core, keys.initial_scale)
        return core, "dat", keys.d_model
    heads: dict[str, Any] = {"n_heads": keys.n_heads_ra}
    sizes: dict[str, Any] = {"d_model": keys.d_model, "n_objects": OBJECTS}
    symbols = {"symbol_retrieval": "positional_symbols"}
    symbols |= {"symbol_retrieval_kwargs": {"symbol_dim": keys.d_model, "max_length": OBJECTS}}
    build: dict[str, Callable[[], Any]] = {
        "corelnet": lambda: CoRelNet(
            **sizes, dff=keys.dff, activation=keys.rel_activation, symmetric_rels=keys.symmetric_rels
        ),
        "predinet": lambda: PrediNet(**sizes, **heads, n_relations=keys.n_relations or 8),
        "esbn": lambda: ESBN(keys.d_model, keys.d_model, keys.dff or 4 * keys.d_model, scale=None),
        "abstractor": lambda: Abstractor(
            **{**keys.arguments_for(Abstractor), **heads, **symbols, "rel_activation": keys.rel_activation}
        ),
        "slot_abstractor": lambda: SlotAbstractor(**{**keys.arguments_for(SlotAbstractor), **heads}),
        "wren": lambda: WReN(**sizes, dff=keys.dff),
        "scl": lambda: ScatteringLearner(**sizes, dff=keys.dff),
    }
    core = build[keys.architecture]()
    return core, keys.architecture, getattr(core, "out_features", keys.d_model)


def _other(name: str, architecture: Architecture, **keys: Any) -> MatricesModelKeys:
    return MatricesModelKeys(name=name, architecture=architecture, **keys)


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
        _other("corelnet", "corelnet", rel_activation="softmax", symmetric_rels=True),
        _other("predinet", "predinet", n_heads_ra=16),
        _other("esbn", "esbn"),
        _other("abstractor", "abstractor", n_heads_ra=4, rel_activation="softmax"),
        _other("slot-abstractor", "slot_abstractor", n_heads_ra=4),
        _other("wren", "wren"),
        _other("scl", "scl"),
    )
}
"""Two blocks of width 64. Transformers and DATs have places and rotary positions, unless they are named after one."""
COMPARISON = tuple(name for name in PRESETS if name not in ("transformer-places", "transformer-rope", "dat-rope"))
LABELS = {"transformer": "Transformer", "transformer-gate": "Transformer, linear gate", "dat": "DAT", "scl": "SCL"}
LABELS |= {"dat-0+4": "DAT 0+4", "rca": "DAT-RCA", "corelnet": "CoRelNet", "wren": "WReN", "esbn": "ESBN"}
LABELS |= {"predinet": "PrediNet", "abstractor": "Abstractor", "slot-abstractor": "Slot Abstractor"}
