"""Parts of a model: the heading under which a module's figures are added up."""

from typing import Any

from torch import nn

from dual_attention.attention import Attention
from dual_attention.baselines import ESBN, ContextNorm, CoRelNet, PrediNet
from dual_attention.transformer_blocks import FeedForwardBlock, RMSNorm
from dual_attention.vision_models import VisionModel

PART_OF_FILE = {
    "dual_attention.attention": "self-attention",
    "dual_attention.relational_attention": "relational attention",
    "dual_attention.relational_cross_attention": "relational attention",
    "dual_attention.symbol_retrieval": "symbols",
    "dual_attention.positional_encoding": "embeddings",
}
"""Files whose modules, and what is derived from them, are one part together with all their submodules."""

WHOLE: dict[type[nn.Module], str] = {
    FeedForwardBlock: "feed-forward",
    nn.LayerNorm: "norms",
    RMSNorm: "norms",
    nn.Dropout: "residual stream",
    nn.Embedding: "embeddings",
    PrediNet: "relations",
}
"""Other modules that are one part."""

OWN: dict[type[nn.Module], str] = {
    ContextNorm: "norms",
    CoRelNet: "relations",
    nn.LSTMCell: "controller",
    ESBN: "controller",
}
"""Modules whose own work is a part, while their submodules have headings of their own."""


BETWEEN = "between modules"
CHECKPOINTS = "checkpoints"
LOSS = "loss"


def headings(model: nn.Module) -> dict[int, str]:
    """Heading of every module by its identity; a shared module has that of its first place."""
    found: dict[int, str] = {}

    def visit(module: nn.Module, name: str, whole: str | None) -> None:
        if id(module) in found:
            return
        whole = whole or _whole(module)
        found[id(module)] = whole or _own(module, name)
        for key, child in module.named_children():
            visit(child, f"{name}.{key}" if name else key, whole)

    visit(model, "", None)
    return found


def _whole(module: nn.Module) -> str | None:
    """The part that a module and its submodules make up."""
    for kind in type(module).__mro__:
        if part := WHOLE.get(kind) or PART_OF_FILE.get(kind.__module__):
            return part
    return None


def _own(module: nn.Module, name: str) -> str:
    """Heading of a module of this name in its model that lies in no other part."""
    for kind in type(module).__mro__:
        if kind in OWN:
            return OWN[kind]
    if isinstance(module, nn.Linear):
        if any(level in ("final_out", "lm_head", "head", "classifier", "decoder") for level in name.split(".")):
            return "output"
        return "embeddings" if "embed" in name else "linear maps"
    place = type(module).__module__
    if place.startswith("torch.nn."):  # activations multiply no matrices, and neither do our blocks and models
        is_container = not module._parameters
    else:
        is_container = place.startswith("dual_attention.") and not place.startswith("dual_attention.mechanisms.")
    return BETWEEN if is_container else type(module).__name__


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
        # An image classifier's own parameters are the class token and positions.
        part = "embeddings" if isinstance(module, VisionModel) else part_of[id(module)]
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                every, learning = counts.get(part, (0, 0))
                counts[part] = every + parameter.numel(), learning + parameter.numel() * parameter.requires_grad
    return counts
