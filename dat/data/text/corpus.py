"""One clean file of text from folders, of unpacked packages or of BabyLM: documents tidied, none twice."""

import gzip
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

from dual_attention._base.digests import document_hash
from dual_attention._base.files import read_file, replaced_atomically

from .documents import hash_of_text

_MARKER = re.compile(r"^[ \t]*= = = (.*?)(?: = = =)?[ \t]*$\n?", re.MULTILINE)

Layout = Literal["files", "babylm"]
"""Unit of a document: a file, or in the corpora of BabyLM what follows a line ``= = = Title = = =``."""
PATTERNS: Mapping[Layout, tuple[str, ...]] = {"files": ("*.txt", "*.md", "*.rst"), "babylm": ("*.train", "*.train.txt")}
"""Names of files."""


class Written(NamedTuple):
    """A file that was written.

    Attributes:
        documents, characters, words: their number; words are what white space parts.
        duplicates, short: documents that were left out.
        sha256: of the file.
    """

    documents: int
    characters: int
    words: int
    duplicates: int
    short: int
    sha256: str


def clean_text(text: str) -> str:
    """A text in NFC, without spaces at the ends of lines, and with at most one blank line between two others."""
    lines = _in_lines(unicodedata.normalize("NFC", text)).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def _in_lines(text: str) -> str:
    """A text whose lines all end in a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def find_texts(folders: Sequence[Path], patterns: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Names, from a folder on, and paths of files whose name fits a pattern, with or without ``.gz``; sorted.

    Raises:
        OSError: for a folder that is not there, or cannot be read.
    """
    for folder in folders:
        found = [Path(place, name) for place, _, names in os.walk(folder, onerror=_raise) for name in names]
        named = sorted((path.relative_to(folder).as_posix(), path) for path in found)
        yield from ((name, path) for name, path in named if _fits(path.name.removesuffix(".gz"), patterns))


def _raise(error: OSError) -> NoReturn:
    raise error


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, which may be compressed by gzip; ``ValueError`` naming it, if it is none."""
    data = read_file(path)
    try:
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from error
    if "\0" in text:
        raise ValueError(f"{path}: not text (a zero byte)")
    return text


def documents_in(text: str, name: str, layout: Layout) -> Iterator[str]:
    """The documents of a file: all of it, or in BabyLM's layout what is between its markers.

    A file of that layout without markers is one document. Titles begin the document that follows, except in CHILDES and
    Project Gutenberg, where they are paths and numbers.
    """
    if layout == "files":
        yield text
        return
    text = _in_lines(text)
    without = Path(name).name.startswith(("childes", "gutenberg"))
    begin, title = 0, ""
    for marker in _MARKER.finditer(text):
        yield title + text[begin : marker.start()]
        begin, title = marker.end(), "" if without else marker[1] + "\n"
    yield title + text[begin:]


def write_corpus(
    out: Path, folders: Sequence[Path], patterns: Sequence[str], *, shortest: int, layout: Layout = "files"
) -> Written:
    """Write a JSON Lines file with a ``text`` and its ``source`` in each line.

    Args:
        patterns: names of files, for instance ``*.txt``.
        shortest: characters of a document; shorter ones are left out, as are empty ones.
        layout: see :data:`Layout`.

    Raises:
        ValueError: naming a file that is no text, or if there is none.
        OSError: for a folder that is not there, or cannot be read.
    """
    found = list(find_texts(folders, patterns))
    where = ", ".join(map(str, folders))
    if not found:
        raise ValueError(f"path: there are no files {' or '.join(patterns)} in {where}")
    seen: set[int] = set()
    characters = words = duplicates = short = 0
    with replaced_atomically(out) as file:
        texts = ((name, text) for name, path in found for text in documents_in(read_text(path), name, layout))
        for name, text in ((name, clean_text(text)) for name, text in texts):
            if not text:
                continue
            digest = document_hash()
            digest.update(text.encode())
            if len(text) < shortest:
                short += 1
            elif hash_of_text(digest) in seen:
                duplicates += 1
            else:
                seen.add(hash_of_text(digest))
                characters += len(text)
                words += len(text.split())
                file.write((json.dumps({"text": text, "source": name}, ensure_ascii=False) + "\n").encode())
        if not seen:
            raise ValueError(f"path: there is no text of {shortest} characters in {where}")
        sha256 = file.digest()
    return Written(len(seen), characters, words, duplicates, short, sha256)
