"""Generation with language models: sampling, streaming, beam search.

Shapes: B batch, L tokens of the prompt, T new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from .._layers.calls import takes
from .._layers.inputs import check_boolean
from ._checks import check_ending, check_integer, check_left_padding, check_prompts
from .beams import BeamSearch, BeamSearchOutput, search_beams
from .context import CausalLM, LanguageModelDecoder
from .decoding import decode, evaluating, undisturbed
from .graph import GraphDecoder, obstacle_to_graph
from .sampling import LogitsProcessor, Sampling


@dataclass(frozen=True, eq=False)
class Continuation:
    """Arguments of :func:`generate` and :func:`generate_stream`, stated once; there they are explained."""

    model: CausalLM
    idx: Tensor
    max_new_tokens: int
    temperature: float = 1.0
    top_k: int | None = None
    _: KW_ONLY
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    logits_processors: Sequence[LogitsProcessor] = ()
    stop_tokens: int | Sequence[int] | Tensor | None = None
    pad_token: int | None = None
    padding_mask: Tensor | None = None
    generator: torch.Generator | None = None
    seed: int | None = None
    use_cache: bool = True
    window_stride: int = 1
    graph: bool = False

    def tokens(self) -> Iterator[Tensor]:
        """New tokens one by one, int64 ``(B,)``; all arguments are checked before the first is asked for."""
        sampling = Sampling(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty, self.logits_processors
        )
        decoder, idx, mask = _begun(
            self.model, self.idx, self.max_new_tokens, self.padding_mask, self.use_cache, self.window_stride, self.graph
        )
        stops, pad = check_ending(self.stop_tokens, self.pad_token, self.model.vocab_size)
        draws = random_generator(self.generator, self.seed, idx.device)
        options: dict[str, Any] = {"padding_mask": mask, "generator": draws, "stop_tokens": stops, "pad_token": pad}
        return decode(decoder, idx, self.max_new_tokens, sampling, **options)


Continuation.__init__.__qualname__ = "generate"  # as Python calls it in errors


@takes(Continuation)
def generate(*args: Any, **kwargs: Any) -> Tensor:
    """Continue prompts, token by token, until each row has ended or ``max_new_tokens`` have come.

    The order in which the options act on the logits, and the exact effect of each, are in
    ``dual_attention.generation.sampling``; what the model sees past its context is in
    ``dual_attention.generation.context``. The model computes in evaluation mode without gradients; its mode is then
    restored.

    Args:
        model: a language model of this library, or any other
            ``generation.context.CausalLM``.
        idx: prompts, integers ``(B, L)``, of at least one token each.
        max_new_tokens: most tokens to add to each row.
        temperature: divides the logits; 0 always takes the likeliest token, whatever ``top_k``, ``top_p``, ``min_p``.
        top_k: draw only from the k likeliest tokens.
        top_p: draw only from the likeliest tokens that together have this probability, in (0, 1].
        min_p: draw only from tokens whose probability is at least this share of the likeliest one's, in [0, 1].
        repetition_penalty: above 1, tokens of the prompt and those generated become less likely.
        logits_processors: functions of tokens ``(B, L)`` and logits ``(B, V)`` that return logits, applied first.
        stop_tokens: one token or several that end a row; the one that ends it is part of the output.
        pad_token: emitted by a row that has ended while others go on; by default the first stop token.
        padding_mask: boolean ``(B, L)``, True = a real token, for prompts padded on the left, as
            :func:`~dual_attention.generation.prompts.left_pad` makes them. With temperature 0, each row
            is what its prompt would give by itself.
        generator: source of the random numbers; by default the global generator of the device.
        seed: of a new generator instead; the global one is then not touched.
        use_cache: keep what layers computed of earlier tokens, which only saves time.
        window_stride: past the context, drop that many of the earliest tokens at a time; with 1 the model always sees
            as many as it can, and computes all of them again for each token.
        graph: record the step of a token once, as a CUDA graph, and repeat it: for models of this library on CUDA,
            within their context. Each call records anew, for its batch and its length.

    Returns:
        Prompts and new tokens, int64 ``(B, L + T)``, T at most ``max_new_tokens``, fewer if all rows ended before.

    Raises:
        TypeError: if an argument is of another type than these.
        ValueError: if one is out of its range or of another shape, or the model gives logits that are NaN.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> generate(lm, torch.tensor([[1, 2, 3]]), 4, temperature=0.8, top_k=5, seed=0).shape
    torch.Size([1, 7])
    """
    continuation = Continuation(*args, **kwargs)
    tokens = continuation.tokens()
    with evaluating(continuation.model):
        return torch.cat([continuation.idx.long(), *(token[:, None] for token in tokens)], dim=1)


@takes(Continuation)
def generate_stream(*args: Any, **kwargs: Any) -> Iterator[Tensor]:
    """Yield the new tokens one by one, int64 ``(B,)``, as soon as each is chosen.

    Arguments and errors are those of :func:`generate`; they are checked at once, not when the first token is asked for.
    Between two tokens the model is in the mode in which the caller left it.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> len([*generate_stream(lm, torch.tensor([[1, 2, 3]]), 4)])
    4
    """
    continuation = Continuation(*args, **kwargs)
    return undisturbed(continuation.model, continuation.tokens())


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
    """Likely continuations of prompts, found by beam search; see ``dual_attention.generation.beams``.

    Args:
        num_beams, num_return, length_penalty, early_stopping: as ``generation.beams.BeamSearch``;
            the length counts only new tokens.
        model, idx, max_new_tokens, stop_tokens, pad_token, padding_mask, use_cache, window_stride: as
            :func:`generate`; ``pad_token`` fills what comes after a stop token.

    Returns:
        ``tokens``, prompts and hypotheses, int64 ``(B, R, L + T)``, best first, and their ``scores`` ``(B, R)``.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> tokens, scores = beam_search(lm, torch.tensor([[1, 2, 3]]), 4, num_beams=3)
    >>> tokens.shape, scores.shape
    (torch.Size([1, 1, 7]), torch.Size([1, 1]))
    """
    decoder, idx, _ = _begun(model, idx, max_new_tokens, padding_mask, use_cache, window_stride)
    stops, pad = check_ending(stop_tokens, pad_token, model.vocab_size)
    search = BeamSearch(num_beams, num_return, length_penalty, early_stopping, stops, pad)
    with evaluating(model):
        tokens, scores = search_beams(decoder, idx, max_new_tokens, search)
    prompts = idx[:, None].expand(-1, num_return, -1)
    return BeamSearchOutput(torch.cat([prompts, tokens], dim=-1), scores)


class Generates:
    """Methods of a language model, see ``generation.context.CausalLM``, that generate.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> isinstance(lm, Generates), lm.generate(torch.tensor([[1, 2, 3]]), 4).shape
    (True, torch.Size([1, 7]))
    """

    generate = generate
    generate_stream = generate_stream
    beam_search = beam_search


def random_generator(
    generator: torch.Generator | None, seed: int | None, device: torch.device
) -> torch.Generator | None:
    """The generator, or a new one with that seed on the device; None for the global one. Both are not given at once.

    >>> random_generator(None, 0, torch.device("cpu")).initial_seed()
    0
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator: expected a torch.Generator, got {type(generator).__name__}")
    if seed is None:
        return generator
    if generator is not None:
        raise ValueError("seed: got a generator too; give one or the other")
    return torch.Generator(device).manual_seed(check_integer("seed", seed, low=0))


def _begun(
    model: CausalLM,
    idx: Tensor,
    max_new_tokens: int,
    mask: Tensor | None,
    use_cache: bool,
    stride: int,
    graph: bool = False,
) -> tuple[LanguageModelDecoder, Tensor, Tensor | None]:
    """A decoder, and the prompts and their mask, checked."""
    for name in ("block_size", "vocab_size"):
        if not isinstance(getattr(model, name, None), int):
            raise TypeError(f"model: expected a language model with an integer {name}, got {type(model).__name__}")
    idx = check_prompts(idx, model.vocab_size)
    mask = None if mask is None else check_left_padding(mask, idx)
    longest = idx.shape[1] + max(check_integer("max_new_tokens", max_new_tokens, low=0) - 1, 0)  # the last is not read
    check_boolean(graph=graph)
    if graph:
        obstacle = obstacle_to_graph(model, idx, longest, use_cache=use_cache)
        if obstacle is not None:
            raise ValueError(f"graph: {obstacle}; graph=False launches each operation, which is slower")
        return GraphDecoder(model, padding_mask=mask, max_length=longest), idx, mask
    decoder = LanguageModelDecoder(model, padding_mask=mask, use_cache=use_cache, stride=stride, max_length=longest)
    return decoder, idx, mask
