"""The documents are true: their Python runs and prints what they say, their commands exist, their links lead somewhere.

How the Python is checked: tests/support/documents.py. The pages of the gallery run in tests/test_gallery.py, with their
pictures.
"""

import importlib
import re
import sys
from pathlib import Path

import pytest

from dat.cli.main import main
from dat.experiments import experiment_named
from dat.sweeps.experiment import SweptExperiment
from dat.sweeps.results import CONFIG, digests, settings_of, to_csv
from dat.sweeps.sources import merge_results
from tests.support.documents import GALLERY, PAGES, ROOT, anchors, blocks, commands, links, prose, wrong_outputs
from tests.test_imports import ROOMS

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

README, CONTRIBUTING = PAGES["README.md"], PAGES["CONTRIBUTING.md"]
PYTHON_PAGES = [name for name, page in PAGES.items() if name not in GALLERY and "```python\n" in page]
SLOW_PAGES = ("docs/costs.md", "docs/sequence-to-sequence.md")  # the second trains a model
MOST_WORDS = 1500
GENERATED = ("docs/models.md",)
"""Pages that `make models` writes: tables to look something up in, which grow with the library."""
NEEDS = {"docs/other-tools.md": ("captum", "transformer_lens")}
"""Packages that a page shows, and that may be missing."""
COMMANDS = {" ".join(words): words for page in PAGES.values() for words in commands(page)}


def calls(program: str) -> dict[str, list[str]]:
    """Arguments of every call of ``program`` in the documents, by the whole command."""
    return {line: words[1:] for line, words in COMMANDS.items() if words[0] == program}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW_PAGES)) for n in PYTHON_PAGES])
def test_python_blocks_print_what_they_say(name: str):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    wrong = list(wrong_outputs(PAGES[name], name))
    assert not wrong, "\n".join(wrong)


def test_readme_is_a_door():
    """A newcomer finds an example near the top, and all of it is read in a few minutes."""
    first = next(block for block in blocks(README) if block.language == "python")
    assert first.line <= 30
    assert first.text.count("\n") <= 12
    assert README.count("\n") <= 200


@pytest.mark.parametrize(
    "name", ["CONTRIBUTING.md", *(name for name in PAGES if name.startswith("docs/") and name not in GENERATED)]
)
def test_a_page_is_read_in_one_sitting(name: str):
    """Code is not counted: a reader runs it."""
    words = len(prose(PAGES[name]).split())
    assert words <= MOST_WORDS


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


def calls_under_torchrun() -> dict[str, list[str]]:
    """Arguments of every call of ``dat`` by torchrun, by the whole command."""
    return {
        line: words[words.index("-m") + 2 :]
        for line, words in COMMANDS.items()
        if words[0] in ("torchrun", "srun") and words[words.index("-m") + 1] == "dat"
    }


def test_torchrun_is_documented():
    assert len(calls_under_torchrun()) > 3


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "words", [pytest.param(words, id=line) for line, words in {**calls("dat"), **calls_under_torchrun()}.items()]
)
def test_dat_commands_are_accepted(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The command exists, takes the options that the page gives it, and accepts their values where it can say so."""
    monkeypatch.chdir(ROOT)

    def status(arguments: list[str]) -> int:
        try:
            return main(arguments)
        except SystemExit as exit:
            return int(exit.code or 0)

    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    subject = words[: next((n for n, word in enumerate(words) if word.startswith("--")), len(words))]
    study = words[words.index("--study") :][:2] if "--study" in words else []  # its grids and models are options, too
    assert status([*subject, *study, "--help"]) == 0, capsys.readouterr().err
    described = capsys.readouterr().out
    for option in options:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w.-])", described), option
    resumes = "--resume" in options and "auto" not in words  # so its settings are in the folder
    if "--print_config" in described and not resumes:
        assert status([*words, "--print_config"]) == 0, capsys.readouterr().err


PLOTS = [line for line in calls("dat") if line.startswith("dat plot ")]


@pytest.mark.parametrize("line", PLOTS)
def test_plots_of_the_documents_take_what_is_run_today(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Folders of runs stand for results of today's defaults, beside the committed results that the page names."""
    monkeypatch.chdir(ROOT)
    experiment = experiment_named(COMMANDS[line][2])
    assert isinstance(experiment, SweptExperiment)
    config = experiment.Config()
    run = {**experiment.identity(config), "seed": 0, **digests(experiment.table, {CONFIG: settings_of(config)})}
    today = tmp_path / "results.csv"
    today.write_text(to_csv([{**run, **dict.fromkeys(experiment.table.measures, 12.5)}]))
    paths = [word for word in COMMANDS[line][3:] if re.search(r"(^|=)runs/|results\.csv$", word)]
    sources = [re.sub(r"(^|=)runs/.*", rf"\1{today}", word) for word in paths]
    assert paths and merge_results(experiment, sources)


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["frobnicate", "--help"]) == 2
    assert "frobnicate" in capsys.readouterr().err


def test_make_targets_exist():
    targets = {word for words in calls("make").values() for word in words if "=" not in word}
    assert {"demo", "test", "test-all"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_ci_runs_the_test_command():
    assert ["make", "test"] in commands(README)
    assert re.search(r"^(exec )?make test$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_container_copies_what_is_there():
    """And installs extras that exist."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert "dual_attention" in copied and all((ROOT / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (asked,) = (found[1] for line in lines if (found := re.search(r'"\.\[(.*)\]"', line)))
    assert set(asked.split(",")) <= extras.keys()


def test_scripts_exist():
    for line, words in calls("python").items():
        assert words[0].startswith("-") or (ROOT / words[0]).is_file(), line


def test_extras_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for line in calls("pip"):
        for asked in re.findall(r"\[(.*?)\]", line):
            assert set(asked.split(",")) <= extras.keys(), line


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str):
    folder = (ROOT / name).parent
    for target, anchor in links(PAGES[name]):
        path = (folder / target).resolve() if target else ROOT / name
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_every_page_is_reached_from_the_readme():
    found, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name in PAGES and name not in found:
            found.add(name)
            targets = [(ROOT / name).parent / target for target, _ in links(PAGES[name]) if target]
            waiting += [path.resolve().relative_to(ROOT).as_posix() for path in targets]
    assert found == PAGES.keys()


def test_status_is_told_in_one_form():
    """Pages and sections have it on a line of its own, modules in their docstrings."""
    told = [line for page in PAGES.values() for line in page.splitlines() if re.search(r"\bStatus: ", line)]
    assert {*told} == {"*Status: experimental; it [may change in any release](reference.md#status).*"}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "dual_attention").rglob("*.py"))
    assert {*re.findall(r"\bStatus: .*", sources)} == {"Status: experimental; it may change in any release."}


def test_every_room_is_described():
    """Each file and folder that the table of imports knows has its line on the page of rooms."""
    named = set(re.findall(r"\w+", PAGES["docs/rooms.md"]))
    assert {name.removeprefix("dat.") for names in ROOMS.values() for name in names} - named == set()
