"""Relational attention as one operation over projected tensors, with its implementations.

=======================  =======================================================================================
:mod:`.api`              the operation for users: checks its inputs, then does as a layer does
:mod:`.inputs`           inputs of a call, checked, as every implementation takes them; its output
:mod:`.choice`           which implementation suits a call, by measured rules, and why; layers begin here
:mod:`.table`            the table of implementations, into which each registers itself
:mod:`.dense`            builds all weights at once
:mod:`.linear`           a block of receivers at a time, forward and backward, by the sums of :mod:`.blocks`
:mod:`.blockwise`        a block of receivers at a time, for activated relations
:mod:`.sdpa`             through PyTorch's attention
:mod:`..triton`          fused kernels, imported only when they run
:mod:`.asked_for`        C kernels, a package of its own that is asked for
:mod:`.operation`        registers operations of PyTorch like that of ``linear``
:mod:`.whole`            the sums of ``dense``, and of second derivatives of ``linear`` and ``triton``
:mod:`.tiles`, :mod:`.pair_symbols`, :mod:`.head_products`, :mod:`.workspace`
                         the parts that blocks are summed with
=======================  =======================================================================================

Implementations take :class:`.RelationalInputs` and return :class:`.RelationalAttentionOutput`; :mod:`..reference`
judges them all. To add one, call :func:`.table.register_implementation`.
"""
