"""What models for transformers have in common: the implementation of attention, and sizes of relations."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AttentionInterface

from tests.library.hf.models import causal, classifier, masked, vision

KINDS = pytest.mark.parametrize("made", [causal, masked, classifier, vision])


@KINDS
@pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention", "paged|eager", "paged|sdpa", "mine", "nobody"])
def test_attention_functions_of_others_are_refused(made: Any, name: str, tmp_path: Path, monkeypatch):
    """They would never be called. What asks whether they would be, as vLLM does, is told so."""
    monkeypatch.setitem(AttentionInterface._global_mapping, "mine", lambda *_, **__: None)
    model = made()
    model.save_pretrained(tmp_path)
    for make in (
        lambda: model.set_attn_implementation(name),
        lambda: model.set_attn_implementation({"": name}),
        lambda: made(attn_implementation=name),
        lambda: type(model).from_pretrained(tmp_path, attn_implementation=name),
    ):
        with pytest.raises(ValueError, match=r"attn_implementation: expected 'eager' or 'sdpa'"):
            make()
    assert not model.eager and not model._can_set_attn_implementation()


@KINDS
def test_implementations_can_be_switched(made: Any):
    model = made()
    for given, eager in (("eager", True), ({}, True), ("sdpa", False), ({"": "eager"}, True), (None, False)):
        model.set_attn_implementation(given)
        assert model.eager is eager


@pytest.mark.parametrize(
    "made", [causal, lambda **more: vision(symbol_retrieval="symbolic_attention", symbol_retrieval_kwargs=None, **more)]
)
def test_relations_have_the_size_of_the_configuration_whoever_draws_them(made: Any):
    """W_r is uniform in a bound that the constructor and the drawing of values without a checkpoint have in common."""
    sized = made(ra_kwargs={"rel_init_size": 0.5, "n_relations": 4}).config
    assert sized.to_dict()["ra_kwargs"]["rel_init_size"] == 0.5
    kind, largest = type(made()), []
    for device in ("cpu", "meta"):
        with torch.device(device):
            model = kind(sized)
        if device == "meta":
            model.to_empty(device="cpu")
            model.initialize_weights()
        w_r = torch.cat([value.flatten() for name, value in model.named_parameters() if name.endswith(".wr")])
        largest.append(w_r.abs().max().item())
    assert largest[0] == pytest.approx(largest[1], rel=0.1) and largest[0] > 0.5
