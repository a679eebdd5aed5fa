"""TransformerLens, nnsight and captum on models for transformers: the numbers of our own capture and interventions.

Each test needs the package itself: pip install "relational-attention[lens]".
"""

import importlib
import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from dat.experiments.language.presets import PRESETS
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Ablate, Target, intervene
from tests.library.hf.models import matters

CLOSE = {"atol": 1e-9, "rtol": 1e-9}
"""Models are in float64, in which two orders of summation differ by less."""
RELATION = Ablate(Target("relation", layers=0, relations=2))
TOKENS = torch.randint(64, (2, 9), generator=torch.Generator().manual_seed(1))
DAT = PRESETS["DAT-tiny"]
KEYS = {
    **PRESETS,
    "RCA": replace(DAT, ra_type="rca"),
    "relative": replace(DAT, symbols="position_relative"),
    "0+4": replace(DAT, n_heads_sa=0, n_heads_ra=4, rel_proj_dim=4),
}


def model(name: str = "DAT-tiny") -> DualAttnForCausalLM:
    torch.manual_seed(0)
    return matters(DualAttnForCausalLM(DualAttnConfig.from_language_config(KEYS[name].language_config(64)))).double()


@torch.no_grad()
def observed(made: DualAttnForCausalLM):
    """Logits, the maps, and the logits without one relation; None for a model that has none."""
    with capture(made) as maps:
        logits = made(TOKENS).logits
    if maps["blocks.0"].relational is None or maps["blocks.0"].relational.relations is None:
        return logits, maps, None
    with intervene(made, RELATION):
        return logits, maps, made(TOKENS).logits


def without_third(relations, hook=None):
    relations = relations.clone()
    relations[..., 2] = 0
    return relations


@pytest.mark.parametrize("name", ["DAT-tiny", "T-tiny", "RCA", "relative", "0+4"])
def test_transformer_lens(name):
    pytest.importorskip("transformer_lens")
    from dual_attention.model_analysis.adapters.transformer_lens import transformer_lens_bridge

    made = model(name)
    logits, maps, ablated = observed(made)
    bridge = transformer_lens_bridge(made)
    with torch.no_grad():
        torch.testing.assert_close(bridge(TOKENS), logits, **CLOSE)
        seen, cache = bridge.run_with_cache(TOKENS)
    torch.testing.assert_close(seen, logits, **CLOSE)
    shaped = {"weights": "hook_pattern", "relations": "hook_relations", "symbols": "hook_symbols"}
    turned = {"head_output": "hook_z", "relational_message": "hook_relational_message"}
    for layer in range(2):
        for record in maps[layer].kinds:
            place = f"blocks.{layer}.attn" + ("" if name == "T-tiny" else f".{record.kind}")
            for quantity, hook in shaped.items():
                if getattr(record, quantity) is not None:
                    torch.testing.assert_close(cache[f"{place}.{hook}"], record.get(quantity), **CLOSE)
            for quantity, hook in turned.items():
                if getattr(record, quantity) is not None:
                    torch.testing.assert_close(cache[f"{place}.{hook}"].transpose(1, 2), record.get(quantity), **CLOSE)
    if ablated is not None:
        hook = "blocks.0.attn.relational.hook_relations"
        with torch.no_grad():
            torch.testing.assert_close(
                bridge.run_with_hooks(TOKENS, fwd_hooks=[(hook, without_third)]), ablated, **CLOSE
            )
            assert not torch.allclose(ablated, logits, **CLOSE)
            torch.testing.assert_close(bridge(TOKENS), logits, **CLOSE)  # nothing stays


def test_transformer_lens_knows_saved_models_after_registration(tmp_path):
    lens = pytest.importorskip("transformer_lens.model_bridge")
    from dual_attention.model_analysis.adapters.transformer_lens import register

    made = model()
    logits = observed(made)[0]
    made.save_pretrained(tmp_path)
    register()
    tokenizer = pytest.importorskip("transformers").PreTrainedTokenizerFast(tokenizer_object=_bytes_as_tokens())
    bridge = lens.TransformerBridge.boot_transformers(str(tmp_path), tokenizer=tokenizer, dtype=torch.float64)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(TOKENS)
        torch.testing.assert_close(bridge(TOKENS), logits, **CLOSE)
    assert cache["blocks.1.attn.relational.hook_relations"].shape == (2, 9, 9, 8)


def _bytes_as_tokens():
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE({chr(32 + i): i for i in range(64)}, []))
    made.add_special_tokens(["<end>"])
    return made


def test_other_models_are_refused():
    pytest.importorskip("transformer_lens")
    from dual_attention.model_analysis.adapters.transformer_lens import transformer_lens_bridge

    with pytest.raises(TypeError, match="model: expected a DualAttnForCausalLM, got Linear"):
        transformer_lens_bridge(torch.nn.Linear(2, 2))


def test_without_transformer_lens_the_extra_is_named(monkeypatch):
    name = "dual_attention.model_analysis.adapters.transformer_lens"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "transformer_lens", None)
    monkeypatch.setitem(sys.modules, "transformer_lens.model_bridge", None)
    with pytest.raises(ImportError, match=r'pip install "relational-attention\[lens\]"'):
        importlib.import_module(name)


def test_nnsight_sees_and_changes_relations():
    nnsight = pytest.importorskip("nnsight")
    made = model()
    logits, maps, ablated = observed(made)
    record = maps["blocks.1"].relational
    traced = nnsight.NNsight(made)
    with torch.no_grad(), traced.trace(TOKENS):
        taps = traced.model.layers.blocks[1].dual_attn.relational_attention.taps
        weights = taps.weights.output.save()
        relations = taps.relations.output.save()
        out = traced.output.save()
    torch.testing.assert_close(relations, record.relations, **CLOSE)
    torch.testing.assert_close(weights, record.weights, **CLOSE)
    torch.testing.assert_close(out.logits, logits, **CLOSE)
    with torch.no_grad(), traced.trace(TOKENS):
        traced.model.layers.blocks[0].dual_attn.relational_attention.taps.relations.output[..., 2] = 0
        out = traced.output.save()
    torch.testing.assert_close(out.logits, ablated, **CLOSE)


def test_captum_attributes_to_relations():
    captum = pytest.importorskip("captum.attr")
    made = model()
    _, maps, _ = observed(made)
    tap = made.model.layers.blocks[0].dual_attn.relational_attention.taps.relations

    def last(tokens):
        return made(tokens).logits[:, -1]

    seen = captum.LayerActivation(last, tap).attribute(TOKENS)
    torch.testing.assert_close(seen, maps["blocks.0"].relational.relations, **CLOSE)
    attributed = captum.LayerGradientXActivation(last, tap).attribute(TOKENS, target=3)
    kept = []
    handle = tap.register_forward_hook(lambda _module, _args, x: kept.append(x.requires_grad_()) or x)
    last(TOKENS)[:, 3].sum().backward(inputs=kept)
    handle.remove()
    torch.testing.assert_close(attributed, (kept[0] * kept[0].grad).detach(), **CLOSE)
    assert attributed.abs().max() > 1e-4
