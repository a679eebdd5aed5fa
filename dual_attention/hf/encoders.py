"""Bidirectional encoders for transformers, with a head each.

Shapes: B batch, L length, V size of the vocabulary, C classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput

from .._models.encoder import EncoderModel
from .._models.encoder_heads import pooled
from .._models.inputs import check_targets
from .._models.weights import init_weights
from ..encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification
from ..functional.losses import cross_entropy
from .causal_lm import NO_LABEL
from .configuration import DualAttnEncoderConfig
from .modeling import OwnsModel, backbone_of, one_input, output_of, padding_mask_from, traced_fields

if TYPE_CHECKING:
    from .modeling import TypedOutput


class _Encoder(OwnsModel):
    """An encoder, with or without a head; the encoder itself is ``model.encoder``."""

    config: DualAttnEncoderConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = DualAttnEncoderConfig
    main_input_name = "input_ids"

    @property
    def _body(self) -> EncoderModel:
        return self.model.encoder

    def _draw(self) -> None:
        init_weights(self.model)
        self._body.init_weights()  # with scaled projections into the residual stream

    @property
    def backbone(self) -> DualAttnEncoderModel:
        """The same model without its head, of the same parameters; transformers' ``base_model``."""
        if isinstance(self, DualAttnEncoderModel):
            return self
        return backbone_of(self, DualAttnEncoderModel, _only_encoder(self._body))

    def _encode(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        mask: Tensor | None,
        types: Tensor | None,
        *outputs: bool | None,
    ) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
        """Input of the head, padding, and attention weights and hidden states as far as these two are requested."""
        mask = padding_mask_from(mask, one_input(input_ids, inputs_embeds))
        if types is not None and not self._body.n_token_types and not bool(types.any()):
            types = None  # tokenizers give zeros to any model
        maps, states, traced = self._traced(*outputs)
        inputs = {"padding_mask": mask, "token_types": types, "embeddings": inputs_embeds}
        if not traced:
            return self._body(input_ids, **inputs), mask, {}
        trace = self._body.trace(input_ids, **inputs)
        return trace.hidden, mask, traced_fields(trace, maps, states)

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self._body.token_embedder

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self._body.token_embedder = cast(nn.Embedding, value)
        self._body.vocab_size = self._body.token_embedder.num_embeddings


def _only_encoder(encoder: EncoderModel) -> nn.ModuleDict:
    return nn.ModuleDict({"encoder": encoder})  # so that its parameters have the names that they have below a head


class DualAttnEncoderModel(_Encoder):
    """An encoder without a head: the base of the others, and what ``AutoModel`` loads.

    The encoder itself is ``model.encoder``. Of a model with a head it is the attribute ``backbone``.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "max_block_size": 16}
    >>> model = DualAttnEncoderModel(DualAttnEncoderConfig(vocab_size=50, **sizes))
    >>> model(input_ids=torch.randint(50, (2, 9))).last_hidden_state.shape
    torch.Size([2, 9, 32])
    """

    default_auto_class = "AutoModel"
    _keys_to_ignore_on_load_unexpected: Any = (r"^model\.(?!encoder\.)",)

    def _build(self) -> nn.Module:
        return _only_encoder(cast(EncoderModel, self.config.build()))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> TypedOutput:
        """Represent each token in the light of all tokens of its sequence.

        Args:
            input_ids: integers ``(B, L)``.
            attention_mask: ``(B, L)``; 1 = a real token.
            token_type_ids: integers ``(B, L)`` below ``n_token_types``.
            inputs_embeds: vectors ``(B, L, d)`` instead of ``input_ids``.
            output_attentions, output_hidden_states: return attention weights, sensory heads first, and hidden states.
            return_dict: False returns a tuple.

        Returns:
            The last hidden state ``(B, L, d)``.

        Raises:
            TypeError, ValueError: as :class:`.TransformerEncoder` has them.
        """
        outputs = output_attentions, output_hidden_states
        hidden, _, more = self._encode(input_ids, inputs_embeds, attention_mask, token_type_ids, *outputs)
        return output_of(BaseModelOutput(last_hidden_state=hidden, **more), return_dict, self.config)


class DualAttnForMaskedLM(_Encoder):
    """An encoder that predicts tokens which were masked.

    ``model`` is the :class:`~dual_attention.encoder_models.EncoderForMaskedLM` itself.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "max_block_size": 16}
    >>> model = DualAttnForMaskedLM(DualAttnEncoderConfig(vocab_size=50, **sizes))
    >>> model(input_ids=torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 9, 50])
    """

    accepts_loss_kwargs = True
    default_auto_class = "AutoModelForMaskedLM"

    def _build(self) -> EncoderForMaskedLM:
        encoder = cast(EncoderModel, self.config.build())
        return EncoderForMaskedLM(encoder, activation=self.config.head_activation, tie_weights=self.config.tie_weights)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> TypedOutput:
        """Predict the token at each place.

        Args:
            input_ids: integers ``(B, L)``, some of them masked.
            labels: ``(B, L)``, the token that belongs at each place, -100 where none is to be predicted.
            num_items_in_batch: divisor of the summed loss, instead of the number of scored labels.
            others: as :meth:`DualAttnEncoderModel.forward`, whose errors it has, too.

        Returns:
            Logits ``(B, L, V)``, and with labels the loss.
        """
        outputs = output_attentions, output_hidden_states
        hidden, _, more = self._encode(input_ids, inputs_embeds, attention_mask, token_type_ids, *outputs)
        logits = self.model.logits(hidden)
        loss = None
        if labels is not None:
            labels = labels.to(logits.device)
            check_targets(labels, logits, "labels")
            mean = num_items_in_batch is None
            loss = cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="mean" if mean else "sum")
            loss = loss if mean else loss / torch.as_tensor(num_items_in_batch, device=loss.device)
        return output_of(MaskedLMOutput(loss=loss, logits=logits, **more), return_dict, self.config)

    def get_output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.model.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer."""
        self.model.decoder = new_embeddings


class DualAttnForSequenceClassification(_Encoder):
    """An encoder with a classifier, or a regression, on whole sequences.

    ``model`` is the :class:`~dual_attention.encoder_models.EncoderForSequenceClassification` itself. The loss is the
    one of transformers for ``config.problem_type``, which by default follows from the labels.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "max_block_size": 16}
    >>> model = DualAttnForSequenceClassification(DualAttnEncoderConfig(vocab_size=50, **sizes, num_labels=3))
    >>> model(input_ids=torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 3])
    """

    accepts_loss_kwargs = False
    default_auto_class = "AutoModelForSequenceClassification"

    def _build(self) -> EncoderForSequenceClassification:
        encoder = cast(EncoderModel, self.config.build())
        pool: Any = self.config.classifier_pool
        return EncoderForSequenceClassification(
            encoder, self.config.num_labels or 1, pool=pool, dropout_rate=self.config.classifier_dropout
        )

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> TypedOutput:
        """Classify sequences.

        Args:
            labels: classes, integers ``(B,)``; for several at once 0 or 1, floating point ``(B, C)``; for regression
                numbers, floating point ``(B,)`` or ``(B, C)``.
            input_ids, attention_mask, token_type_ids, inputs_embeds: as :meth:`DualAttnEncoderModel.forward`, whose
                errors it has, too.
            output_attentions, output_hidden_states, return_dict: likewise.

        Returns:
            Logits ``(B, C)``, and with labels the mean loss.
        """
        outputs = output_attentions, output_hidden_states
        hidden, mask, more = self._encode(input_ids, inputs_embeds, attention_mask, token_type_ids, *outputs)
        logits = self.model.classifier(self.model.dropout(pooled(hidden, mask, self.model.pool)))
        return output_of(self._classified(SequenceClassifierOutput, logits, labels, more), return_dict, self.config)
