"""Text as documents, read in pieces of bounded size: files on disk, and the documentation of the running Python."""

import ast
import codecs
import gc
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from dual_attention._base.words import listed

BLOCK = 1 << 22
"""Bytes read at a time."""
JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of files with a JSON object in each line, one document each."""
PARQUET = ".parquet"
"""Suffix of files with a table, a document in each row; see :mod:`.formats`."""
TEXTS = (".txt", ".md", ".rst", *JSON_LINES, PARQUET)
"""Suffixes of files of text; what other files of a folder hold is told by how they begin."""

_LOOKED_AT = 1 << 13


class Piece(NamedTuple):
    """A part of a document.

    Attributes:
        text: some of its text.
        begins: whether it is the first part.
    """

    text: str
    begins: bool

    @property
    def empty(self) -> bool:
        """Whether it is a document without text."""
        return self.begins and not self.text.strip()


class FoundFiles(NamedTuple):
    """Files that paths, folders and patterns stand for.

    Attributes:
        files: to read.
        left_out: those of folders that are no text, and what is no file.
    """

    files: list[Path]
    left_out: list[Path]


def standard_input(argument: str) -> str:
    """The text on standard input, without a byte-order mark and the line break at its end.

    Raises:
        ValueError: naming the argument, if it is not UTF-8.
    """
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{argument}: expected UTF-8 text on standard input ({error})") from error


def find_files(paths: Sequence[str], argument: str) -> FoundFiles:
    """Files that paths, folders and patterns stand for, in that order.

    A folder stands for all its files of text and those of the folders below it, sorted, except hidden ones.

    Raises:
        FileNotFoundError: naming what stands for no file.
        OSError: naming a folder that cannot be read, which is not taken for an empty one.
        ValueError: naming a folder of a data set whose text would not be read, only what is said of it.
    """
    files: list[Path] = []
    left_out: list[Path] = []
    for text in paths:
        path = Path(os.path.expanduser(text))
        if path.is_dir():
            found, others = _texts_in(path)
            if not found:
                only = f", only {listed([file.name for file in others])}" if others else ""
                raise FileNotFoundError(f"{argument}: the folder {path} holds no file of text{only}")
            if {"dataset_info.json", ".arrow"} <= {*(one.name for one in found), *(one.suffix for one in others)}:
                raise ValueError(
                    f"{argument}: expected files of text in {path}, got a data set that save_to_disk wrote; export it: "
                    'dataset.to_parquet("data.parquet")'
                )
        else:
            matches = _matches(path) if _is_pattern(path) and not path.exists() else [path]
            found, others = _parted(matches, Path.is_file)
            if not found:
                raise FileNotFoundError(f"{argument}: no such file or folder: {text}")
        files += found
        left_out += others
    return FoundFiles(files, left_out)


def _parted(paths: Iterable[Path], taken: Callable[[Path], bool]) -> FoundFiles:
    found = FoundFiles([], [])
    for path in paths:
        (found.files if taken(path) else found.left_out).append(path)
    return found


def _is_pattern(path: str | Path) -> bool:
    return bool(set(str(path)) & set("*?["))


def _matches(pattern: Path) -> list[Path]:
    """Files that a pattern stands for; OSError for a folder in its way that cannot be read."""
    root = Path(pattern.anchor)
    for path in reversed([pattern, *pattern.parents]):
        if _is_pattern(path.name):
            parents = root.glob(str(path.parent.relative_to(root))) if _is_pattern(path.parent) else [path.parent]
            for folder in parents:
                if folder.is_dir():
                    os.listdir(folder)
    return sorted(root.glob(str(pattern.relative_to(root))))


def _texts_in(folder: Path) -> FoundFiles:
    found: list[Path] = []
    for place, inner, names in os.walk(folder, onerror=_raise):  # rglob is silent about folders that it cannot read
        inner[:] = [name for name in inner if not name.startswith(".")]
        links = [name for name in inner if Path(place, name).is_symlink()]  # which are not followed
        found += [Path(place, name) for name in (*names, *links) if not name.startswith(".")]
    return _parted(sorted(found), lambda path: path.is_file() and (path.suffix in TEXTS or _begins_as_text(path)))


def _raise(error: OSError) -> NoReturn:
    raise error


def _begins_as_text(path: Path) -> bool:
    with open(path, "rb") as file:
        data = file.read(_LOOKED_AT)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) < _LOOKED_AT)
    except UnicodeDecodeError:
        return False
    return bool(data) and b"\0" not in data


def read_json_lines(path: Path, field: str) -> Iterator[Piece]:
    """The documents of a file with a JSON object in each line; one whose text is null is empty.

    Args:
        field: key of the objects that holds the text.

    Raises:
        ValueError: naming file and line, if one is no such object.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not line.strip():
                continue
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(values, dict) or not isinstance(text := values.get(field, values), str | None):
                keys = f"the keys {', '.join(map(repr, values))}" if isinstance(values, dict) else type(values).__name__
                raise ValueError(f"{path}, line {number}: expected a text under the key {field!r}, got {keys}")
            try:
                (text or "").encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{path}, line {number}: not a text that UTF-8 can write ({error})") from error
            yield Piece(text or "", True)


def read_pieces(path: Path, separator: str) -> Iterator[Piece]:
    """The documents of a text file, in UTF-8, between separators; a byte-order mark is left out.

    What is empty between separators is no document; a file without any is an empty one. A document is cut between a
    character and a line break after it, where no tokenizer has a token that spans the cut.
    """
    held, begins, nothing = "", True, True
    for block in _blocks(path):
        held += block
        *whole, held = held.split(separator) if separator else [held]
        for text in whole:
            if text.strip() or (text and not begins):
                yield Piece(text, begins)
                nothing = False
            begins = True
        if len(held) > BLOCK:
            cut = _last_cut(held, len(held) - len(separator))
            if cut:
                yield Piece(held[:cut], begins)
                held, begins, nothing = held[cut:], False, False
    if nothing or held.strip() or (held and not begins):
        yield Piece(held, begins)


def _blocks(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0
    with open(path, "rb") as file:
        while True:
            data = file.read(BLOCK)
            if not done and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise ValueError(f"{path}: UTF-16 text, expected UTF-8")
            if b"\0" in data:
                raise ValueError(f"{path}: not text (a zero at byte {done + data.index(0)})")
            if not done and data.startswith(codecs.BOM_UTF8):
                data, done = data[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
            try:
                yield decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                place = done - len(decoder.getstate()[0]) + error.start
                raise ValueError(f"{path}: not UTF-8 text (byte {place}: {error.reason})") from error
            if not data:
                return
            done += len(data)


def _last_cut(text: str, limit: int) -> int:
    """The last place before ``limit`` between a character other than a space and a line break; 0 if there is none."""
    place = text.rfind("\n", 0, max(limit, 0))
    while place > 0 and text[place - 1].isspace():
        place = text.rfind("\n", 0, place)
    return max(place, 0)


def python_documentation() -> list[str]:
    """The documentation of the running Python: help topics, and the docstrings of each module of its library.

    Nothing is imported or run to find them. The order is a mixed one, the same for the same Python.
    """
    documents = {f"topic {name}": text for name, text in _topics().items()}
    library = Path(sysconfig.get_path("stdlib"))
    with _no_collection():
        for path in _modules(library):
            text = "\n\n".join(_docstrings(path))
            if text:
                documents[path.relative_to(library).as_posix()] = text
    mixed = sorted(documents, key=lambda name: hashlib.sha256(name.encode()).digest())
    return [f"{documents[name]}\n" for name in mixed]


_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "lib2to3", "idlelib", "pydoc_data"}


def _modules(library: Path) -> Iterator[Path]:
    """The modules of Python's library; folders that are left out, of which some hold many others, are not entered."""
    for folder, inner, names in os.walk(library):
        at_top = Path(folder) == library
        inner[:] = [name for name in inner if name not in _SKIPPED and not (at_top and name.startswith("config-"))]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing looks for cycles of garbage, of which a syntax tree has none: that takes as long as to parse it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions of Python leave it out
        return {}
    return dict(topics)


def _docstrings(path: Path) -> list[str]:
    """The docstrings of a module, its classes and functions, each after a line with the name of its owner."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return []
    found = []
    for node in _statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                heading = "" if isinstance(node, ast.Module) else f"{node.name}:\n"
                found.append(heading + text)
    return found


def _statements(tree: ast.Module) -> list[ast.AST]:
    """The statements of a module, and what groups them: :func:`ast.walk` without expressions, in the same order."""
    found: list[ast.AST] = [tree]
    for node in found:  # which grows
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            inside = getattr(node, name, None)
            if isinstance(inside, list):
                found += inside
    return found
