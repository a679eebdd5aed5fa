"""Registration with transformers' exporters: programs for other runtimes cannot call operations of this library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

__all__ = ["register_with_exporters"]

_ASKING = "dual_attention.functional.relational.choice", "dual_attention.functional.relational.whole"


@cache
def register_with_exporters() -> None:
    """Have transformers' exporters to ONNX, ExecuTorch and OpenVINO write relational attention out, once.

    They trace with ``torch.export`` first and convert the program afterwards, so that only they know where it goes.
    """
    with suppress(ImportError):  # of another version of transformers
        from transformers.exporters.utils import register_patch

        for backend in ("onnx", "executorch", "openvino"):
            register_patch(backend, *(f"{module}.leaves_pytorch" for module in _ASKING))(_leaving)


def _leaving(original: Callable[[], bool]) -> Callable[[], bool]:
    """In place of :func:`~dual_attention.functional.checks.leaves_pytorch` while such an exporter works."""
    return lambda: True
