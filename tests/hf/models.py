"""Small models for transformers."""

from __future__ import annotations

import torch

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
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


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
