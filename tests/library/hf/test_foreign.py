"""GPT-2 and Llama of transformers as models of this library: the same outputs, and what has no counterpart refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from dual_attention.hf import DualAttnForCausalLM, from_transformers, load_language_model, to_hub, to_transformers
from tests.library.hf.models import GREEDY, matters
from tests.support.refusals import refused

SIZES: dict[str, Any] = {"vocab_size": 29, "bos_token_id": None, "eos_token_id": None}
GPT2: dict[str, Any] = {**SIZES, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 24}
LLAMA: dict[str, Any] = {
    **SIZES,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
    "rms_norm_eps": 1e-5,
}
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 5e5}
MODELS: dict[str, Any] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt2, wide, exact gelu": lambda: GPT2LMHeadModel(
        GPT2Config(**GPT2, n_inner=20, activation_function="gelu", tie_word_embeddings=False)
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
    "llama, grouped, another base": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, num_key_value_heads=2, rope_parameters=DEFAULT_ROPE, attention_bias=True)
    ),
    "llama, one group, biases": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, num_key_value_heads=1, tie_word_embeddings=True, mlp_bias=True)
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@torch.no_grad()
def test_the_same_outputs(name: str, dtype: torch.dtype, close: float, tmp_path: Path):
    """Rotary tables are float32 in both. Also padded on the left, with a cache, and saved and loaded again."""
    theirs = matters(MODELS[name]()).to(dtype)
    before = {key: w.clone() for key, w in theirs.state_dict().items()}
    model, config = from_transformers(theirs)
    x = torch.randint(29, (2, 13))
    expected, scale = theirs(x).logits, theirs(x).logits.abs().max()
    found = model(x).logits
    assert found.dtype == dtype and not model.training
    if name.startswith("llama") and dtype == torch.float64:
        close = 1e-6  # their tables of rotary positions, in float32, are rounded otherwise
    torch.testing.assert_close(found, expected, atol=close * float(scale), rtol=0)
    mask = torch.ones_like(x)
    mask[0, :3] = 0
    places = (mask.cumsum(1) - 1).clamp_min(0)
    padded = theirs(x, attention_mask=mask, position_ids=places).logits
    ours = to_transformers(model, config)
    torch.testing.assert_close(ours(x, attention_mask=mask).logits[0, 3:], padded[0, 3:], atol=1e-4, rtol=0)
    assert torch.equal(ours.generate(x, max_new_tokens=6, **GREEDY), theirs.generate(x, max_new_tokens=6, **GREEDY))
    ours.save_pretrained(tmp_path / "transformers")
    again = DualAttnForCausalLM.from_pretrained(tmp_path / "transformers", dtype=dtype)
    torch.testing.assert_close(again(x).logits, found)
    to_hub(model, config).save_pretrained(tmp_path / "hub")
    torch.testing.assert_close(load_language_model(tmp_path / "hub", dtype=dtype).model(x).logits, found)
    model.layers.token_embedder.weight.add_(1.0)  # nothing is shared
    assert all(torch.equal(w, before[key]) for key, w in theirs.state_dict().items())


@pytest.mark.parametrize("n_heads_ra", [0, 2])
def test_what_attention_returns_is_dropped_out_once(n_heads_ra: int):
    rates = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.5)
    ra: Any = {"ra_kwargs": {"out_dropout": 0.0}, "silent": False} if n_heads_ra else {}
    model = from_transformers(matters(GPT2LMHeadModel(GPT2Config(**GPT2, **rates))), n_heads_ra, **ra).model
    dropped = []
    for block in model.layers.blocks:
        block.dropout.register_forward_hook(lambda *call: dropped.append((call[-1] == 0).float().mean()))
    model.train()(torch.randint(29, (40, 20)))
    torch.testing.assert_close(torch.stack(dropped).mean(), torch.tensor(0.5), atol=0.02, rtol=0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("symbols", ["symbolic_attention", "position_relative"])
def test_new_relational_heads_are_silent_unless_they_may_speak(name: str, symbols: str, tmp_path: Path):
    """The same logits and generated tokens; saved, loaded and trained as a Dual Attention Transformer."""
    theirs, x = matters(MODELS[name]()), torch.randint(29, (2, 13))
    relative = symbols == "position_relative"
    ra: dict[str, Any] = {"n_relations": 3, "use_relative_positional_symbols": relative}
    model, config = from_transformers(theirs, 2, ra_kwargs=ra, symbol_retrieval=symbols)
    expected = theirs(x).logits
    close: dict[str, Any] = {"atol": 1e-5 * float(expected.detach().abs().max()), "rtol": 0}
    torch.testing.assert_close(model(x).logits, expected, **close)
    assert config.model == "dat" and (config.n_heads_sa, config.n_heads_ra) == (4, 2)
    ours = to_transformers(model, config)
    assert torch.equal(ours.generate(x, max_new_tokens=6, **GREEDY), theirs.generate(x, max_new_tokens=6, **GREEDY))
    to_hub(model, config).save_pretrained(tmp_path)
    torch.testing.assert_close(load_language_model(tmp_path).model(x).logits, expected, **close)
    heads: Any = [block.dual_attn.relational_attention for block in model.layers.blocks]
    torch.optim.SGD(model.parameters(), 0.1).zero_grad()
    loss = model(x, x).loss
    assert loss is not None
    loss.backward()
    assert all(layer.wo.weight.grad.any() and not layer.wr.grad.any() for layer in heads)
    heard = from_transformers(theirs, 2, ra_kwargs=ra, symbol_retrieval=symbols, silent=False).model
    assert (heard(x).logits - expected).abs().max() > 3 * close["atol"]


def test_more_heads_than_the_model_has_are_refused():
    with pytest.raises(ValueError, match="total_n_heads: expected at least n_heads=5, got 4"):
        from_transformers(MODELS["gpt2"](), 5)


test_what_has_no_counterpart_is_refused = refused(
    (lambda: GPT2LMHeadModel(GPT2Config(**GPT2, layer_norm_epsilon=1e-6)), "layer_norm_epsilon: expected 1e-05"),
    (lambda: GPT2LMHeadModel(GPT2Config(**GPT2, attn_pdrop=0.3)), "attn_pdrop: expected 0.1"),
    (lambda: GPT2LMHeadModel(GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True)), "expected False"),
    (lambda: LlamaForCausalLM(LlamaConfig(**{**LLAMA, "rms_norm_eps": 1e-6})), "rms_norm_eps: expected 1e-05"),
    (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, hidden_act="gelu")), "hidden_act: expected 'silu'"),
    (lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, head_dim=8)), "head_dim: expected 4"),
    (
        lambda: LlamaForCausalLM(
            LlamaConfig(**LLAMA, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
        ),
        "rope_parameters: expected rope_type='default'",
    ),
    by=lambda make: from_transformers(make()),
)


def test_other_models_are_refused():
    sizes = {"vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(TypeError, match="model: expected a GPT2LMHeadModel or a LlamaForCausalLM, got BertForMaskedLM"):
        from_transformers(BertForMaskedLM(BertConfig(**sizes)))
