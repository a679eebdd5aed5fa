"""Generation with language models: sampling, streaming, beam search.

Shapes: B batch, L tokens of the prompt, T new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ._checks import check_ending, check_integer, check_left_padding, check_tokens
from .beams import BeamSearch, BeamSearchOutput, search_beams
from .context import CausalLM, LanguageModelDecoder
from .decoding import decode, evaluating, undisturbed
from .sampling import LogitsProcessor, Sampling

__all__ = ["Generates", "beam_search", "generate", "generate_stream", "random_generator"]


def generate(
    model: CausalLM,
    idx: Tensor,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    *,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    logits_processors: Sequence[LogitsProcessor] = (),
    stop_tokens: int | Sequence[int] | Tensor | None = None,
    pad_token: int | None = None,
    padding_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    use_cache: bool = True,
    window_stride: int = 1,
) -> Tensor:
    """Continue prompts, token by token, until each row has ended or ``max_new_tokens`` have come.

    The order in which the options act on the logits, and what each does exactly, is in
    :mod:`dual_attention.generation.sampling`; what the model sees past its context, in
    :mod:`dual_attention.generation.context`. The model computes in evaluation mode and without gradients, and is then
    as it was.

    Args:
        model: a language model of this library, or what else is a
            :class:`~dual_attention.generation.context.CausalLM`.
        idx: prompts, integers ``(B, L)``, of at least one token each.
        max_new_tokens: most tokens to add to each row.
        temperature: divides the logits; 0: always the likeliest token, whatever ``top_k``, ``top_p``, ``min_p``.
        top_k: draw from the k likeliest tokens alone.
        top_p: draw from the likeliest tokens that together have this probability alone, in (0, 1].
        min_p: draw from tokens at least this times as likely as the likeliest alone, in [0, 1].
        repetition_penalty: above 1, tokens of the prompt and those generated become less likely.
        logits_processors: functions of tokens ``(B, L)`` and logits ``(B, V)`` that return logits, applied first.
        stop_tokens: one token or several that end a row; the one that does is part of the output.
        pad_token: what a row that has ended emits while others go on; by default the first stop token.
        padding_mask: boolean ``(B, L)``, True = a real token, for prompts padded on the left, as
            :func:`~dual_attention.generation.prompts.left_pad` makes them. Without chance, each row becomes what its
            prompt becomes alone.
        generator: of the random numbers; by default the global one of the device.
        seed: of a new generator, instead; the global one is then not touched.
        use_cache: keep what layers computed of earlier tokens, which changes nothing but the time it takes.
        window_stride: past the context, drop the earliest tokens that many at a time; 1: the model always sees as many
            as it can, and computes them all anew for each token.

    Returns:
        Prompts and new tokens, int64 ``(B, L + T)``, T at most ``max_new_tokens``, less if all rows ended before.

    Raises:
        TypeError: if an argument is of another type than these.
        ValueError: if one is out of its range or of another shape, or the model gives logits that are NaN.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, logits_processors)
    tokens = _decode(
        model,
        idx,
        max_new_tokens,
        sampling,
        stop_tokens,
        pad_token,
        padding_mask,
        generator,
        seed,
        use_cache,
        window_stride,
    )
    with evaluating(model):
        return torch.cat([idx.long(), *(token[:, None] for token in tokens)], dim=1)


def generate_stream(
    model: CausalLM,
    idx: Tensor,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    *,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    logits_processors: Sequence[LogitsProcessor] = (),
    stop_tokens: int | Sequence[int] | Tensor | None = None,
    pad_token: int | None = None,
    padding_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    use_cache: bool = True,
    window_stride: int = 1,
) -> Iterator[Tensor]:
    """The new tokens one by one, as soon as each is chosen.

    Arguments and errors are those of :func:`generate`; they are checked at once, not when the first token is asked for.
    Whenever the caller has the floor, the model is in the mode it was in.

    Returns:
        An iterator of T tensors, int64 ``(B,)``.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, logits_processors)
    tokens = _decode(
        model,
        idx,
        max_new_tokens,
        sampling,
        stop_tokens,
        pad_token,
        padding_mask,
        generator,
        seed,
        use_cache,
        window_stride,
    )
    return undisturbed(model, tokens)


def beam_search(
    model: CausalLM,
    idx: Tensor,
    max_new_tokens: int,
    num_beams: int,
    *,
    num_return: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    stop_tokens: int | Sequence[int] | Tensor | None = None,
    pad_token: int | None = None,
    padding_mask: Tensor | None = None,
    use_cache: bool = True,
    window_stride: int = 1,
) -> BeamSearchOutput:
    """Likely continuations of prompts, found by beam search; see :mod:`dual_attention.generation.beams`.

    Args:
        num_beams: hypotheses kept of each row.
        num_return: how many of them to return, R.
        length_penalty: a hypothesis scores its log-probability over its length, new tokens alone, to this power.
        early_stopping: end a row when ``num_beams`` hypotheses have, though live ones might surpass them.
        model, idx, max_new_tokens, stop_tokens, pad_token, padding_mask, use_cache, window_stride: as
            :func:`generate`; ``pad_token`` fills what comes after a stop token.

    Returns:
        ``tokens``, prompts and hypotheses, int64 ``(B, R, L + T)``, the best first, and their ``scores`` ``(B, R)``.

    Raises:
        TypeError: if an argument is of another type than these.
        ValueError: if one is out of its range or of another shape, or the model gives logits that are NaN.
    """
    idx, padding_mask = _check_prompt(model, idx, padding_mask)
    max_new_tokens = check_integer("max_new_tokens", max_new_tokens, low=0)
    stops, pad = check_ending(stop_tokens, pad_token, model.vocab_size)
    search = BeamSearch(num_beams, num_return, length_penalty, early_stopping, stops, pad)
    decoder = _decoder(model, idx, max_new_tokens, padding_mask, use_cache, window_stride)
    with evaluating(model):
        tokens, scores = search_beams(decoder, idx, max_new_tokens, search)
    prompts = idx[:, None].expand(-1, num_return, -1)
    return BeamSearchOutput(torch.cat([prompts, tokens], dim=-1), scores)


class Generates:
    """Gives a language model, see :class:`~dual_attention.generation.context.CausalLM`, its methods."""

    generate = generate
    generate_stream = generate_stream
    beam_search = beam_search


def random_generator(
    generator: torch.Generator | None, seed: int | None, device: torch.device
) -> torch.Generator | None:
    """The generator, or a new one of that seed on the device; None: the global one.

    Raises:
        TypeError: if they are of another type.
        ValueError: if both are given, or the seed is negative.
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}")
    if seed is None:
        return generator
    if generator is not None:
        raise ValueError("seed: got a generator too; give one or the other")
    return torch.Generator(device).manual_seed(check_integer("seed", seed, low=0))


def _decode(
    model: CausalLM,
    idx: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    stop_tokens: int | Sequence[int] | Tensor | None,
    pad_token: int | None,
    padding_mask: Tensor | None,
    generator: torch.Generator | None,
    seed: int | None,
    use_cache: bool,
    window_stride: int,
) -> Iterator[Tensor]:
    idx, padding_mask = _check_prompt(model, idx, padding_mask)
    max_new_tokens = check_integer("max_new_tokens", max_new_tokens, low=0)
    stops, pad = check_ending(stop_tokens, pad_token, model.vocab_size)
    return decode(
        _decoder(model, idx, max_new_tokens, padding_mask, use_cache, window_stride),
        idx,
        max_new_tokens,
        sampling,
        padding_mask=padding_mask,
        generator=random_generator(generator, seed, idx.device),
        stop_tokens=stops,
        pad_token=pad,
    )


def _check_prompt(model: CausalLM, idx: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    for name in ("block_size", "vocab_size"):
        if not isinstance(getattr(model, name, None), int):
            raise TypeError(f"model: expected a language model with an integer {name}, got {type(model).__name__}")
    idx = check_tokens(idx, model.vocab_size)
    return idx, None if padding_mask is None else check_left_padding(padding_mask, idx)


def _decoder(
    model: CausalLM,
    idx: Tensor,
    max_new_tokens: int,
    padding_mask: Tensor | None,
    use_cache: bool,
    window_stride: int,
) -> LanguageModelDecoder:
    # The last token is never read.
    longest = idx.shape[1] + max(max_new_tokens - 1, 0)
    return LanguageModelDecoder(
        model, padding_mask=padding_mask, use_cache=use_cache, stride=window_stride, max_length=longest
    )
