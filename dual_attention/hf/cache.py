"""The cache of a language model as transformers' generation handles it."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Cache

from ..cache import CacheGroup

__all__ = ["DualAttnCache"]


class DualAttnCache(Cache):
    """A :class:`transformers.Cache` around :meth:`LanguageModel.new_cache
    <dual_attention.language_models.LanguageModel.new_cache>`.

    It has no keys and values by layer, as relational attention keeps more of a token than those.

    Args:
        cache: what the layers keep.
    """

    def __init__(self, cache: CacheGroup) -> None:
        super().__init__(layers=[])
        self.cache = cache

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.get_seq_length()} tokens)"

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens seen so far."""
        return self.cache.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """-1: it grows as needed."""
        return -1

    @property
    def batch_size(self) -> int:
        """Examples, or -1 while it is empty."""
        return -1 if self.cache.batch is None else self.cache.batch

    @property
    def is_initialized(self) -> bool:
        """Whether tokens have been seen."""
        return self.cache.length > 0

    def reset(self) -> None:
        """Forget everything."""
        self.cache.reset()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row ``b`` continue what row ``beam_idx[b]`` was."""
        self.batch_select_indices(beam_idx)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens.

        Raises:
            ValueError: if the number is positive, or there are not as many.
        """
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
