"""The groups in which the parameters of a model are gathered and given up again, when processes share them."""

from typing import NamedTuple

from torch import nn

from dual_attention.transformer_blocks import Block, RMSNorm


class ShardingGroup(NamedTuple):
    """Modules whose parameters are gathered together.

    Attributes:
        modules: one, or several.
        lowered: whether they may be gathered in the lower precision of autocast.
        is_root: whether they are the whole model, for what is in no other group; that stays gathered between the
            forward and the backward pass.
    """

    modules: tuple[nn.Module, ...]
    lowered: bool = False
    is_root: bool = False


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, in their order."""
    return [module for module in model.modules() if isinstance(module, Block)]


def sharding_groups(model: nn.Module, *, lowered: bool) -> list[ShardingGroup]:
    """The groups of a model, each without what belongs to one before it: block by block, and then all the rest.

    Everything outside of blocks is one group: embeddings and the output layer, which may be tied, and symbol
    retrievers, which may be shared by blocks and have tied libraries. Blocks may be gathered in ``lowered`` precision,
    except for their normalisations, which autocast does not round. These have a group of their own also where symbols
    are retrieved from normalised tokens, before the block is called.
    """
    retrieval = getattr(model, "symbol_retriever_config", None) or {}
    apart = lowered or retrieval.get("normalized_input", False)
    groups = []
    for block in blocks_of(model):
        if apart:
            norms = tuple(module for module in block.modules() if isinstance(module, nn.LayerNorm | RMSNorm))
            groups += [ShardingGroup(norms)] if norms else []
        groups.append(ShardingGroup((block,), lowered))
    return [*groups, ShardingGroup((model,), is_root=True)]
