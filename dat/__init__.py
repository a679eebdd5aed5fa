"""The lab: data, training, sweeps, experiments, costs, the explorer, and the command ``dat``."""

from typing import TYPE_CHECKING, Any

import dual_attention

if TYPE_CHECKING:
    from .explorer.inline import explore as explore

if not hasattr(dual_attention, "__version__"):
    raise ImportError(
        "dual_attention: expected the package of relational-attention, got that of dual-attention, which was installed "
        "over it: pip uninstall dual-attention, then pip install --force-reinstall --no-deps relational-attention "
        "(in a clone of it: .)"
    )


def __getattr__(name: str) -> Any:
    """The function ``explore``, imported when it is first named, so that ``dat --help`` does not wait for torch."""
    if name == "explore":
        from .explorer.inline import explore

        return explore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
