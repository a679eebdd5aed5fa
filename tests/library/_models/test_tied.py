"""An embedding that a model ties to its output is one tensor: as it is trained, loaded, and moved."""

import copy

import pytest
import torch
from torch import nn

from tests.library._models.test_encoder_heads import masked_lm
from tests.support import encoders, language, seq2seq

FAMILIES = ["language", "text", "pairs"]


def build(family, **options):
    """A model, its inputs, and both names of its tied weight."""
    if family == "text":
        names = ("encoder.token_embedder.weight", "decoder.weight")
        return masked_lm(**options), (encoders.tokens(),) * 2, names
    if family == "language":
        names = ("layers.token_embedder.weight", "layers.final_out.weight")
        return language.lm("symbolic_attention", **options), (language.tokens(2, 6), language.tokens(2, 6)), names
    x, y = seq2seq.words()
    return seq2seq.build(**options), (x, y, y), ("layers.target_embedder.weight", "layers.final_out.weight")


@pytest.mark.parametrize("family", FAMILIES)
def test_tied_weights_are_one(family):
    (tied, inputs, names), (untied, *_) = build(family), build(family, tie_weights=False)
    weight, output = map(tied.get_parameter, names)
    assert weight is output and len(list(untied.parameters())) == len(list(tied.parameters())) + 1
    untied.load_state_dict(tied.state_dict())
    for model in (tied, untied):
        model(*inputs)[1].backward()
    torch.testing.assert_close(weight.grad, sum(untied.get_parameter(name).grad for name in names))
    moved = tied.to("meta").to_empty(device="cpu")
    assert moved.get_parameter(names[0]) is moved.get_parameter(names[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_differ_do_not_fit_one(family):
    (tied, _, names), (untied, *_) = build(family), build(family, tie_weights=False)
    with pytest.raises(RuntimeError, match="{} and {} differ.*tie_weights=False".format(*names)):
        tied.load_state_dict(untied.state_dict())


@pytest.mark.parametrize("family", FAMILIES)
def test_files_of_safetensors(family, tmp_path):
    """They have a tied weight under one name, and the other one has to be reported missing."""
    safetensors = pytest.importorskip("safetensors.torch")
    (model, inputs, names), (other, *_) = build(family), build(family)
    safetensors.save_model(model, str(tmp_path / "a.safetensors"))
    assert len(set(names) & {*safetensors.load_file(tmp_path / "a.safetensors")}) == 1
    assert safetensors.load_model(other, str(tmp_path / "a.safetensors")) == (set(), [])
    torch.testing.assert_close(other(*inputs)[0], model(*inputs)[0])


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("left_out", [None, 0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_either_name_of_a_tied_weight_will_do(family, left_out, nested, assign):
    (model, inputs, names), (other, *_) = build(family), build(family)
    prefix, holder = ("a.", nn.ModuleDict({"a": other})) if nested else ("", other)
    state = {prefix + name: tensor for name, tensor in copy.deepcopy(model.state_dict()).items()}
    if left_out is not None:
        del state[prefix + names[left_out]]
    given = list(state)
    absent = [] if left_out is None else [prefix + names[left_out]]
    if nested and absent:  # in a module of another kind torch's own rules hold
        with pytest.raises(RuntimeError, match="Missing key"):
            copy.deepcopy(holder).load_state_dict(state, assign=assign)
    assert holder.load_state_dict(state, strict=not (nested and absent), assign=assign).missing_keys == absent * nested
    assert list(state) == given  # the caller's dict is as it was
    assert other.get_parameter(names[0]) is other.get_parameter(names[1])
    torch.testing.assert_close(other(*inputs)[0], model(*inputs)[0])
