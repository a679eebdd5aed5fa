"""Arguments of other models for transformers: told in ours, or refused, but never kept without use."""

import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import AutoConfig, PreTrainedConfig

from dual_attention.hf import DualAttnConfig, DualAttnEncoderConfig, DualAttnVisionConfig
from dual_attention.hf.names import SYNONYMS, names_elsewhere
from tests.library.hf.models import config, encoder_config, vision_config
from tests.support.refusals import refused

CONFIGS = {"dat": config, "transformer": lambda **more: config("transformer", **more), "encoder": encoder_config}
CONFIGS["encoder transformer"] = lambda **more: encoder_config("transformer", **more)
CONFIGS["vision"], CONFIGS["vision transformer"] = vision_config, lambda **more: vision_config("transformer", **more)

WITHOUT_MEANING = """
is_decoder max_window_layers original_max_position_embeddings pretraining_tp reorder_and_upcast_attn scale_attn_weights
summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj classifier_dropout
bos_token_id eos_token_id use_cache encoder_stride pooler_act pooler_output_size
num_attention_heads
"""
"""Of the models below: for heads and inputs that are not ours, defaults, or compared or refused on their own."""


@pytest.mark.parametrize(
    ("ours", "names"),
    [
        (DualAttnConfig, ["Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "GPT2", "GPTNeoX", "Olmo", "Phi3"]),
        (DualAttnEncoderConfig, ["Bert", "Roberta"]),
        (DualAttnVisionConfig, ["ViT", "DeiT"]),
    ],
)
def test_all_arguments_of_common_models_are_known(ours: Any, names: list[str]):
    known = {about.name for about in fields(PreTrainedConfig)} | {about.name for about in fields(ours)}
    known |= names_elsewhere(ours) | ours.attribute_map.keys() | set(WITHOUT_MEANING.split())
    for name in names:
        theirs = {about.name for about in fields(getattr(transformers, f"{name}Config"))}
        assert theirs <= known, name


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_name_changes_the_model_or_is_refused(kind: str):
    """Whatever the value, unless it is the value that the model has anyway."""
    plain = CONFIGS[kind]().arguments()
    rope = {"rope_type": "default", "rope_theta": 3.0}
    values = {"rope_parameters": rope, "rope_scaling": rope, **dict.fromkeys(SYNONYMS, 0.5)}
    values |= {name: "relu" for name in SYNONYMS if SYNONYMS[name] == "activation"}
    for name in names_elsewhere(type(CONFIGS[kind]())) - {"use_sliding_window"}:
        value = values.get(name, 2)
        try:
            made = CONFIGS[kind](**{name: value})
        except ValueError as error:
            assert str(error).startswith(f"{name}: expected"), name
        else:
            assert made.arguments() != plain and not hasattr(made, name), name
            made.build()
        assert CONFIGS[kind](**{name: None}).arguments() == plain


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        ("dat", {"hidden_act": "silu"}, {"activation": "silu"}),
        ("dat", {"hidden_act": "gelu"}, {"activation": "gelu_erf"}),
        ("dat", {"activation_function": "gelu_new"}, {"activation": "gelu"}),
        ("dat", {"num_key_value_heads": 2}, {"sa_kwargs": {"n_kv_heads": 1}, "ra_kwargs": {"n_kv_heads": 1}}),
        ("transformer", {"num_key_value_heads": 2}, {"block_kwargs": {"attn_kwargs": {"n_kv_heads": 2}}}),
        ("encoder transformer", {"num_key_value_heads": 2}, {"attn_kwargs": {"n_kv_heads": 2}}),
        ("transformer", {"sliding_window": 3}, {"block_kwargs": {"attn_kwargs": {"window": 3}}}),
        ("dat", {"sliding_window": 3}, {"sa_kwargs": {"window": 3}, "ra_kwargs": {"window": 3}}),
        ("dat", {"window": 3, "n_kv_heads": 2}, {f"{a}_kwargs": {"window": 3, "n_kv_heads": 1} for a in ("sa", "ra")}),
        ("dat", {"sliding_window": 3, "use_sliding_window": False}, {}),
        ("dat", {"pos_enc_type": "RoPE", "rope_parameters": {"rope_theta": 5.0}}, {"rope_theta": 5.0}),
        ("dat", {"pos_enc_type": "RoPE", "rope_scaling": {"type": "default", "rope_theta": 5.0}}, {"rope_theta": 5.0}),
        ("dat", {"norm_type": "rmsnorm", "rms_norm_eps": 1e-5}, {}),
        ("dat", {"attention_dropout": 0.5, "resid_pdrop": 0.5}, {"dropout_rate": 0.5}),
        ("dat", {"tie_word_embeddings": False}, {"tie_weights": False}),
    ],
)
def test_what_is_told_in_ours(kind: str, given: dict[str, Any], told: dict[str, Any]):
    kept = {name: given[name] for name in given if name in ("pos_enc_type", "norm_type")}
    assert CONFIGS[kind](**given).arguments() == {**CONFIGS[kind](**kept).arguments(), **told}


test_what_contradicts_is_refused = refused(
    *((given, "|".join(f"^{name}: expected " for name in given)) for given in (
        {"hidden_size": 64},
        {"tie_weights": False, "tie_word_embeddings": True},
        {"hidden_act": "relu", "activation": "silu"},
        {"attention_dropout": 0.1, "hidden_dropout": 0.2},
        {"sliding_window": 3, "sa_kwargs": {"window": 4}},
        {"num_key_value_heads": 1},
        {"rms_norm_eps": 1e-5},
        {"norm_type": "rmsnorm", "rms_norm_eps": 1e-6},
        {"rope_parameters": {"rope_theta": 5.0}, "pos_enc_type": "pos_emb"},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}, "pos_enc_type": "RoPE"},
        {"n_embd": 16},
        {"n_relations": 2},
        {"n_symbols": 4},
        {"sliding_window": 3, "window": 4},
        {"layer_types": ["sliding_attention"]},
    )),
    by=lambda given: config(**given),
)  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_saved_ones_load_as_before(kind: str, tmp_path: Path):
    """With whatever a file may hold by these names: it had no effect, and has none, which is said."""
    made = CONFIGS[kind]()
    made.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert AutoConfig.from_pretrained(tmp_path).arguments() == made.arguments()
    path = tmp_path / "config.json"
    unused = dict.fromkeys(names_elsewhere(type(made)), 2)
    path.write_text(json.dumps({**json.loads(path.read_text()), **unused, "hidden_size": made.d_model}))
    with pytest.warns(UserWarning, match="no argument of this model") as caught:
        assert AutoConfig.from_pretrained(tmp_path).arguments() == made.arguments()
    assert {str(warning.message).partition(":")[0] for warning in caught} == unused.keys()


def test_arguments_beside_a_folder(tmp_path: Path):
    config(pos_enc_type="RoPE").save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path, hidden_act="relu").activation == "relu"
    with pytest.raises(ValueError, match=r"head_dim: expected 4 in this model, got 5"):
        AutoConfig.from_pretrained(tmp_path, head_dim=5)
