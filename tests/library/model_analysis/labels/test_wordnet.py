"""A WordNet of five nouns in its own format, and the real one where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dual_attention.model_analysis.labels import WordNet
from dual_attention.model_analysis.labels.wordnet import FOLDERS

from .test_texts import written

LICENCE = "  1 This software and database is being provided to you, the LICENSEE, by\n"
INDEX = """cat n 2 1 @ 2 1 00000003 00000009
dog n 1 1 @ 1 1 00000004
feline n 1 0 1 0 00000003
mouse n 1 1 @ 1 1 00000005
stone n 1 0 1 0 00000006
"""
DATA = """00000003 05 n 02 cat 0 feline 0 001 @ 00000001 n 0000 | an animal
00000004 05 n 01 dog 0 000 | another
00000005 05 n 01 mouse 0 000 | a third
00000006 17 n 01 stone 0 000 | no animal
00000009 18 n 01 cat 0 000 | a person
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    counts = "cat%1:05:00:: 1 20\ncat%1:18:00:: 2 3\ncat%2:35:00:: 1 5\nmouse%5:00:00:small:00 1 4\n"
    files = {"index.noun": LICENCE + INDEX, "data.noun": LICENCE + DATA, "noun.exc": "mice mouse\n"}
    for name, text in {**files, "cntlist.rev": counts}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_synsets_of_any_form(folder):
    wordnet = WordNet(folder)
    assert wordnet.synsets("Cats") == ["noun.00000003", "noun.00000009"]
    assert wordnet.synsets("mice") == ["noun.00000005"]
    assert wordnet.synsets("mices") == wordnet.synsets("s") == []
    assert (wordnet.lexname("cat"), wordnet.lexname("stones"), wordnet.lexname("unicorn")) == ("05", "17", None)


def test_base_forms_and_counts(folder):
    wordnet = WordNet(folder)
    assert wordnet.base_forms("Mice") == {"mouse"} and wordnet.base_forms("unicorns") == frozenset()
    assert wordnet.counts("cats") == {"noun": 23}  # not those of the verb
    assert wordnet.counts("mice") == wordnet.counts("unicorn") == {"noun": 0}
    (folder / "cntlist.rev").unlink()
    assert WordNet(folder).counts("cat") == {"noun": 0}


def test_labels_of_a_text(folder):
    text = WordNet(folder).label("Dogs and a cat: felines, no stone. Mice!")
    animals = ["Dogs", "cat", "felines", "Mice"]
    assert written(text, "lexname") == {(a, b) for i, a in enumerate(animals) for b in animals[i + 1 :]}
    assert written(text, "synset") == {("cat", "felines")}
    assert text.groups_of("synset") == text.groups_of("lexname") == (0, -1, -1, 0, 0, -1, 0, 0)


def test_errors(folder, tmp_path):
    with pytest.raises(ValueError, match="parts: expected some of noun, verb, adj, adv, got 'pronoun'"):
        WordNet(folder, parts=["pronoun"])
    with pytest.raises(FileNotFoundError, match=r"nowhere.*apt install wordnet-base"):
        WordNet(tmp_path / "nowhere")


@pytest.mark.skipif(not any(Path(place, "data.noun").is_file() for place in FOLDERS), reason="no WordNet is installed")
def test_the_real_one():
    wordnet = WordNet(parts=("noun", "verb"))
    assert not set(wordnet.synsets("dog")) & set(wordnet.synsets("stones"))
    assert set(wordnet.synsets("cars")) & set(wordnet.synsets("automobile"))
    assert (wordnet.lexname("wolves"), wordnet.lexname("hammers"), wordnet.lexname("hears")) == ("05", "06", "39")
    text = wordnet.label("The car hit an automobile and a wolf")
    assert written(text, "synset") == {("car", "automobile")}
    assert wordnet.base_forms("saw") >= {"saw", "see"} and wordnet.counts("governments")["noun"] > 10
