"""Save, be killed, load: each loop of the ecosystem that resumes a GPT-2 or a Llama resumes our models as well.

A cell is a model and a way to save and to load it. The model that loads is built anew, with other weights.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

accelerate = pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from tests.library._models.test_encoder_heads import masked_lm  # noqa: E402
from tests.library.hf import models  # noqa: E402
from tests.support import language, seq2seq  # noqa: E402


class Wrapped(nn.Module):
    """A user's module around a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def theirs(name: str, tied: bool) -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = getattr(transformers, f"{name}Config")(vocab_size=29, tie_word_embeddings=tied, **sizes)
    return getattr(transformers, f"{name}ForCausalLM" if name == "Llama" else f"{name}LMHeadModel")(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "theirs: GPT-2": lambda: theirs("GPT2", tied=True),
    "theirs: Llama in a module": lambda: Wrapped(theirs("Llama", tied=True)),
    "language model": lambda: language.lm("symbolic_attention"),
    "language model, untied": lambda: language.lm("symbolic_attention", tie_weights=False),
    "language model in a module": lambda: Wrapped(language.lm("transformer")),
    "masked language model": lambda: masked_lm("symbolic_attention"),
    "sequence to sequence": lambda: seq2seq.build("symbolic_attention", tie_weights=True),
    "sequence to sequence, untied": lambda: seq2seq.build("symbolic_attention"),
    "symmetric relations": lambda: language.lm("positional_symbols", ra_kwargs={"symmetric_rels": True}),
    "DualAttnForCausalLM": models.causal,
    "DualAttnForCausalLM, untied": lambda: models.causal(tie_weights=False),
    "DualAttnForMaskedLM": models.masked,
    "DualAttnForSequenceClassification": models.classifier,
    "DualAttnForImageClassification": models.vision,
}


def torch_save(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    torch.save(model.state_dict(), folder / "model.pt")
    return lambda other: other.load_state_dict(torch.load(folder / "model.pt"))


def torch_assign(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    torch.save(model.state_dict(), folder / "model.pt")
    return lambda other: other.load_state_dict(torch.load(folder / "model.pt"), assign=True)


def safetensors_file(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    safetensors.save_model(model, str(folder / "model.safetensors"))
    return lambda other: safetensors.load_model(other, str(folder / "model.safetensors"))


def accelerate_state(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    """The loop of transformers' scripts without Trainer, with the optimiser."""

    def accelerator(prepared: nn.Module) -> Any:
        started = accelerate.Accelerator(cpu=True)
        started.prepare(prepared, torch.optim.AdamW(prepared.parameters()))
        return started

    accelerator(model).save_state(str(folder))
    return lambda other: accelerator(other).load_state(str(folder))


def accelerate_model(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    accelerate.Accelerator(cpu=True).save_model(model, str(folder), max_shard_size="20KB")
    return lambda other: accelerate.load_checkpoint_in_model(other, str(folder))


def distributed_checkpoint(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)

    def load(other: nn.Module) -> None:
        state = {"model": get_model_state_dict(other)}
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(other, state["model"])

    return load


def full_state_dict(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    options = StateDictOptions(full_state_dict=True)
    torch.save(get_model_state_dict(model, options=options), folder / "model.pt")
    return lambda other: set_model_state_dict(other, torch.load(folder / "model.pt"), options=options)


def sharded(model: nn.Module, folder: Path) -> Callable[[nn.Module], Any]:
    """FSDP2, which leaves a tied weight in one group if the whole model is one."""
    load = full_state_dict(fully_shard(model), folder)
    return lambda other: load(fully_shard(other))


WAYS = [torch_save, torch_assign, safetensors_file, accelerate_state, accelerate_model]
WAYS += [distributed_checkpoint, full_state_dict, sharded]


@pytest.fixture
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_was_saved_is_loaded(
    way: Callable[..., Any], name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if way is sharded:
        request.getfixturevalue("one_process")
    model, other = MODELS[name](), MODELS[name]()
    wanted, parameters = {key: value.clone() for key, value in model.state_dict().items()}, len([*other.parameters()])
    way(model, tmp_path)(other)
    whole = StateDictOptions(full_state_dict=True)
    got = get_model_state_dict(other, options=whole) if way is sharded else dict(other.state_dict())
    torch.testing.assert_close(got, wanted, atol=0, rtol=0)
    assert len([*other.parameters()]) == parameters or name.startswith("theirs")  # what was tied is tied
