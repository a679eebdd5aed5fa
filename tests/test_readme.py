"""README.md is true: its Python runs and prints what it says, its commands exist, its links lead somewhere.

In a Python block, whatever a statement prints stands in a comment at its end, or in comment lines right below:

    print(out.shape)  # torch.Size([2, 9, 64])
    print(layer)
    # Linear(...)

An expression shows its value, as in the interactive interpreter; only a call may do without (``model.eval()``). What
fails shows ``# ValueError: the message``. ``...`` stands for any text. Output without a comment fails, too. A comment
beside a statement that shows nothing is prose.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dual_attention.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the file on which the text begins."""

    language: str
    text: str
    line: int


def blocks(markdown: str) -> list[Block]:
    return [
        Block(match[1], match[2], markdown.count("\n", 0, match.start(2)) + 1) for match in FENCE.finditer(markdown)
    ]


def documented_output(lines: list[str], statement: ast.stmt) -> str:
    """The comment at the end of a statement, and the comment lines right below it."""
    last = statement.end_lineno or statement.lineno
    rest = lines[last - 1].encode()[statement.end_col_offset or 0 :].decode().strip()
    found = [rest] if rest.startswith("#") else []
    for line in lines[last:]:
        if not line.startswith("#"):
            break
        found.append(line)
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in found)


def run(statement: ast.stmt, namespace: dict[str, object], *, documented: bool) -> str:
    """Execute one statement; return what it printed, showed or raised."""
    shows = isinstance(statement, ast.Expr) and (documented or not isinstance(statement.value, ast.Call))
    module = ast.Interactive([statement]) if shows else ast.Module([statement], [])
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        try:
            exec(compile(module, "README.md", "single" if shows else "exec"), namespace)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return stdout.getvalue()


def wrong_outputs(markdown: str) -> Iterator[str]:
    """What the Python blocks, run in order in one namespace, print otherwise than documented."""
    namespace: dict[str, object] = {"__name__": "__readme__"}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for block in blocks(markdown):
        if block.language != "python":
            continue
        lines = block.text.splitlines()
        for statement in ast.parse(block.text).body:
            want = documented_output(lines, statement)
            got = run(statement, namespace, documented=bool(want))
            if got and not doctest.OutputChecker().check_output(f"{want}\n", got, flags):
                where = block.line + statement.lineno - 1
                yield f"README.md, line {where}: {ast.unparse(statement)}\n  documented: {want}\n  printed: {got}"


def test_python_blocks_print_what_they_say():
    assert any(block.language == "python" for block in blocks(README))
    wrong = list(wrong_outputs(README))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("print(1 + 1)  # 2", True),
        ("print(1 + 1)  # 3", False),
        ("print(1 + 1)", False),
        ("1 + 1  # 2", True),
        ("1 + 1  # 3", False),
        ("x = 1 + 1  # prose", True),
        ("int('2')  # 2", True),
        ("int('2')  # 3", False),
        ("int('2')", True),
        ("'a'  # 'a'", True),
        ("print('a')\n# a", True),
        ("print('a\\nb')  # a\n# b", True),
        ("print('a\\nb')  # a\n# c", False),
        ("for i in range(2):\n    print(i)\n# 0\n# 1", True),
        ("print('é', 'a b')  # é ... b", True),
        ("int('x')  # ValueError: invalid literal ...", True),
        ("int('x')  # TypeError: ...", False),
        ("int('x')", False),
    ],
)
def test_a_wrong_output_is_found(code: str, right: bool):
    assert (not list(wrong_outputs(f"```python\n{code}\n```\n"))) == right


def commands(program: str) -> list[list[str]]:
    """The command lines of ``program`` in the shell blocks, split into words, without comments."""
    lines = [
        shlex.split(line, comments=True)
        for block in blocks(README)
        if block.language in ("bash", "sh")
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    return [words[1:] for words in lines if words[:1] == [program]]


@pytest.mark.parametrize("words", commands("dat"), ids=" ".join)
def test_dat_commands_are_accepted(words: list[str], capsys: pytest.CaptureFixture[str]):
    """The command exists, takes the options that README gives it, and accepts their values where it can say so."""
    command = next((c for c in COMMANDS if tuple(words[: len(c.words)]) == c.words), None)
    assert command is not None, f"no such command: dat {' '.join(words)}"

    def status(arguments: list[str]) -> int:
        try:
            return main(arguments)
        except SystemExit as exit:
            return int(exit.code or 0)

    assert status([*command.words, "--help"]) == 0
    described = capsys.readouterr().out
    for word in words:
        if word.startswith("--"):
            assert re.search(rf"(?<![\w-]){re.escape(word.partition('=')[0])}(?![\w.-])", described), word
    if "--print_config" in described:
        assert status([*words, "--print_config"]) == 0, capsys.readouterr().err


def test_make_targets_exist():
    targets = {word for words in commands("make") for word in words if "=" not in word}
    assert {"demo", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_ci_runs_the_test_command():
    assert ["test"] in commands("make")
    assert re.search(r"^(exec )?make test$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)


def test_links_lead_to_files():
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", README):
        assert (ROOT / target).exists(), target
