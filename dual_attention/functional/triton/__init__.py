"""Fused relational attention, forward and backward, in Triton.

====================  ==================================================================================
:mod:`.support`       limits of the kernels; imports no Triton
:mod:`.implementation`  their place in the table of implementations; imports no Triton
:mod:`.tuning`        sizes of tiles for a device, a width and a dtype; imports no Triton
:mod:`.operation`     the registered operation and its gradient
:mod:`.launch`        arguments and results of the kernels of a call
:mod:`.operands`      arguments that the kernels share
:mod:`.forward`       kernel of the forward pass
:mod:`.backward`      kernels of the backward pass
:mod:`.tiles`, :mod:`.offsets`  shared by the kernels
:mod:`.loss`          losses of a chunk of logits, and their gradients in its place
:mod:`.segments`      tiles that packed segments leave empty
:mod:`.pairs`, :mod:`.pairs_operation`  relations formed once for all heads: kernels, and registered operation
====================  ==================================================================================

Importing this package imports no Triton; :mod:`.operation` and the kernels do. With ``TRITON_INTERPRET=1`` in the
environment before Triton is first imported the kernels run in its interpreter, on the CPU, slowly.

For whoever has a GPU next. Time against the least number of matmuls (``dat estimate``) at the measured matrix rate, and
every tensor once at the measured bandwidth. Five kernels make a backward pass, one of them for relative symbols only,
because every sum has one owner: scores are computed four times at most and the gradient of the weights twice (queries,
keys). Summing dq by atomics would save the second, nearly a third of the backward arithmetic where R p is large, at the
price of gradients that differ from run to run. Memory beside the tensors of the call: the relation keys under the
weights of each head, ``(B, H, N, R, p)``, kept for the backward pass, and in that pass as many numbers for their
gradient. Things to try first: the sizes in :mod:`.tuning`, of which those for Hopper were timed before these were kept;
steps of decoding, whose senders several programs share, beside those by ``dense``, which are chosen; the gathers of
relative symbols near the diagonal (:func:`.offsets.onto_diagonals`), if they show in a profile, as a matrix product
with the tile's own shifts; the table's loop over packed segments, whose skipped tiles keep it from being pipelined.

No GPU has run :mod:`.pairs` yet. By its machine code (Triton 3.8, Hopper, R = 8, eight heads, widths of 64), issuing
all that 1,024 pairs need takes 6,200 clocks of a multiprocessor, forward and backward, without symbols; the products of
the other kernels, with symbols, take 11,300 at their peak, of which the H100 reached a quarter. With 1,800 for symbols
that would be 1.4 times as fast, if it gets as near to its peak.
"""
