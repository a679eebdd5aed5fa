"""Which scripts make the pictures of the pages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def _scripts() -> str:
    folders = ("docs", "dat", "studies", "benchmarks")
    return "\n".join(
        path.read_text(encoding="utf-8") for name in folders for path in sorted((ROOT / name).rglob("*.py"))
    )


def has_maker(picture: str) -> bool:
    """Whether code names a picture of a page: by its stem, or by what stands before the stem's last hyphen."""
    stem = Path(picture).stem
    return any(
        re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", _scripts())
        for name in (stem, stem.rpartition("-")[0])
        if name
    )
