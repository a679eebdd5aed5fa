"""Labels of pairs of words that a parser links: the link grammar of Sleator & Temperley 1993.

The parser is Debian's package ``python3-link-grammar``, with ``link-grammar-dictionaries-en``. An environment whose
Python has the minor version of Debian's sees it with ``/usr/lib/python3/dist-packages`` at the end of its path.
"""

import bisect
import importlib
import re
from typing import Any

from dual_attention.model_analysis.labels.texts import LabelledText, Span, find_words, unordered

_SENTENCE = re.compile(r"[^.!?]+[.!?]*")
_LINKAGES = 1000
"""Parses of a sentence among which the parser finds the best. With few it draws some, which may all be ones that it
then refuses, so that a sentence seems to have none."""


def find_sentences(text: str) -> tuple[Span, ...]:
    """Spans that end with full stops, question or exclamation marks; an abbreviation ends one, too."""
    return tuple(match.span() for match in _SENTENCE.finditer(text))


class LinkGrammar:
    """The parser, with its dictionary.

    Args:
        language: of the dictionary.
        longest: most words of a sentence; longer ones are not parsed.
        seconds: most time for a sentence, rounded up by the parser to whole ones; without a parse in that time, it
            counts as unknown. A label that must be the same on slow machines needs a generous value.

    Raises:
        ImportError: if the parser is not installed.
    """

    def __init__(self, language: str = "en", *, longest: int = 40, seconds: int = 10) -> None:
        try:
            self._library: Any = importlib.import_module("linkgrammar")
        except ImportError as error:
            raise ImportError(
                f"'linkgrammar' could not be imported ({error}): apt install python3-link-grammar "
                "link-grammar-dictionaries-en, and put /usr/lib/python3/dist-packages on the path of Python"
            ) from error
        self._longest = longest
        self._options = self._library.ParseOptions(
            linkage_limit=_LINKAGES, max_parse_time=seconds, spell_guess=False, max_null_count=0, verbosity=0
        )
        self._dictionary = self._library.Dictionary(language)

    def label(self, text: str) -> LabelledText:
        """A text with the label ``link``: words that are linked in the best parse of their sentence.

        Pairs count within sentences that have a parse.
        """
        words = find_words(text)
        starts = [start for start, _ in words]
        groups, pairs = [-1] * len(words), set()
        for number, (begin, end) in enumerate(find_sentences(text)):
            inside = range(bisect.bisect_left(starts, begin), bisect.bisect_left(starts, end))
            if not 1 < len(inside) <= self._longest:
                continue
            links = self._links(text[begin:end])
            if links is not None:
                for word in inside:
                    groups[word] = number
                ends = [[_word_at(words, inside, begin + a, begin + b) for a, b in link] for link in links]
                pairs.update((i, j) for i, j in ends if i is not None and j is not None)
        return LabelledText(text, words, {"link": unordered(pairs)}, {"link": tuple(groups)})

    def _links(self, sentence: str) -> list[tuple[Span, Span]] | None:
        """Spans of characters that are linked; None without a parse."""
        try:
            parse = next(iter(self._library.Sentence(sentence, self._dictionary, self._options).parse()), None)
        except self._library.LG_TimerExhausted:
            return None
        if parse is None:
            return None
        spans = [(parse.word_char_start(n), parse.word_char_end(n)) for n in range(parse.num_of_words())]
        # The classes of the binding tell a link's words only as text, its functions their numbers.
        functions, parsed = self._library.clinkgrammar, parse._obj
        return [
            (spans[functions.linkage_get_link_lword(parsed, n)], spans[functions.linkage_get_link_rword(parsed, n)])
            for n in range(parse.num_of_links())
        ]


def _word_at(words: tuple[Span, ...], inside: range, start: int, stop: int) -> int | None:
    """The first of some words that shares characters with a span."""
    return next((n for n in inside if words[n][0] < stop and start < words[n][1]), None)
