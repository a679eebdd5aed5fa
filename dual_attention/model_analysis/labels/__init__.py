"""Labels of pairs, which relations may or may not detect.

==========  ==================================================================================
``texts``   texts with labelled pairs of words: the same word, or from a file
``tokens``  labels of pairs of tokens: of labelled words, equal tokens, near ones
==========  ==================================================================================
"""

from .texts import LabelledText, find_words, label_same_words, read_labels, write_labels
from .tokens import TokenPairs, label_tokens, last_tokens, near, same_token

__all__ = [
    "LabelledText",
    "TokenPairs",
    "find_words",
    "label_same_words",
    "label_tokens",
    "last_tokens",
    "near",
    "read_labels",
    "same_token",
    "write_labels",
]
