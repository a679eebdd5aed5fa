"""Generation: greedy, sampled, streamed, or by beam search; with language models, or with any :class:`Decoder`."""

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
