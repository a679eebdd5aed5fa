"""Relational attention and the Dual Attention Transformer (Altabaa & Lafferty 2024, arXiv 2405.16727)."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (  # noqa: F401 (those that __getattr__ imports)
        _exports,
        attention,
        baselines,
        configs,
        dual_attention,
        dual_attn_blocks,
        encoder_models,
        functional,
        generation,
        hf,
        language_models,
        language_presets,
        mechanisms,
        model_analysis,
        native,
        positional_encoding,
        relational_attention,
        relational_cross_attention,
        seq2seq_models,
        symbol_retrieval,
        transformer_blocks,
        vision_models,
    )
    from ._exports import *  # noqa: F403

    __all__ = ["__version__"]
    __all__ += _exports.__all__

__version__ = "0.2.0"


def _warn_of_namesake() -> None:
    """Say if the package that owns the name ``dual-attention`` on the index is installed into the same folder."""
    try:
        beside = os.listdir(os.path.dirname(os.path.dirname(__file__)))
    except OSError:  # imported from an archive
        return
    for name in beside:
        if name.startswith("dual_attention-") and name.endswith(".dist-info"):
            other = name.removesuffix(".dist-info").replace("_", "-")
            warnings.warn(
                f"{other} is installed beside relational-attention: both are the folder dual_attention, and the last "
                "one installed wins; pip uninstall dual-attention, then pip install --force-reinstall --no-deps "
                "relational-attention (in a clone of it: .)",
                stacklevel=3,
            )


def _import_torch_without_numpy() -> None:
    """Import PyTorch without its warning that NumPy, which no layer or model needs, is not installed."""
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.filterwarnings("ignore", "Failed to initialize NumPy")
        importlib.import_module("torch")


_warn_of_namesake()
if importlib.util.find_spec("numpy") is None:  # otherwise PyTorch waits until it is needed
    _import_torch_without_numpy()


if not TYPE_CHECKING:  # a checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """A module or an export, imported when it is first named, so that ``dat --help`` does not wait for torch."""
        if not name.startswith("__"):
            try:
                return importlib.import_module(f".{name}", __name__)
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        if name == "__all__" or not name.startswith("__"):
            exports = importlib.import_module("._exports", __name__)
            found = {export: getattr(exports, export) for export in exports.__all__}
            globals().update(found, __all__=["__version__", *found])
            if name in globals():
                return globals()[name]
        from ._base.words import suggestion

        near = suggestion(name, globals().get("__all__", ()))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{near}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
