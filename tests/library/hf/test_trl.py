"""TRL's trainers train these models as they do any other."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig

from dual_attention.hf import DualAttnForCausalLM, DualAttnLMForSequenceClassification
from tests.library.hf.models import byte_tokenizer, config

trl = pytest.importorskip("trl", reason="trl is not installed")
datasets = pytest.importorskip("datasets", reason="datasets is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

TEXTS = ["one two three", "a b", "seven eight", "to be or not", "x", "red green blue", "up down", "left right up"]
HERE = {"device_map": "cpu"}
SETTINGS = {
    "per_device_train_batch_size": 4,
    "max_steps": 2,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
}


def language_model(kind: str = "symbolic_attention", **more) -> DualAttnForCausalLM:
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    sizes = {"vocab_size": len(tokenizer), "max_block_size": 64, "pos_enc_type": "RoPE"}
    return DualAttnForCausalLM(config(kind, **sizes, **ends, **more))


def saved(folder: Path, **more) -> str:
    """Model and tokenizer as trainers load them, also a second time, as their reference."""
    language_model(**more).save_pretrained(folder / "model")
    byte_tokenizer().save_pretrained(folder / "model")
    return str(folder / "model")


def trained(trainer: Any, *, of_no_effect: str = "") -> list[float]:
    """Losses of all steps; every parameter that can change has changed."""
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}
    before.pop(of_no_effect, None)
    trainer.train()
    after = dict(trainer.model.named_parameters())
    assert before and all(not torch.equal(tensor, after[name]) for name, tensor in before.items())
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and torch.tensor(losses).isfinite().all()
    return losses


def sft(folder: Path, **more) -> list[float]:
    settings = trl.SFTConfig(
        output_dir=str(folder), **{**SETTINGS, "max_length": None, "train_sampling_strategy": "sequential", **more}
    )
    data = datasets.Dataset.from_dict({"text": TEXTS})
    trainer = trl.SFTTrainer(language_model(), settings, train_dataset=data, processing_class=byte_tokenizer())
    return trained(trainer)


@pytest.mark.slow
def test_supervised_training_packed_or_padded(tmp_path: Path):
    """The same losses, of whole batches, whether rows are padded or laid end to end, with logits or without."""
    padded = sft(tmp_path, loss_type="nll")
    assert sft(tmp_path, loss_type="nll", padding_free=True) == pytest.approx(padded, rel=1e-5)
    assert sft(tmp_path, loss_type="chunked_nll", padding_free=True) == pytest.approx(padded, rel=1e-5)
    packed = sft(tmp_path, loss_type="nll", packing=True, max_length=32, per_device_train_batch_size=1)
    assert packed[0] == pytest.approx(padded[0], rel=0.1)


@pytest.mark.parametrize("adapted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_preferences(adapted: bool, tmp_path: Path):
    """Beside a second model, which the trainer loads by itself, or an adapter."""
    data = {"prompt": ["say "] * 8, "chosen": TEXTS, "rejected": [text[::-1] for text in TEXTS]}
    settings = trl.DPOConfig(output_dir=str(tmp_path / "run"), model_init_kwargs=HERE, **SETTINGS)
    lora = LoraConfig(target_modules=["wq", "wv", "wr"], init_lora_weights=False) if adapted else None
    rows = datasets.Dataset.from_dict(data)
    losses = trained(trl.DPOTrainer(saved(tmp_path), args=settings, train_dataset=rows, peft_config=lora))
    assert adapted or losses[0] == pytest.approx(0.6931, abs=1e-3)  # log 2: the model is its own reference


def test_policies(tmp_path: Path):
    """Group-relative policy optimisation: generated, scored, and trained towards."""
    data = datasets.Dataset.from_dict({"prompt": ["say ", "go ", "be "] * 4})
    lengths = {"num_generations": 4, "max_completion_length": 6}
    settings = trl.GRPOConfig(output_dir=str(tmp_path / "run"), beta=0.1, model_init_kwargs=HERE, **lengths, **SETTINGS)

    def reward(completions: list[str], **more: Any) -> list[float]:
        return [float(sum(map(ord, text)) % 7) for text in completions]

    trained(trl.GRPOTrainer(saved(tmp_path), reward, settings, train_dataset=data))


@pytest.mark.parametrize("tied", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rewards(tied: bool, tmp_path: Path):
    data = datasets.Dataset.from_dict({"chosen": TEXTS, "rejected": [text[::-1] for text in TEXTS]})
    settings = trl.RewardConfig(output_dir=str(tmp_path / "run"), model_init_kwargs=HERE, **SETTINGS)
    trainer = trl.RewardTrainer(saved(tmp_path, tie_weights=tied), settings, train_dataset=data)
    assert type(trainer.model) is DualAttnLMForSequenceClassification
    trained(trainer, of_no_effect="model.layers.norm.bias")  # it adds the same to rewards that are compared
