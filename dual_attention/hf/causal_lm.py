"""Causal language models for transformers.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, V size of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from torch import Tensor, nn
from transformers import Cache, GenerationMixin
from transformers.generation.configuration_utils import GenerationMode
from transformers.modeling_outputs import CausalLMOutputWithPast

from .._layers.inputs import check_choice
from .._models.inputs import IGNORED, check_targets
from ..functional.checks import MaybeNone
from .cache import CACHE, OTHER, DualAttnCache, NamesCache, StaticDualAttnCacheLayer, cache_in, given_cache
from .language import HasBackbone
from .modeling import output_of
from .packing import CausalInputs

if TYPE_CHECKING:
    from typing_extensions import Unpack

NO_LABEL = -100
"""Label that transformers does not score."""


@dataclass
class DualAttnCausalLMOutput(NamesCache, CausalLMOutputWithPast):
    """Output of a causal language model.

    Attributes:
        loss: mean cross-entropy of the labels in nats, a scalar.
        logits: ``(B, N, V)``, or of the positions that were asked for.
        cache, past_key_values: two names for the cache that was given, or else a
            :class:`~dual_attention.hf.cache.DualAttnCache`.
        hidden_states: inputs of the blocks and of the output layer, ``(B, N, d)`` each.
        attentions: of each block ``(B, H, N, t + N)``, sensory heads first.
        relations: of each block ``(B, N, t + N, R)``, with ``output_attentions``, if heads have relations; of
            disentangled heads ``(B, H, N, t + N)``.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> tokens = torch.randint(50, (2, 9))
    >>> out = DualAttnForCausalLM(config)(input_ids=tokens, labels=tokens)
    >>> out.logits.shape, out.loss.shape
    (torch.Size([2, 9, 50]), torch.Size([]))
    """

    loss: Tensor | MaybeNone = None
    logits: Tensor | MaybeNone = None
    hidden_states: tuple[Tensor, ...] | MaybeNone = None
    attentions: tuple[Tensor, ...] | MaybeNone = None
    relations: tuple[Tensor, ...] | MaybeNone = None


class DualAttnForCausalLM(HasBackbone, GenerationMixin):
    """A Dual Attention Transformer, or a Transformer, that predicts the next token.

    ``model`` is the :class:`~dual_attention.language_models.LanguageModel` itself, and ``backbone`` the same without
    its output layer, as transformers calls such models.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> model = DualAttnForCausalLM(config)
    >>> model.generate(torch.tensor([[5, 17, 3]]), max_new_tokens=4, do_sample=False).shape
    torch.Size([1, 7])
    """

    accepts_loss_kwargs = True
    default_auto_class = "AutoModelForCausalLM"
    if TYPE_CHECKING:
        generate: Any  # a checker cannot bind transformers' own, to any model

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
        *,
        cache: Cache | None = None,
        **more: Unpack[CausalInputs],
    ) -> DualAttnCausalLMOutput:
        """Predict the next token at every position.

        Args:
            input_ids, attention_mask, position_ids, cache, past_key_values, inputs_embeds, use_cache: as
                :meth:`.DualAttnModel.forward`, whose errors it has, too.
            output_attentions, output_hidden_states, return_dict: likewise.
            labels: ``(B, N)``, the tokens themselves, -100 where they are not scored. They are shifted here: the
                prediction at a position is for the label after it.
            logits_to_keep: number of last positions to return logits of, 0 = all; or the positions.
            num_items_in_batch: divisor of the summed loss, instead of the number of scored labels.
            more: see :class:`~dual_attention.hf.packing.CausalInputs`.
        """
        targets = more.pop("shift_labels", None)
        name = "labels" if targets is None else "shift_labels"
        outputs, past = (output_attentions, output_hidden_states), given_cache(cache, past_key_values)
        inputs = input_ids, inputs_embeds, attention_mask, position_ids
        hidden, past, traced = self._run(*inputs, outputs, more, past, use_cache)

        if targets is None and labels is not None:  # the label after each position; none for the last
            targets = nn.functional.pad(labels[..., 1:], (0, 1), value=NO_LABEL)
        logits = loss = None
        if targets is None or not (self.training and self.config.skip_logits_in_training):
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.model.layers.final_out(hidden[:, kept])
        if targets is not None:
            every = isinstance(logits_to_keep, int) and logits is not None and logits.shape[1] == hidden.shape[1]
            loss = self._loss(hidden, logits if every else None, targets, name, num_items_in_batch)
        output = DualAttnCausalLMOutput(loss=loss, logits=logits, **{CACHE: past}, **traced)
        return output_of(output, return_dict, self.config)

    def _loss(
        self, hidden: Tensor, logits: Tensor | None, targets: Tensor, name: str, num_items: Tensor | int | None
    ) -> Tensor:
        targets = targets.to(hidden.device)
        targets = targets.masked_fill(targets == NO_LABEL, IGNORED)
        check_targets(targets, hidden, name)
        loss = self.model.loss_from_hidden(hidden, targets, logits)
        if num_items is None:
            return loss
        if isinstance(num_items, Tensor):
            num_items = num_items.to(loss.device)
        return loss * (targets != IGNORED).sum() / num_items

    def _prepare_cache_for_generation(
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any = None,
        batch_size: int = 1,
        max_cache_length: int = 0,
        **more: Any,
    ) -> Any:
        """Called by ``generate``; all supported kinds of cache hold the same."""
        if generation_config.assistant_early_exit is not None:
            raise ValueError(
                "assistant_early_exit: expected None, since this model predicts nothing after its first layers, got "
                f"{generation_config.assistant_early_exit}; assistant_model takes a smaller model"
            )
        static = generation_config.cache_implementation == "static"
        check_choice("cache_implementation", generation_config.cache_implementation, (None, "dynamic", "static"))
        # Beams are put into another order, and assistants' tokens taken back.
        if static and generation_mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
            raise ValueError(f"cache_implementation: 'static' is for one token at a time, got {generation_mode}")
        if not generation_config.is_assistant:  # which is handed the other model's
            self._check_positions(generation_config, **model_kwargs)
        past = given_cache(model_kwargs.pop(CACHE, None), model_kwargs.pop(OTHER, None))
        assisted = generation_mode == GenerationMode.ASSISTED_GENERATION
        if static or assisted or model_kwargs.get("inputs_embeds") is not None:
            self._check_room(max_cache_length)
        if past is not None:
            cache_in(past, self.model.new_cache)
            past._is_user_defined = True  # pyright: ignore[reportAttributeAccessIssue]
            model_kwargs[CACHE] = past
        elif generation_config.use_cache is not False:
            past = DualAttnCache(self.model.new_cache(), max_cache_length) if static else self.new_cache()
            model_kwargs[CACHE] = past
            if max_cache_length > 0:  # memory that grows, or is full, would have a compiled model compile again
                past.cache.reserve(min(max_cache_length, self.model.block_size) + 1)
            if generation_config.is_assistant:  # tokens that the other model refuses are taken back
                past.activate_past_recording()

    @staticmethod
    def _check_positions(
        generation_config: Any, position_ids: Tensor | None = None, attention_mask: Tensor | None = None, **_: Any
    ) -> None:
        """Refuse positions that are not those which the model counts, as transformers does where none are given."""
        if position_ids is None:
            return
        n, mask = position_ids.shape[-1], attention_mask
        if mask is None:  # of real tokens only
            mask = position_ids.new_ones((1, max(n, getattr(generation_config, "_mask_length", -1))))
        new, counted = mask[:, -n:] != 0, (mask.long().cumsum(1) - 1)[:, -n:]
        if n != new.shape[1] or ((position_ids != counted) & new).any():
            raise ValueError(
                "position_ids: expected none, since generation counts the real tokens of attention_mask from 0, got "
                f"{position_ids.tolist()}"
            )

    def _check_room(self, length: int) -> None:
        """Refuse a text of which the model would have to read more tokens than the context has."""
        room = self.model.block_size - self._learned_prompt()
        if length > room:
            raise ValueError(
                f"max_new_tokens: expected a text of at most {room + 1} tokens, since the context is "
                f"max_block_size={self.model.block_size}{' with the learned prompt' * (room < self.model.block_size)}, "
                f"got {length + 1}; beyond it, generation reads the last tokens anew, which cannot be done with "
                "inputs_embeds, with a cache of tokens that are not in input_ids, for assisted generation, nor by the "
                "second pass of guidance_scale, whose text begins with negative_prompt_ids, or the last token"
            )

    def _learned_prompt(self) -> int:
        """Vectors that PEFT puts before the text; while it generates, it has its own method prepare the inputs."""
        owner = getattr(self.prepare_inputs_for_generation, "__self__", self)
        config: Any = None if owner is self else getattr(owner, "active_peft_config", None)
        return config.num_virtual_tokens if getattr(config, "is_prompt_learning", False) else 0

    def _prefill(
        self, input_ids: Tensor, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Called by ``generate`` to read the prompt."""
        past, mask = model_kwargs.get(CACHE), model_kwargs.get("attention_mask")
        told = getattr(generation_config, "_mask_length", -1) if mask is None else mask.shape[1]
        if past is not None:
            new, length = input_ids.shape[1], generation_config.max_length - 1
            if told == new:  # the whole text is given, as the method of transformers tells it
                new -= past.get_seq_length()
            else:
                length += past.get_seq_length()
                self._check_room(length)
            if isinstance(past.layers[0], StaticDualAttnCacheLayer):
                past.layers[0].check_slots(new, length)
        longer = input_ids.shape[1] > self.model.block_size - self._learned_prompt()
        if longer or generation_config.cache_implementation == "static":  # tokens are read at once
            generation_config.prefill_chunk_size = None
        return super()._prefill(input_ids, generation_config, model_kwargs, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _get_logits_processor(self, *args: Any, **kwargs: Any) -> Any:
        """Called by ``generate``; guidance reads another prompt, and then the same new tokens."""
        config, other = kwargs["generation_config"], kwargs.get("negative_prompt_ids")
        if config.guidance_scale not in (None, 1):
            new = config.max_length - kwargs["input_ids_seq_length"]
            self._check_room((1 if other is None else other.shape[1]) + new - 1)
        return super()._get_logits_processor(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def create_masks_for_generate(self, *args: Any, attention_mask: Tensor | None, **kwargs: Any) -> Tensor | None:
        """Called by ``generate`` for a static cache, which hides padding by itself once the prompt is read."""
        return None if kwargs[CACHE].cache.steps is not None else attention_mask

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not for this model, always a ``ValueError``: its cache is not made of the pages that this needs."""
        raise ValueError(
            "generate_batch: expected a model whose cache is pages of keys and values; this one keeps relations and "
            "symbols, too; generate takes a batch of prompts, padded on the left"
        )

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        *args: Any,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """As the method of transformers; positions are left for the model to count.

        Of a text longer than the context the model reads the last ``max_block_size`` tokens, anew for each next one, as
        ``dual_attention.generation.context`` says. Tokenizers, which ``stop_strings`` and assistants of another
        vocabulary need, come along but are no input.
        """
        if next_sequence_length is not None and next_sequence_length < 1:
            length = (input_ids if inputs_embeds is None else inputs_embeds).shape[1]
            raise ValueError(
                f"{CACHE}: expected fewer tokens in it than the prompt's {length}, which begins with them, got "
                f"{length - next_sequence_length}"
            )
        # `generate` looks for `inputs_embeds` among the arguments of this method.
        inputs = super().prepare_inputs_for_generation(  # pyright: ignore[reportAttributeAccessIssue]
            input_ids, next_sequence_length, *args, inputs_embeds=inputs_embeds, **kwargs
        )
        for name in ("position_ids", "tokenizer", "assistant_tokenizer"):
            inputs.pop(name, None)
        seen = self.model.block_size - self._learned_prompt()
        if inputs_embeds is None and input_ids.shape[1] > seen:
            if inputs.get(CACHE) is not None:
                inputs[CACHE].reset()
            inputs["input_ids"] = input_ids[:, -seen:]
            if inputs.get("attention_mask") is not None:
                inputs["attention_mask"] = inputs["attention_mask"][:, -seen:]
        if CACHE in inputs:  # PEFT looks for it by the older name, whatever the version
            inputs["past_key_values"] = inputs.pop(CACHE)
        return inputs

    @property
    def lm_head(self) -> nn.Module:
        """The output layer, by the name that most models for transformers give it."""
        return self.model.layers.final_out

    def get_output_embeddings(self) -> nn.Module:
        """The output layer."""
        return self.model.layers.final_out

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the output layer."""
        self.model.layers["final_out"] = new_embeddings
