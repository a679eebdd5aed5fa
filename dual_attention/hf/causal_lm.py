"""Causal language models for transformers.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, V size of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from .._models.inputs import IGNORED, check_targets
from .cache import DualAttnCache, cache_in
from .configuration import DualAttnConfig
from .modeling import OwnsModel, output_of, padding_mask_from, relations_of, token_ids, traced_fields

__all__ = ["DualAttnCausalLMOutput", "DualAttnForCausalLM"]

NO_LABEL = -100
"""Label that transformers does not score."""


@dataclass
class DualAttnCausalLMOutput(CausalLMOutputWithPast):
    """Output of a causal language model.

    Attributes:
        loss: mean cross-entropy of the labels in nats, a scalar.
        logits: ``(B, N, V)``, or of the positions that were asked for.
        past_key_values: the cache that was given, or else a :class:`~dual_attention.hf.cache.DualAttnCache`.
        hidden_states: inputs of the blocks and of the output layer, ``(B, N, d)`` each.
        attentions: of each block ``(B, H, N, t + N)``, sensory heads first.
        relations: of each block ``(B, N, t + N, R)``, with ``output_attentions``, if heads have relations.
    """

    relations: tuple[Tensor, ...] | None = None


class DualAttnForCausalLM(OwnsModel, GenerationMixin):
    """A Dual Attention Transformer, or a Transformer, that predicts the next token.

    ``model`` is the :class:`~dual_attention.language_models.LanguageModel` itself.
    """

    config: DualAttnConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = DualAttnConfig
    main_input_name = "input_ids"
    accepts_loss_kwargs = True
    default_auto_class = "AutoModelForCausalLM"

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
    ) -> DualAttnCausalLMOutput | tuple[Any, ...]:
        """Predict the next token at every position.

        Args:
            input_ids: integers ``(B, N)``; with ``past_key_values`` only the new tokens.
            attention_mask: ``(B, t + N)``; 1 = a real token, 0 = padding, on either side.
            position_ids: integers ``(B or 1, N)``, if they are not to be counted from the real tokens of each row.
                Where they begin anew within a row, without mask and cache, sequences are packed into it, which do not
                see each other.
            past_key_values: cache of earlier tokens, to which these are appended. From :meth:`new_cache`, or a
                :class:`transformers.DynamicCache` that was empty when it first came.
            inputs_embeds: not taken.
            labels: ``(B, N)``, the tokens themselves, -100 where they are not scored. They are shifted here: the
                prediction at a position is for the label after it.
            use_cache: by default as the config says, where it can be of use: in evaluation mode and without gradients.
            output_attentions: return attention weights and relations, which are built for it.
            output_hidden_states: return the inputs of the blocks, too.
            return_dict: False returns a tuple.
            logits_to_keep: number of last positions to return logits of, 0 = all; or the positions.
            num_items_in_batch: divisor of the summed loss, instead of the number of scored labels.

        Raises:
            TypeError, ValueError: as :meth:`LanguageModel.forward
                <dual_attention.language_models.LanguageModel.forward>`, or for arguments that exclude one another.
        """
        input_ids = token_ids(input_ids, inputs_embeds)
        maps, states, traced = self._traced(output_attentions, output_hidden_states)
        past = self._cache(past_key_values, use_cache)
        inputs: dict[str, Any] = {
            "padding_mask": padding_mask_from(attention_mask, input_ids, 0 if past is None else past.get_seq_length()),
            "positions": position_ids,
            "cache": None if past is None else cache_in(past),
        }
        if attention_mask is None and past is None and position_ids is not None:
            inputs["segments"] = packed_segments(position_ids)
        trace = self.model.trace(input_ids, **inputs) if traced else None
        hidden = self.model.hidden(input_ids, **inputs) if trace is None else trace.hidden

        targets = shifted(labels)
        logits = loss = None
        if targets is None or not (self.training and self.config.skip_logits_in_training):
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.model.layers.final_out(hidden[:, kept])
        if targets is not None:
            whole = logits if logits is not None and logits.shape[1] == hidden.shape[1] else None
            loss = self._loss(hidden, whole, targets, input_ids, num_items_in_batch)
        relations = relations_of(trace.maps) if trace is not None and maps else None
        output = DualAttnCausalLMOutput(loss, logits, past, relations=relations, **traced_fields(trace, maps, states))
        return output_of(output, return_dict, self.config)

    def _cache(self, past: Cache | None, use_cache: bool | None) -> Cache | None:
        if past is not None:
            cache_in(past, self.model.new_cache)
        if past is not None or use_cache is False:
            return past
        useful = not self.training and not torch.is_grad_enabled()
        return self.new_cache() if use_cache or (use_cache is None and self.config.use_cache and useful) else None

    def _loss(
        self, hidden: Tensor, logits: Tensor | None, targets: Tensor, x: Tensor, num_items: Tensor | int | None
    ) -> Tensor:
        targets = targets.to(hidden.device)
        targets = targets.masked_fill(targets == NO_LABEL, IGNORED)
        check_targets(targets, x)
        loss = self.model.loss_from_hidden(hidden, targets, logits)
        if num_items is None:
            return loss
        if isinstance(num_items, Tensor):
            num_items = num_items.to(loss.device)
        return loss * (targets != IGNORED).sum() / num_items

    def new_cache(self, max_length: int | None = None) -> DualAttnCache:
        """An empty cache, to be given as ``past_key_values``; memory for ``max_length`` tokens is reserved at once."""
        return DualAttnCache(self.model.new_cache(max_length))

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *sizes: Any, **more: Any
    ) -> Any:
        """Called by ``generate``; all supported kinds of cache hold the same."""
        implementation = generation_config.cache_implementation
        if implementation not in (None, "dynamic"):
            raise ValueError(f"cache_implementation: this model has a cache of its own, got {implementation!r}")
        if model_kwargs.get("past_key_values") is not None:
            cache_in(model_kwargs["past_key_values"], self.model.new_cache)
            model_kwargs["past_key_values"]._is_user_defined = True
        elif generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = self.new_cache()

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As the method of transformers; positions are left for the model to count.

        Tokenizers, which ``stop_strings`` and assistants of another vocabulary need, come along but are no input.
        """
        inputs = super().prepare_inputs_for_generation(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        for name in ("position_ids", "tokenizer", "assistant_tokenizer"):
            inputs.pop(name, None)
        return inputs

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.model.layers.token_embedder

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.model.layers["token_embedder"] = value
        self.model.vocab_size = value.num_embeddings

    def get_output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.model.layers.final_out

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer."""
        self.model.layers["final_out"] = new_embeddings


def shifted(labels: Tensor | None) -> Tensor | None:
    """Label after each position, ``(B, N)``; none for the last."""
    return None if labels is None else nn.functional.pad(labels[:, 1:], (0, 1), value=NO_LABEL)


def packed_segments(position_ids: Tensor) -> Tensor | None:
    """Number ``(B, N)`` of each token's sequence among those packed into a row; None if each row has one."""
    begins = position_ids[:, 1:] != position_ids[:, :-1] + 1
    if not torch.compiler.is_compiling() and not bool(begins.any()):
        return None
    return nn.functional.pad(begins.long().cumsum(dim=1), (1, 0))
