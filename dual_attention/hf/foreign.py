"""Language models of transformers, GPT-2 and Llama, as Transformers of this library, or as the sensory part of a Dual
Attention Transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers import GPT2LMHeadModel, LlamaForCausalLM

from .._models.warm_start import beside, start_from_transformer
from ..checkpoints.language import LoadedLanguageModel
from ..checkpoints.weights import Weights, filled
from ..language_presets import LanguageModelConfig
from .names import ACTIVATIONS, NORM_EPS


def from_transformers(
    model: GPT2LMHeadModel | LlamaForCausalLM,
    n_heads_ra: int = 0,
    *,
    silent: bool = True,
    ra_kwargs: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> LoadedLanguageModel:
    """The same model as one of this library, with copies of its weights, and what builds it; in its mode, of its dtype
    and on its device.

    It is a :class:`~dual_attention.language_models.TransformerLM`, or with ``n_heads_ra`` a
    :class:`~dual_attention.language_models.DualAttnTransformerLM` whose sensory heads are those of the model.

    Args:
        n_heads_ra, ra_kwargs: new relational heads in each layer, at most as many as the model has heads, and as wide.
        silent: they add nothing at first, see :func:`~dual_attention.start_from_transformer`.
        arguments: of the symbols, as of :class:`~dual_attention.language_models.DualAttnTransformerLM`.

    Raises:
        TypeError: if it is another model.
        ValueError: if something in it has no counterpart here, such as rotary positions that are scaled.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=2, n_positions=16)).eval()
    >>> ours, tokens = from_transformers(gpt2).model, torch.tensor([[5, 17, 3]])
    >>> torch.allclose(ours(tokens, all_logits=True).logits, gpt2(tokens).logits, atol=1e-4)
    True
    """
    if isinstance(model, GPT2LMHeadModel):
        config, tensors = _of_gpt2(model.config, model.state_dict())
    elif isinstance(model, LlamaForCausalLM):
        config, tensors = _of_llama(model.config, model.state_dict())
    else:
        raise TypeError(f"model: expected a GPT2LMHeadModel or a LlamaForCausalLM, got {type(model).__name__}")
    weight = next(model.parameters())
    name = type(model).__name__
    made = filled(config.build("meta", weight.dtype), Weights(tensors, {}), source=name, device=weight.device)
    if n_heads_ra:
        attention = {"add_bias_out": config.bias, **dict((config.block_kwargs or {}).get("attn_kwargs") or {})}
        heads = beside(made.n_heads, config.d_model, attention, ra_kwargs)
        others: Any = {"n_heads": None, "block_kwargs": None, "ff_bias": None}
        config = replace(config, model="dat", n_heads_ra=n_heads_ra, **others, **heads, **arguments)
        transformer, made = made, config.build(weight.device, weight.dtype)
        start_from_transformer(made, transformer, silent=silent)
    return LoadedLanguageModel(made.train(model.training), config)


def _check(config: Any, **expected: Any) -> None:
    for name, value in expected.items():
        if getattr(config, name, value) != value:
            raise ValueError(f"{name}: expected {value!r}, which this library has, got {getattr(config, name)!r}")


def _named(tensors: Mapping[str, Tensor], names: Mapping[str, str], old: str, new: str) -> dict[str, Tensor]:
    """Weights and biases of layers below ``old``, by the names of ours below ``new``."""
    return {
        f"{new}{ours}.{kind}": tensors[f"{old}{theirs}.{kind}"]
        for theirs, ours in names.items()
        for kind in ("weight", "bias")
        if f"{old}{theirs}.{kind}" in tensors
    }


def _of_gpt2(config: Any, tensors: Mapping[str, Tensor]) -> tuple[LanguageModelConfig, dict[str, Tensor]]:
    _check(config, layer_norm_epsilon=NORM_EPS, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    _check(config, add_cross_attention=False, attn_pdrop=config.resid_pdrop, embd_pdrop=config.resid_pdrop)
    activation = str(config.activation_function)
    ours = LanguageModelConfig(
        model="transformer",
        vocab_size=config.vocab_size,
        d_model=config.n_embd,
        n_layers=config.n_layer,
        n_heads=config.n_head,
        dff=config.n_inner or 4 * config.n_embd,
        dropout_rate=config.resid_pdrop,
        activation=ACTIVATIONS.get(activation, activation),
        norm_first=True,
        max_block_size=config.n_positions,
        block_kwargs={"attn_kwargs": {"add_bias_q": True, "add_bias_kv": True, "out_dropout": 0.0}},
        tie_weights=config.tie_word_embeddings,
    )
    names = {"wte": "token_embedder", "wpe": "positional_embedder", "ln_f": "norm"}
    found = _named(tensors, names, "transformer.", "layers.")
    found |= _named(tensors, {"lm_head": "final_out"}, "", "layers.")
    linear = {"attn.c_proj": "self_attn.wo", "mlp.c_fc": "ff_block.linear1", "mlp.c_proj": "ff_block.linear2"}
    for number in range(config.n_layer):
        old, new = f"transformer.h.{number}.", f"layers.blocks.{number}."
        found |= _named(tensors, {"ln_1": "norm1", "ln_2": "norm2"}, old, new)
        layers = _named(tensors, linear, old, new)
        for kind in ("weight", "bias"):
            parts = tensors[f"{old}attn.c_attn.{kind}"].chunk(3, dim=-1)
            layers |= {f"{new}self_attn.w{name}.{kind}": part for name, part in zip("qkv", parts, strict=True)}
        # Theirs multiply from the left.
        found |= {name: w.T if name.endswith("weight") else w for name, w in layers.items()}
    return ours, found


def _of_llama(config: Any, tensors: Mapping[str, Tensor]) -> tuple[LanguageModelConfig, dict[str, Tensor]]:
    rope = dict(config.rope_parameters or {})
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    _check(
        config, rms_norm_eps=NORM_EPS, hidden_act="silu", attention_dropout=0.0, head_dim=config.hidden_size // heads
    )
    if rope.get("rope_type", "default") != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(f"rope_parameters: expected rope_type='default', which this library has, got {rope}")
    biased = config.attention_bias
    ours = LanguageModelConfig(
        model="transformer",
        vocab_size=config.vocab_size,
        d_model=config.hidden_size,
        n_layers=config.num_hidden_layers,
        n_heads=heads,
        dff=config.intermediate_size,
        dropout_rate=0.0,
        activation="swiglu",
        norm_first=True,
        norm_type="rmsnorm",
        max_block_size=config.max_position_embeddings,
        pos_enc_type="RoPE",
        rope_theta=rope.get("rope_theta", 10000.0),
        bias=config.mlp_bias,
        block_kwargs={
            "attn_kwargs": {"n_kv_heads": groups, "add_bias_q": biased, "add_bias_kv": biased, "add_bias_out": biased}
        },
        tie_weights=config.tie_word_embeddings,
    )
    found = _named(tensors, {"embed_tokens": "token_embedder", "norm": "norm"}, "model.", "layers.")
    found |= _named(tensors, {"lm_head": "final_out"}, "", "layers.")
    names = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}
    names |= {f"self_attn.{part}_proj": f"self_attn.w{part}" for part in "qkvo"}
    names |= {f"mlp.{part}_proj": f"ff_block.linear{n}" for part, n in (("gate", 1), ("down", 2), ("up", 3))}
    for number in range(config.num_hidden_layers):
        found |= _named(tensors, names, f"model.layers.{number}.", f"layers.blocks.{number}.")
    for name, w in found.items():
        if ".self_attn.wq." in name or ".self_attn.wk." in name:  # whose rotary positions turn halves, not neighbours
            halves = w.unflatten(0, (heads if ".wq." in name else groups, 2, -1))
            found[name] = halves.transpose(1, 2).flatten(0, 2)
    return ours, found
