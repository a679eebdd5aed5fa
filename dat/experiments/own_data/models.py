"""Models of the comparison, one constructor for each kind of data, and the rule that learns nothing.

Shapes: B batch, S slots of a row, d width of the model, C classes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from dual_attention._base.words import listed
from dual_attention.encoder_models import DualAttnTransformerEncoder
from dual_attention.functional import masked_mean
from dual_attention.language_models import DualAttnTransformerLM
from dual_attention.part_trials import check_part
from dual_attention.parts import with_parts
from dual_attention.vision_models import VisionDualAttnTransformer

from ..._own_code import class_named, what_failed
from ...training.experiment import count_parameters, without_values
from .config import ARMS, OWN, ArmConfig

Build: TypeAlias = Callable[..., nn.Module]
"""Makes a model from arguments that those of all kinds share."""

PADDING, MISSING, NUMBER = range(3)
"""Tokens of a row that are no category."""


class Rule(nn.Module):
    """The same logits ``(C,)`` for every example, whatever it is; training changes nothing of them."""

    logits: Tensor

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.register_buffer("logits", logits.float())
        self.idle = nn.Parameter(torch.zeros(()))  # an optimiser needs one

    def forward(self, x: Tensor, targets: Tensor | None = None, **_: Any) -> Any:
        """``(B, C)``; of tokens, which come with targets, nothing, and the mean cross-entropy."""
        logits = (self.logits + 0 * self.idle).expand(len(x) if targets is None else targets.numel(), -1)
        return logits if targets is None else (None, nn.functional.cross_entropy(logits, targets.flatten()))


class RowModel(nn.Module):
    """A model of rows: each value is an object, embedded by its column and by what it is.

    A number is its value times a vector of its column; categories, missing values and items of sequences are tokens.

    Args:
        columns: the column of each slot, S of them.
        n_tokens: tokens that there are.
        n_out: C, or 1 for a number.
        ragged: whether slots may be empty, behind the end of a sequence.
        others: of the encoder.
    """

    columns: Tensor

    def __init__(self, columns: Sequence[int], n_tokens: int, n_out: int, *, ragged: bool, **others: Any) -> None:
        super().__init__()
        symbols: Any = "symbolic_attention" if ragged else "positional_symbols"
        more = {"pos_enc_type": "none", "symbol_retrieval": symbols, "max_block_size": len(columns)}
        self.encoder = DualAttnTransformerEncoder(n_tokens, **more, **others)
        self.register_buffer("columns", torch.tensor(columns))
        width = self.encoder.d_model
        self.slots, self.directions = nn.Embedding(len(columns), width), nn.Embedding(max(columns) + 1, width)
        nn.init.normal_(self.encoder.token_embedder.weight)
        self.head = nn.Linear(width, n_out)
        self.ragged = ragged

    def forward(self, rows: Tensor) -> Tensor:
        """A token and a number for each slot, ``(B, S, 2)``, to ``(B, C)``."""
        tokens, values = rows[..., 0].long(), rows[..., 1:]
        embedded = self.encoder.token_embedder(tokens) + values * self.directions(self.columns) + self.slots.weight
        real = (tokens != PADDING) if self.ragged else None
        return self.head(masked_mean(self.encoder(None, embeddings=embedded, padding_mask=real), real))


def picture_models(size: int, classes: int) -> Build:
    """The constructor of models of square pictures, cut into four by four patches."""

    def build(*, ra_kwargs: dict[str, Any], **given: Any) -> nn.Module:
        patch, relative = (size // 4, size // 4), {**ra_kwargs, "use_relative_positional_symbols": True}
        looks: dict[str, Any] = {"pool": "mean", "final_norm": True, "symbol_retrieval": "position_relative"}
        return VisionDualAttnTransformer((3, size, size), patch, classes, ra_kwargs=relative, **looks, **given)

    return build


def build_arm(build: Build, config: ArmConfig) -> nn.Module:
    """A model as large as a DAT whose feed-forward blocks are twice as wide as it.

    One with heads of the user's own is a Transformer that is as large with its own heads.
    """

    if config.arm == OWN and isinstance(build, partial) and build.func is DualAttnTransformerLM:
        build = partial(build, pos_enc_type="pos_emb")  # a part of the user's own knows no rotary positions

    def made(arm: str, dff: int) -> nn.Module:
        heads, half = config.n_heads, config.n_heads // 2
        relational = {"dat": half, "distances": half, "relational": heads}.get(arm, 0)
        score = "squared_distance" if arm == "distances" else "dot"
        return build(
            d_model=config.d_model,
            n_layers=config.n_layers,
            n_heads_sa=heads - relational,
            n_heads_ra=relational,
            sa_kwargs={"output_gate": "identity"} if arm == "gated" else None,
            ra_kwargs={"n_relations": heads, "symmetric_rels": True, "rel_score": score},
            dff=dff,
            dropout_rate=config.dropout_rate,
        )

    width = 2 * config.d_model
    if config.arm == ARMS[0]:
        return made(config.arm, width)
    with without_values():
        wanted, one, two = (count_parameters(made(*of)) for of in ((ARMS[0], width), (config.arm, 1), (config.arm, 2)))
    model = made(config.arm, max(1, 1 + round((wanted - one) / (two - one))))
    if config.arm == OWN:
        put_heads(model, str(config.heads))
    return model


def put_heads(model: nn.Module, name: str, *, tried: bool = False) -> None:
    """Put heads of the user's own, ``FILE.py:CLASS``, into a Transformer.

    Args:
        tried: refuse those that see what they must not, by a ``ValueError``: they would win.
    """
    kind: Any = class_named(name, nn.Module, "heads")
    try:
        with_parts(model, heads=kind)
        wrong = check_part(kind).wrong if tried else []
    except Exception as error:
        raise ValueError(f"heads: {name}: {what_failed(error, kind)}") from error
    if wrong:
        raise ValueError(
            f"heads: {name}: fails {listed(wrong)} of check_part (docs/your-part.md); it might see answers"
        )
