"""Lines on a terminal, which end between words."""

import io
import sys

import pytest

from dat._terminal import at_words, tell
from dat.cli.main import contents, every_command


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_lines_end_between_words(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    tell("a run whose words are more than a line of a terminal has room for")
    lines = screen.getvalue().splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= 40
    assert " ".join(lines) == "dat: a run whose words are more than a line of a terminal has room for"


def test_a_command_to_copy_is_whole(monkeypatch):
    command = "dat train language --resume 'runs/a name  with blanks and more' --code mine.py:NextLatent"
    text = f"dat: interrupted; continue with: {command}"
    assert at_words(text, Terminal()).splitlines() == ["dat: interrupted; continue with:", command]
    assert at_words(text, io.StringIO()) == text


def test_short_lines_and_their_blanks_are_kept():
    assert at_words("  two   blanks\n\nand a line", Terminal()) == "  two   blanks\n\nand a line"


def test_the_list_of_commands(monkeypatch):
    commands = every_command(others=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", Terminal())
    found = contents(commands)
    assert max(map(len, found.split("\n"))) <= 80
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert found.split() == contents(commands).split()
