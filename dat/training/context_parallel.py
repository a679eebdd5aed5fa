"""Context parallel training: processes share each sequence, so that its length is bounded by the memory of all of them.

Everything that concerns single tokens, embeddings, projections, feed-forward blocks, norms and the loss, each process
computes for its part of the sequence. Attention needs senders of earlier parts: keys and values of sensory heads, and
keys, relation keys and symbols of relational heads, are gathered along the sequence, and their gradients go back
(:mod:`dual_attention._layers.context_parallel`). Queries, weights and relations are those of a process's own receivers.
The last process sees all senders and the first only its own, so the work of causal attention is uneven.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch import distributed as dist

from dual_attention._layers.context_parallel import gathered
from dual_attention.language_models import LanguageModel


class ContextParallel:
    """A causal language model of which each process of a group computes a part of every sequence.

    Args:
        model: on which ``new_cache`` is called.
        called: the module that is called, the model or what wraps it; by default ``model``.
        group: the process group; None: all processes.
    """

    def __init__(self, model: LanguageModel, called: Any = None, *, group: Any = None) -> None:
        self.model, self.called, self.group = model, called or model, group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def __call__(
        self,
        tokens: Tensor,
        *others: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """Output of the model for the part of this process, of whole sequences that all processes give alike.

        Args:
            tokens: integers ``(B, N)``; processes take N / size of them each, in their order.
            others: further tensors ``(B, N)`` by position, the targets, of which it takes the same part.
            segments: integers ``(B or 1, N)`` of sequences packed into one.
            positions: integers ``(B or 1, N)``, if they do not begin again with each of these sequences.
            options: further arguments of the call, as they are.

        Returns:
            The output of the model; a loss is the mean over this part.

        Raises:
            ValueError: if the processes do not divide N.
        """
        length = tokens.shape[1]
        if length % self.size:
            raise ValueError(f"tokens: expected a multiple of the {self.size} processes, got a length of {length}")
        n = length // self.size
        part = slice(self.rank * n, (self.rank + 1) * n)
        if segments is not None:
            options["segments"] = segments[:, : part.stop]
        if positions is not None:
            options["positions"] = positions[:, part]
        cache = gathered(self.model.new_cache(), self.group, n)
        return self.called(tokens[:, part], *(other[:, part] for other in others), cache=cache, **options)
