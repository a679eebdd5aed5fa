"""Language models for transformers without a head for tokens: the base of the causal ones, and a classifier.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, d width of the model, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.modeling_outputs import BaseModelOutputWithPast, SequenceClassifierOutput
from transformers.utils import logging

from .._models.seq2seq import last_real
from .._models.weights import init_weights
from ..functional.checks import MaybeNone
from .cache import CACHE, DualAttnCache, NamesCache, StaticDualAttnCacheLayer, cache_in, given_cache
from .configuration import DualAttnConfig
from .modeling import OwnsModel, backbone_of, one_input, output_of, padding_mask_from, relations_of, traced_fields
from .packing import MoreInputs, packed_segments, segments_from

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .modeling import TypedOutput

logger = logging.get_logger(__name__)


@dataclass
class DualAttnModelOutput(NamesCache, BaseModelOutputWithPast):
    """Output of a language model before its output layer.

    Attributes:
        last_hidden_state: ``(B, N, d)``, after the last normalisation.
        others: as those of :class:`~dual_attention.hf.causal_lm.DualAttnCausalLMOutput`.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> out = DualAttnModel(config)(input_ids=torch.randint(50, (2, 9)), output_attentions=True, use_cache=False)
    >>> out.attentions[0].shape, out.relations[0].shape
    (torch.Size([2, 2, 9, 9]), torch.Size([2, 9, 9, 1]))
    """

    last_hidden_state: Tensor | MaybeNone = None
    hidden_states: tuple[Tensor, ...] | MaybeNone = None
    attentions: tuple[Tensor, ...] | MaybeNone = None
    relations: tuple[Tensor, ...] | MaybeNone = None


class OwnsLanguageModel(OwnsModel):
    """Base of the language models; ``model`` is a :class:`~dual_attention.language_models.LanguageModel`."""

    config: DualAttnConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = DualAttnConfig
    main_input_name = "input_ids"

    def _run(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        outputs: tuple[bool | None, bool | None],
        more: Mapping[str, Any],
        past: Cache | None,
        use_cache: bool | None,
    ) -> tuple[Tensor, Cache | None, dict[str, Any]]:
        """Pass tokens through the blocks; arguments as :meth:`DualAttnModel.forward`, outputs: maps and states.

        Returns:
            The input of the output layer, ``(B, N, d)``; the cache, if there is one; attention weights, hidden states
            and relations as far as they were requested.
        """
        tokens = one_input(input_ids, inputs_embeds)
        maps, states, traced = self._traced(*outputs)
        segments = segments_from(more, tokens)
        if segments is None and position_ids is not None and attention_mask is None and past is None:
            segments = packed_segments(position_ids)
        if past is None and segments is None:
            past = self._cache_if_useful(use_cache)
        earlier = 0 if past is None else cache_in(past, self.model.new_cache).length
        padding_mask = padding_mask_from(attention_mask, tokens, earlier)
        inputs: dict[str, Any] = {
            "embeddings": inputs_embeds,
            "padding_mask": padding_mask,
            "positions": position_ids,
            "segments": segments,
            "cache": None if past is None else cache_in(past),
        }
        trace = self.model.trace(input_ids, **inputs) if traced else None
        hidden = self.model.hidden(input_ids, **inputs) if trace is None else trace.hidden
        if past is not None and isinstance(past.layers[0], StaticDualAttnCacheLayer):
            past.layers[0].has_read(tokens, padding_mask)
        found = traced_fields(trace, maps, states)
        if trace is not None and maps:
            found["relations"] = relations_of(trace.maps)
        return hidden, past, found

    def _cache_if_useful(self, use_cache: bool | None) -> DualAttnCache | None:
        """A new cache, unless it is not asked for, or blocks are to be computed again for the backward pass."""
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training and not torch.is_grad_enabled()
        elif use_cache and self.model.gradient_checkpointing and torch.is_grad_enabled():
            logger.warning_once("use_cache=True: gradient checkpointing computes blocks anew, so none is returned.")
            use_cache = False
        return self.new_cache() if use_cache else None

    def new_cache(self, max_length: int | None = None) -> DualAttnCache:
        """An empty cache, to be given as ``cache``; memory for ``max_length`` tokens is reserved at once."""
        return DualAttnCache(self.model.new_cache(max_length))

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.model.layers.token_embedder

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.model.layers["token_embedder"] = value
        self.model.vocab_size = value.num_embeddings


class _WithoutOutput(OwnsLanguageModel):
    def _build(self) -> nn.Module:
        model: Any = self.config.build()
        model.layers["final_out"] = nn.Identity()
        return model


class DualAttnModel(_WithoutOutput):
    """A language model without its output layer: the base of the others, and what ``AutoModel`` loads.

    Of a model with an output layer it is the attribute ``backbone``, which shares its ``model``.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> DualAttnModel(config)(input_ids=torch.randint(50, (2, 9))).last_hidden_state.shape
    torch.Size([2, 9, 32])
    """

    default_auto_class = "AutoModel"
    _keys_to_ignore_on_load_unexpected: Any = (r"\.final_out\.", r"^score\.")

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        *,
        cache: Cache | None = None,
        **more: Unpack[MoreInputs],
    ) -> DualAttnModelOutput:
        """Represent each token in the light of those before it.

        Args:
            input_ids: integers ``(B, N)``; with a cache only the new tokens.
            attention_mask: ``(B, t + N)``; 1 = a real token, 0 = padding, on either side.
            position_ids: integers ``(B or 1, N)``, if they are not to be counted from the real tokens of each row.
                Where they begin anew within a row, without mask and cache, sequences are packed into it, which do not
                see each other.
            cache, past_key_values: two names for the cache of earlier tokens, to which these are appended. From
                ``new_cache``, or a :class:`transformers.DynamicCache` that was empty when it first came.
            inputs_embeds: vectors ``(B, N, d)`` instead of ``input_ids``.
            use_cache: by default as the config says, where it can be of use: in evaluation mode and without gradients.
                Gradients flow through a cache, and memory is then written anew in each call. There is none of packed
                sequences, nor with gradient checkpointing, about which True warns once.
            output_attentions: return attention weights and relations, which are built for it.
            output_hidden_states: return the inputs of the blocks, too.
            return_dict: False returns a tuple.
            more: see :class:`~dual_attention.hf.packing.MoreInputs`.

        Raises:
            TypeError, ValueError: as :meth:`LanguageModel.forward
                <dual_attention.language_models.LanguageModel.forward>`, or for arguments that exclude one another.
        """
        outputs, past = (output_attentions, output_hidden_states), given_cache(cache, past_key_values)
        inputs = input_ids, inputs_embeds, attention_mask, position_ids
        hidden, past, traced = self._run(*inputs, outputs, more, past, use_cache)
        output = DualAttnModelOutput(last_hidden_state=hidden, **{CACHE: past}, **traced)
        return output_of(output, return_dict, self.config)


class HasBackbone(OwnsLanguageModel):
    """A language model with a head."""

    @property
    def backbone(self) -> DualAttnModel:
        """The same model without its head, of the same parameters; transformers' ``base_model``."""
        return backbone_of(self, DualAttnModel)


class DualAttnLMForSequenceClassification(_WithoutOutput, HasBackbone):
    """A language model with a linear classifier, or a regression, on the last token of each sequence.

    It is what reward models are made of. The loss is the one of transformers for ``config.problem_type``, which by
    default follows from the labels.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "max_block_size": 16}
    >>> model = DualAttnLMForSequenceClassification(DualAttnConfig(vocab_size=50, **sizes, num_labels=3))
    >>> model(input_ids=torch.randint(50, (2, 9)), attention_mask=torch.ones(2, 9, dtype=torch.long)).logits.shape
    torch.Size([2, 3])
    """

    accepts_loss_kwargs = False
    default_auto_class = "AutoModelForSequenceClassification"
    _keys_to_ignore_on_load_unexpected: Any = (r"\.final_out\.",)

    def _add_head(self) -> None:
        self.num_labels = self.config.num_labels
        self.score = nn.Linear(self.config.d_model, self.num_labels or 1, bias=False)
        init_weights(self.score)

    def _draw(self) -> None:
        super()._draw()
        init_weights(self.score)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> TypedOutput:
        """Classify sequences by their last real token.

        Args:
            input_ids, attention_mask, position_ids, inputs_embeds: as :meth:`DualAttnModel.forward`, whose errors it
                has, too. Without an attention mask, the last token that is not ``config.pad_token_id`` counts as the
                last real one; padding before it is attended to.
            output_attentions, output_hidden_states, return_dict: likewise.
            labels: classes, integers ``(B,)``; for several at once 0 or 1, floating point ``(B, C)``; for regression
                numbers, floating point ``(B,)`` or ``(B, C)``.
            use_cache: of no effect, a whole sequence is read at once.

        Returns:
            Logits ``(B, C)``, and with labels the mean loss.
        """
        outputs = output_attentions, output_hidden_states
        inputs = input_ids, inputs_embeds, attention_mask, position_ids
        hidden, _, traced = self._run(*inputs, outputs, {}, None, False)
        if attention_mask is None and input_ids is not None and self.config.pad_token_id is not None:
            attention_mask = input_ids != self.config.pad_token_id
        logits = self.score(last_real(hidden, attention_mask, "input_ids: expected at least one token")[:, 0])
        traced.pop("relations", None)
        output = self._classified(SequenceClassifierOutput, logits, labels, traced)
        return output_of(output, return_dict, self.config)
