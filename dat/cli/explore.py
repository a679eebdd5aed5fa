"""``dat explore``: see what a trained model attends to, which relations it computes and which symbols it assigns."""

from collections.abc import Sequence


def explore(prog: str, arguments: Sequence[str]) -> int:
    """``dat explore``."""
    from ..explorer import command  # which needs the extra "train"; the list of commands does not

    return command.run_explorer(prog, arguments)
