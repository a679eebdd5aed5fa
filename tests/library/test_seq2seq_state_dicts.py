"""Tied weights of sequence-to-sequence models, and state dicts of those that tie them and those that do not."""

import pytest
import torch
from torch import nn

from dual_attention.seq2seq_models import Seq2SeqTransformer
from tests.golden.loading import load
from tests.support.seq2seq import BLOCK, SIZES, build, close, words

EMBEDDING, OUTPUT = "layers.target_embedder.weight", "layers.final_out.weight"


@pytest.mark.parametrize(
    "tied, kind, std", [(True, None, 1 / 8), (False, None, 1), (False, "scaled", 1 / 8), (True, "published", 1)]
)
def test_how_large_embeddings_begin(tied, kind, std):
    spec = {"type": "token", "vocab_size": 500}
    model = Seq2SeqTransformer(
        **{**SIZES, "d_model": 64}, input_spec=spec, output_spec=spec, out_dim=500, tie_weights=tied,
        embedding_init=kind, encoder_kwargs={**BLOCK, "n_heads": 2},
        decoder_kwargs={**BLOCK, "n_heads": 2, "n_heads_cross": 2},
    )  # fmt: skip
    for side in ("source", "target"):
        assert model.layers[f"{side}_embedder"].weight.std().item() == pytest.approx(std, rel=0.05)
    assert (model.get_parameter(OUTPUT).std().item() < 0.2) is (std < 1 or not tied)


def test_untying():
    model, (x, y) = build(), words()
    before = model(x, y)[0]
    model.untie_weights()
    assert not model.tie_weights and model.get_parameter(EMBEDDING) is not model.get_parameter(OUTPUT)
    close(model(x, y)[0], before)


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_published_state_dicts_say_that_they_are_not_tied(tie_weights, nested):
    golden = load("seq2seq", "seq2seq_words")
    assert "tie_weights" not in golden.kwargs  # so it was True, and in effect False
    model = Seq2SeqTransformer(**golden.kwargs, tie_weights=tie_weights).double()
    extra = {name for name in golden.state_dict if name.startswith("layers.target_embedder.weights.")}
    assert len(extra) == 2
    if nested:
        holder = nn.ModuleDict({"model": model})
        holder.load_state_dict({f"model.{name}": tensor for name, tensor in golden.state_dict.items()})
    else:
        model.load_state_dict(golden.state_dict)
    assert not model.tie_weights
    assert model.state_dict().keys() == golden.state_dict.keys() - extra
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, golden.state_dict[name])


def test_a_published_weight_under_its_extra_name_alone():
    """Those who save each tensor once may have kept that name."""
    golden = load("seq2seq", "seq2seq_words")
    state = {name: tensor for name, tensor in golden.state_dict.items() if not name.startswith("layers.final_out.")}
    model = Seq2SeqTransformer(**golden.kwargs).double()
    model.load_state_dict(state)
    assert torch.equal(model.get_parameter(OUTPUT), golden.state_dict[OUTPUT])


def test_other_keys_are_still_unexpected():
    state = build().state_dict()
    state["layers.source_embedder.weights.weight"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*source_embedder.weights.weight"):
        build().load_state_dict(state)
