"""The published package's app that draws attention and relations of a language model; here it starts the explorer.

Run ``python -m dual_attention.model_analysis.lm_visualization_app``, if you like with the arguments of ``dat explore``.
"""

from __future__ import annotations

from dat.explorer.command import run_app

__all__ = ["run_app"]

if __name__ == "__main__":
    raise SystemExit(run_app(f"python -m {__spec__.name}"))
