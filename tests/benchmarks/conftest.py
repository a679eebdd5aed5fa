"""An environment that pretends to have the published package."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

RIGHT = f"__path__.append({str(ROOT / 'dual_attention')!r})\n"
"""A package that finds its modules in this library, whose interfaces are the published ones."""

WRONG = (
    RIGHT
    + """
import dual_attention.relational_attention
from dual_attention.functional.relational.table import IMPLEMENTATIONS
for name, right in IMPLEMENTATIONS.items():
    wrong = lambda x, right=right: right.run(x._replace(rel_scale=1.01 * x.rel_scale))
    IMPLEMENTATIONS[name] = right._replace(run=wrong)
"""
)
"""The same, with relations one part in a hundred too large."""


@pytest.fixture
def make_published(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes an interpreter with a ``dual_attention`` that begins with the given source."""

    def make(source: str = RIGHT, version: str = "0.0.7") -> Path:
        packages = tmp_path / "packages"
        (packages / "dual_attention").mkdir(parents=True)
        (packages / "dual_attention" / "__init__.py").write_text(source, encoding="utf-8")
        about = packages / f"dual_attention-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dual-attention\nVersion: {version}\n")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return python

    return make
