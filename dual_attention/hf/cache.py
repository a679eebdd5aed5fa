"""The cache of a language model as transformers' generation handles it.

transformers keeps keys and values by layer; relational attention keeps more of a token than those, and so may symbol
mechanisms. So everything is in one layer, which the caches of transformers treat as any other.

Arguments and outputs call a cache ``past_key_values`` until transformers 5.23, and ``cache`` since. Here both names
stand for it with either version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin
from transformers.modeling_outputs import BaseModelOutputWithPast

from .._layers.cache import Cache as TokensCache
from .._layers.cache import CacheGroup
from .._layers.fixed import after_prompt, slots_for, tensors_of

_KNOWN = {field.name for field in fields(BaseModelOutputWithPast)}
CACHE, OTHER = ("cache", "past_key_values") if "cache" in _KNOWN else ("past_key_values", "cache")
"""The name of a cache that the installed transformers knows, and the one that it does not."""


class NamesCache:
    """An output that has its cache under both names."""


setattr(NamesCache, OTHER, property(attrgetter(CACHE)))


def given_cache(cache: Cache | None, past_key_values: Cache | None) -> Cache | None:
    """The cache that was given under either name; ``ValueError`` if there are two."""
    if cache is not None and past_key_values is not None:
        raise ValueError("cache, past_key_values: expected one of them, since both are names of the same, got both")
    return past_key_values if cache is None else cache


class DualAttnCacheLayer(CacheLayerMixin):
    """All that a language model keeps of earlier tokens, as a layer of a cache of transformers."""

    is_croppable = True

    def __init__(self, cache: CacheGroup) -> None:
        _keep_graph(cache)
        self.cache = cache
        self.keys = self.values = None  # transformers lists them
        self._record_past = False

    @property
    def record_past(self) -> bool:
        """Whether what windows drop is held until the next :meth:`crop`."""
        return self._record_past

    @record_past.setter
    def record_past(self, on: bool) -> None:
        self._record_past = on
        self.cache.record_past(on)

    def activate_past_recording(self) -> None:
        """Set :attr:`record_past`, for generation that takes tokens back."""
        self.record_past = True

    @property
    def is_initialized(self) -> bool:
        """Whether tokens have been seen."""
        return self.cache.length > 0

    @property
    def batch_size(self) -> int:
        """Examples, or -1 while it is empty."""
        return -1 if self.cache.batch is None else self.cache.batch

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: memory is reserved as tokens come."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        """Not for callers, always a ``TypeError``: the model appends what it keeps by itself."""
        raise TypeError("update: only its own model fills this cache")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens that ``query_length`` new ones can attend to, and the first of them."""
        return self.cache.length + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens seen so far."""
        return self.cache.length

    def get_max_length(self) -> int:
        """-1: it grows as needed."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.cache.reset()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row ``b`` continue what row ``beam_idx[b]`` was."""
        self.batch_select_indices(beam_idx)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens."""
        if tokens_to_remove > 0:
            raise ValueError(
                f"tokens_to_remove: expected a negative number, of tokens to forget, got {tokens_to_remove}"
            )
        self.cache.crop(self.cache.length + tokens_to_remove)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each example."""
        if self.cache.batch is not None:
            self.cache.reorder(torch.arange(self.cache.batch).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the examples of these numbers, or where a boolean is True."""
        if self.cache.batch is not None:
            self.cache.reorder(indices.nonzero().flatten() if indices.dtype == torch.bool else indices)


class StaticDualAttnCacheLayer(DualAttnCacheLayer):
    """The same in slots of a fixed number once the prompt is read, so that one compiled step serves all that follow.

    Args:
        cache: empty.
        longest: most tokens to come.
    """

    is_compileable = True
    is_croppable = False

    def __init__(self, cache: CacheGroup, longest: int) -> None:
        super().__init__(cache)
        self._growing = cache  # reads prompts
        self.size = slots_for(longest)
        self.record_past = True

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.size, 0

    def get_seq_length(self) -> int:
        steps = self.cache.steps
        return self.cache.length if steps is None else int(steps.place)

    def get_max_length(self) -> int:
        return self.size

    def reset(self) -> None:
        self.cache = self._growing
        super().reset()

    def check_slots(self, new: int, length: int) -> None:
        """Raise ``ValueError`` unless it can hold a text of this length, of which so many tokens are new."""
        if length > self.size or (new > 1 and self.cache.steps is not None):
            raise ValueError(
                f"{CACHE}: expected at most {self.size + 1} tokens in all with this static cache of {self.size} slots, "
                f"and after its prompt one new token at a time, got {length + 1} in all, {new} of them new; "
                "a cache that grows takes more"
            )

    def has_read(self, tokens: Tensor, padding_mask: Tensor | None) -> None:
        """Called by the model after it has read tokens ``(B, n)`` or ``(B, n, d)``: the prompt, or one more."""
        if self.cache.steps is not None:
            self.cache.steps.advance()
            return
        self.cache = after_prompt(self.cache, self.size, tokens, padding_mask)
        self._growing.reset()  # which has been copied
        for tensor in tensors_of(self.cache):  # a compiled step then writes to them, and copies none
            torch._dynamo.mark_static_address(tensor)


def _keep_graph(cache: TokensCache) -> None:
    """Have gradients flow through a cache, as through those of transformers."""
    cache.keeps_graph = True
    for part in cache.caches.values() if isinstance(cache, CacheGroup) else ():
        _keep_graph(part)


class DualAttnCache(Cache):
    """A :class:`transformers.Cache` around :meth:`LanguageModel.new_cache
    <dual_attention.language_models.LanguageModel.new_cache>`.

    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad():
    ...     past = DualAttnForCausalLM(config)(input_ids=torch.randint(50, (2, 9)), use_cache=True).past_key_values
    >>> type(past).__name__, past.get_seq_length()
    ('DualAttnCache', 9)
    """

    def __init__(self, cache: CacheGroup, longest: int | None = None) -> None:
        """A cache that grows, or one of a fixed size for ``longest`` tokens."""
        layer = DualAttnCacheLayer(cache) if longest is None else StaticDualAttnCacheLayer(cache, longest)
        super().__init__(layers=[layer])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.get_seq_length()} tokens)"

    @property
    def cache(self) -> CacheGroup:
        """Caches of the layers."""
        return cache_in(self)


def cache_in(past: Cache, new: Callable[[], CacheGroup] | None = None) -> CacheGroup:
    """Caches of a model's layers within a :class:`DualAttnCache`; or in a :class:`transformers.DynamicCache`, which has
    been given to a model of this library before, or is empty and is prepared for one by ``new``.
    """
    layers = getattr(past, "layers", [])
    if len(layers) == 1 and isinstance(layers[0], DualAttnCacheLayer):
        return layers[0].cache
    what = type(past).__name__
    if isinstance(past, DynamicCache) and new is not None:
        if past.offloading:
            what += " that offloads layers"
        elif any(layer.is_initialized for layer in layers):
            what += " with tokens of another model, or with a learned prefix (prompt tuning and LoRA need none)"
        else:
            layer = DualAttnCacheLayer(new())
            past.layers[:], past.layer_class_to_replicate = [layer], None
            return layer.cache
    raise TypeError(f"{CACHE}: expected a DualAttnCache, as new_cache() returns, or an empty DynamicCache, got {what}")
