"""Language models for transformers in TransformerLens, with hooks on relations, symbols and both kinds of attention.

::

    bridge = transformer_lens_bridge(model)          # a DualAttnForCausalLM
    logits, cache = bridge.run_with_cache(tokens)
    cache["blocks.0.attn.relational.hook_relations"]  # (B, N, M, R)

What a block computes is left to it; hooks see tensors on their way, and may replace them.

===========================================  =========================  ===================================
hooks of heads                               shape                      of
===========================================  =========================  ===================================
``hook_pattern``                             ``(B, H, N, M)``           attention weights
``hook_relations``                           ``(B, N, M, R)``           relations, not masked
``hook_symbols``                             ``(B, N, d)``              symbols, as they come to the layer
``hook_symbol_values``                       ``(B, H, M, d_h)``         symbols, as projected for a head
``hook_relational_message``,                 ``(B, N, H, d_h)``         the two parts of a message
``hook_symbol_message``
``hook_z``                                   ``(B, N, H, d_h)``         input of the output projection
===========================================  =========================  ===================================

They are those of ``blocks.0.attn.sensory`` and ``blocks.0.attn.relational`` in a Dual Attention Transformer, and of
``blocks.0.attn`` in a Transformer. A Dual Attention Transformer has ``blocks.0.attn.hook_pattern`` and ``.hook_z``,
too, for those of its sensory heads. Relative symbols belong to pairs: ``hook_symbols`` is their library ``(K, d)``.

:func:`register` makes ``TransformerBridge.boot_transformers`` know these models.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..._extras import require
from ..._layers.taps import Taps
from ...dual_attention import DualAttention
from ...transformer_blocks import RMSNorm

__all__ = ["register", "transformer_lens_bridge"]

ARCHITECTURE = "DualAttnForCausalLM"
EXTRA = "lens"

HOOKS = {
    "weights": "hook_pattern",
    "relations": "hook_relations",
    "symbols": "hook_symbols",
    "symbol_values": "hook_symbol_values",
    "relational_message": "hook_relational_message",
    "symbol_message": "hook_symbol_message",
    "head_output": "hook_z",
}
"""The hook of each tap."""
BY_PLACE = ("relational_message", "symbol_message", "head_output")
"""Taps whose heads come before their places here, and behind them in TransformerLens."""


def transformer_lens_bridge(model: nn.Module, tokenizer: Any = None) -> Any:
    """A ``TransformerBridge`` around a language model.

    Args:
        model: a :class:`~dual_attention.hf.DualAttnForCausalLM`. It is taken over: its modules are put into those of
            TransformerLens, and numbers stay as they are.
        tokenizer: of transformers; None where texts are given as tokens.

    Raises:
        TypeError: if it is another model.
        ImportError: if TransformerLens is not installed.
    """
    if type(model).__name__ != ARCHITECTURE:
        raise TypeError(f"model: expected a {ARCHITECTURE}, got {type(model).__name__}")
    lens = _lens()
    dtype = next(model.parameters()).dtype
    config = lens.build_config(model.config, ARCHITECTURE, ARCHITECTURE, dtype)
    adapter = _classes().Adapter(config)
    adapter.prepare_model(model)
    return lens.TransformerBridge(model, adapter, tokenizer)


def register() -> None:
    """Make these models known to ``TransformerBridge.boot_transformers``, which takes folders and names on the hub.

    The entry point of this package does it in part: TransformerLens 4.3 looks at entry points only for architectures
    that it knows.
    """
    lens = _lens()
    lens.factory.ArchitectureAdapterFactory.register_adapter(ARCHITECTURE, _classes().Adapter)
    lens.factory.SUPPORTED_ARCHITECTURES[ARCHITECTURE] = _classes().Adapter


@cache
def _lens() -> Any:
    """The parts of TransformerLens that are used."""
    bridge, builder, parts, base, factory, adapter, hooks = (
        require(f"transformer_lens{name}", extra=EXTRA)
        for name in (
            ".model_bridge",
            ".model_bridge.sources._bridge_builder",
            ".model_bridge.generalized_components",
            ".model_bridge.generalized_components.base",
            ".factories.architecture_adapter_factory",
            ".model_bridge.architecture_adapter",
            ".hook_points",
        )
    )
    return SimpleNamespace(
        TransformerBridge=bridge.TransformerBridge,
        build_config=builder.build_bridge_config_from_hf,
        parts=parts,
        Component=base.GeneralizedComponent,
        factory=factory,
        ArchitectureAdapter=adapter.ArchitectureAdapter,
        HookPoint=hooks.HookPoint,
    )


@cache
def _classes() -> Any:
    """The components and the adapter; TransformerLens has to be imported to define them."""
    lens = _lens()

    class Native(lens.Component):
        """A module that computes as ever, with hooks on its first input and its first output."""

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = self.original_component(self.hook_in(args[0]), *args[1:], **kwargs)
            if isinstance(output, Tensor):
                return self.hook_out(output)
            return output._replace(**{output._fields[0]: self.hook_out(output[0])})

    class Heads(Native):
        """The heads of one kind in a layer. A tap is watched only while its hook has something to do."""

        def set_original_component(self, original_component: nn.Module) -> None:
            super().set_original_component(original_component)
            for tap in _taps(self).keys() & HOOKS.keys():
                setattr(self, HOOKS[tap], lens.HookPoint())

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                for tap, module in _taps(self).items():
                    point = self._hook_registry.get(HOOKS.get(tap, ""))
                    if point is not None and point.has_hooks(dir="both"):
                        handle = module.register_forward_hook(_passing(point, by_place=tap in BY_PLACE))
                        stack.callback(handle.remove)
                return super().forward(*args, **kwargs)

    class Adapter(lens.ArchitectureAdapter):
        """The parts of :class:`~dual_attention.hf.DualAttnForCausalLM` by the names of TransformerLens."""

        applicable_phases: list[int] = []  # noqa: RUF012 (as in TransformerLens)
        supports_kv_cache = False

        def __init__(self, cfg: Any) -> None:
            super().__init__(cfg)
            cfg.final_rms = cfg.attn_only = cfg.gated_mlp = False
            self.weight_processing_conversions = {}
            self.component_mapping = {}

        def prepare_model(self, hf_model: Any) -> None:
            """Name the parts that this model has."""
            layers = hf_model.model.layers
            block, rms = layers.blocks[0], isinstance(layers.norm, RMSNorm | nn.RMSNorm)
            self.cfg.normalization_type, self.cfg.uses_rms_norm = ("RMS", True) if rms else ("LN", False)
            rotary = hf_model.config.pos_enc_type == "RoPE"
            self.cfg.positional_embedding_type = "rotary" if rotary else "standard"
            self.component_mapping = {
                "embed": lens.parts.EmbeddingBridge(name="model.layers.token_embedder"),
                "blocks": lens.parts.OpaqueBlockBridge(name="model.layers.blocks", submodules=self._of_block(block)),
                "ln_final": Native(name="model.layers.norm"),
                "unembed": lens.parts.UnembeddingBridge(name="model.layers.final_out"),
            }

        def _of_block(self, block: nn.Module) -> dict[str, Any]:
            attention = getattr(block, "dual_attn", None)
            if isinstance(attention, DualAttention):
                kinds = {"sensory": "self_attention", "relational": "relational_attention"}
                heads = {kind: Heads(name=name) for kind, name in kinds.items() if getattr(attention, name) is not None}
                sensory = {name: f"sensory.{name}" for name in ("hook_pattern", "hook_z")} if "sensory" in heads else {}
                attn = Native(name="dual_attn", submodules=heads, hook_alias_overrides=sensory)
            else:
                attn = Heads(name="self_attn")
            return {
                "ln1": Native(name="norm1"),
                "attn": attn,
                "ln2": Native(name="norm2"),
                "mlp": Native(name="ff_block"),
            }

    return SimpleNamespace(Adapter=Adapter)


def _taps(component: Any) -> dict[str, nn.Module]:
    """The taps of the heads in a component, by name."""
    taps: Taps = component.original_component.taps
    return dict(taps.named_children())


def _passing(point: Any, *, by_place: bool) -> Any:
    """A forward hook of a tap that sends its tensor through a hook point, in the layout of TransformerLens."""

    def passing(_module: nn.Module, _args: Any, x: Tensor) -> Tensor:
        return point(x.transpose(1, 2)).transpose(1, 2) if by_place else point(x)

    return passing


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "Adapter":  # of the entry point
            return _classes().Adapter
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
