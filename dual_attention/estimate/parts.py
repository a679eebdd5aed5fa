"""Parts of a model: the heading under which a module's figures are added up."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..attention import Attention
from ..baselines import ESBN, ContextNorm, CoRelNet, PrediNet
from ..positional_encoding import (
    LearnedPositionalEmbeddings,
    RelativePositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from ..relational_attention import RelationalAttention
from ..relational_cross_attention import DisentangledRelationalCrossAttention, RelationalCrossAttention
from ..symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from ..transformer_blocks import FeedForwardBlock, RMSNorm
from ..vision_models import VisionDualAttnTransformer, VisionTransformer

Kinds = tuple[type[nn.Module], ...]

WHOLE: dict[str, Kinds] = {
    "self-attention": (Attention,),
    "relational attention": (
        RelationalAttention,
        RelationalCrossAttention,
        DisentangledRelationalCrossAttention,
    ),
    "symbols": (
        SymbolicAttention,
        RelationalSymbolicAttention,
        PositionalSymbolRetriever,
        PositionRelativeSymbolRetriever,
        PositionRelativeSymbolRetriever2D,
    ),
    "feed-forward": (FeedForwardBlock,),
    "norms": (nn.LayerNorm, RMSNorm),
    "residual stream": (nn.Dropout,),
    "embeddings": (
        nn.Embedding,
        SinusoidalPositionalEncoding,
        LearnedPositionalEmbeddings,
        RotaryPositionalEncoding,
        RelativePositionalEncoding,
    ),
    "relations": (PrediNet,),
}
"""Modules that are one part together with all their submodules."""

OWN: dict[str, Kinds] = {
    "norms": (ContextNorm,),
    "relations": (CoRelNet,),
    "controller": (nn.LSTMCell, ESBN),
}
"""Modules whose own work is a part, while their submodules have headings of their own."""

OUTPUT_NAMES = ("final_out", "lm_head", "head", "classifier", "decoder")
"""Names of a model's output layer."""

BETWEEN = "between modules"
CHECKPOINTS = "checkpoints"
LOSS = "loss"
RECOMPUTED = "recomputed block"


def heading(module: nn.Module, name: str) -> str:
    """Heading of a module of this name in its model that lies in no other part."""
    for headings in (WHOLE, OWN):
        for part, kinds in headings.items():
            if isinstance(module, kinds):
                return part
    if isinstance(module, nn.Linear):
        if any(level in OUTPUT_NAMES for level in name.split(".")):
            return "output"
        return "embeddings" if "embed" in name else "linear maps"
    return BETWEEN if _is_container(module) else type(module).__name__


def _is_container(module: nn.Module) -> bool:
    """Whether a module multiplies no matrices itself: blocks and models of the library, PyTorch's activations."""
    place = type(module).__module__
    if place.startswith("torch.nn."):
        return not module._parameters
    return place.startswith("dual_attention.") and not place.startswith("dual_attention.mechanisms.")


def headings(model: nn.Module) -> dict[int, str]:
    """Heading of every module by its identity; a shared module has that of its first place."""
    found: dict[int, str] = {}

    def visit(module: nn.Module, name: str, part: str | None) -> None:
        if id(module) in found:
            return
        found[id(module)] = heading(module, name) if part is None else part
        is_whole = any(isinstance(module, kinds) for kinds in WHOLE.values())
        inherited = found[id(module)] if part is not None or is_whole else None
        for key, child in module.named_children():
            visit(child, f"{name}.{key}" if name else key, inherited)

    visit(model, "", None)
    return found


def attends_to_context(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of sensory attention has keys from another sequence than its queries."""
    if not isinstance(module, Attention):
        return False
    query = args[0] if args else kwargs.get("query")
    key = args[1] if len(args) > 1 else kwargs.get("key")
    return key is not query


def parameter_counts(model: nn.Module, part_of: dict[int, str]) -> dict[str, tuple[int, int]]:
    """Numbers of parameters, and of those that learn, by part; a shared parameter counts where it comes first."""
    counts: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    for module in model.modules():
        part = part_of[id(module)]
        if isinstance(module, VisionTransformer | VisionDualAttnTransformer):
            part = "embeddings"  # the class token and positions
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                every, learning = counts.get(part, (0, 0))
                counts[part] = every + parameter.numel(), learning + parameter.numel() * parameter.requires_grad
    return counts
