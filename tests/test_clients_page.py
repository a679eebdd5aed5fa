"""docs/clients.md says of each tool how it fared, and what worked once and does not is told."""

import re
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from docs import clients
from tests.support.documents import ROOT


def test_the_page_has_a_row_for_each_tool():
    rows = re.findall(r"^\| (.*) \|$", clients.PAGE.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    cells = [row.split(" | ") for row in rows]
    assert sorted(name for name, *_ in cells) == sorted(clients.CLIENTS)
    assert all(len(row) == 5 and re.match(r"works$|fails: .|untried: .", row[-1]) for row in cells)


def test_what_worked_and_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A tool that never worked is not; the page tells all of them."""
    monkeypatch.setattr(clients, "PAGE", page := tmp_path / "clients.md")
    page.write_text("| client | version |\n| mypy | 1 | 2 | a thing | untried |\n| uv | 1 | 2 | another | works |\n")
    for results, lost in [
        ({"mypy": "works", "uv": "works"}, 0),
        ({"mypy": "fails: ValueError: a", "uv": "works"}, 1),
        ({"mypy": "fails: ValueError: b", "uv": "works"}, 0),
        ({"mypy": "works", "uv": "untried: uv is not installed"}, 1),
    ]:
        monkeypatch.setattr(clients, "outcome", results.__getitem__)
        assert len(clients.renew(["mypy", "uv"])) == lost
        assert all(f"| {result} |" in page.read_text() for result in results.values())


@pytest.mark.parametrize(
    ("packages", "command", "result"),
    [
        (["no-such-package", "torch"], "", "untried: no-such-package is not installed"),
        (["torch"], "raise ValueError('a | b')", "fails: ValueError: a / b"),
        (["torch"], "pass", "works"),
        (["torch"], "import time; time.sleep(60)", "fails: not done after 1 seconds"),
    ],
)
def test_how_a_tool_fares(packages: list[str], command: str, result: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(clients.CLIENTS, "tool", clients.Client(packages, lambda folder: None))
    monkeypatch.setattr(clients, "SECONDS", 1 if "sleep" in command else 60)
    monkeypatch.setattr(clients, "ALONE", [clients.PYTHON, "-c", command])
    assert clients.outcome("tool") == result


def test_the_workflow_tries_all():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "print(*PACKAGES)" in makefile and "-m docs.clients $(ARGS)" in makefile
