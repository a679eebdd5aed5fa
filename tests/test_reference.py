"""The reference: every public name has an example, and all examples run.

An example takes torch and all that ``dual_attention`` and its own module export as imported.
"""

import doctest
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support.compilers import HAS_COMPILER

DOCS = Path(__file__).resolve().parent.parent / "docs"
NEEDS = {"dual_attention.timm_models": "timm"}
"""Packages that a module is for, and that may be missing."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def module_of_docs(name: str) -> ModuleType:
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS))


reference = module_of_docs("public_names")
NAMES: dict[str, dict[str, Any]] = reference.public_names()
EXAMPLES = {
    f"{module}.{name}": (module, reference.examples(name, value))
    for module, names in NAMES.items()
    for name, value in names.items()
    if reference.examples(name, value)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_show_what_happens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    module, tests = EXAMPLES[name]
    if module == "dual_attention.native" and not HAS_COMPILER:
        pytest.skip("needs a C compiler")
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"from dual_attention import *\nfrom {module} import *", namespace)
    wrong: list[str] = []
    for test in tests:
        torch.manual_seed(0)
        test.globs = dict(namespace)
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=wrong.append)
    assert not wrong, "".join(wrong)


def test_every_name_has_an_example():
    assert sum(map(len, NAMES.values())) > 400
    assert not [name for module, names in NAMES.items() for name in reference.without_example(module, names)]


def test_a_name_without_example_is_reported():
    with_example = type("Shown", (), {"__doc__": "A class.\n\n>>> 1 + 1\n2"})
    names = {"Shown": with_example, "Hidden": type("Hidden", (), {"__doc__": "A class."}), "VALUE": 3}
    assert reference.without_example("module", names) == ["module.Hidden"]


def test_the_reference_lists_every_public_module():
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert re.findall(r"^   (dual_attention[\w.]*)$", page, re.MULTILINE) == [*NAMES]


@pytest.mark.parametrize("file", sorted((DOCS / "inventories").iterdir()), ids=lambda file: file.stem)
def test_inventories_name_what_there_is(file: Path):
    first, _, _, *lines = file.read_text(encoding="utf-8").splitlines()
    assert first == "# Sphinx inventory version 1"
    package = pytest.importorskip(file.stem)
    for line in lines:
        name, kind, _ = line.split()
        found: Any = package
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        assert isinstance(found, type) == (kind == "class"), name


terminal = module_of_docs("terminal_pictures")


def test_a_terminal_shows_what_stands_in_it_at_the_end():
    bar = "\x1b[?25lone\r\n\x1b[1mhalf\x1b[0m\r\x1b[2K\x1b[1mall\x1b[0m\r\n"
    for_a_moment = "waiting\r\n\x1b[?25h\r\x1b[1A\x1b[2K"
    assert terminal.screen(f"{bar}{for_a_moment}done\r\n") == "one\n\x1b[1mall\x1b[0m\ndone"


@pytest.mark.parametrize("name", terminal.COMMANDS)
def test_recordings_need_no_network_and_stand_beside_their_commands(name: str):
    picture = (terminal.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert len(picture) < 30_000 and not re.search(r"url\([^#]|href", picture)
    pages = [page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")]
    shown = [page for page in pages if f"(images/terminal/{name}.svg)" in page]
    assert shown and all(terminal.COMMANDS[name] in page for page in shown)
