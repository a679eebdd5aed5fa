"""The structure of the package: who may import whom, what an import costs, and what it exports."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PACKAGE = "dual_attention"
ROOT = Path(__file__).resolve().parent.parent

# ---- The walls, the rooms, and the one direction of imports

WALLS = (PACKAGE, "dat", "studies")
"""The library, the lab and finished studies: each may import those before it."""

# From the bottom to the top: a room may import those above it in this table, and itself. Every file or folder directly
# under dual_attention/ and dat/ has a place here; a new one fails until it is given one. Studies see everything.
ROOMS = {
    "_base": ("_base",),  # the only private room that the lab, studies and benchmarks may enter, too
    "functional": ("functional",),
    "native": ("native",),
    "_layers": ("_layers", "configs"),
    "layers": (
        "positional_encoding",
        "attention",
        "relational_cross_attention",
        "relational_attention",
        "symbol_retrieval",
        "dual_attention",
        "transformer_blocks",
        "dual_attn_blocks",
    ),
    "mechanisms": ("mechanisms",),
    "generation": ("generation",),
    "_models": ("_models",),
    "models": (*(f"{x}_models" for x in ("language", "encoder", "seq2seq", "vision", "timm")), "language_presets"),
    "parts": ("parts", "part_trials"),
    "baselines": ("baselines",),
    "root": ("__init__", "_exports"),
    "checkpoints of the library": ("checkpoints",),
    "hf": ("hf",),
    "model_analysis": ("model_analysis",),
    "lab utilities": (
        "dat.__init__",
        "dat._errors",
        "dat._native",
        "dat._numpy",
        "dat._own_code",
        "dat._processes",
        "dat._terminal",
    ),
    "data": ("dat.data",),
    "training": ("dat.training",),
    "estimate": ("dat.estimate",),
    "sweeps": ("dat.sweeps",),
    "experiments": ("dat.experiments",),
    "checkpoints": ("dat.checkpoints", "dat.description"),
    "explorer": ("dat.explorer",),
    "cli": ("dat.cli", "dat.__main__"),
}
# The doors of the library into the lab: apps of the published package, and the command's former name.
DOORS = {
    f"{PACKAGE}.__main__": "cli",
    f"{PACKAGE}.model_analysis.lm_inference_app": "explorer",
    f"{PACKAGE}.model_analysis.lm_visualization_app": "explorer",
}

# For type checkers: what the package imports when it is named.
HOOKS = {(PACKAGE, f"{PACKAGE}.{room}") for room in ("baselines", "hf", "model_analysis", "native")}
HOOKS |= {("dat", "dat.explorer.inline")}

# Rooms above it that a room does not import all the same: they stand side by side.
APART = {"generation": ("mechanisms",), "root": ("baselines",)}

ORDER = list(ROOMS)
ROOM_OF = {name: room for room, names in ROOMS.items() for name in names}
MAY_IMPORT = {room: {*ORDER[: ORDER.index(room)]} - {*APART.get(room, ())} for room in ORDER}
for room in ORDER[ORDER.index("native") + 1 : ORDER.index("lab utilities")]:
    MAY_IMPORT[room].remove("native")  # it plugs itself in

# The extra that a room's modules may need already when they are imported; all other rooms need only torch and einops.
EXTRA_AT_IMPORT = {"hf": "hf"}

LENS = f"{PACKAGE}.model_analysis.adapters.transformer_lens"

# Fused kernels, which are imported only when they are run, except for what decides whether they can be.
KERNELS = f"{PACKAGE}.functional.triton"
WITHOUT_TRITON = (KERNELS, f"{KERNELS}.implementation", f"{KERNELS}.support", f"{KERNELS}.tuning")


def sources() -> dict[str, Path]:
    """Name of every module of the library and of the lab, and its file."""
    found = {}
    for package in WALLS[:2]:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SOURCES = sources()


def extra_at_import(module: str) -> str | None:
    """The extra that a module may need when it is imported."""
    if module.startswith(KERNELS) and module not in WITHOUT_TRITON:
        return "triton"
    if module == LENS:
        return "lens"
    return EXTRA_AT_IMPORT.get(room_of(module) or "")


def room_of(module: str) -> str | None:
    if module in DOORS:
        return DOORS[module]
    package, *below = module.split(".")
    name = below[0] if below else "__init__"
    return ROOM_OF.get(name if package == PACKAGE else f"{package}.{name}")


def imported_by(module: str, tree: ast.AST, *, is_package: bool) -> Iterator[tuple[str, int]]:
    """Modules of this repository that ``module`` imports anywhere, with line numbers.

    An import inside a function counts, and so does one by name: ``import_module("dual_attention.x")``.
    """
    told = {  # to type checkers only, of everything that the package exports
        part
        for node in (ast.walk(tree) if module == PACKAGE else ())
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in told:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + is_package]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in SOURCES else base for alias in node.names]
        elif isinstance(node, ast.Call):
            given = (*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name"))
            names = [value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str)]
            names = [name for name in names if name in SOURCES or re.fullmatch(r"studies(\.\w+)+", name)]
        else:
            continue
        for name in names:
            if name.split(".")[0] in WALLS:
                yield name, node.lineno


def against_the_arrow(module: str, source: str, *, is_package: bool = False) -> list[str]:
    room = room_of(module)
    if room is None:
        return [f"{module}: give it a room in ROOMS, {Path(__file__).name}"]
    complaints = []
    for name, line in imported_by(module, ast.parse(source), is_package=is_package):
        other = room_of(name)
        if other != room and other not in MAY_IMPORT[room] and (module, name) not in HOOKS:
            complaints.append(f"{module}, line {line}: the room {room!r} may not import {name}, of the room {other!r}")
    return complaints


def test_imports_follow_the_arrow():
    complaints = [
        complaint
        for module, path in SOURCES.items()
        for complaint in against_the_arrow(
            module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py"
        )
    ]
    assert not complaints, "\n".join(complaints)


def test_an_import_against_the_arrow_is_found():
    offenders = [
        ("functional.masks", "from dual_attention.attention import Attention"),
        ("functional.masks", "from ..attention import Attention"),
        ("functional.masks", "def f():\n    from .. import attention"),
        ("functional.masks", "import dat.training"),
        ("functional.masks", "import importlib\nimportlib.import_module('dat.training')"),
        ("attention", "from . import mechanisms"),
        ("attention", "from .native import enable"),
        ("functional.masks", "from .. import native"),
        ("hf.models", "from ..native import enable"),
        ("attention", "from . import __version__"),
        ("vision_models", "from .training.loop import train"),
        ("generation.language", "from ..language_models import TransformerLM"),
        ("data.relational_games", "from ..functional import causal_mask"),
        ("a_module_without_a_room", ""),
    ]
    assert not [offender for offender in offenders if not against_the_arrow(f"{PACKAGE}.{offender[0]}", offender[1])]


def test_only_base_of_the_private_modules_is_entered_from_outside():
    """All else uses what the library has made public, and ``_base``, which both share."""
    parts = ("dat", "studies", "benchmarks", "docs")
    outside = [path for part in parts for path in sorted((ROOT / part).rglob("*.py"))]
    entered = [
        f"{path.relative_to(ROOT)}, line {line}: {name}"
        for path in outside
        for name, line in imported_by("outside", ast.parse(path.read_text(encoding="utf-8")), is_package=False)
        if re.search(r"^dual_attention(\.\w+)*\._", name) and not name.startswith(f"{PACKAGE}._base")
    ]
    assert not entered, "\n".join(entered)


def test_no_cycles():
    """No module needs one that needs it, be it for its types or when a function is called."""
    needs: dict[str, set[str]] = {}
    for module, path in SOURCES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {name for name, _ in imported_by(module, tree, is_package=path.name == "__init__.py")}
        # A module always finds its own packages begun; what it takes from them is a submodule, followed by itself.
        needs[module] = {name for name in found if not f"{module}.".startswith(f"{name}.")}

    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, "a cycle of imports: " + " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(needs.get(module, ())):
                visit(name, (*path, module))
            done.add(module)

    for module in needs:
        visit(module, ())


# ---- What an import costs. Each probe is a fresh process that prints what it saw as JSON.

IMPORT_WITH_ONLY = """
import importlib, json, os, sys
allowed, steps = set(), json.loads(sys.argv[1])

class Gate:  # as if what is shut out were not installed, for those who ask before they import as well
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        of_python = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")  # named after the platform
        return self.finder.find_spec(name, path, target) if of_python or top in allowed else None

    def __getattr__(self, name):
        return getattr(self.finder, name)

for name in [n for n in sys.modules if n.partition(".")[0] not in sys.stdlib_module_names and n != "__main__"]:
    del sys.modules[name]
sys.meta_path[:] = map(Gate, sys.meta_path)

def attempt(modules, more):
    allowed.update(more)
    failures = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:
            failures[module] = f"{type(error).__name__}: {error}"
    return failures

found = {name: attempt(*step) for name, step in steps[:1]}
for name, step in steps[1:]:  # each by itself on top of the first, which is imported only once
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, json.dumps(attempt(*step)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        found[name] = json.loads(file.read() or '"it died"')
    os.wait()
print(json.dumps(found))
"""

EFFECTS_OF_IMPORT = """
import json, os, sys

module, *before = sys.argv[1:]
for name in before:
    __import__(name)

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = (
    "socket.", "subprocess.", "urllib.", "shutil.", "tempfile.", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.link", "os.symlink", "os.truncate", "os.chmod", "os.system", "os.exec", "os.posix_spawn", "os.fork",
)
seen = []

def watch(event, args):
    if event == "open":
        path, mode, flags = args
        if any(letter in (mode or "") for letter in "wax+") or (flags or 0) & WRITING:
            seen.append(f"open for writing: {path}")
    elif event.startswith(CHANGES):
        seen.append(f"{event} {args}")

before = set(sys.modules)
sys.addaudithook(watch)
__import__(module)
events = list(seen)
print(json.dumps({"events": events, "modules": sorted(set(sys.modules) - before)}))
"""


def probe(script: str, *arguments: str, path: Path = ROOT) -> dict:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(path)}
    environment.pop("TRITON_INTERPRET", None)  # the interpreter needs numpy, compiled kernels do not
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def import_names(requirements: list[str]) -> set[str]:
    """Names under which the distributions behind ``requirements``, and all that those need, are imported."""
    waiting = [Requirement(text) for text in requirements]
    reached: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            key = (normalised(requirement.name), extra)
            if key in reached:
                continue
            reached.add(key)
            try:
                further = importlib.metadata.requires(requirement.name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            for text in further:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return {name for distribution, _ in reached for name in top_level(distribution)}


def top_level(distribution: str) -> set[str]:
    """The modules and packages that a distribution installs, by its list of files; none if it is not installed."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    return {path.parts[0].partition(".")[0] for path in files if path.suffix in (".py", ".so", ".pyd")}


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def imports_with(extra: str | None) -> tuple[list[str], list[str]]:
    """The modules to import with that extra, and what can be imported then, beside what can without it."""
    modules = [name for name in SOURCES if extra_at_import(name) == extra]
    requirements = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return modules, sorted({*WALLS[:2], *import_names(requirements)})


@pytest.mark.slow
def test_modules_import_with_only_what_they_declare():
    """With everything else shut out, even if installed: a fresh `pip install` must suffice to import."""
    extras = [None, "hf"]
    if importlib.util.find_spec("transformer_lens") is not None:
        extras.append("lens")
    if importlib.util.find_spec("triton") is not None:  # it is made for Linux only
        extras.append("triton")
    failures = probe(IMPORT_WITH_ONLY, json.dumps([(str(extra), imports_with(extra)) for extra in extras]))
    assert failures.keys() == {str(extra) for extra in extras}
    assert not {extra: found for extra, found in failures.items() if found}


def test_what_is_not_declared_is_shut_out(tmp_path: Path):
    (tmp_path / "offender.py").write_text("import pytest\n", encoding="utf-8")
    steps = [("first", (["json", "offender"], ["offender"])), ("second", (["offender", "pytest"], []))]
    found = probe(IMPORT_WITH_ONLY, json.dumps(steps), path=tmp_path)
    named = {step: list(failures) for step, failures in found.items()}
    assert named == {"first": ["offender"], "second": ["offender", "pytest"]}


def foreign(modules: list[str]) -> list[str]:
    """Those outside the standard library, torch, einops and this package; and parts of torch slow to load."""
    slow = ("torch._dynamo", "torch._inductor", "torch.utils.tensorboard")
    known = {*sys.stdlib_module_names, PACKAGE, "torch", "einops"}
    return [name for name in modules if name.split(".")[0] not in known or name.startswith(slow)]


def test_importing_the_package_does_nothing_else():
    """It loads nothing beside torch and einops, opens no socket, starts no process and writes no file."""
    effects = probe(EFFECTS_OF_IMPORT, PACKAGE, "torch", "einops")
    assert PACKAGE in effects["modules"]
    assert not effects["events"]
    assert not foreign(effects["modules"])


def test_the_effects_of_an_import_are_seen(tmp_path: Path):
    source = f"import pytest, socket\nsocket.socket()\nopen({str(tmp_path / 'file')!r}, 'w').close()\n"
    (tmp_path / "offender.py").write_text(source, encoding="utf-8")
    effects = probe(EFFECTS_OF_IMPORT, "offender", path=tmp_path)
    assert any(event.startswith("socket") for event in effects["events"])
    assert any("for writing" in event for event in effects["events"])
    assert "pytest" in foreign(effects["modules"])


# ---- What is exported


def test_typed():
    assert (ROOT / PACKAGE / "py.typed").is_file()


def test_all_resolves():
    complaints = []
    for name in SOURCES:
        if name.endswith("__main__") or re.search(r"\._(?!_init__)", name):
            continue
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", [])
        complaints += [f"{name}.__all__: {export!r} is missing" for export in exported if not hasattr(module, export)]
        complaints += [f"{name}.__all__: {export!r} twice" for export, n in Counter(exported).items() if n > 1]
    assert not complaints, "\n".join(complaints)


def test_the_root_exports_what_type_checkers_see():
    """They read the imports and the list of ``_exports``; at run time it is imported when a name in it is used."""
    package, exports = importlib.import_module(PACKAGE), importlib.import_module(f"{PACKAGE}._exports")
    starred: dict = {}
    exec(f"from {PACKAGE} import *", starred)
    assert {*package.__all__} == {"__version__", *exports.__all__} == {*starred} - {"__builtins__"}
    assert {*package.__all__} <= {*dir(package)}


def test_the_root_finds_its_modules_and_nothing_else():
    script = (
        "import json, sys, dual_attention\nfound = 'torch' in sys.modules\n"
        "layer = dual_attention.relational_attention.RelationalAttention is dual_attention.RelationalAttention\n"
        "print(json.dumps([found, layer, hasattr(dual_attention, 'nothing'), hasattr(dual_attention, 'torch')]))"
    )
    assert probe(script) == [False, True, False, False]


def test_root_exports_are_not_modules():
    """`dual_attention.attention` must always be the module of that name."""
    package = importlib.import_module(PACKAGE)
    submodules = {name.split(".")[1] for name in SOURCES if "." in name}
    assert not submodules & set(package.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", package.__version__)


@pytest.mark.slow
def test_nothing_is_said_where_numpy_is_missing():
    """PyTorch would warn of it as it is imported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = "import sys; sys.modules['numpy'] = None; import dat.cli.main, dual_attention.language_models as of"
    code += "; of.torch.ones(1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == done.stderr == ""
