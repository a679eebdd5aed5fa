"""Arms that are as large as another one."""

from collections.abc import Callable


def matching_width(parameters: Callable[[int], int], target: int, *, tolerance: float = 0.01) -> int:
    """The width of feed-forward blocks with which a model has about ``target`` parameters.

    Args:
        parameters: of the model with a width; grows linearly with it.
        tolerance: largest share by which they may differ, since widths are whole numbers.

    Raises:
        ValueError: if no width comes that close.
    """
    narrow, wide = 8, 16
    least = parameters(narrow)
    width = round(narrow + (target - least) * (wide - narrow) / (parameters(wide) - least))
    found = parameters(max(width, 1))
    if width < 1 or abs(found / target - 1) > tolerance:
        raise ValueError(f"target: expected a number of parameters that some width has, got {target:,}")
    return width
