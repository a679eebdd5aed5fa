"""Weights that are not in memory while nothing needs them: accelerate's offloading and its empty models."""

from pathlib import Path

import accelerate
import pytest
import torch
from accelerate import cpu_offload, disk_offload, init_empty_weights, load_checkpoint_and_dispatch
from packaging.version import Version

from dual_attention._models.weights import shared_names
from dual_attention.hf import DualAttnForCausalLM, DualAttnForImageClassification, DualAttnForMaskedLM
from dual_attention.positional_encoding import LearnedPositionalEmbeddings, RelativePositionalEncoding
from tests.library._models import test_tied
from tests.library.hf.models import KINDS, causal, masked, tokens, vision
from tests.support.language import SYMBOLS

SHAW = {"sa_kwargs": {"shaw_max_rel_pos": 3, "shaw_values": True}}
MODELS = {
    **{kind: (lambda kind=kind: causal(kind)) for kind in KINDS},
    "shaw": lambda: causal(**SHAW),
    "rope": lambda: causal("position_relative", pos_enc_type="RoPE"),
    "sinusoids": lambda: causal("positional_symbols", symbol_retrieval_kwargs=SINUSOIDS),
    "one library": lambda: causal("positional_symbols", symbol_retriever_config=OWN_RETRIEVERS),
    "one table": lambda: causal("position_relative", symbol_retriever_config=OWN_RETRIEVERS),
    "masked": lambda: masked("position_relative"),
    "vision": vision,
}
SINUSOIDS = {**SYMBOLS["positional_symbols"], "sinusoidal": True}
OWN_RETRIEVERS = {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}


def inputs(name: str) -> torch.Tensor:
    return torch.randn(2, 3, 12, 8) if name == "vision" else tokens(2, 7)


def on_disk(model) -> bool:
    return all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", MODELS)
def test_offloaded(name: str, tmp_path: Path):
    """Every weight is on disk, and comes only while its own layer is called."""
    model, x = MODELS[name](), inputs(name)
    plain, mapped = model(x).logits, model(x, output_attentions=True)
    disk_offload(model, str(tmp_path), execution_device=torch.device("cpu"))
    assert on_disk(model)
    with torch.no_grad():
        torch.testing.assert_close(model(x).logits, plain)
        again = model(x, output_attentions=True)
    torch.testing.assert_close(again.logits, plain)
    torch.testing.assert_close(again.attentions, mapped.attentions)
    assert on_disk(model)


def test_decoding_and_losses_with_offloaded_weights():
    model, x = causal("position_relative", skip_logits_in_training=True, pos_enc_type="RoPE"), tokens(2, 5)
    expected = model.generate(x, max_new_tokens=6, do_sample=False, pad_token_id=0)
    loss = model(x, labels=x).loss
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert on_disk(model)
    assert torch.equal(model.generate(x, max_new_tokens=6, do_sample=False, pad_token_id=0), expected)
    with torch.no_grad():
        torch.testing.assert_close(model.train()(x, labels=x).loss, loss)


@pytest.mark.skipif(
    Version(accelerate.__version__) < Version("1.15"), reason="accelerate refuses a map to the disk alone"
)
@pytest.mark.parametrize("name", ["positional_symbols", "position_relative", "symbolic_attention", "masked"])
def test_a_device_map_with_disk(name: str, tmp_path: Path):
    model, x = MODELS[name](), inputs(name)
    plain = model(x).logits
    model.save_pretrained(tmp_path / "model")
    parts = {"": "disk"} if name == "masked" else {"model.layers": "disk"}
    again = type(model).from_pretrained(tmp_path / "model", device_map=parts, offload_folder=tmp_path / "offloaded")
    assert on_disk(again)
    with torch.no_grad():
        torch.testing.assert_close(again(x).logits, plain)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [*KINDS, "one library", "one table", "masked", "vision"])
@pytest.mark.parametrize("ties", [False, True])
def test_an_empty_model_is_filled(name: str, ties: bool, tmp_path: Path):
    """What is one tensor in the model is one in the empty model, and in what a checkpoint fills."""
    model, x = MODELS[name](), inputs(name)
    model.save_pretrained(tmp_path)
    with init_empty_weights():
        empty = type(model)(model.config)
    groups = [sorted(names) for names in shared_names(model)]
    assert on_disk(empty) and [sorted(names) for names in shared_names(empty)] == groups
    if ties:
        empty.tie_weights()
    filled = load_checkpoint_and_dispatch(empty, str(tmp_path), device_map={"": "cpu"})
    assert [sorted(names) for names in shared_names(filled)] == groups
    torch.testing.assert_close(filled.eval()(x).logits, model(x).logits)


@pytest.mark.parametrize("left_out", [0, 1])
@pytest.mark.parametrize("family", test_tied.FAMILIES)
def test_an_empty_model_is_filled_by_either_name_of_a_tied_weight(family: str, left_out: int):
    """accelerate gives each name a parameter of its own, on one storage."""
    model, inputs, names = test_tied.build(family)
    state = {name: tensor for name, tensor in model.state_dict().items() if name != names[left_out]}
    with init_empty_weights():
        empty, *_ = test_tied.build(family)
    empty.load_state_dict(state, assign=True)
    assert empty.get_parameter(names[0]) is empty.get_parameter(names[1])
    torch.testing.assert_close(empty(*inputs)[0], model(*inputs)[0])


def test_layers_of_their_own_with_offloaded_weights():
    """The tables that a layer hands on, or reads in a part of it, are those of its weights."""
    learned, relative = LearnedPositionalEmbeddings(8, max_len=5, dropout=0.0), RelativePositionalEncoding(4, 3)
    x, q = torch.randn(2, 4, 8), torch.randn(2, 1, 6, 4)
    expected = learned(x), relative.scores(q, 6), relative.table(q)
    for layer in (learned, relative):
        cpu_offload(layer, execution_device=torch.device("cpu"))
    torch.testing.assert_close((learned(x), relative.scores(q, 6), relative.table(q)), expected)


def test_models_without_values_run_without_values():
    """On the meta device nothing is missing: a dry run costs nothing."""
    with torch.device("meta"):
        for kind in (DualAttnForCausalLM, DualAttnForMaskedLM):
            made = causal("position_relative") if kind is DualAttnForCausalLM else masked("positional_symbols")
            assert made(torch.ones(2, 7).long()).logits.shape[:2] == (2, 7)
        assert isinstance(vision(), DualAttnForImageClassification)
