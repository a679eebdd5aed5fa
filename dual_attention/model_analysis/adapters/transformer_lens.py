"""Language models for transformers in TransformerLens, with hooks on relations, symbols and both kinds of attention.

Status: experimental; it may change in any release.

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
``blocks.0.attn`` in a Transformer. In a Dual Attention Transformer ``blocks.0.attn.hook_pattern`` and ``.hook_z`` are
of all its heads, sensory ones first, as ``cfg.n_heads`` counts them. If a hook changes what these two show, the layer
runs again, and calls the hooks of one kind again. Relative symbols belong to pairs: ``hook_symbols`` is their library
``(K, d)``.

Blocks have ``hook_resid_pre``, ``hook_resid_mid``, ``hook_resid_post``, ``hook_attn_out`` and ``hook_mlp_out``. What a
hook returns at one of the first three is the residual stream from there on.

:func:`register` makes ``TransformerBridge.boot_transformers`` know these models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..._base.extras import require
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
OF_ALL = ("weights", "head_output")
"""Taps that all kinds of head have, in the order in which a layer comes to them."""
NORMS = {nn.LayerNorm: "LN", RMSNorm: "RMS"}


def transformer_lens_bridge(model: nn.Module, tokenizer: Any = None) -> Any:
    """A ``TransformerBridge`` around a language model.

    Args:
        model: a :class:`~dual_attention.hf.DualAttnForCausalLM`. It is taken over: its modules are put into those of
            TransformerLens, and numbers stay as they are.
        tokenizer: of transformers; None where texts are given as tokens.

    Raises:
        TypeError: if it is another model.
        ImportError: if TransformerLens is not installed.

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
    lens = _lens()
    dtype = next(model.parameters()).dtype
    config = lens.build_config(model.config, ARCHITECTURE, ARCHITECTURE, dtype)
    adapter = _component(_Adapter)(config)
    adapter.prepare_model(model)
    return lens.TransformerBridge(model, adapter, tokenizer)


def register() -> None:
    """Make these models known to ``TransformerBridge.boot_transformers``, which takes folders and names on the hub.

    The entry point of this package does it in part: TransformerLens 4.3 looks at entry points only for architectures
    that it knows.

    >>> register()
    """
    lens = _lens()
    lens.factory.ArchitectureAdapterFactory.register_adapter(ARCHITECTURE, _component(_Adapter))
    lens.factory.SUPPORTED_ARCHITECTURES[ARCHITECTURE] = _component(_Adapter)


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


class _Native:
    """A module with hooks on its first input and its first output, which otherwise leave it unchanged."""

    original_component: Any
    hook_in: Any
    hook_out: Any

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hooked = self.hook_in(args[0])
        args = tuple(hooked if arg is args[0] else arg for arg in args)  # keys and values, too
        return self._shown(self.original_component(*args, **kwargs))

    def _shown(self, output: Any) -> Any:
        if isinstance(output, Tensor):
            return self.hook_out(output)
        return output._replace(**{output._fields[0]: self.hook_out(output[0])})

    def set_original_component(self, original_component: nn.Module) -> None:
        super().set_original_component(original_component)  # pyright: ignore[reportAttributeAccessIssue]
        for name in self._more_hooks():
            setattr(self, name, _lens().HookPoint())

    def _more_hooks(self) -> Iterable[str]:
        return ()


class _Heads(_Native):
    """The heads of one kind in a layer. A tap is watched only while its hook has something to do."""

    def _more_hooks(self) -> Iterable[str]:
        return (HOOKS[tap] for tap in _taps(self) if tap in HOOKS)

    @property
    def W_O(self) -> Tensor:
        """The output projection, ``(H, d_h, width)``."""
        return self.original_component.wo.weight.T.unflatten(0, (self.original_component.n_heads, -1))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for tap, module in _taps(self).items():
                point = getattr(self, HOOKS[tap]) if tap in HOOKS else None
                if point is not None and point.has_hooks(dir="both"):
                    passing = _passing(point, by_place=tap in BY_PLACE)
                    stack.callback(module.register_forward_hook(passing, prepend=True).remove)
            return super().forward(*args, **kwargs)


class _AllHeads(_Native):
    """The heads of both kinds in a layer, with hooks on what all of them have."""

    submodules: Mapping[str, Any]

    def _more_hooks(self) -> Iterable[str]:
        return (HOOKS[tap] for tap in OF_ALL)

    @property
    def W_O(self) -> Tensor:
        """The output projections, ``(H, d_h, d)``: each kind of head writes into features of its own, or into all."""
        by_kind = [heads.W_O for heads in self.submodules.values()]
        if all(w.shape[-1] == self.original_component.d_model for w in by_kind):  # as heads that were added do
            return torch.cat(by_kind)
        return torch.block_diag(*(w.flatten(0, 1) for w in by_kind)).unflatten(0, (-1, by_kind[0].shape[1]))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        points = {tap: point for tap in OF_ALL if (point := getattr(self, HOOKS[tap])).has_hooks(dir="both")}
        if not points:
            return super().forward(*args, **kwargs)
        args, cache = (self.hook_in(args[0]), *args[1:]), kwargs.get("cache")
        earlier = 0 if cache is None else cache.length
        given: dict[str, tuple[Tensor, ...]] = {}
        output, seen = self._run(given, args, kwargs)
        for tap, point in points.items():
            new, changed = _all_through(point, seen[tap], by_place=tap in BY_PLACE)
            if changed:
                given[tap] = new
                if cache is not None:  # the same tokens come again
                    cache.crop(earlier) if earlier else cache.reset()
                output, seen = self._run(given, args, kwargs)
        return self._shown(output)

    def _run(
        self, given: Mapping[str, tuple[Tensor, ...]], args: Any, kwargs: Any
    ) -> tuple[Any, dict[str, list[Tensor]]]:
        """The output, and for each of the taps what went through it, or was given in its place, by kind of head."""
        seen: dict[str, list[Tensor]] = {tap: [] for tap in OF_ALL}
        with ExitStack() as stack:
            for number, heads in enumerate(self.submodules.values()):
                for tap in OF_ALL:
                    keeping = _keeping(seen[tap], given[tap][number] if tap in given else None)
                    stack.callback(_taps(heads)[tap].register_forward_hook(keeping).remove)
            return self.original_component(*args, **kwargs), seen


class _Block:
    """A block, with a hook on the residual stream between its two steps."""

    hook_resid_mid: Any
    hook_aliases: ClassVar[dict[str, str]] = {
        "hook_resid_pre": "hook_in",
        "hook_resid_post": "hook_out",
        "hook_attn_out": "attn.hook_out",
        "hook_mlp_out": "mlp.hook_out",
    }

    def set_original_component(self, original_component: Any) -> None:
        super().set_original_component(original_component)  # pyright: ignore[reportAttributeAccessIssue]
        self.hook_resid_mid = _lens().HookPoint()
        step = original_component.residual_step

        def residual_step(x: Tensor, change: Tensor, norm: nn.Module, **how: Any) -> Tensor:
            x = step(x, change, norm, **how)
            return self.hook_resid_mid(x) if norm is original_component.norm1 else x

        original_component.residual_step = residual_step


class _Positions:
    """Learned positions, shown for each row."""

    def forward(self, places: Tensor) -> Tensor:
        places = places if places.dim() > 1 else places[None]
        return super().forward(places)  # pyright: ignore[reportAttributeAccessIssue]


class _Adapter:
    """The parts of :class:`~dual_attention.hf.DualAttnForCausalLM` by the names of TransformerLens."""

    applicable_phases: ClassVar[list[int]] = []
    supports_kv_cache = False

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)  # pyright: ignore[reportCallIssue]
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
        parts = _lens().parts
        self.component_mapping = {
            "embed": parts.EmbeddingBridge(name="model.layers.token_embedder"),
            "blocks": _component(_Block)("model.layers.blocks", submodules=self._of_block(layers.blocks[0])),
            "ln_final": self._norm("model.layers.norm"),
            "unembed": parts.UnembeddingBridge(name="model.layers.final_out"),
        }
        if positions == "pos_emb":
            self.component_mapping["pos_embed"] = _component(_Positions)("model.layers.positional_embedder")

    def setup_hook_compatibility(self, bridge: Any) -> None:
        """Have a bridge refuse to change weights; it calls this while it is made."""
        bridge.process_weights = _refuse_processing

    def _norm(self, name: str) -> Any:
        return _lens().parts.NormalizationBridge(name, self.cfg, use_native_layernorm_autograd=True)

    def _of_block(self, block: nn.Module) -> dict[str, Any]:
        native, heads = _component(_Native), _component(_Heads)
        attention = getattr(block, "dual_attn", None)
        if isinstance(attention, DualAttention):
            names = {"sensory": "self_attention", "relational": "relational_attention"}
            kinds = {kind: heads(name) for kind, name in names.items() if getattr(attention, name) is not None}
            attn = _component(_AllHeads)("dual_attn", submodules=kinds)
        else:
            attn = heads("self_attn")
        return {"ln1": self._norm("norm1"), "attn": attn, "ln2": self._norm("norm2"), "mlp": native("ff_block")}


@cache
def _component(kind: type) -> Any:
    """A class of this file as one of TransformerLens, which has to be imported for that."""
    lens = _lens()
    bases = {
        _Block: lens.parts.OpaqueBlockBridge,
        _Positions: lens.parts.PosEmbedBridge,
        _Adapter: lens.ArchitectureAdapter,
    }
    return type(kind.__name__[1:], (kind, bases.get(kind, lens.Component)), {})


def _taps(component: Any) -> dict[str, nn.Module]:
    """The taps of the heads in a component, by name."""
    taps: Taps = component.original_component.taps
    return dict(taps.named_children())


def _passing(point: Any, *, by_place: bool) -> Any:
    """A forward hook of a tap that sends its tensor through a hook point, in the layout of TransformerLens."""

    def passing(_module: nn.Module, _args: Any, x: Tensor) -> Tensor:
        return point(x.transpose(1, 2)).transpose(1, 2) if by_place else point(x)

    return passing


def _keeping(seen: list[Tensor], given: Tensor | None) -> Any:
    """A forward hook of a tap that keeps what goes through it, or what is given in its place."""

    def keeping(_module: nn.Module, _args: Any, x: Tensor) -> Tensor:
        seen.append(x if given is None else given)
        return seen[-1]

    return keeping


def _all_through(point: Any, parts: list[Tensor], *, by_place: bool) -> tuple[tuple[Tensor, ...], bool]:
    """Parts of each kind of head ``(B, H, ...)`` after a hook point on all heads; whether it may have changed them."""
    shown = torch.cat(parts, dim=1)
    shown = shown.transpose(1, 2) if by_place else shown
    new = point(shown)
    back = new.transpose(1, 2) if by_place else new
    changed = new is not shown or point.has_hooks(dir="bwd") or not torch.equal(back, torch.cat(parts, dim=1))
    return back.split([part.shape[1] for part in parts], dim=1), changed


def _refuse_processing(*_: Any, **__: Any) -> None:
    raise ValueError(
        "enable_compatibility_mode: expected no_processing=True, since weights stay as they are: folding and centring "
        "them is not defined for relations and symbols"
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "Adapter":  # of the entry point
            return _component(_Adapter)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
