"""Questions and answers of school mathematics (Saxton et al. 2019): made by DeepMind's generator, or its own files."""

from .files import LEVELS, MODULES, Module, Pair, QuestionSets, load_questions, read_pairs
from .generated import Report, generated_folder
from .vocabulary import (
    ANSWER_LENGTH,
    END,
    PAD,
    QUESTION_LENGTH,
    START,
    VOCABULARY,
    decode_text,
    encode_answers,
    encode_questions,
)

__all__ = [
    "ANSWER_LENGTH",
    "END",
    "LEVELS",
    "MODULES",
    "PAD",
    "QUESTION_LENGTH",
    "START",
    "VOCABULARY",
    "Module",
    "Pair",
    "QuestionSets",
    "Report",
    "decode_text",
    "encode_answers",
    "encode_questions",
    "generated_folder",
    "load_questions",
    "read_pairs",
]
