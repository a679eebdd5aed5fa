"""Labels of pairs, which relations may or may not detect: of words in texts, and of tokens."""

from .texts import LabelledText, find_words, label_same_words
from .tokens import TokenPairs, label_tokens, last_tokens, near, same_token

__all__ = [
    "LabelledText",
    "TokenPairs",
    "find_words",
    "label_same_words",
    "label_tokens",
    "last_tokens",
    "near",
    "same_token",
]
