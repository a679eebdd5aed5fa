"""numpy, imported when something of it is first used: a misspelt name is told before what is not installed."""

from typing import TYPE_CHECKING, Any

from dual_attention._base.extras import require

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            return getattr(require("numpy", extra="train"), name)

    np = _Numpy()
