"""Relation dictionaries: the pairs of a corpus that excite each relation most, in context, with counterexamples."""

from .building import DictionarySettings, build_dictionary, weights_digest
from .dictionary import DictionaryEntry, PairContext, PairExample, RelationDictionary, load_dictionary

__all__ = [
    "DictionaryEntry",
    "DictionarySettings",
    "PairContext",
    "PairExample",
    "RelationDictionary",
    "build_dictionary",
    "load_dictionary",
    "weights_digest",
]
