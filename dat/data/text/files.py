"""Text as documents, read in pieces of bounded size: files on disk, and the documentation of the running Python."""

from __future__ import annotations

import ast
import codecs
import gc
import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

BLOCK = 1 << 22
"""Bytes read at a time."""
JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of files with a JSON object in each line, one document each."""
PARQUET = ".parquet"
"""Suffix of files with a table, a document in each row; see :mod:`.parquet`."""

_LOOKED_AT = 1 << 13


class Piece(NamedTuple):
    """A part of a document.

    Attributes:
        text: some of its text.
        begins: whether it is the first part.
    """

    text: str
    begins: bool


def standard_input(argument: str) -> str:
    """The text on standard input, without the line break at its end.

    Raises:
        ValueError: naming the argument, if it is not UTF-8.
    """
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{argument}: expected UTF-8 text on standard input ({error})") from error


def find_files(paths: Sequence[str], argument: str) -> list[Path]:
    """Files that paths, folders and patterns stand for, in that order.

    A folder stands for all its .txt files or, if it has none, for all its .parquet files or, if it has none either, for
    all its files of text, sorted, except hidden ones.

    Raises:
        FileNotFoundError: naming what stands for no file.
        OSError: naming a folder that cannot be read, which is not taken for an empty one.
    """
    found: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_file():
            files = [path]
        elif path.is_dir():
            files = _texts_in(path)
            if not files:
                raise FileNotFoundError(f"{argument}: the folder {path} holds no file of text")
        else:
            files = _matches(path) if _is_pattern(path) else []
            if not files:
                raise FileNotFoundError(f"{argument}: no such file or folder: {text}")
        found.extend(files)
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


def _texts_in(folder: Path) -> list[Path]:
    walk = os.walk(folder, onerror=_raise)  # rglob is silent about folders that it cannot read
    files = sorted(file for place, _, names in walk for name in names if (file := Path(place, name)).is_file())
    for suffix in (".txt", PARQUET):
        if found := [file for file in files if file.suffix == suffix]:
            return found
    shown = (file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    return [file for file in shown if _begins_as_text(file)]


def _raise(error: OSError) -> NoReturn:
    raise error


def _begins_as_text(path: Path) -> bool:
    with open(path, "rb") as file:
        data = file.read(_LOOKED_AT)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return bool(data) and b"\0" not in data


def read_json_lines(path: Path, field: str) -> Iterator[Piece]:
    """The documents of a file with a JSON object in each line; empty ones are left out.

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
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(values, dict) or not isinstance(values.get(field), str):
                keys = f"the keys {', '.join(map(repr, values))}" if isinstance(values, dict) else type(values).__name__
                raise ValueError(f"{path}, line {number}: expected a text under the key {field!r}, got {keys}")
            if values[field].strip():
                yield Piece(values[field], True)


def read_pieces(path: Path, separator: str) -> Iterator[Piece]:
    """The documents of a text file, in UTF-8, between separators; empty ones and a byte-order mark are left out.

    A document is cut between a character and a line break after it, where no tokenizer has a token that spans the cut.
    """
    held, begins = "", True
    for block in _blocks(path):
        held += block
        *whole, held = held.split(separator) if separator else [held]
        for text in whole:
            if text.strip() or (text and not begins):
                yield Piece(text, begins)
            begins = True
        if len(held) > BLOCK:
            cut = _last_cut(held, len(held) - len(separator))
            if cut:
                yield Piece(held[:cut], begins)
                held, begins = held[cut:], False
    if held.strip() or (held and not begins):
        yield Piece(held, begins)


def _blocks(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0
    with open(path, "rb") as file:
        while True:
            data = file.read(BLOCK)
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
