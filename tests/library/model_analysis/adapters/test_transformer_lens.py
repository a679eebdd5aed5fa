"""TransformerLens' own tools on the bridge: patching, decompositions of the residual stream, compatibility mode.

They need the package itself: pip install "relational-attention[lens]".
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("transformer_lens")

from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
from dual_attention.language_presets import language_preset
from dual_attention.model_analysis.adapters.transformer_lens import transformer_lens_bridge
from tests.library.hf.models import matters

pytestmark = pytest.mark.sweep(4)

patching = pytest.importorskip("transformer_lens.patching")

CLOSE = {"atol": 1e-9, "rtol": 1e-9}
DAT, PLAIN = (replace(language_preset(name), vocab_size=64) for name in ("DAT-tiny", "T-tiny"))
CONFIGS = {
    "dat": DAT,
    "relations only": replace(DAT, n_heads_sa=0, n_heads_ra=4, ra_kwargs={"n_relations": 4}),
    "post-norm": replace(DAT, norm_first=False),
    "rmsnorm": replace(DAT, norm_type="rmsnorm"),
    "no norm": replace(DAT, norm_type="none", pos_enc_type="none"),
    "learned positions": replace(DAT, pos_enc_type="pos_emb"),
    "transformer": PLAIN,
    "post-norm transformer": replace(PLAIN, norm_first=False),
}
CLEAN, CORRUPTED = torch.randint(64, (2, 2, 5), generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=CONFIGS)
def bridge(request) -> Any:
    return bridge_of(request.param)


def bridge_of(name: str) -> Any:
    torch.manual_seed(0)
    model = matters(DualAttnForCausalLM(DualAttnConfig.from_language_config(CONFIGS[name])))
    return transformer_lens_bridge(model.double())


def put(cache: Any, *names: str) -> list[Any]:
    """Hooks that put what the clean run had there."""
    return [(name, lambda _x, hook: cache[hook.name]) for name in names]


@torch.no_grad()
def test_the_residual_stream_is_whole(bridge: Any):
    """What comes after a place follows from what the residual stream holds there."""
    clean, cache = bridge.run_with_cache(CLEAN)
    for layer in range(2):
        block = f"blocks.{layer}.hook_"
        for names in (["resid_mid"], ["resid_pre", "attn_out"], ["resid_mid", "mlp_out"], ["resid_post"]):
            hooks = put(cache, *(block + name for name in names))
            torch.testing.assert_close(bridge.run_with_hooks(CORRUPTED, fwd_hooks=hooks), clean, **CLOSE)
    torch.testing.assert_close(bridge(CLEAN), clean, **CLOSE)
    assert not torch.allclose(bridge(CORRUPTED), clean)


@torch.no_grad()
def test_patching(bridge: Any, monkeypatch):
    monkeypatch.setattr(patching, "tqdm", lambda rows: rows)
    _, cache = bridge.run_with_cache(CLEAN)
    given = (bridge, CORRUPTED, cache, lambda logits: logits[:, -1, 3].sum())
    shapes = {
        "resid_mid": (2, 5),
        "attn_out": (2, 5),
        "mlp_out": (2, 5),
        "block_every": (3, 2, 5),
    }
    found = {name: getattr(patching, f"get_act_patch_{name}")(*given) for name in shapes}
    assert {name: tuple(patched.shape) for name, patched in found.items()} == shapes
    torch.testing.assert_close(found["block_every"][1:], torch.stack([found["attn_out"], found["mlp_out"]]))
    without = given[3](bridge(CORRUPTED)).float()
    for name, patched in found.items():  # the last layer's other positions have no effect
        assert (patched.unique().numel() > 2) and not torch.isclose(patched, without).all(), name


@torch.no_grad()
def test_patches_of_hooks_that_there_are_not(bridge: Any, monkeypatch):
    monkeypatch.setattr(patching, "tqdm", lambda rows: rows)
    _, cache = bridge.run_with_cache(CLEAN)
    given = (bridge, CORRUPTED, cache, lambda logits: logits[:, -1, 3].sum())
    with pytest.raises(KeyError, match=r"blocks\.0\.attn\.hook_[qz]"):
        patching.get_act_patch_attn_head_all_pos_every(*given)
    with pytest.raises((AttributeError, NotImplementedError), match=r"W_O|hook"):
        patching.get_act_patch_direct_path(*given[:3], cache, given[3], 0, 1)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in CONFIGS if "post-norm" not in name])
def test_decompositions(name: str):
    """With pre-norm, what is added up is the residual stream, and its shares of a logit are the logit."""
    bridge = bridge_of(name)
    logits, cache = bridge.run_with_cache(CLEAN)
    parts, labels = cache.decompose_resid(return_labels=True)
    assert ("pos_embed" in labels) == (name == "learned positions")
    last = cache["resid_post", 1]
    torch.testing.assert_close(parts.sum(dim=0), last, **CLOSE)
    steps, labels = cache.accumulated_resid(incl_mid=True, return_labels=True)
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]
    for number, resid in enumerate(steps[1:4]):
        torch.testing.assert_close(resid - steps[number], cache[("attn_out", "mlp_out")[number % 2], number // 2])
    shares = cache.logit_attrs(parts, 3).sum(dim=0) - cache.logit_attrs(parts, 7).sum(dim=0)
    norm = bridge.ln_final.original_component  # whose weight and bias logit_attrs leaves out
    direct = (last - last.mean(-1, keepdim=True) * (bridge.cfg.normalization_type == "LN")) @ (
        bridge.W_U[:, 3] - bridge.W_U[:, 7]
    )
    scale = cache["ln_final.hook_scale"][..., 0] if bridge.cfg.normalization_type else 1.0
    torch.testing.assert_close(shares, direct / scale, **CLOSE)
    torch.testing.assert_close(logits, bridge.unembed(norm(last)), **CLOSE)


@torch.no_grad()
def test_compatibility_mode(bridge: Any):
    """Weights are not changed, which is said; names of older versions are there without that."""
    expected = bridge(CLEAN)
    with pytest.raises(ValueError, match="enable_compatibility_mode: expected no_processing=True"):
        bridge.enable_compatibility_mode()
    torch.testing.assert_close(bridge(CLEAN), expected, **CLOSE)
    bridge.enable_compatibility_mode(no_processing=True)
    logits, cache = bridge.run_with_cache(CLEAN)
    torch.testing.assert_close(logits, expected, **CLOSE)
    assert "blocks.0.hook_resid_mid" in cache and "blocks.1.hook_attn_out" in cache


@pytest.mark.parametrize("name", ["dat", "transformer"])
@torch.no_grad()
def test_what_enters_the_heads_is_replaced_for_receivers_and_senders(name: str):
    """Zeros as the only input leave all senders alike."""
    bridge = bridge_of(name)
    kinds = ["sensory.", "relational."] if name == "dat" else [""]
    seen = {}
    hooks = [(f"blocks.0.attn.{kind}hook_in", lambda x, hook: 0 * x) for kind in kinds]
    hooks += [(f"blocks.0.attn.{kind}hook_pattern", lambda x, hook: seen.update({hook.name: x})) for kind in kinds]
    bridge.run_with_hooks(CLEAN, fwd_hooks=hooks)
    assert len(seen) == len(kinds)
    for pattern in seen.values():
        expected = torch.ones_like(pattern).tril()
        torch.testing.assert_close(pattern, expected / expected.sum(-1, keepdim=True), **CLOSE)
