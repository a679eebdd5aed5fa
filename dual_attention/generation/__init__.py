"""Generation: greedy, sampled, streamed, or by beam search; with language models, or with any :class:`Decoder`.

================  =====================================================================================
``language``      :func:`generate`, :func:`generate_stream`, :func:`beam_search` with language models
``targets``       the same with sequence-to-sequence models, and targets of vectors
``prompts``       prompts of different lengths as one batch
``sampling``      choice of the next token from its logits: each option exactly, and their order
``context``       the window that a language model sees, past its context as well; the cache
``decoding``      the loop that all models share, and the protocol :class:`Decoder` that it needs
``beams``         beam search, over the same protocol
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
from .targets import GeneratesTargets, TargetDecoder

__all__ = [
    "BeamSearch",
    "BeamSearchOutput",
    "CausalLM",
    "Decoder",
    "Generates",
    "GeneratesTargets",
    "LanguageModelDecoder",
    "LogitsProcessor",
    "Sampling",
    "TargetDecoder",
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
