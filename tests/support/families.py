"""A small model of every family in float64, with every symbol mechanism, and what it is called with."""

from typing import Any

import torch
from torch import Tensor

from dual_attention.vision_models import VisionTransformer
from tests.library.test_vision_models import COMMON as IMAGE_SIZES
from tests.library.test_vision_models import SYMBOLS as IMAGE_SYMBOLS
from tests.library.test_vision_models import dual
from tests.support import encoders, language, seq2seq
from tests.support.tensors import float64, normal

Model = tuple[Any, tuple[Tensor, ...], dict[str, Tensor]]
"""A model, its inputs, and masks."""


def of_language(kind: str, **more: Any) -> Model:
    real = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    return language.lm(kind, **more), (language.tokens(2, 6), language.tokens(2, 6)), {"padding_mask": real}


def of_text(kind: str, **more: Any) -> Model:
    real = torch.arange(encoders.LONGEST) < torch.tensor([[2], [10], [5]])
    return encoders.build(kind, **more), (encoders.tokens(),), {"padding_mask": real}


def of_pairs(kind: str, **more: Any) -> Model:
    """Arguments of blocks are those of both sides."""
    blocks = {k: more.pop(k) for k in ("n_heads_sa", "n_heads_ra", "ra_kwargs", "dropout_rate") if k in more}
    x, y = seq2seq.words()
    return seq2seq.build(kind, encoder=blocks, decoder=blocks, **more), (x, y, y), {}


def of_images(kind: str, **more: Any) -> Model:
    model = VisionTransformer(**IMAGE_SIZES | more, n_heads=2) if kind == "plain" else dual(kind, **more)
    return float64(model), (normal(2, 3, 8, 12),), {}


FAMILIES = {
    "language": (of_language, language.KINDS),
    "text": (of_text, encoders.KINDS),
    "pairs": (of_pairs, seq2seq.KINDS),
    "images": (of_images, ("plain", *IMAGE_SYMBOLS)),
}
PLAIN = ("plain", "transformer", *seq2seq.ABSTRACTORS)
CASES = [(name, kind) for name, (_, kinds) in FAMILIES.items() for kind in kinds]


def build(family: str, kind: str, **more: Any) -> Model:
    return FAMILIES[family][0](kind, **more)
