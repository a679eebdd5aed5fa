"""Generation with sequence-to-sequence models: targets of tokens, or of vectors that are fed back.

Shapes: B batch, S length of the source, P length of the prefix, T new positions, R hypotheses, V classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._layers.cache import CacheGroup
from .._layers.inputs import check_boolean, check_tokens, check_vectors
from ._checks import check_ending, check_integer, check_prompts
from .beams import BeamSearch, BeamSearchOutput, search_beams
from .decoding import decode, evaluating
from .language import random_generator
from .sampling import LogitsProcessor, Sampling


class TargetDecoder:
    """A sequence-to-sequence model in the middle of a target, a :class:`~dual_attention.generation.decoding.Decoder`.

    Args:
        memory: ``(B, S, d)``, the output of the encoder.
        max_length: most target positions to come, including the prefix.

    >>> spec, heads = {"type": "token", "vocab_size": 50}, {"n_heads": 2, "dff": 64}
    >>> model = Seq2SeqTransformer(spec, spec, 32, 50, 1, 1, heads, {**heads, "n_heads_cross": 2})
    >>> with evaluating(model):
    ...     decoder = TargetDecoder(model, model.encode(torch.randint(50, (2, 9))), None, use_cache=True, max_length=5)
    ...     decoder.step(torch.zeros(2, 1, dtype=torch.long)).shape
    torch.Size([2, 50])
    """

    def __init__(
        self, model: Any, memory: Tensor, source_padding_mask: Tensor | None, use_cache: bool, max_length: int
    ) -> None:
        check_boolean(use_cache=use_cache)
        self.model = model
        self.memory = memory
        self.source_padding_mask = source_padding_mask
        self.cache: CacheGroup | None = model.new_cache(max_length) if use_cache else None
        self._seen: Tensor | None = None  # without a cache: all positions so far

    def step(self, tokens: Tensor) -> Tensor:
        """Append tokens ``(B, n)`` or vectors ``(B, n, dim)``; returns the output for what follows them, ``(B, V)``."""
        if self.cache is None and self._seen is not None:
            tokens = torch.cat([self._seen, tokens], dim=1)
        masks = {"source_padding_mask": self.source_padding_mask}
        outputs = self.model.decode(tokens, self.memory, **masks, cache=self.cache)
        if self.cache is None:
            self._seen = tokens
        else:  # its keys and values are in the cache: from here on only its shape counts
            self.memory = self.memory[:1].expand(len(self.memory), -1, -1)
        return outputs[:, -1]

    def reorder(self, indices: Tensor) -> None:
        """Let row ``b`` continue what row ``indices[b]`` was."""
        if self.cache is None:
            self.memory = self.memory[indices]
            self._seen = None if self._seen is None else self._seen[indices]
        else:
            self.memory = self.memory[:1].expand(len(indices), -1, -1)
            self.cache.reorder(indices)
        if self.source_padding_mask is not None:
            self.source_padding_mask = self.source_padding_mask[indices]


class GeneratesTargets:
    """Methods of a sequence-to-sequence model that generate targets, in evaluation mode and without gradients.

    >>> spec, heads = {"type": "token", "vocab_size": 50}, {"n_heads": 2, "dff": 64}
    >>> model = Seq2SeqTransformer(spec, spec, 32, 50, 1, 1, heads, {**heads, "n_heads_cross": 2})
    >>> model.generate(torch.randint(50, (2, 9)), 5, start_token=0).shape
    torch.Size([2, 5])
    """

    def generate(
        self: Any,
        source: Tensor,
        max_new_tokens: int,
        *,
        start_token: int | Tensor,
        stop_token: int | Sequence[int] | None = None,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float = 1.0,
        logits_processors: Sequence[LogitsProcessor] = (),
        pad_token: int | None = None,
        source_padding_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        use_cache: bool = True,
    ) -> Tensor:
        """Generate a target for each source: greedy by default, sampled with a temperature, or by beam search.

        Args:
            source: token ids ``(B, S)`` or vectors ``(B, S, dim)``.
            max_new_tokens: longest target; with the prefix, at most ``out_block_size + 1``.
            start_token: first token of every target; or a prefix for all or each of them, integers ``(1 or B, P)``.
            stop_token: one token or several that end a target; the one that ends it is part of it.
            num_beams: above 1, beam search with that many hypotheses for each source, see :meth:`beam_search`.
            length_penalty: of beam search.
            source_padding_mask: boolean ``(B, S)``; True = a real position.
            others: as :func:`~dual_attention.generation.generate`, with temperature 0 by default; processors see the
                prefix, too.

        Returns:
            int64 ``(B, T)``, without the start token or prefix; T is at most ``max_new_tokens``.
        """
        samples = (temperature, top_k, top_p, min_p, repetition_penalty) != (0, None, None, None, 1)
        draws = generator is not None or seed is not None
        if check_integer("num_beams", num_beams, low=1) > 1 and (samples or logits_processors or draws):
            raise ValueError(
                "temperature, top_k, top_p, min_p, repetition_penalty, logits_processors, generator, seed: beam search "
                f"samples nothing; leave them out, or give num_beams=1, got {num_beams}"
            )
        sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, logits_processors)
        stops, pad = check_ending(stop_token, pad_token, self.out_dim, "stop_token")
        search = BeamSearch(num_beams, 1, length_penalty, False, stops, pad)
        if num_beams == 1 and length_penalty != 1:
            raise ValueError(f"length_penalty: is of beam search, num_beams above 1; expected 1, got {length_penalty}")
        with evaluating(self):
            decoder, prefix = self._token_decoder(source, max_new_tokens, start_token, source_padding_mask, use_cache)
            if num_beams > 1:
                return search_beams(decoder, prefix, max_new_tokens, search).tokens[:, 0]
            draws = random_generator(generator, seed, prefix.device)
            columns = list(
                decode(decoder, prefix, max_new_tokens, sampling, generator=draws, stop_tokens=stops, pad_token=pad)
            )
        return torch.stack(columns, dim=1) if columns else prefix.new_empty(len(prefix), 0)

    def beam_search(
        self: Any,
        source: Tensor,
        max_new_tokens: int,
        num_beams: int,
        *,
        start_token: int | Tensor,
        stop_token: int | Sequence[int] | None = None,
        num_return: int = 1,
        length_penalty: float = 1.0,
        early_stopping: bool = False,
        pad_token: int | None = None,
        source_padding_mask: Tensor | None = None,
        use_cache: bool = True,
    ) -> BeamSearchOutput:
        """Likely targets of each source, best first; see ``dual_attention.generation.beams``.

        Args:
            num_beams, num_return, length_penalty, early_stopping: as
                ``generation.beams.BeamSearch``.
            source, max_new_tokens, start_token, stop_token, pad_token, source_padding_mask, use_cache: as
                :meth:`generate`.

        Returns:
            ``tokens``, int64 ``(B, R, T)`` without the start token or prefix, and ``scores`` ``(B, R)``.
        """
        stops, pad = check_ending(stop_token, pad_token, self.out_dim, "stop_token")
        search = BeamSearch(num_beams, num_return, length_penalty, early_stopping, stops, pad)
        with evaluating(self):
            decoder, prefix = self._token_decoder(source, max_new_tokens, start_token, source_padding_mask, use_cache)
            return search_beams(decoder, prefix, max_new_tokens, search)

    def generate_vectors(
        self: Any,
        source: Tensor,
        length: int,
        *,
        start: Tensor,
        source_padding_mask: Tensor | None = None,
        use_cache: bool = True,
    ) -> Tensor:
        """Generate a target of vectors for each source, ``(B, T, V)``: each prediction is what the decoder reads next.

        Args:
            length: T; with the prefix, at most ``out_block_size + 1``.
            start: first vectors of the targets, ``(B, P, dim)``, which are no part of the result.
            source, source_padding_mask, use_cache: as :meth:`generate`.
        """
        if self.output_spec["type"] != "vector" or self.loss_type != "mse" or self.output_spec["dim"] != self.out_dim:
            raise ValueError(
                "generate_vectors: needs a decoder that reads vectors as wide as those that it predicts, with "
                f"loss_type='mse'; got output_spec={self.output_spec}, out_dim={self.out_dim} and "
                f"loss_type={self.loss_type!r}"
            )
        check_integer("length", length, low=0)
        check_tokens("source", source)
        with evaluating(self):
            check_vectors("start", start, self.out_dim)
            decoder = self._target_decoder(source, start, length, "length", source_padding_mask, use_cache)
            new, made = start, [start[:, :0]]
            for _ in range(length):
                new = decoder.step(new)[:, None]
                made.append(new)
        return torch.cat(made, dim=1)

    def _token_decoder(
        self: Any, source: Tensor, length: int, start_token: int | Tensor, mask: Tensor | None, use_cache: bool
    ) -> tuple[TargetDecoder, Tensor]:
        """A decoder of tokens, and the prefix ``(B, P)``, int64."""
        if self.output_spec["type"] != "token" or self.loss_type != "cross_entropy":
            raise ValueError(
                "generate: needs a model that reads and predicts tokens, got "
                f"output_spec={self.output_spec} and loss_type={self.loss_type!r}; generate_vectors is for vectors"
            )
        vocab_size = self.output_spec["vocab_size"]
        if self.out_dim > vocab_size:
            raise ValueError(f"generate: the decoder reads {vocab_size} tokens, fewer than out_dim={self.out_dim}")
        check_integer("max_new_tokens", length, low=0)
        check_tokens("source", source)
        if not isinstance(start_token, Tensor):
            start_token = torch.tensor([[check_integer("start_token", start_token, low=0)]])
        prefix = check_prompts(start_token, vocab_size, "start_token").to(source.device)
        if len(prefix) == 1:
            prefix = prefix.expand(len(source), -1)
        return self._target_decoder(source, prefix, length, "max_new_tokens", mask, use_cache), prefix

    def _target_decoder(
        self: Any, source: Tensor, prefix: Tensor, length: int, name: str, mask: Tensor | None, use_cache: bool
    ) -> TargetDecoder:
        if not self.is_causal:
            raise ValueError("generate: needs a causal decoder; this model has decoder_kwargs with causal=False")
        if len(prefix) != len(source) or not prefix.shape[1]:
            given = "start" if name == "length" else "start_token"
            raise ValueError(f"{given}: expected a prefix for each of {len(source)} sources, got {tuple(prefix.shape)}")
        longest = prefix.shape[1] + length - 1  # the last is never read
        if longest > self.out_block_size:
            raise ValueError(
                f"{name}: expected at most {self.out_block_size + 1 - prefix.shape[1]} after a prefix of "
                f"{prefix.shape[1]}, since the decoder reads out_block_size={self.out_block_size}; got {length}"
            )
        memory = self.encode(source, source_padding_mask=mask)
        return TargetDecoder(self, memory, mask, use_cache, max(1, longest))
