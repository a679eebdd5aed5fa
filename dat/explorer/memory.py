"""Memory that a recording takes, estimated before it is taken.

Shapes: H heads, N tokens, d width of the layer's output.
"""

from collections.abc import Iterable
from pathlib import Path

from dual_attention.model_analysis.sites import Site

from ..estimate.units import nbytes

FLOAT = 4
"""Bytes of a number."""


MAPS = 4
"""Maps of attention that there are of each head at a time, in the layer that computes: as measured."""


def recording_bytes(sites: Iterable[Site], n: int) -> int:
    """Bytes of a recording of ``n`` tokens at its worst moment, about.

    Kept of each layer are contributions ``(H, N, d)``, two messages and symbols ``(H, N, d_h)``, and visible pairs
    ``(N, N)``; relations are not built. Models of 4 + 4, 8 + 8 and 2 + 2 heads in 4, 8 and 2 layers that record 2,048
    tokens took from 0.96 to 1.19 times as much.
    """
    kept, passing = 0, 0
    for site in sites:
        kept += FLOAT * site.n_heads * n * (site.width + 3 * site.module.head_dim) + n * n
        passing = max(passing, MAPS * FLOAT * n * n * site.n_heads)
    return kept + passing


def free_bytes() -> int | None:
    """Bytes of memory that this machine could still give, if it says so."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def check_recording_fits(sites: Iterable[Site], n: int) -> None:
    """Raise ``ValueError`` if there is no room for a recording of ``n`` tokens, with what could be done."""
    sites = list(sites)
    needed, free = recording_bytes(sites, n), free_bytes()
    if free is not None and needed > free:
        layers = len({site.layer for site in sites})
        raise ValueError(
            f"text: to record {n:,} tokens in {layers} layers takes about {nbytes(needed)} of memory, and "
            f"{nbytes(free)} are free; take a shorter text, or choose layers with --layers"
        )
