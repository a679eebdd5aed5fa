"""Labels of pairs of words by WordNet (Miller 1995), read from its dictionary files.

The files are those of any WordNet 3 (``data.noun``, ``index.noun``, ``noun.exc`` and the same of other parts of
speech); Debian installs them with ``apt install wordnet-base``.
"""

from collections.abc import Sequence
from pathlib import Path

from dual_attention.model_analysis.labels.texts import LabelledText, find_words, pairs_of_equal, unordered

FOLDERS = ("/usr/share/wordnet", "/usr/local/share/wordnet", "/usr/share/wordnet/dict")
"""Places where WordNet's files are looked for."""

_ENDINGS = {
    "noun": [
        *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch")),
        *(("shes", "sh"), ("men", "man"), ("ies", "y")),
    ],
    "verb": [("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")],
    "adj": [("er", ""), ("est", ""), ("er", "e"), ("est", "e")],
    "adv": [],
}
"""WordNet's rules of detachment (morphy(7WN)): an ending, and what the base form has in its place."""

_SENSES = {"noun": "1", "verb": "2", "adj": "35", "adv": "4"}
"""Kinds of sense keys (senseidx(5WN)) of each part of speech."""


class WordNet:
    """Synsets of words.

    Args:
        folder: of the dictionary files; by default that of Debian's package ``wordnet-base``.
        parts: parts of speech, of ``noun``, ``verb``, ``adj`` and ``adv``, that are looked up.

    Raises:
        FileNotFoundError: if the files are not there.
        ValueError: for an unknown part of speech.
    """

    def __init__(self, folder: str | Path | None = None, parts: Sequence[str] = ("noun",)) -> None:
        for part in parts:
            if part not in _ENDINGS:
                raise ValueError(f"parts: expected some of {', '.join(_ENDINGS)}, got {part!r}")
        places = [Path(place) for place in (FOLDERS if folder is None else (folder,))]
        found = next((place for place in places if (place / "data.noun").is_file()), None)
        if found is None:
            raise FileNotFoundError(
                f"WordNet's files (data.noun and others) are not in {', '.join(map(str, places))}; on Debian, "
                "apt install wordnet-base puts them there"
            )
        self._parts = {part: _Part(found, part) for part in parts}

    def synsets(self, word: str) -> list[str]:
        """Synsets of a word in any form, the most frequent sense of each part of speech first: ``noun.02084071``."""
        return [f"{part}.{synset}" for part, one in self._parts.items() for synset in one.synsets(word.lower())]

    def lexname(self, word: str) -> str | None:
        """Number of the lexicographer file of a word's first sense (05: animals, 06: artefacts); None if unknown.

        The numbers are those of lexnames(5WN).
        """
        found = self.synsets(word)
        if not found:
            return None
        part, _, synset = found[0].partition(".")
        return self._parts[part].lexnames[synset]

    def base_forms(self, word: str) -> frozenset[str]:
        """Base forms of a word that WordNet knows: *dogs* has *dog*, *saw* has *saw* and, of verbs, *see*."""
        return frozenset(form for one in self._parts.values() for form in one.base_forms(word.lower()))

    def counts(self, word: str) -> dict[str, int]:
        """Occurrences of a word's base forms as each part of speech that is looked up, in the texts that WordNet's
        authors tagged (``cntlist.rev``); 0 for a word that is not in them."""
        return {
            part: sum(one.counts.get(form, 0) for form in one.base_forms(word.lower()))
            for part, one in self._parts.items()
        }

    def label(self, text: str, *, shortest: int = 3) -> LabelledText:
        """A text with the labels ``synset`` and ``lexname``: words that share a sense, or the kind of their first one.

        Pairs of the same lemma, such as *dog* and *dogs*, have both labels; match for identity, or exclude them, to ask
        about meaning. Words that WordNet does not know count for neither.

        Args:
            shortest: letters of a word that is looked up; WordNet has nouns such as *a* and *in* (a letter, an inch).
        """
        words = find_words(text)
        written = [text[start:stop] if stop - start >= shortest else "" for start, stop in words]
        senses = [frozenset(self.synsets(word)) for word in written]
        known = tuple(0 if sense else -1 for sense in senses)
        of_synset: dict[str, list[int]] = {}
        for place, sense in enumerate(senses):
            for synset in sense:
                of_synset.setdefault(synset, []).append(place)
        shared = unordered((i, j) for places in of_synset.values() for i in places for j in places if j < i)
        pairs = {"synset": shared, "lexname": pairs_of_equal([self.lexname(word) for word in written])}
        return LabelledText(text, words, pairs, dict.fromkeys(pairs, known))


class _Part:
    """The files of one part of speech."""

    def __init__(self, folder: Path, part: str) -> None:
        self._endings = _ENDINGS[part]
        self._synsets = {}
        for line in _lines(folder / f"index.{part}"):
            # lemma, part of speech, number of synsets, number and list of pointers, two counts, synsets
            fields = line.split()
            self._synsets[fields[0]] = fields[-int(fields[2]) :]
        self.lexnames = {fields[0]: fields[1] for fields in map(str.split, _lines(folder / f"data.{part}"))}
        exceptions = folder / f"{part}.exc"
        lines = exceptions.read_text(encoding="utf-8").splitlines() if exceptions.is_file() else []
        self._exceptions = {form: bases for form, *bases in map(str.split, lines) if bases}
        self.counts = _counts(folder / "cntlist.rev", _SENSES[part])

    def synsets(self, word: str) -> list[str]:
        return list(dict.fromkeys(synset for form in self.base_forms(word) for synset in self._synsets[form]))

    def base_forms(self, word: str) -> list[str]:
        return [form for form in dict.fromkeys(self._forms(word)) if form in self._synsets]

    def _forms(self, word: str) -> list[str]:
        """The word, its irregular base forms, or else those that the rules make of it."""
        if word in self._exceptions:
            return [word, *self._exceptions[word]]
        detached = [
            word[: -len(old)] + new for old, new in self._endings if word.endswith(old) and len(word) > len(old)
        ]
        return [word, *detached]


def _counts(path: Path, senses: str) -> dict[str, int]:
    """Tags of each lemma with a sense of some kinds; nothing without the file."""
    found: dict[str, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        sense, _, count = line.split()  # lemma%kind:file:number:head:number, number of the sense, tags
        lemma, _, kind = sense.partition("%")
        if kind[0] in senses:
            found[lemma] = found.get(lemma, 0) + int(count)
    return found


def _lines(path: Path) -> list[str]:
    """Lines of a dictionary file without its licence, whose lines begin with two spaces."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("  ")]
