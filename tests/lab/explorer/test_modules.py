"""The scripts of the page are ES modules, joined into one: what each imports exists, and no two names are the same.

They and their types are checked by the tools of ``tests/support/page_tools.py``.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

import dat.explorer
from dat.explorer.html import join_modules
from tests.support import page_tools

FOLDER = Path(dat.explorer.__file__).parent / "page"
MODULES = sorted(FOLDER.glob("*.js"))
TESTS = Path(__file__).parent / "page"
IMPORT = re.compile(r'^import \{ (?P<names>.+) \} from "\./(?P<source>\w+\.js)";$', re.MULTILINE)
NAME = re.compile(r"^(?:export )?(?:async )?(?:const|let|class|function\*?) (\w+)", re.MULTILINE)


def test_all_modules_are_in_the_script_each_after_what_it_imports():
    parts = list(join_modules(FOLDER / "main.js"))
    assert {path.name for path in parts if path.suffix == ".js"} == {path.name for path in MODULES}
    for path in parts:
        for other in IMPORT.finditer(path.read_text(encoding="utf-8")):
            assert parts.index(FOLDER / other["source"]) < parts.index(path)


def test_names_differ_between_modules():
    names = Counter(name for path in MODULES for name in NAME.findall(path.read_text(encoding="utf-8")))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_what_a_module_imports_is_exported(path):
    for found in IMPORT.finditer(path.read_text(encoding="utf-8")):
        source = (FOLDER / found["source"]).read_text(encoding="utf-8")
        exported = {name for name in NAME.findall(source) if re.search(rf"^export .*\b{name}\b", source, re.MULTILINE)}
        assert set(found["names"].split(", ")) <= exported


def test_nothing_of_modules_or_comments_remains():
    script = "\n".join(join_modules(FOLDER / "main.js").values())
    assert re.findall(r"^(?:import|export)\b.*|^ *//.*|/\*\*.*", script, re.MULTILINE) == []


def test_a_file_of_json_becomes_a_constant(tmp_path):
    (tmp_path / "list.json").write_text('[1, "two"]')
    (tmp_path / "one.js").write_text(
        'import LIST from "./list.json" with { type: "json" };\n\nexport const one = LIST[0]; // so\n'
    )
    assert list(join_modules(tmp_path / "one.js").values()) == [
        'const LIST = [1, "two"];',
        "const one = LIST[0]; // so",
    ]


def test_an_import_from_no_file_fails(tmp_path):
    (tmp_path / "one.js").write_text('import { two } from "./two.js";\n')
    with pytest.raises(FileNotFoundError, match=r"two\.js"):
        join_modules(tmp_path / "one.js")


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("typescript/bin/tsc", ["-p", TESTS / "tsconfig.json"]),
        ("oxlint/bin/oxlint", ["-c", TESTS / "oxlint.json", FOLDER, TESTS]),
    ],
)
def test_checkers_find_nothing(program, arguments):
    done = page_tools.node(page_tools.tool(program), *arguments)
    assert done.returncode == 0, done.stdout
