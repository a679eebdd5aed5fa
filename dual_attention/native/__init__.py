"""C kernels for relational attention on CPUs: training, and a step of decoding. They are asked for.

Status: experimental; it may change in any release.

    from dual_attention import native

    native.enable()       # compiles them, the first time on a machine, and registers impl="native"
    native.disable()

:func:`enable` compiles C with the compiler of the machine and keeps the result in the user's cache folder. From then on
``impl="auto"`` takes it where it suits: in float32 and half precision, for the identity activation, without a bias,
where there are too many weights to build all at once and for a step of decoding after a long context. Results agree
with the others to rounding; dropout draws another mask. ``DUAL_ATTENTION_NATIVE=1`` in the environment enables it when
it is first used.

- ``implementation``: what the kernels can compute, when they suit, and their place in the table
- ``kernels``: forward and backward, as an operation of PyTorch
- ``step``: one receiver, as in decoding
- ``amx``: bfloat16 by matrix units, for ``enable(amx=True)``
- ``library``, ``building``, ``threads``: how C is built, loaded and given threads
"""

from __future__ import annotations

__all__ = ["disable", "enable", "is_enabled"]


def enable(*, amx: bool = False) -> None:
    """Compile and load the kernels, and register them as the implementation ``"native"``; again it does nothing.

    Args:
        amx: compute bfloat16 by the matrix units of an x86 processor (AMX). No such processor has run this yet, only an
            emulation of it. Otherwise bfloat16 is left to PyTorch where there are such units, and cast elsewhere.

    Raises:
        RuntimeError: if they cannot be built, or ``amx`` is asked for and cannot run here, with the reason.

    >>> enable()
    >>> is_enabled()
    True
    >>> disable()
    """
    from threading import Thread

    from ..functional.relational.table import register_implementation
    from . import implementation, kernels, step

    Thread(target=step.LIBRARY.find, daemon=True).start()  # beside the other, which takes longer
    for library in (kernels.LIBRARY, step.LIBRARY):
        library.get()
    against = implementation.amx.missing_units() if amx else None
    if against is not None:
        raise RuntimeError(f"native.enable(amx=True): {against}")
    register_implementation(implementation.NATIVE_WITH_AMX if amx else implementation.NATIVE)


def enable_when_used() -> None:
    """As :func:`enable`, but the kernels are compiled when they first run.

    Where they cannot be, the logger ``dual_attention.native`` says why, once, and calls are left to PyTorch.
    """
    from ..functional.relational.table import register_implementation
    from .implementation import NATIVE

    register_implementation(NATIVE)


def disable() -> None:
    """Take the implementation out again, and leave a note how to ask for it.

    >>> disable()
    >>> is_enabled()
    False
    """
    from ..functional.relational import asked_for

    if is_enabled():
        asked_for.register_place()


def is_enabled() -> bool:
    """Whether ``impl="auto"`` may take the kernels.

    >>> is_enabled()
    False
    """
    from ..functional.relational.table import IMPLEMENTATIONS
    from .implementation import NATIVE, NATIVE_WITH_AMX

    return IMPLEMENTATIONS["native"] in (NATIVE, NATIVE_WITH_AMX)
