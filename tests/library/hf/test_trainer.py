"""Training through transformers' Trainer is training."""

from pathlib import Path

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from peft.utils.other import fsdp_auto_wrap_policy
from torch import Tensor
from transformers import Trainer, TrainingArguments

from dual_attention.hf import DualAttnForCausalLM, DualAttnForImageClassification, DualAttnForMaskedLM
from dual_attention.transformer_blocks import EncoderSteps
from tests.library.hf.models import MODELS, config, encoder_config, vision_config
from tests.support.language import VOCAB

STEPS, BATCH, LENGTH = 20, 4, 12


def rows() -> Tensor:
    """Texts with something to learn: each token is the one before it plus a step of its row."""
    starts, steps = torch.randint(VOCAB, (STEPS * BATCH, 1)), torch.randint(1, 4, (STEPS * BATCH, 1))
    return (starts + steps * torch.arange(LENGTH)) % VOCAB


def trainer_for(model, examples: list[dict], folder: Path, **more) -> Trainer:
    """AdamW at a constant rate and clipped gradients, in the order of the data."""
    arguments = {
        "max_steps": STEPS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "train_sampling_strategy": "sequential",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        **more,
    }
    settings = TrainingArguments(output_dir=str(folder), **arguments)
    return Trainer(model, settings, train_dataset=examples, eval_dataset=examples[:8])


def trained(model, examples: list[dict], folder: Path, **more) -> list[float]:
    """The losses of all steps."""
    trainer = trainer_for(model, examples, folder, **more)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def decayed(model) -> list[dict]:
    """Parameters as Trainer groups them: no decay of biases and norms."""
    plain = [name for name, _ in model.named_parameters() if name.endswith("bias") or "norm" in name]
    named = dict(model.named_parameters())
    return [
        {"params": [p for name, p in named.items() if name not in plain], "weight_decay": 0.01},
        {"params": [named[name] for name in plain], "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("kind", ["symbolic_attention", "transformer"])
def test_trainer_and_a_plain_loop_reach_the_same_losses(kind: str, tmp_path: Path):
    """From the same seed, with the same data and optimiser, at every step to 1e-5."""
    made = config(kind, pos_enc_type="RoPE")
    torch.manual_seed(0)
    model = DualAttnForCausalLM(made)
    texts = rows()
    found = trained(model, [{"input_ids": row, "labels": row} for row in texts], tmp_path)

    torch.manual_seed(0)
    plain = made.language_config().build().train()
    optimiser = torch.optim.AdamW(decayed(plain), lr=3e-3)
    losses = []
    for batch in texts.split(BATCH):
        loss = plain.loss(batch[:, :-1], batch[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    assert len(found) == STEPS and losses[-1] < losses[0] - 0.3
    torch.testing.assert_close(torch.tensor(found), torch.tensor(losses), atol=1e-5, rtol=0)
    for (name, ours), theirs in zip(plain.named_parameters(), model.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0, msg=lambda text, name=name: f"{name}: {text}")


def test_smoothed_labels_are_of_the_next_token(tmp_path: Path):
    """The Trainer computes this loss by itself, from the logits; with hardly any smoothing it is the usual one."""
    examples = [{"input_ids": row, "labels": row} for row in rows()]
    losses = []
    for smoothing in (0.0, 1e-6):
        torch.manual_seed(0)
        more = {"max_steps": 1, "label_smoothing_factor": smoothing}
        losses.append(trained(DualAttnForCausalLM(config()), examples, tmp_path, **more)[0])
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_accumulated_and_checkpointed(tmp_path: Path):
    """Batches in parts, recomputed activations and no logits change nothing, labels of any number in a part."""
    texts = rows()
    examples = []
    for i, row in enumerate(texts):
        labels = row.clone()
        labels[: i % 5] = -100
        examples.append({"input_ids": row, "labels": labels})
    losses = []
    for parts in (1, 2):
        torch.manual_seed(0)
        model = DualAttnForCausalLM(config(skip_logits_in_training=parts == 2))
        if parts == 2:
            model.gradient_checkpointing_enable()
        batch = {"per_device_train_batch_size": BATCH // parts, "gradient_accumulation_steps": parts, "max_steps": 8}
        losses.append(trained(model, examples, tmp_path, **batch))
    torch.testing.assert_close(*map(torch.tensor, losses), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["masked", "images"])
def test_other_models_learn(kind: str, tmp_path: Path):
    torch.manual_seed(0)
    if kind == "masked":
        model = DualAttnForMaskedLM(encoder_config(dropout_rate=0.0))
        examples = []
        for row in rows():
            hidden = torch.rand(LENGTH) < 0.3
            hidden[0] = True
            examples.append({"input_ids": row.masked_fill(hidden, 0), "labels": row.masked_fill(~hidden, -100)})
    else:
        model = DualAttnForImageClassification(vision_config())
        classes = torch.randint(5, (STEPS * BATCH,))
        images = torch.randn(len(classes), 3, 12, 8) * 0.1 + torch.randn(5, 3, 12, 8)[classes]
        examples = [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, classes, strict=True)]
    losses = trained(model, examples, tmp_path)
    assert sum(losses[-5:]) < sum(losses[:5])


def test_evaluation_and_saved_runs(tmp_path: Path):
    """Trainer evaluates, saves and goes on from what it saved."""
    torch.manual_seed(0)
    examples = [{"input_ids": row, "labels": row} for row in rows()]

    def trainer() -> Trainer:
        model = DualAttnForCausalLM(config())
        return trainer_for(model, examples, tmp_path, max_steps=4, save_strategy="steps", save_steps=2)

    first = trainer()
    first.train()
    loss = first.evaluate()["eval_loss"]
    model = DualAttnForCausalLM.from_pretrained(tmp_path / "checkpoint-4")
    texts = torch.stack([example["input_ids"] for example in examples[:8]])
    with torch.no_grad():
        assert float(model(texts, labels=texts).loss) == pytest.approx(loss, abs=1e-5)
    second = trainer()
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(list(first.model.parameters()), list(second.model.parameters()))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["dat", "transformer"])
def test_fsdp_wraps_the_blocks(name: str, kind: str):
    """accelerate, which is also the Trainer's, and PEFT refuse a class that the model does not have."""
    model = MODELS[name][0](kind if name == "vision" or kind == "transformer" else "symbolic_attention")
    blocks = {type(part) for part in model.modules() if isinstance(part, EncoderSteps)}
    assert model._no_split_modules == {block.__name__ for block in blocks} and len(blocks) == 1
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap")
    plugin.set_auto_wrap_policy(model)
    for policy in (plugin.auto_wrap_policy, fsdp_auto_wrap_policy(model)):
        (block,) = blocks
        wrapped = [part for part in model.modules() if policy(part, recurse=False, nonwrapped_numel=1)]
        assert [part for part in wrapped if type(part) is block] == [p for p in model.modules() if type(p) is block]
