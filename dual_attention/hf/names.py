"""Arguments of other models for transformers, told in ours or refused.

A configuration for transformers keeps whatever it is given. A name that means something in most models would so build
another model than was asked for, without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..configs import AttentionConfig, RelationalConfig, SymbolConfig

SYNONYMS = {
    **dict.fromkeys(("hidden_act", "activation_function", "hidden_activation"), "activation"),
    **dict.fromkeys(
        ("hidden_dropout", "hidden_dropout_prob", "attention_dropout", "attention_probs_dropout_prob"), "dropout_rate"
    ),
    **dict.fromkeys(("resid_pdrop", "attn_pdrop", "embd_pdrop"), "dropout_rate"),
}
"""Theirs -> ours with the same meaning."""

ACTIVATIONS = {
    "gelu": "gelu_erf",
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu"),
    "swish": "silu",
    "linear": "identity",
}
"""Theirs -> ours, where names differ."""

NORM_EPS = 1e-5
NORMS = {"rms_norm_eps": "rmsnorm", "layer_norm_eps": "layernorm", "layer_norm_epsilon": "layernorm"}
"""Theirs -> the only normalisation that has it."""

HEAD_OPTIONS = {
    **dict.fromkeys(("num_key_value_heads", "n_kv_heads"), "n_kv_heads"),
    **dict.fromkeys(("sliding_window", "window"), "window"),
}
"""Theirs, or ours outside their dict -> options of all heads."""
ROPE = ("rope_parameters", "rope_scaling")
SAME = ("attention_bias", "head_dim", "initializer_range", "mlp_bias", "partial_rotary_factor", "qkv_bias")
"""Theirs that follow from ours, or have one value here."""

_NONE_HERE = """
add_cross_attention attn_logit_softcapping clip_qkv drop_path_rate final_logit_softcapping layerscale_value norm_eps
num_experts num_local_experts rope_theta scale_attn_by_inverse_layer_idx tie_word_embeddings use_bidirectional_attention
use_parallel_residual
"""

_PARTS = {
    "symbol_retrieval_kwargs": SymbolConfig,
    "ra_kwargs": RelationalConfig,
    "the options of heads": AttentionConfig,
}
_OPTIONS = {name: f"{name} in {part}" for part, kind in _PARTS.items() for name in kind.__dataclass_fields__}
_OPTIONS.pop("max_length")  # of generation

REFUSED = {
    **_OPTIONS,
    **dict.fromkeys(("dim", "n_embd"), "d_model"),
    **dict.fromkeys(("n_layer", "num_layers"), "n_layers"),
    **dict.fromkeys(("n_head", "num_heads"), "n_heads, or n_heads_sa and n_heads_ra"),
    **dict.fromkeys(("hidden_dim", "mlp_ratio", "n_inner"), "dff"),
    **dict.fromkeys(("activation_dropout", "dropout", "embedding_dropout", "mlp_dropout"), "dropout_rate"),
    **dict.fromkeys(("layer_types", "local_attention"), "sliding_window, the same in all layers"),
    **dict.fromkeys(("image_size", "num_channels"), "image_shape"),
    "n_positions": "max_block_size",
    "position_embedding_type": "pos_enc_type",
    "query_pre_attn_scalar": "attn_scale in sa_kwargs and ra_kwargs",
    "use_swiglu_ffn": "activation='swiglu'",
    **dict.fromkeys(_NONE_HERE.split(), ""),
}
"""Theirs, or options of parts, and what says it here, or nearly; models do here what None, 0 and False say."""


def names_elsewhere(kind: Any) -> set[str]:
    """The names that :func:`take_over` knows, without those that a class of configurations has itself."""
    known = {*SYNONYMS, *NORMS, *HEAD_OPTIONS, *ROPE, *SAME, *REFUSED, "use_sliding_window"}
    return known - kind.__dataclass_fields__.keys() - kind.attribute_map.keys()


def take_over(config: Any, given: Mapping[str, Any]) -> None:
    """Set the fields of a configuration that arguments by these names stand for; None says nothing.

    Raises:
        ValueError: for what no field can say, or contradicts another.
    """
    told: dict[str, Any] = {}
    if given.get("use_sliding_window") is False:
        given = {**given, "sliding_window": None}
    for name, value in given.items():
        if value is None:
            continue
        if name in SYNONYMS:
            ours = SYNONYMS[name]
            value = ACTIVATIONS.get(value, value) if ours == "activation" else value
            told[ours] = set_field(config, name, ours, value, told.get(ours))
        elif name in HEAD_OPTIONS:
            _set_heads(config, name, HEAD_OPTIONS[name], value)
        elif name in ROPE:
            _set_rope(config, name, value)
        elif name in NORMS:
            if (config.norm_type, value) != (NORMS[name], NORM_EPS):
                raise ValueError(
                    f"{name}: expected {NORM_EPS} and norm_type={NORMS[name]!r}, got {value!r} and {config.norm_type!r}"
                )
        elif name in SAME and value != (expected := _follows(config, name)):
            raise ValueError(f"{name}: expected {expected!r} in this model, got {value!r}")
        elif name in REFUSED and value:
            said = REFUSED[name]
            raise ValueError(f"{name}: expected none{f', but {said},' * bool(said)} in this model, got {value!r}")


def set_field(config: Any, name: str, field: str, value: Any, told: Any = None) -> Any:
    """Set a field, unless it was told otherwise: by itself, or by another of their names."""
    given = getattr(config, field)
    default = type(config).__dataclass_fields__[field].default
    if given not in (default, value) or told not in (None, value):
        raise ValueError(f"{name}: expected {given!r}, as {field} says, got {value!r}")
    setattr(config, field, value)
    return value


def _follows(config: Any, name: str) -> Any:
    if name == "head_dim":
        return config.d_model // config.num_attention_heads
    if name in ("initializer_range", "partial_rotary_factor"):
        return 0.02 if name == "initializer_range" else 1.0
    own = getattr(config, "ff_bias", None) if name == "mlp_bias" and config.model == "dat" else None
    return config.bias if own is None else own


def _set_heads(config: Any, name: str, option: str, value: Any) -> None:
    """Set an option of all heads; key/value heads go to both kinds in proportion, so that all groups have one size."""
    kinds = {"sa_kwargs": config.n_heads_sa, "ra_kwargs": config.n_heads_ra}
    if config.model != "dat":
        kinds = {field: config.n_heads for field in ("block_kwargs", "attn_kwargs") if hasattr(config, field)}
        if not kinds:
            raise ValueError(f"{name}: expected None in this model, got {value!r}")
    for field, heads in kinds.items():
        if not heads:
            continue
        part = value
        if option == "n_kv_heads":
            part, rest = divmod(heads * value, config.num_attention_heads) if isinstance(value, int) else (0, 0)
            if rest or part < 1:
                raise ValueError(
                    f"{name}: expected a number that gives each kind of head as many in proportion (or n_kv_heads in "
                    f"{' and '.join(kinds)}), got {value!r}"
                )
        outer = dict(getattr(config, field) or {})
        options = dict(outer.get("attn_kwargs") or {}) if field == "block_kwargs" else outer
        if options.setdefault(option, part) != part:
            raise ValueError(f"{name}: expected {options[option]!r}, as {field} says, got {value!r}")
        setattr(config, field, {**outer, "attn_kwargs": options} if field == "block_kwargs" else options)


def _set_rope(config: Any, name: str, value: Mapping[str, Any]) -> None:
    """Set the base of rotary positions, of which there is the plain kind only."""
    about = dict(value)
    base = about.pop("rope_theta", None)
    kind = about.pop("rope_type", about.pop("type", "default"))
    if kind != "default" or about.pop("partial_rotary_factor", 1.0) != 1.0 or any(about.values()):
        raise ValueError(f"{name}: expected rope_type='default' and rope_theta only, got {value!r}")
    if getattr(config, "pos_enc_type", None) != "RoPE":
        raise ValueError(f"{name}: expected None, or pos_enc_type='RoPE', got {value!r}")
    if base is not None:
        set_field(config, name, "rope_theta", base)
