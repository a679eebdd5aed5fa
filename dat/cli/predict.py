"""``dat predict``: what a trained model answers, and the relations that made the answer."""

from collections.abc import Sequence


def predict(prog: str, arguments: Sequence[str]) -> int:
    """``dat predict``."""
    from ..explorer import predicting  # which needs the extra "train"; the list of commands does not

    return predicting.run_predict(prog, arguments)
