"""C kernels for relational attention on CPUs. They are asked for.

Status: experimental; it may change in any release.

    from dual_attention import native

    native.enable()       # compiles them, the first time on a machine, and registers impl="native"
    native.disable()

:func:`enable` compiles C with the compiler of the machine and keeps the result in the user's cache folder. From then on
``impl="auto"`` takes it where it makes training a tenth faster or more: in float32 and half precision, for the identity
activation, without a bias, for long rows of senders. Results agree with the others to rounding; dropout draws another
mask.

- ``implementation``: what the kernels can compute, when they suit, and their place in the table
- ``kernels``: forward and backward, as an operation of PyTorch
- ``library``, ``building``, ``threads``: how C is built, loaded and given threads
"""

from ..functional.relational.asked_for import NOT_ENABLED
from ..functional.relational.table import IMPLEMENTATIONS, register_implementation
from .implementation import NATIVE
from .kernels import LIBRARY

__all__ = ["disable", "enable", "is_enabled"]


def enable() -> None:
    """Compile and load the kernels, and register them as the implementation ``"native"``; again it does nothing.

    Raises:
        RuntimeError: if they cannot be built, with the reason.

    >>> enable()
    >>> is_enabled()
    True
    >>> disable()
    """
    LIBRARY.get()
    register_implementation(NATIVE)


def disable() -> None:
    """Take the implementation out again, and leave a note how to ask for it.

    >>> disable()
    >>> is_enabled()
    False
    """
    register_implementation(NOT_ENABLED)


def is_enabled() -> bool:
    """Whether ``impl="auto"`` may take the kernels.

    >>> is_enabled()
    False
    """
    return IMPLEMENTATIONS["native"] is NATIVE
