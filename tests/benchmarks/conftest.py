"""An environment that pretends to have the published package."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

RIGHT = f"__path__.append({str(ROOT / 'dual_attention')!r})\n"
"""A package that finds its modules in this library, whose interfaces are the published ones."""


@pytest.fixture
def make_published(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes an interpreter with a ``dual_attention`` of that version."""

    def make(version: str = "0.0.7") -> Path:
        packages = tmp_path / "packages"
        (packages / "dual_attention").mkdir(parents=True)
        (packages / "dual_attention" / "__init__.py").write_text(RIGHT, encoding="utf-8")
        about = packages / f"dual_attention-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dual-attention\nVersion: {version}\n")
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return python

    return make
