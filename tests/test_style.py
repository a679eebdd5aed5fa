"""The style of the package that a linter does not hold: lengths, names and first lines of docstrings."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from .test_imports import ROOT, SOURCES

LONGEST_FUNCTION = 80
CLAUSE = re.compile(r"(What|How|Where|Which|Of|By|Until|Between|Into|Likewise)\b")

REFERENCE, COMMANDS = PurePath("dual_attention/functional/reference.py"), PurePath("dat/cli")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Text of each file of the package."""
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES.values()}


@pytest.fixture(scope="module")
def trees(files: dict[str, str]) -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in files.items()}


def report(offenders: Iterator[str]) -> None:
    found = list(offenders)
    assert not found, "\n".join(["", *found])


def test_functions_are_short(trees):
    report(
        f"{name}, line {node.lineno}: {node.name} has {lines} lines, at most {LONGEST_FUNCTION} are allowed"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, Function) and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    )


def may_share(file: str, name: str) -> bool:
    """Whether a name is another's on purpose: an equation's in the reference, a command's in its file."""
    path = PurePath(file)
    return path == REFERENCE or (path.parent == COMMANDS and path.stem == name)


def test_no_two_public_classes_or_functions_share_a_name(trees):
    """All at the top level of any module, exported or not."""
    where = defaultdict(list)
    for file, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | Function) and node.name[0] != "_" and not may_share(file, node.name):
                where[node.name].append(file)
    shared = {name: files for name, files in where.items() if len(files) > 1}
    report(f"{name}: {', '.join(files)}" for name, files in shared.items())


def test_complexity_has_no_exceptions(files):
    report(f"{name}: an exception from C901" for name, text in files.items() if re.search(r"noqa.*C901", text))


@pytest.mark.parametrize(
    ("folders", "called"),
    [(("_models", ""), r".*blocks\[.*|.*retriever.*"), (("",), r"self\.\w+_attn")],
    ids=["models call blocks", "blocks call layers"],
)
def test_blocks_and_layers_are_called_by_name(folders, called, trees):
    """Published orders differ between the kinds, so no more than the tensors stands by position."""
    report(
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, tree in trees.items()
        if str(PurePath(name).parent) in {str(PurePath("dual_attention", folder)) for folder in folders}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and re.fullmatch(called, ast.unparse(node.func)) and len(node.args) > 3
    )


def test_docstrings_begin_with_no_clause(trees):
    """An imperative or a noun phrase says what a thing is; "What a block gives" and "Of a block" do not.

    The captions of constants and fields are read, too.
    """
    report(
        f"{name}, line {part.lineno}: {part.value.value.partition(chr(10))[0]}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for part in body
        if isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
        and CLAUSE.match(part.value.value)
    )
