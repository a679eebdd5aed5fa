"""Links of a parser, with a stand-in for it, and with the real one where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from dual_attention.model_analysis.labels import LinkGrammar

from .test_texts import written


class Parse:
    """A parse that links each word with the one after it; walls stand at both ends, as in link grammar."""

    def __init__(self, sentence: str) -> None:
        words = sentence.split()
        starts = [sentence.index(word) for word in words]
        self.spans = [(0, 0), *((start, start + len(word)) for start, word in zip(starts, words, strict=True)), (0, 0)]
        self._obj = self

    def num_of_words(self):
        return len(self.spans)

    def num_of_links(self):
        return len(self.spans) - 1

    def word_char_start(self, n):
        return self.spans[n][0]

    def word_char_end(self, n):
        return self.spans[n][1]


class Timer(Exception):
    pass


class Sentence:
    def __init__(self, text, dictionary, options):
        self.text = text

    def parse(self):
        if "slow" in self.text:
            raise Timer
        return [] if "nonsense" in self.text else [Parse(self.text)]


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = SimpleNamespace(
        linkage_get_link_lword=lambda parse, n: n, linkage_get_link_rword=lambda parse, n: n + 1
    )
    module = SimpleNamespace(
        ParseOptions=lambda **options: options,
        Dictionary=lambda language: language,
        Sentence=Sentence,
        LG_TimerExhausted=Timer,
        clinkgrammar=functions,
    )
    monkeypatch.setitem(sys.modules, "linkgrammar", module)


def test_links_within_parsed_sentences(parser):
    text = LinkGrammar().label("One naïve dog barks. Pure nonsense here! Slowly slow things. It ends")
    assert written(text, "link") == {("One", "naïve"), ("naïve", "dog"), ("dog", "barks"), ("It", "ends")}
    assert text.groups_of("link") == (0, 0, 0, 0, -1, -1, -1, -1, -1, -1, 3, 3)


def test_long_sentences_are_left_out(parser):
    text = LinkGrammar(longest=3).label("One two three. One two three four. One.")
    assert text.groups_of("link") == (0, 0, 0, -1, -1, -1, -1, -1)


def test_without_the_parser_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "linkgrammar", None)
    with pytest.raises(ImportError, match="apt install python3-link-grammar"):
        LinkGrammar()


@pytest.mark.skipif(importlib.util.find_spec("linkgrammar") is None, reason="link-grammar is not installed")
def test_the_real_one():
    text = LinkGrammar().label("Naïve: a test. The old dog chased the cat.")
    assert {("old", "dog"), ("dog", "chased"), ("chased", "cat")} <= written(text, "link")
    assert ("old", "cat") not in written(text, "link")


@pytest.mark.skipif(importlib.util.find_spec("linkgrammar") is None, reason="link-grammar is not installed")
def test_a_sentence_of_many_parses_has_one():
    """With a limit of one parse the parser draws one of many, finds it wrong, and says that there is none."""
    text = LinkGrammar().label("However, as will become very clear, nothing could be further from the truth.")
    assert {("could", "be"), ("the", "truth")} <= written(text, "link")
