"""Fewest operations of attention: masked pairs left out, and the cheaper of the exact forms of relational attention.

Every other product is needed as it is. Benchmarks take their floors from here, too.
"""

import inspect
from typing import Any

from torch import Tensor, nn

from dual_attention.attention import Attention
from dual_attention.baselines import PrediNet
from dual_attention.functional import RelativeSymbols
from dual_attention.relational_attention import RelationalAttention
from dual_attention.relational_cross_attention import DisentangledRelationalCrossAttention, RelationalCrossAttention

from .flops import RelationalSizes, pairs

KINDS = (Attention, RelationalAttention, RelationalCrossAttention, DisentangledRelationalCrossAttention, PrediNet)
"""Layers whose least arithmetic is less than what they compute."""


def own_work(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], counted: int) -> int:
    """Correction of the least operations of a call: those between the projections of attention, less those counted."""
    if not isinstance(module, KINDS):
        return 0
    if isinstance(module, PrediNet):  # whose narrower keys are padded to the width of the values
        batch, n, d_model = args[0].shape
        width = module.key_dim + d_model + module.position_dim
        return 2 * batch * module.n_heads * 2 * n * width - counted
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    call = bound.arguments
    receivers: Tensor = call["query"] if isinstance(module, Attention) else call["x"]
    senders: Tensor | None = call["key"] if isinstance(module, Attention) else call["y"]
    senders = receivers if senders is None else senders
    batch, n, m = receivers.shape[0], receivers.shape[1], senders.shape[1]
    allowed = pairs(n, m, causal=call["is_causal"], window=module.window)
    outer = batch * module.n_heads
    if isinstance(module, Attention):
        width = module.key_dim + module.head_dim
        return 2 * outer * allowed * width + _relative_positions(module, outer, n, m) - counted
    with_symbols = allowed
    if isinstance(symbols := call["symbols"], RelativeSymbols):  # weights of the same symbol may be summed first
        with_symbols = min(n * symbols.library.shape[0], allowed)
    if isinstance(module, RelationalAttention):
        widths = module.key_dim, module.head_dim, module.n_relations, module.rel_proj_dim
        least = RelationalSizes(batch, module.n_heads, allowed, with_symbols, *widths).least()
        least += 2 * outer * n * module.n_relations * module.head_dim  # W_r
        return least + _relative_positions(module, outer, n, m) - counted
    n_scores = 2 if isinstance(module, DisentangledRelationalCrossAttention) else 1
    return 2 * outer * (allowed * n_scores + with_symbols) * module.head_dim - counted


def of_operation(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], flops: int) -> int:
    """Least operations of one operation: fused attention with a causal mask needs half of the pairs."""
    if "scaled_dot_product" not in func._opname or func._opname.endswith("backward"):
        return flops
    schema = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(schema, args, strict=False)), **kwargs}
    if not given.get("is_causal"):
        return flops
    n, m = given["query"].shape[-2], given["key"].shape[-2]
    return flops * pairs(n, m, causal=n == m) // (n * m)


def _relative_positions(module: Attention | RelationalAttention, outer: int, n: int, m: int) -> int:
    """Scores of relative positions, and values under the weights."""
    least = 0
    if module.rel_pos_keys is not None:
        least += 2 * outer * n * module.key_dim * module.rel_pos_keys.rel_pos_embeddings.shape[0]
    if isinstance(module, Attention) and module.rel_pos_values is not None:
        least += 2 * outer * n * m * module.head_dim
    return least
