"""transformers' own test files, where the environment's ``TRANSFORMERS_SOURCE`` names a folder that has them.

docs/transformers-tests.md says where they come from, what each folder holds, and which of their tests fail here.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tests
from tests.support.documents import ROOT

SOURCE = Path(os.environ.get("TRANSFORMERS_SOURCE", "")) / "tests"
_PACKAGE = "transformers_tests"
_ELSEWHERE = {"exporters.test_export": "ExportTesterMixin", "generation.test_utils": "GenerationTesterMixin"}


def needs(*files: str) -> None:
    """Skip the module that calls this, unless all these files are there."""
    if "TRANSFORMERS_SOURCE" not in os.environ:
        pytest.skip("TRANSFORMERS_SOURCE names no source of transformers", allow_module_level=True)
    pytest.importorskip("parameterized", reason="parameterized is not installed")
    for file in files:
        if not (SOURCE / file).exists():
            pytest.skip(f"{SOURCE} has no {file}, which comes with a clone", allow_module_level=True)


def theirs(name: str) -> Any:
    """The module of theirs.

    Mixins whose file is missing stand empty: a source distribution has the common tests, but not what they import.
    """
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
        sys.modules[_PACKAGE].__path__ = [str(SOURCE)]
        tests.__path__.append(str(SOURCE))  # some of their files name others `tests.…`, which are sought after ours
        for missing, mixin in _ELSEWHERE.items():
            if not (SOURCE / f"{missing.replace('.', '/')}.py").exists():
                for part in (missing.split(".")[0], missing):
                    sys.modules[f"{_PACKAGE}.{part}"] = ModuleType(f"{_PACKAGE}.{part}")
                setattr(sys.modules[f"{_PACKAGE}.{missing}"], mixin, type(mixin, (), {}))
    return importlib.import_module(f"{_PACKAGE}.{name}")


def expect_known_failures(suites: dict[str, Any]) -> None:
    """Skip what is known to fail: whoever repairs one takes it off the page.

    Rows of the page are a test, the suites it is of, and the reason.
    """
    page = (ROOT / "docs/transformers-tests.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ", 2) for line in page.splitlines() if line.startswith("| `")]
    for name, kinds, reason in rows:
        for kind in kinds.split(", "):
            test = getattr(suites.get(kind), name.strip("`"), None)
            if test is not None:
                setattr(suites[kind], name.strip("`"), pytest.mark.skip(reason=reason)(test))
