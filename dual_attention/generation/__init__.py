"""Generation: greedy, sampled, streamed, or by beam search; with language models, or with any :class:`Decoder`.

================  =====================================================================================
``sampling``      how the next token is chosen from its logits: each option exactly, and their order
``context``       what a language model sees, past its context as well; the cache
``decoding``      the loop that all models share, and the protocol :class:`Decoder` that it needs
``beams``         beam search, over the same protocol
``language``      :func:`generate`, :func:`generate_stream`, :func:`beam_search` with language models
``prompts``       prompts of different lengths as one batch
================  =====================================================================================
"""

from .beams import BeamSearch, BeamSearchOutput, search_beams
from .context import CausalLM, LanguageModelDecoder, dropped_tokens
from .decoding import Decoder, decode, evaluating, undisturbed
from .language import Generates, beam_search, generate, generate_stream, random_generator
from .prompts import left_pad
from .sampling import (
    LogitsProcessor,
    Sampling,
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    tokens_seen,
)

__all__ = [
    "BeamSearch",
    "BeamSearchOutput",
    "CausalLM",
    "Decoder",
    "Generates",
    "LanguageModelDecoder",
    "LogitsProcessor",
    "Sampling",
    "apply_temperature",
    "beam_search",
    "decode",
    "dropped_tokens",
    "evaluating",
    "generate",
    "generate_stream",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "left_pad",
    "penalise_repetition",
    "random_generator",
    "search_beams",
    "tokens_seen",
    "undisturbed",
]
