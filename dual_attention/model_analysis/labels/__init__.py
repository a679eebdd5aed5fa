"""Labels of pairs, which relations may or may not detect.

================  ==================================================================================
``texts``         texts with labelled pairs of words: the same word, or from a file
``wordnet``       words that share a sense or a kind, by WordNet's files
``link_grammar``  words that a parser links
``tokens``        labels of pairs of tokens: of labelled words, equal tokens, near ones
================  ==================================================================================

Labels of objects in Relational Games are :func:`..grid_relations.object_pairs`.
"""

from .link_grammar import LinkGrammar
from .texts import LabelledText, find_sentences, find_words, label_same_words, merge_labels, read_labels, write_labels
from .tokens import TokenPairs, label_tokens, last_tokens, near, same_token
from .wordnet import WordNet

__all__ = [
    "LabelledText",
    "LinkGrammar",
    "TokenPairs",
    "WordNet",
    "find_sentences",
    "find_words",
    "label_same_words",
    "label_tokens",
    "last_tokens",
    "merge_labels",
    "near",
    "read_labels",
    "same_token",
    "write_labels",
]
