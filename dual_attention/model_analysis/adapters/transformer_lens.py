"""Language models for transformers in TransformerLens, with hooks on relations, symbols and both kinds of attention.

Status: experimental; it may change in any release.

Importing this module needs the extra ``lens``.

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
``blocks.0.attn`` in a Transformer. Relative symbols belong to pairs: ``hook_symbols`` is their library ``(K, d)``.

Blocks have ``hook_resid_pre``, ``hook_resid_mid``, ``hook_resid_post``, ``hook_attn_out`` and ``hook_mlp_out``. What a
hook returns at one of the first three is the residual stream from there on.

:func:`register` makes ``TransformerBridge.boot_transformers`` know these models.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

from torch import Tensor, nn

from ..._base.extras import require
from ..._layers.taps import Taps
from ...dual_attention import DualAttention
from ...transformer_blocks import RMSNorm

__all__ = ["register", "transformer_lens_bridge"]

_LENS = "transformer_lens.model_bridge"
_bridge = require(_LENS, extra="lens")
_parts = require(f"{_LENS}.generalized_components", extra="lens")
_base = require(f"{_LENS}.generalized_components.base", extra="lens")
_adapter = require(f"{_LENS}.architecture_adapter", extra="lens")
_builder = require(f"{_LENS}.sources._bridge_builder", extra="lens")
_factory = require("transformer_lens.factories.architecture_adapter_factory", extra="lens")
_hooks = require("transformer_lens.hook_points", extra="lens")

ARCHITECTURE = "DualAttnForCausalLM"

HOOKS = {
    "weights": "hook_pattern",
    **{tap: f"hook_{tap}" for tap in ("relations", "symbols", "symbol_values", "relational_message", "symbol_message")},
    "head_output": "hook_z",
}
"""The hook of each tap."""
BY_PLACE = ("relational_message", "symbol_message", "head_output")
"""Taps whose heads come before their places here, and behind them in TransformerLens."""
NORMS = {nn.LayerNorm: "LN", RMSNorm: "RMS"}


def transformer_lens_bridge(model: nn.Module, tokenizer: Any = None) -> Any:
    """A ``TransformerBridge`` around a language model.

    Args:
        model: a :class:`~dual_attention.hf.DualAttnForCausalLM`. It is taken over: its modules are put into those of
            TransformerLens, and numbers stay as they are.
        tokenizer: of transformers; None where texts are given as tokens.

    Raises:
        TypeError: if it is another model.

    >>> from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
    >>> config = DualAttnConfig(vocab_size=50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> model = DualAttnForCausalLM(config).eval()
    >>> bridge = transformer_lens_bridge(model)
    >>> logits, cache = bridge.run_with_cache(torch.tensor([[5, 17, 3]]))
    >>> cache["blocks.0.attn.relational.hook_relations"].shape
    torch.Size([1, 3, 3, 1])
    """
    if type(model).__name__ != ARCHITECTURE:
        raise TypeError(f"model: expected a {ARCHITECTURE}, got {type(model).__name__}")
    dtype = next(model.parameters()).dtype
    adapter = Adapter(_builder.build_bridge_config_from_hf(model.config, ARCHITECTURE, ARCHITECTURE, dtype))
    adapter.prepare_model(model)
    return _bridge.TransformerBridge(model, adapter, tokenizer)


def register() -> None:
    """Make these models known to ``TransformerBridge.boot_transformers``, which takes folders and names on the hub.

    The entry point of this package does it in part: TransformerLens 4.3 looks at entry points only for architectures
    that it knows.

    >>> register()
    """
    _factory.ArchitectureAdapterFactory.register_adapter(ARCHITECTURE, Adapter)
    _factory.SUPPORTED_ARCHITECTURES[ARCHITECTURE] = Adapter


class _Native(_base.GeneralizedComponent):
    """A module with hooks on its first input and its first output, which otherwise leave it unchanged."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hooked = self.hook_in(args[0])
        args = tuple(hooked if arg is args[0] else arg for arg in args)  # keys and values, too
        output = self.original_component(*args, **kwargs)
        if isinstance(output, Tensor):
            return self.hook_out(output)
        return output._replace(**{output._fields[0]: self.hook_out(output[0])})


class _Heads(_Native):
    """The heads of one kind in a layer. A tap is watched only while its hook has something to do."""

    def set_original_component(self, original_component: nn.Module) -> None:
        super().set_original_component(original_component)
        for tap in self._taps():
            if tap in HOOKS:
                setattr(self, HOOKS[tap], _hooks.HookPoint())

    def _taps(self) -> dict[str, nn.Module]:
        taps: Taps = self.original_component.taps
        return dict(taps.named_children())

    @property
    def W_O(self) -> Tensor:
        """The output projection, ``(H, d_h, width)``."""
        return self.original_component.wo.weight.T.unflatten(0, (self.original_component.n_heads, -1))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for tap, module in self._taps().items():
                point = getattr(self, HOOKS[tap]) if tap in HOOKS else None
                if point is not None and point.has_hooks(dir="both"):
                    passing = _passing(point, by_place=tap in BY_PLACE)
                    stack.callback(module.register_forward_hook(passing, prepend=True).remove)
            return super().forward(*args, **kwargs)


class _Block(_parts.OpaqueBlockBridge):
    """A block, with a hook on the residual stream between its two steps."""

    hook_aliases: ClassVar[dict[str, str]] = {
        "hook_resid_pre": "hook_in",
        "hook_resid_post": "hook_out",
        "hook_attn_out": "attn.hook_out",
        "hook_mlp_out": "mlp.hook_out",
    }

    def set_original_component(self, original_component: Any) -> None:
        super().set_original_component(original_component)
        self.hook_resid_mid = _hooks.HookPoint()
        step = original_component.residual_step

        def residual_step(x: Tensor, change: Tensor, norm: nn.Module, **how: Any) -> Tensor:
            x = step(x, change, norm, **how)
            return self.hook_resid_mid(x) if norm is original_component.norm1 else x

        original_component.residual_step = residual_step


class _Positions(_parts.PosEmbedBridge):
    """Learned positions, shown for each row."""

    def forward(self, places: Tensor) -> Tensor:
        return super().forward(places if places.dim() > 1 else places[None])


class Adapter(_adapter.ArchitectureAdapter):
    """The parts of :class:`~dual_attention.hf.DualAttnForCausalLM` by the names of TransformerLens."""

    applicable_phases: ClassVar[list[int]] = []
    supports_kv_cache = False

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.cfg = cfg
        cfg.final_rms = cfg.attn_only = cfg.gated_mlp = False
        self.weight_processing_conversions = {}
        self.component_mapping = {}

    def prepare_model(self, hf_model: Any) -> None:
        """Name the parts that this model has."""
        layers, positions = hf_model.model.layers, hf_model.config.pos_enc_type
        kind = next((name for norm, name in NORMS.items() if isinstance(layers.norm, norm)), None)
        self.cfg.normalization_type, self.cfg.uses_rms_norm = kind, kind == "RMS"
        self.cfg.positional_embedding_type = "rotary" if positions == "RoPE" else "standard"
        self.component_mapping = {
            "embed": _parts.EmbeddingBridge(name="model.layers.token_embedder"),
            "blocks": _Block("model.layers.blocks", submodules=self._of_block(layers.blocks[0])),
            "ln_final": self._norm("model.layers.norm"),
            "unembed": _parts.UnembeddingBridge(name="model.layers.final_out"),
        }
        if positions == "pos_emb":
            self.component_mapping["pos_embed"] = _Positions("model.layers.positional_embedder")

    def setup_hook_compatibility(self, bridge: Any) -> None:
        """Have a bridge refuse to change weights; it calls this while it is made."""
        bridge.process_weights = _refuse_processing

    def _norm(self, name: str) -> Any:
        return _parts.NormalizationBridge(name, self.cfg, use_native_layernorm_autograd=True)

    def _of_block(self, block: nn.Module) -> dict[str, Any]:
        attention = getattr(block, "dual_attn", None)
        if isinstance(attention, DualAttention):
            names = {"sensory": "self_attention", "relational": "relational_attention"}
            kinds = {kind: _Heads(name) for kind, name in names.items() if getattr(attention, name) is not None}
            attn = _Native("dual_attn", submodules=kinds)
        else:
            attn = _Heads("self_attn")
        return {"ln1": self._norm("norm1"), "attn": attn, "ln2": self._norm("norm2"), "mlp": _Native("ff_block")}


def _passing(point: Any, *, by_place: bool) -> Any:
    """A forward hook of a tap that sends its tensor through a hook point, in the layout of TransformerLens."""

    def passing(_module: nn.Module, _args: Any, x: Tensor) -> Tensor:
        return point(x.transpose(1, 2)).transpose(1, 2) if by_place else point(x)

    return passing


def _refuse_processing(*_: Any, **__: Any) -> None:
    raise ValueError(
        "enable_compatibility_mode: expected no_processing=True, since weights stay as they are: folding and centring "
        "them is not defined for relations and symbols"
    )
