"""Language models of the repository ``abrsvn/babylm_dat_2026`` (arXiv 2609.20530), as models of this library.

Their folders are what ``save_pretrained`` of their classes for transformers writes: ``config.json`` with ``model_type``
``"dat"`` or ``"transformer"``, and weights. Nothing in such a folder is run.

Where the two differ, and what loading does about it:

==============================  ==================================================================================
theirs                          here
==============================  ==================================================================================
symbols from normalised tokens  ``symbol_retriever_config={"normalized_input": True}``
relative symbols from RoPE      sinusoidal ones; theirs are cos, sin, ours sin, cos: columns of ``W_s`` change places
projections without a bias      those of symbolic attention, and of DisRCA's relation keys beside a bias of
                                attention keys, always have one here: it is zero
documents                       end at an end token, which is the first of the next; positions go on:
                                ``segments=(x == end).cumsum(1)``, ``positions=torch.arange(N)[None]``
==============================  ==================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..language_presets import LanguageModelConfig
from .weights import PREFIX, Weights, clean_name

# What config.json leaves out.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "dat": {"max_seq_len": 513, "hidden_dim": 256, "n_heads_sa": 2, "n_heads_ra": 2},
    "transformer": {"max_seq_len": 514, "hidden_dim": 192, "n_heads": 6},
}
_COMMON: dict[str, Any] = {
    "vocab_size": 16384,
    "pe_type": "rope",
    "ffn_hidden_dim_mode": "dff_factor",
    "ffn_activation": "gelu",
    "rope_theta": 10000.0,
    "norm_type": "rmsnorm",
    "symbol_retrieval": "symbolic",
    "relsymbolic_neighborhood_size": 2,
    "ra_type": "ra",
    "ra_rel_activation": "identity",
    "sequence_boundary_policy": "eos_document",
    **dict.fromkeys(("n_layers", "dff_factor", "relsymbolic_rel_n_heads", "relsymbolic_symbolic_attn_n_heads"), 4),
    **dict.fromkeys(("dropout", "relsymbolic_dropout"), 0.0),
    **dict.fromkeys(("max_rel_pos", "symbol_dim", "n_symbols", "symbolic_attn_n_heads", "ra_n_relations")),
    **dict.fromkeys(("relsymbolic_rel_scale", "relsymbolic_symbolic_attn_scale")),
    **dict.fromkeys(("norm_first", "use_bias_out", "use_bias_ffn", "tie_lm_head"), True),
    **dict.fromkeys(("relsymbolic_normalize_rels", "relsymbolic_trainable_symbols"), True),
    **dict.fromkeys(("use_bias_qkv", "symbolic_use_bias", "relsymbolic_use_bias", "relsymbolic_include_self"), False),
    **dict.fromkeys(("positional_symbols_sinusoidal", "relative_symbols_rope", "ra_symmetric_rels"), False),
}
_VALUES: dict[str, tuple[Any, ...]] = {
    "pe_type": ("rope",),
    "ffn_hidden_dim_mode": ("dff_factor",),
    "ffn_activation": ("gelu", "swiglu"),
    "norm_type": ("layernorm", "rmsnorm"),
    "symbol_retrieval": ("symbolic", "positional", "relative", "relsymbolic"),
    "ra_type": ("ra", "rca", "disrca"),
    "ra_rel_activation": ("softmax", "identity", "tanh", "sigmoid"),
    "sequence_boundary_policy": ("eos_document", "document_boundary"),
}
"""Values that have a counterpart. The two policies differ in where a corpus gets its end tokens, not in the model."""

_HEADS = {"ra": "relational_attention", "rca": "rca", "disrca": "disrca"}

_LAYER = r"^layers\.blocks\.\d+\."
_NAMES: tuple[tuple[str, str], ...] = (
    (r"^token_embeddings\.", "layers.token_embedder."),
    (r"^final_norm\.", "layers.norm."),
    (r"^lm_head\.", "layers.final_out."),
    (r"^layers\.(?=\d)", "layers.blocks."),
    (r"^symbol_retriever\.", "layers.symbol_retrievers.0."),
    (r"\.position_encoder\.position_embeddings\.weight$", ".symbol_library.weight"),
    (r"\.position_encoder\.rel_pos_embeddings_table\.weight$", ".rel_pos_enc.rel_pos_embeddings"),
    (r"\.rel_to_hidden\.", ".model_dim_proj."),
    (r"\.sensory_attention\.", ".dual_attn.self_attention."),
    (r"(?<!dual_attn)\.relational_attention\.", ".dual_attn.relational_attention."),
    (r"\.feed_forward\.", ".ff_block."),
    (r"\.w_gate\.", ".linear1."),
    (r"\.w_down\.", ".linear2."),
    (r"\.w_up\.", ".linear3."),
    (rf"({_LAYER}.*attn.*)\.([qkvo])_proj\.", r"\1.w\2."),
    (r"\.wr_proj$", ".wr"),
)
"""Their names -> ours, one after another."""


def is_babylm(saved: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of one of these models."""
    return saved.get("model_type") in _DEFAULTS and "hidden_dim" in saved


def _fields(saved: Mapping[str, Any]) -> dict[str, Any]:
    known = _COMMON | _DEFAULTS[saved["model_type"]]
    fields = {name: saved.get(name, value) for name, value in known.items()}
    for name, values in _VALUES.items():
        if fields[name] not in values:
            raise ValueError(f"{name}: expected {' or '.join(map(repr, values))}, got {fields[name]!r}")
    if fields["symbol_dim"] not in (None, fields["hidden_dim"]):
        raise ValueError(
            f"symbol_dim: expected null or hidden_dim={fields['hidden_dim']}, since symbols are as wide as the model "
            f"here, got {fields['symbol_dim']!r}"
        )
    return fields


def language_config_of(saved: Mapping[str, Any]) -> LanguageModelConfig:
    """The same model here, from their ``config.json``. ``ValueError`` names a field without counterpart."""
    fields = _fields(saved)
    biases = {"add_bias_q": fields["use_bias_qkv"], "add_bias_kv": fields["use_bias_qkv"]}
    biases["add_bias_out"] = fields["use_bias_out"]
    common: dict[str, Any] = {
        "vocab_size": fields["vocab_size"],
        "d_model": fields["hidden_dim"],
        "n_layers": fields["n_layers"],
        "dff": fields["hidden_dim"] * fields["dff_factor"],
        "dropout_rate": fields["dropout"],
        "activation": "swiglu" if fields["ffn_activation"] == "swiglu" else "gelu_erf",
        "norm_first": fields["norm_first"],
        "norm_type": fields["norm_type"],
        "max_block_size": fields["max_seq_len"],
        "pos_enc_type": "RoPE",
        "rope_theta": fields["rope_theta"],
        "bias": fields["use_bias_ffn"],
        "tie_weights": fields["tie_lm_head"],
    }
    if saved["model_type"] == "transformer":
        blocks = {"attn_kwargs": biases, "post_norm_dropout": False}
        return LanguageModelConfig(model="transformer", n_heads=fields["n_heads"], block_kwargs=blocks, **common)
    heads: dict[str, Any] = {
        **biases,
        "use_relative_positional_symbols": fields["symbol_retrieval"] == "relative",
        "activation" if fields["ra_type"] == "rca" else "rel_activation": fields["ra_rel_activation"],
    }
    if fields["ra_type"] == "ra":
        heads |= {"n_relations": fields["ra_n_relations"], "symmetric_rels": fields["ra_symmetric_rels"]}
    retrieval, symbols = _symbols(fields)
    depend = retrieval in ("symbolic_attention", "rel_sym_attn")  # on the tokens
    return LanguageModelConfig(
        model="dat",
        n_heads_sa=fields["n_heads_sa"],
        n_heads_ra=fields["n_heads_ra"],
        ra_type=_HEADS[fields["ra_type"]],  # pyright: ignore[reportArgumentType]
        sa_kwargs=biases,
        ra_kwargs=heads,
        symbol_retrieval=retrieval,
        symbol_retrieval_kwargs=symbols,
        symbol_retriever_config={"normalized_input": True} if depend and fields["norm_first"] else None,
        ff_bias=None,
        block_kwargs={"post_norm_dropout": False},
        **common,
    )


def _symbols(fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    width, length, reach = fields["hidden_dim"], fields["max_seq_len"], fields["max_rel_pos"]
    n_symbols = length if fields["n_symbols"] is None else fields["n_symbols"]
    kind = fields["symbol_retrieval"]
    if kind == "positional":
        sinusoidal = fields["positional_symbols_sinusoidal"]
        return "positional_symbols", {"symbol_dim": width, "max_length": length, "sinusoidal": sinusoidal}
    if kind == "relative":
        symbols = {"symbol_dim": width, "max_rel_pos": max(1, length // 2) if reach is None else reach}
        sinusoidal = {"sinusoidal": True, "theta": fields["rope_theta"]} if fields["relative_symbols_rope"] else {}
        return "position_relative", symbols | sinusoidal
    if kind == "symbolic":
        heads = fields["symbolic_attn_n_heads"]
        heads = fields["n_heads_sa"] + fields["n_heads_ra"] if heads is None else heads
        own = {"d_model": width, "n_heads": heads, "n_symbols": n_symbols, "dropout": fields["dropout"]}
        return "symbolic_attention", own
    same = ("rel_n_heads", "symbolic_attn_n_heads", "include_self", "normalize_rels", "dropout", "rel_scale")
    own = {name: fields[f"relsymbolic_{name}"] for name in (*same, "symbolic_attn_scale", "trainable_symbols")}
    nearby = fields["relsymbolic_neighborhood_size"]
    return "rel_sym_attn", {"d_model": width, "n_symbols": n_symbols, "nbhd_delta": nearby, **own}


def named_as_ours(weights: Weights, saved: Mapping[str, Any]) -> Weights:
    """The same weights with this library's names, for the model of :func:`language_config_of`."""
    fields = _fields(saved)
    tensors = {_name(name, fields): tensor for name, tensor in weights.tensors.items()}
    aliases = {_name(name, fields): _name(kept, fields) for name, kept in weights.aliases.items()}
    if saved["model_type"] == "dat":
        if fields["symbol_retrieval"] == "relative" and fields["relative_symbols_rope"]:
            for name in tensors:
                if re.fullmatch(rf"{_LAYER}dual_attn\.relational_attention\.wv\.weight", name):
                    tensors[name] = tensors[name].unflatten(1, (-1, 2)).flip(-1).flatten(1)
        for pattern in _without_bias(fields):
            for name, weight in list(tensors.items()):
                if re.fullmatch(rf"{pattern}\.weight", name):
                    bias = name.removesuffix("weight") + "bias"
                    tensors.setdefault(bias, weight.new_zeros(weight.shape[0]))
    return Weights(tensors, aliases, weights.files)


def _without_bias(fields: Mapping[str, Any]) -> list[str]:
    """Layers, as patterns of their names, that have a bias here and none in theirs."""
    retriever, kind = r"layers\.symbol_retrievers\.0\.", fields["symbol_retrieval"]
    layers = [rf"{_LAYER}dual_attn\.relational_attention\.wk_rel"] if fields["ra_type"] == "disrca" else []
    if not fields["use_bias_qkv"]:
        layers = []
    if kind == "symbolic" and not fields["symbolic_use_bias"]:
        layers.append(retriever + "q_proj")
    if kind == "relsymbolic" and not fields["relsymbolic_use_bias"]:
        layers.append(retriever + r"([qk]_proj|symbolic_attention\.q_proj)")
    return layers


def _name(name: str, fields: Mapping[str, Any]) -> str:
    name = clean_name(name).removeprefix(PREFIX)
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    if fields["ra_type"] != "rca":  # attention has queries and keys beside those of relations
        name = re.sub(r"(\.relational_attention\.w[qk])(?=\.)", r"\1_attn", name)
    return name
