"""Heads of the encoders. Shapes: B batch, L length, d width of the model, V tokens, C classes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._base.words import repr_of_shapes
from .._layers.inputs import check_boolean, check_choice, check_dropout, check_kind, check_positive
from ..configs import Pool
from ..functional import activation_function, cross_entropy
from ..functional.checks import MaybeNone
from ..functional.losses import mean_squared_error
from .encoder import EncoderModel
from .flops import CountsParameters
from .inputs import check_targets
from .weights import TiesWeights, init_weights

Problem = Literal["single_label", "multi_label", "regression"]


class EncoderHeadOutput(NamedTuple):
    """Output of an encoder with a head.

    Attributes:
        logits: ``(B, L, V)`` or ``(B, C)``; None if only the loss was asked for.
        loss: a scalar, float32 or wider; None without targets.

    >>> encoder = TransformerEncoder(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> model, tokens = EncoderForMaskedLM(encoder), torch.randint(50, (2, 9))
    >>> logits, loss = model(tokens, tokens)
    >>> logits.shape, loss.shape
    (torch.Size([2, 9, 50]), torch.Size([]))
    """

    logits: Tensor | MaybeNone
    loss: Tensor | MaybeNone = None

    __repr__ = repr_of_shapes


class EncoderForMaskedLM(CountsParameters, TiesWeights):
    """An encoder that predicts tokens which were masked, as BERT is trained.

    Math: logits = W norm(act(W_1 h + b_1)) + b, W the token embedding unless untied

    Args:
        encoder: a :class:`~dual_attention.encoder_models.TransformerEncoder` or
            :class:`~dual_attention.encoder_models.DualAttnTransformerEncoder`.
        activation: of the transformation before the output layer.
        tie_weights: one weight for the token embedding and the output layer.
        ignore_index: target of a token that is not scored.

    >>> encoder = TransformerEncoder(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> EncoderForMaskedLM(encoder)(torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 9, 50])
    """

    tied_names = ("encoder.token_embedder.weight", "decoder.weight")

    def __init__(
        self, encoder: EncoderModel, *, activation: str = "gelu", tie_weights: bool = True, ignore_index: int = -100
    ) -> None:
        super().__init__()
        check_boolean(tie_weights=tie_weights)
        check_kind("encoder", encoder, EncoderModel)
        self.transform = nn.Linear(encoder.d_model, encoder.d_model)
        self._activate = activation_function(activation)
        self.transform_norm = nn.LayerNorm(encoder.d_model)
        self.decoder = nn.Linear(encoder.d_model, encoder.vocab_size)
        init_weights(self)
        self.encoder = encoder
        self.tie_weights = tie_weights
        self.ignore_index = ignore_index
        self._keep_tied()

    def _tie(self) -> None:
        if self.tie_weights:
            self.decoder.weight = self.encoder.token_embedder.weight

    def forward(
        self,
        x: Tensor,
        targets: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        token_types: Tensor | None = None,
        loss_only: bool = False,
    ) -> EncoderHeadOutput:
        """Predict the token at each place.

        Args:
            x: token ids, integers ``(B, L)``, some of them masked.
            targets: integers ``(B, L)``: the token that belongs at each place, or ``ignore_index`` where nothing is
                predicted. Padding is not scored.
            padding_mask, segments, token_types: as :class:`.TransformerEncoder` takes them.
            loss_only: no logits are returned, and only those of the scored places are computed.

        Returns:
            ``(logits, loss)``: ``(B, L, V)``, and the mean cross-entropy of what is scored, 0 if nothing is.
        """
        if targets is None and loss_only:
            raise ValueError("loss_only: needs targets")
        hidden = self.encoder(x, padding_mask=padding_mask, segments=segments, token_types=token_types)
        if targets is None:
            return EncoderHeadOutput(self.logits(hidden))
        check_targets(targets, x)
        if padding_mask is not None:
            targets = targets.masked_fill(~padding_mask, self.ignore_index)
        if loss_only:
            scored = targets != self.ignore_index
            hidden, targets = hidden[scored], targets[scored]
        logits = self.logits(hidden)
        loss = cross_entropy(logits, targets, ignore_index=self.ignore_index)
        return EncoderHeadOutput(None if loss_only else logits, loss)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``(..., V)`` of the output ``(..., d)`` of the encoder."""
        return self.decoder(self.transform_norm(self._activate(self.transform(hidden))))


class EncoderForSequenceClassification(CountsParameters):
    """An encoder with a linear classifier, or regression, on whole sequences.

    Args:
        encoder: as :class:`EncoderForMaskedLM`.
        n_classes: C, number of classes, or of numbers to predict.
        problem: ``"single_label"``: one class for each sequence, with cross-entropy; ``"multi_label"``: each class
            applies or not, with a binary cross-entropy for each; ``"regression"``: numbers, with the squared error.
        pool: classify the first real token (``"cls"``) or the mean of the real tokens (``"mean"``).
        dropout_rate: on what is classified; by default the encoder's.
        ignore_index: single label that is not scored.

    >>> encoder = TransformerEncoder(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> EncoderForSequenceClassification(encoder, n_classes=3)(torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        encoder: EncoderModel,
        n_classes: int,
        *,
        problem: Problem = "single_label",
        pool: Pool = "cls",
        dropout_rate: float | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        check_kind("encoder", encoder, EncoderModel)
        check_positive(n_classes=n_classes)
        check_choice("problem", problem, Problem)
        check_choice("pool", pool, Pool)
        rate = encoder.dropout_rate if dropout_rate is None else check_dropout("dropout_rate", dropout_rate)
        self.n_classes = n_classes
        self.problem: Problem = problem
        self.pool: Pool = pool
        self.ignore_index = ignore_index
        self.dropout = nn.Dropout(rate)
        self.classifier = nn.Linear(encoder.d_model, n_classes)
        init_weights(self)
        self.encoder = encoder

    def forward(
        self,
        x: Tensor,
        targets: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> EncoderHeadOutput:
        """Classify sequences.

        Args:
            x: token ids, integers ``(B, L)``.
            targets: for ``"single_label"`` classes, integers ``(B,)``; for ``"multi_label"`` 0 or 1, of any dtype,
                ``(B, C)``; for ``"regression"`` floating point ``(B, C)``.
            padding_mask, token_types: as :class:`.TransformerEncoder` takes them.

        Returns:
            ``(logits, loss)``: ``(B, C)`` and the mean loss. Of a sequence without real tokens the mean is zero.
        """
        hidden = self.encoder(x, padding_mask=padding_mask, token_types=token_types)
        logits = self.classifier(self.dropout(pooled(hidden, padding_mask, self.pool)))
        return EncoderHeadOutput(logits, None if targets is None else self._loss(logits, targets))

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.problem == "single_label":
            return cross_entropy(logits, targets, ignore_index=self.ignore_index)
        if self.problem == "regression":
            return mean_squared_error(logits, targets)
        if targets.shape != logits.shape:
            raise ValueError(f"targets: expected shape {tuple(logits.shape)}, got {tuple(targets.shape)}")
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = F.binary_cross_entropy_with_logits(wide, targets.to(wide), reduction="sum")
        return losses / max(1, logits.numel())


def pooled(hidden: Tensor, padding_mask: Tensor | None, pool: Pool) -> Tensor:
    """The first or the mean of the real tokens: ``(B, L, d) -> (B, d)``."""
    if not hidden.shape[1]:
        raise ValueError("x: expected at least one token, got none")
    if padding_mask is None:
        return hidden[:, 0] if pool == "cls" else hidden.mean(dim=1)
    if pool == "cls":
        first = padding_mask.long().argmax(dim=1)
        return hidden.gather(1, first[:, None, None].expand(-1, 1, hidden.shape[2])).squeeze(1)
    real = padding_mask[..., None]
    return hidden.masked_fill(~real, 0.0).sum(dim=1) / real.sum(dim=1).clamp_min(1)
