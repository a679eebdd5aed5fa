"""Save, be killed, load: each loop of the ecosystem that resumes a GPT-2 or a Llama resumes our models as well.

A cell is a model and a way to save and to load it. A process saves a whole checkpoint, and is killed amid the next: the
system ends it at a write past the first bytes of a file. The model that resumes is built anew, with other weights.
"""

import gc
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
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

from docs.model_entries import GROUPS  # noqa: E402
from dual_attention import hf  # noqa: E402
from tests.library.hf import models  # noqa: E402
from tests.support import language, seq2seq  # noqa: E402


class Wrapped(nn.Module):
    """A user's module around a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def theirs(name: str) -> nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = getattr(transformers, f"{name}Config")(vocab_size=29, tie_word_embeddings=True, **sizes)
    return getattr(transformers, f"{name}ForCausalLM" if name == "Llama" else f"{name}LMHeadModel")(config)


CONFIGS = {
    hf.DualAttnConfig: models.config,
    hf.DualAttnEncoderConfig: models.encoder_config,
    hf.DualAttnVisionConfig: models.vision_config,
}
FOR_TRANSFORMERS: dict[str, Any] = {
    name: kind
    for name in hf.__all__
    if isinstance(kind := getattr(hf, name), type) and issubclass(kind, transformers.PreTrainedModel)
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "theirs: GPT-2": lambda: theirs("GPT2"),
    "theirs: Llama in a module": lambda: Wrapped(theirs("Llama")),
    **{name: lambda make=entry.make: make(8) for name, entry in (GROUPS["Models"] | GROUPS["Baselines"]).items()},
    **{name: lambda kind=kind: kind(CONFIGS[kind.config_class]()) for name, kind in FOR_TRANSFORMERS.items()},
    "TransformerLM_HFHub": lambda: hf.TransformerLM_HFHub(**language.COMMON, n_heads=4),
    "DualAttnTransformerLM_HFHub": lambda: hf.DualAttnTransformerLM_HFHub(**models.arguments("symbolic_attention")),
    "language model, untied": lambda: language.lm("symbolic_attention", tie_weights=False),
    "language model in a module": lambda: Wrapped(language.lm("transformer")),
    "relational cross-attention": lambda: language.lm("rel_sym_attn", ra_type="rca"),
    "disentangled relational cross-attention": lambda: language.lm("symbolic_attention", ra_type="disrca"),
    "symmetric relations": lambda: language.lm("positional_symbols", ra_kwargs={"symmetric_rels": True}),
    "sequence to sequence, tied": lambda: seq2seq.build("symbolic_attention", tie_weights=True),
    "DualAttnForCausalLM, untied": lambda: models.causal(tie_weights=False),
    "DualAttnForMaskedLM, untied": lambda: models.masked(tie_weights=False),
}

Way = tuple[Callable[[nn.Module, Path], Any], Callable[[nn.Module, Path], Any]]
"""To save a model into a folder, and to load it."""
WHOLE = StateDictOptions(full_state_dict=True)


def in_torch(**how: Any) -> Way:
    return (
        lambda model, folder: torch.save(model.state_dict(), folder / "model.pt"),
        lambda model, folder: model.load_state_dict(torch.load(folder / "model.pt"), **how),
    )


def in_safetensors() -> Way:
    return (
        lambda model, folder: safetensors.save_model(model, str(folder / "model.safetensors")),
        lambda model, folder: safetensors.load_model(model, str(folder / "model.safetensors")),
    )


def in_accelerate() -> Way:
    """The loop of transformers' scripts without Trainer, with the optimiser."""

    def accelerator(model: nn.Module) -> Any:
        started = accelerate.Accelerator(cpu=True)
        started.prepare(model, torch.optim.AdamW(model.parameters()))
        return started

    return (
        lambda model, folder: accelerator(model).save_state(str(folder)),
        lambda model, folder: accelerator(model).load_state(str(folder)),
    )


def in_accelerate_by_shards() -> Way:
    accelerator = accelerate.Accelerator(cpu=True)
    return (
        lambda model, folder: accelerator.save_model(model, str(folder), max_shard_size="20KB"),
        lambda model, folder: accelerate.load_checkpoint_in_model(model, str(folder)),
    )


def in_distributed_checkpoints() -> Way:
    def load(model: nn.Module, folder: Path) -> None:
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(model, state["model"])

    return lambda model, folder: dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder), load


def in_full_state_dicts() -> Way:
    return (
        lambda model, folder: torch.save(get_model_state_dict(model, options=WHOLE), folder / "model.pt"),
        lambda model, folder: set_model_state_dict(model, torch.load(folder / "model.pt"), options=WHOLE),
    )


def in_shards() -> Way:
    """FSDP2, which leaves a tied weight in one group if the whole model is one."""
    save, load = in_full_state_dicts()

    @contextmanager
    def one_process() -> Iterator[None]:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()

    @one_process()
    def load_shards(model: nn.Module, folder: Path) -> dict[str, Any]:
        load(fully_shard(model), folder)
        return get_model_state_dict(model, options=WHOLE)

    return one_process()(lambda model, folder: save(fully_shard(deepcopy(model)), folder)), load_shards


def weight_loss(model: nn.Module) -> torch.Tensor:
    """A loss of any model, whatever it takes."""
    return sum((parameter.square().sum() for parameter in model.parameters()), torch.zeros(()))


def in_trainer() -> Way:
    """The Trainer of transformers, at a rate of zero so that weights can be compared."""

    class Trainer(transformers.Trainer):
        def compute_loss(self, model: nn.Module, *_: Any, **__: Any) -> torch.Tensor:
            return weight_loss(model)

    def train(model: nn.Module, folder: Path, steps: int, **more: Any) -> None:
        quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "remove_unused_columns": False}
        rate = {"learning_rate": 0.0, "max_steps": steps, "save_steps": 1, "per_device_train_batch_size": 1}
        settings = transformers.TrainingArguments(output_dir=str(folder), **quiet, **rate)
        Trainer(model, settings, train_dataset=[{"x": 0}] * 4).train(**more)

    return (
        lambda model, folder: train(model, folder, 1),
        lambda model, folder: train(model, folder, 2, resume_from_checkpoint=True),
    )


def in_lightning() -> Way:
    lightning = pytest.importorskip("lightning", reason="a workflow installs it each month")

    class Module(lightning.LightningModule):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def training_step(self, *_: Any) -> torch.Tensor:
            return weight_loss(self.model)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.0)

    def fit(model: nn.Module, folder: Path, steps: int, **more: Any) -> None:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        kept = lightning.pytorch.callbacks.ModelCheckpoint(folder, save_last=True)
        trainer = lightning.Trainer(max_steps=steps, callbacks=[kept], default_root_dir=folder, **quiet)
        trainer.fit(Module(model), torch.utils.data.DataLoader([0] * 4), **more)  # pyright: ignore[reportArgumentType]

    return (
        lambda model, folder: fit(model, folder, 1),
        lambda model, folder: fit(model, folder, 2, ckpt_path=folder / "last.ckpt", weights_only=True),
    )


WAYS: dict[str, Callable[[], Way]] = {
    "torch": in_torch,
    "torch, assigned": lambda: in_torch(assign=True),
    "safetensors": in_safetensors,
    "accelerate, state": in_accelerate,
    "accelerate, shards": in_accelerate_by_shards,
    "DCP": in_distributed_checkpoints,
    "full state dict": in_full_state_dicts,
    "FSDP2": in_shards,
    "Trainer": in_trainer,
    "Lightning": in_lightning,
}


def refuses(way: str, model: nn.Module) -> bool:
    """Whether a way refuses to save such a model, be it ours or theirs."""
    tensors = model.state_dict().values()
    plain = way == "Trainer" and not isinstance(model, transformers.PreTrainedModel)
    return plain and len({tensor.data_ptr() for tensor in tensors}) < len(tensors)


def save_and_be_killed(save: Callable[[nn.Module, Path], Any], model: nn.Module, whole: Path, torn: Path) -> int:
    """In a process of its own, save the weights, change them, and die while they are saved again.

    Returns the exit status: 1 if nothing can be saved.
    """
    child = os.fork()
    if not child:
        try:
            gc.disable()  # process groups of the parent wait for their threads when they are collected,
            gc.freeze()  # and those of the parent are not here; accelerate collects garbage whatever was disabled
            torch.set_num_threads(1)
            signal.alarm(300)
            save(model, whole)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1.0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            save(model, torn)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


ROWS = [pytest.param(name, marks=[pytest.mark.quick] * (name == "DualAttnForCausalLM")) for name in MODELS]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_loop_resumes_from_the_last_whole_checkpoint(way: str, name: str, tmp_path: Path) -> None:
    (save, load), model, other = WAYS[way](), MODELS[name](), MODELS[name]()
    (whole := tmp_path / "1").mkdir()
    (torn := tmp_path / "2").mkdir()
    wanted, parameters = dict(model.state_dict()), len([*other.parameters()])
    status = save_and_be_killed(save, model, whole, torn)
    if refuses(way, model):
        assert status == 1
        return
    assert status == -signal.SIGXFSZ
    with pytest.raises(BaseException, match=r".") as raised:  # what DCP raises is no Exception
        load(MODELS[name](), torn)
    assert not isinstance(raised.value, NameError | ImportError | AssertionError)  # which were a fault of this test
    loaded = load(other, whole)
    found = loaded if way == "FSDP2" else dict(other.state_dict())
    torch.testing.assert_close(found, wanted, atol=0, rtol=0)
    assert len([*other.parameters()]) == parameters or name.startswith("theirs")  # what was tied is tied
