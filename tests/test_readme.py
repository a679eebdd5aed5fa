"""README.md is true: its Python runs and prints what it says, its commands exist, its links lead somewhere.

How the Python is checked: tests/documents.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dual_attention.cli.main import every_command, main
from tests.documents import blocks, wrong_outputs

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


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
    command = next((c for c in every_command() if tuple(words[: len(c.words)]) == c.words), None)
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
