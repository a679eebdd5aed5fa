"""Small models for transformers."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
)

from dual_attention.hf import (
    DualAttnConfig,
    DualAttnEncoderConfig,
    DualAttnForCausalLM,
    DualAttnForImageClassification,
    DualAttnForMaskedLM,
    DualAttnForSequenceClassification,
    DualAttnVisionConfig,
)
from tests.support.language import COMMON, SYMBOLS, VOCAB, WIDTH
from tests.support.tensors import moved

KINDS = (*SYMBOLS, "transformer")


def arguments(kind: str, **more):
    """Arguments of a configuration: a DAT with that symbol mechanism, or a Transformer."""
    if kind == "transformer":
        return {**COMMON, "model": "transformer", "n_heads": 4, **more}
    heads = {"n_heads_sa": 2, "n_heads_ra": 2}
    return {**COMMON, **heads, "symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind], **more}


def config(kind: str = "symbolic_attention", **more) -> DualAttnConfig:
    return DualAttnConfig(**arguments(kind, **more))


def matters(model):
    """The model in evaluation mode, with parameters larger than they are drawn, so that nothing is near zero."""
    return moved(model, 0.2)


def causal(kind: str = "symbolic_attention", **more) -> DualAttnForCausalLM:
    return matters(DualAttnForCausalLM(config(kind, **more)))


def encoder_config(kind: str = "symbolic_attention", **more) -> DualAttnEncoderConfig:
    return DualAttnEncoderConfig(**{**arguments(kind), "n_token_types": 2, **more})


def masked(kind: str = "symbolic_attention", **more) -> DualAttnForMaskedLM:
    return matters(DualAttnForMaskedLM(encoder_config(kind, **more)))


def classifier(kind: str = "symbolic_attention", **more) -> DualAttnForSequenceClassification:
    return matters(DualAttnForSequenceClassification(encoder_config(kind, **more)))


def vision_config(kind: str = "dat", **more) -> DualAttnVisionConfig:
    sizes = {"image_shape": (3, 8, 12), "patch_size": (4, 4), "d_model": WIDTH, "n_layers": 2, "dff": 20}
    heads = {"n_heads": 4} if kind == "transformer" else {"n_heads_sa": 2, "n_heads_ra": 2}
    return DualAttnVisionConfig(**{**sizes, **heads, "model": kind, "num_labels": 5, **more})


def vision(kind: str = "dat", **more) -> DualAttnForImageClassification:
    return matters(DualAttnForImageClassification(vision_config(kind, **more)))


def tokens(*shape: int) -> torch.Tensor:
    """None of them 0, which transformers' generation takes for padding if no mask says otherwise."""
    return torch.randint(1, VOCAB, shape)


IMAGES = (2, 3, 12, 8)

MODELS = {
    "causal": (causal, AutoModelForCausalLM),
    "masked": (masked, AutoModelForMaskedLM),
    "classifier": (classifier, AutoModelForSequenceClassification),
    "vision": (vision, AutoModelForImageClassification),
}
"""By name: how to make one, and the Auto class that loads it."""


GREEDY = {"do_sample": False, "pad_token_id": 0}
"""Arguments of ``generate`` for the likeliest tokens."""


def inputs(name: str) -> torch.Tensor:
    return torch.randn(*IMAGES) if name == "vision" else tokens(2, 7)


def assert_same(again, model, x: torch.Tensor) -> None:
    """The same weights to the bit. Outputs may differ by rounding: products depend on where in memory weights lie."""
    weights = again.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(again(x).logits, model(x).logits)


def byte_tokenizer(**how: Any) -> PreTrainedTokenizerFast:
    """Bytes, and special tokens: by default an end of text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    how = how or {"eos_token": "<end>", "pad_token": "<end>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"padding_side": "left", **how})
