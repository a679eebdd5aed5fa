"""Files of text: folders, JSON Lines, byte-order marks, and what is not text."""

import ast
import errno
import gc
import json
import os
from pathlib import Path

import pytest

from dat.data.text import files
from dat.data.text.files import find_files
from dat.data.text.formats import read_documents
from dat.data.text.tokens import text_of_files, tokenize
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.support.refusals import refusals


def texts(path, field="text") -> list[str]:
    return [piece.text for piece in read_documents(path, "<|endoftext|>", field) if not piece.empty]


def found_in(folder) -> tuple[list[str], list[str]]:
    """Names of the files in a folder that are read, and of those that are left out."""
    found = find_files([str(folder)], "data.path")
    read, left_out = ([str(path.relative_to(folder)) for path in paths] for paths in found)
    return read, left_out


def test_a_folder_stands_for_its_text(tmp_path):
    for name in ("b.md", "a.py", "sub/c", ".hidden/d.md", "sub/.e.md", ".f.txt", "x.txt", "y.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00")
    (tmp_path / "zeros").write_bytes(b"abc\x00")
    (tmp_path / "nothing.md").write_bytes(b"")
    (tmp_path / "cut.md").write_bytes(b"a" * 8191 + "ü".encode())  # the part that is looked at ends within a character
    (tmp_path / "of another system").write_bytes("café".encode("latin-1"))
    (tmp_path / "linked").symlink_to(tmp_path / "sub")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "nowhere.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    assert found_in(tmp_path) == (
        ["a.py", "b.md", "cut.md", "nothing.md", "sub/c", "x.txt", "y.jsonl"],
        ["broken.txt", "linked", "of another system", "picture.png", "pipe.txt", "zeros"],
    )
    matched = find_files([str(tmp_path / "*")], "data.path")
    assert {path.name for path in matched.left_out} == {"sub", "linked", ".hidden", "broken.txt", "pipe.txt"}


def test_a_saved_data_set_is_not_taken_for_its_description(tmp_path):
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "data.arrow").write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match=r"data\.path: .* that save_to_disk wrote; .*dataset\.to_parquet"):
        found_in(tmp_path)


@refusals(
    ("empty", r"the folder .*empty holds no file of text$"),
    ("tokens", r"holds no file of text, only t\.npy$"),
    ("none.txt", r"data\.path: no such file or folder: .*none"),
    ("none*", r"data\.path: no such file or folder: .*none"),
    of="name",
    error=FileNotFoundError,
)
def test_a_folder_without_text(tmp_path, name, error, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "t.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(error, match=message):
        find_files([str(tmp_path / name)], "data.path")


@pytest.mark.parametrize("path", [".", "closed", "closed/*.txt", "*/*.txt", "**/*.txt", "c?osed/**/*.txt"])
def test_a_folder_that_cannot_be_read_is_not_empty(path, tmp_path, monkeypatch):
    """Not even if others beside it hold text: training would go on with less than was named."""

    def refusing(of):
        def read(folder="."):
            if Path(os.fsdecode(folder)).name == "closed":
                raise PermissionError(errno.EACCES, "Permission denied", str(folder))
            return of(folder)

        return read

    (tmp_path / "closed").mkdir()
    (tmp_path / "open.txt").write_text("x")
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    with pytest.raises(PermissionError, match=r"Permission denied: .*closed"):
        find_files([str(tmp_path / path)], "data.path")


def test_json_lines(tmp_path):
    path = tmp_path / "t.jsonl"
    lines = [{"text": "one\ntwo", "body": "x"}, {"text": None, "body": "y"}, {"text": "ü<|endoftext|>", "body": "z"}]
    path.write_text("\ufeff" + "\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    assert texts(path) == ["one\ntwo", "ü<|endoftext|>"] and texts(path, "body") == ["x", "y", "z"]
    texts_by = (text_of_files([path], "", field) for field in ("text", "body"))
    source, other = (tokenize(text, ByteTokenizer(), tmp_path / "cache") for text in texts_by)
    assert other.arrays[0].tolist() == [256, 120, 256, 121, 256, 122] and source.origin["field"] == "text"
    assert source.arrays[0].tolist()[:4] == [256, *b"one"]


@refusals(
    ("{", "line 2: not JSON"),
    ("[1]", "line 2: expected a text under the key 'text', got list"),
    ('{"body": "x"}', "line 2: expected a text under the key 'text', got the keys 'body'"),
    ('{"text": 3}', "line 2: expected a text under the key 'text'"),
    ('"text"', "line 2: expected a text under the key 'text', got str"),
    ('{"text": "\\ud800"}', "line 2: not a text that UTF-8 can write"),
    ('{"text": ' + 100_000 * "[", "line 2: not JSON"),
    (b"\xff", "line 2: not JSON"),
    of="line",
)
def test_wrong_lines_are_named(tmp_path, line, error, message):
    path = tmp_path / "t.ndjson"
    path.write_bytes(b'{"text": "a"}\n' + (line if isinstance(line, bytes) else line.encode()))
    with pytest.raises(error, match=rf"t\.ndjson, {message}"):
        texts(path)


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "t.rst").write_bytes(b"\xef\xbb\xbfone")
    assert texts(tmp_path / "t.rst") == ["one"]


@refusals(
    (b"\xef\xbb\xbfone\xff", r".*byte 6"),
    *(("\ufeffone".encode(form), "UTF-16 text, expected UTF-8") for form in ("utf-16-le", "utf-16-be")),
    ("one".encode("utf-16"), "UTF-16 text, expected UTF-8"),
    ("café".encode("latin-1"), r"not UTF-8 text \(byte 3"),
    (b"one\x00two", r"not text \(a zero at byte 3\)"),
    of="contents",
)
def test_marks_and_zeros(tmp_path, contents, error, message):
    (tmp_path / "t.rst").write_bytes(contents)
    with pytest.raises(error, match=rf"t\.rst: {message}"):
        texts(tmp_path / "t.rst")


NESTED = '''
"""of the module"""
def f(x=lambda: 0):
    """of f"""
    if x:
        class InIf:
            "of InIf"
            async def g(self):
                """of g"""
    else:
        def in_else(): "of in_else"
    try:
        def in_try(): "of in_try"
    except ValueError:
        def in_handler(): "of in_handler"
    finally:
        def in_finally(): "of in_finally"
    with f:
        for _ in x:
            while x:
                def deep(): "of deep"
    match x:
        case 1:
            def in_case(): "of in_case"
def last():
    """of last"""
'''


def test_docstrings_come_in_the_order_of_a_walk_through_the_whole_tree(tmp_path):
    (tmp_path / "module.py").write_text(NESTED)
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    walked = [node for node in ast.walk(ast.parse(NESTED)) if isinstance(node, owners)]
    wanted = [f"{node.name}:\n{ast.get_docstring(node)}" for node in walked[1:]]
    assert files._docstrings(tmp_path / "module.py") == ["of the module", *wanted]
    assert len(wanted) == 10


@pytest.mark.parametrize("collecting", [True, False])
def test_documentation_of_a_library(collecting, tmp_path, monkeypatch):
    """Nothing is imported; folders of tests and of packages are not entered, and what says nothing is left out."""
    sources = {
        "a.py": '"""of a"""\nraise SystemExit',
        "package/b.py": '"""of b"""',
        "package/config-x/kept.py": '"""of kept"""',
        "config-3/skipped.py": '"""no"""',
        "site-packages/other.py": '"""no"""',
        "package/tests/test_b.py": '"""no"""',
        "silent.py": "x = 1",
        "broken.py": "def (",
        "text.txt": '"""no"""',
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.setattr(files.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(files, "_topics", lambda: {"assert": "of assert"})
    (gc.enable if collecting else gc.disable)()
    try:
        assert sorted(files.python_documentation()) == ["of a\n", "of assert\n", "of b\n", "of kept\n"]
        assert gc.isenabled() is collecting
    finally:
        gc.enable()
