"""Example inputs of the library's models: a batch of a given length, and the loss that is taken of it.

Shapes: B batch, L length, C classes or vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dual_attention.baselines import VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet, VisionSlots
from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from dual_attention.functional import OffsetSymbols, RelativeSymbols, cross_entropy
from dual_attention.language_models import LanguageModel
from dual_attention.seq2seq_models import Seq2SeqModel
from dual_attention.vision_models import VisionModel

from .result import Device

Loss = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Example:
    """A call of a model.

    Attributes:
        args, kwargs: its arguments.
        batch, length: sequences, and tokens of each.
        context_length: tokens of the source, where there is one.
        loss: of the model's output, or None where none is taken.
        fused_loss: arguments with which the model itself returns a loss without ever holding all logits, if it can.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    batch: int = 1
    length: int = 1
    context_length: int = 0
    loss: Loss | None = None
    fused_loss: dict[str, Any] | None = None


@dataclass(frozen=True)
class InputSizes:
    """Sizes asked for, and the dtype of inputs that are no integers."""

    batch: int
    length: int | None
    context_length: int | None
    dtype: torch.dtype
    device: Device

    def length_within(self, context: int) -> int:
        return context if self.length is None else self.length

    def numbers(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def tokens(self, length: int) -> Tensor:
        return torch.empty(self.batch, length, dtype=torch.int64, device=self.device)

    def like(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of the same form on the device; real numbers in ``dtype``, by default that of these sizes."""
        kind = (dtype or self.dtype) if tensor.is_floating_point() else tensor.dtype
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device=self.device)


def example(model: nn.Module, sizes: InputSizes, inputs: Any = None) -> Example:
    """The call of a model, with the inputs that were given, if any; under a ``FakeTensorMode`` it takes no memory."""
    if inputs is not None:
        return _given(inputs, sizes)
    make = next((make for kinds, make in _MAKERS if isinstance(model, kinds)), None)
    if make is None:
        raise ValueError(f"inputs: expected the arguments of a call, since those of {type(model).__name__} are unknown")
    return make(model, sizes)


def _given(inputs: Any, sizes: InputSizes) -> Example:
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    args = args if isinstance(args, tuple) else (args,)
    made: dict[int, Tensor] = {}  # a tensor that is given twice stays one

    def fake(value: Any) -> Any:
        if isinstance(value, OffsetSymbols):  # whose index is computed where the library is
            return value.with_library(fake(value.library))
        if isinstance(value, RelativeSymbols):
            return RelativeSymbols(fake(value.library), fake(value.index))
        if isinstance(value, tuple):
            return tuple(fake(item) for item in value)
        if not isinstance(value, Tensor):
            return value
        if id(value) not in made:
            made[id(value)] = sizes.like(value).requires_grad_(value.requires_grad)
        return made[id(value)]

    args, kwargs = tuple(fake(item) for item in args), {key: fake(item) for key, item in kwargs.items()}
    first = next((item for item in (*args, *kwargs.values()) if isinstance(item, Tensor)), None)
    if first is None or first.dim() < 2:
        raise ValueError("inputs: expected a tensor of shape (batch, length, ...) among them")
    return Example(args, kwargs, batch=first.shape[0], length=sizes.length_within(first.shape[1]))


def _images(model: Any, sizes: InputSizes) -> Example:
    rows, columns = model.grid_size
    tokens = model.num_prefix_tokens + rows * columns
    if sizes.length not in (None, tokens):
        raise ValueError(
            f"length: images of this model have {tokens} tokens, got {sizes.length}; leave it out, or give other "
            "images as inputs"
        )
    x = sizes.numbers(sizes.batch, model.image_channels, rows * model.patch_height, columns * model.patch_width)
    return Example((x,), batch=sizes.batch, length=tokens, loss=mean_cross_entropy)


def _objects(model: Any, sizes: InputSizes) -> Example:
    if sizes.length not in (None, model.n_objects):
        raise ValueError(f"length: images of this model have {model.n_objects} objects, got {sizes.length}")
    x = sizes.numbers(sizes.batch, model.image_channels, model.image_height, model.image_width)
    return Example((x,), batch=sizes.batch, length=model.n_objects, loss=mean_cross_entropy)


def _language(model: Any, sizes: InputSizes) -> Example:
    length = sizes.length_within(model.block_size)
    fused = {"targets": sizes.tokens(length), "loss_only": True}
    return Example((sizes.tokens(length),), batch=sizes.batch, length=length, loss=wide_cross_entropy, fused_loss=fused)


def _encoder(model: Any, sizes: InputSizes) -> Example:
    length = sizes.length_within(model.block_size)
    return Example((sizes.tokens(length),), batch=sizes.batch, length=length)


def _encoder_with_head(model: Any, sizes: InputSizes) -> Example:
    return replace(_encoder(model.encoder, sizes), loss=wide_cross_entropy)


def _seq2seq(model: Any, sizes: InputSizes) -> Example:
    length = sizes.length_within(model.out_block_size)
    source = min(length, model.in_block_size) if sizes.context_length is None else sizes.context_length

    def entered(spec: Mapping[str, Any], tokens: int) -> Tensor:
        return sizes.tokens(tokens) if spec["type"] == "token" else sizes.numbers(sizes.batch, tokens, spec["dim"])

    is_squared = model.loss_type == "mse"
    targets = sizes.numbers(sizes.batch, length, model.out_dim) if is_squared else sizes.tokens(length)
    args = entered(model.input_spec, source), entered(model.output_spec, length), targets
    return Example(args, batch=sizes.batch, length=length, context_length=source, loss=lambda output: output[1])


_MAKERS: tuple[tuple[Any, Callable[[Any, InputSizes], Example]], ...] = (
    (VisionModel, _images),
    ((VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet, VisionSlots), _objects),
    (LanguageModel, _language),
    (EncoderModel, _encoder),
    ((EncoderForMaskedLM, EncoderForSequenceClassification), _encoder_with_head),
    (Seq2SeqModel, _seq2seq),
)


def _of_scores(cross_entropy: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """A loss of the scores in what a model returns: a tensor, what is called ``logits``, or the first of a tuple."""

    def loss(output: Any) -> Tensor:
        scores = output if isinstance(output, Tensor) else output.logits if hasattr(output, "logits") else output[0]
        return cross_entropy(scores, torch.empty(scores.shape[:-1], dtype=torch.int64, device=scores.device))

    return loss


mean_cross_entropy = _of_scores(F.cross_entropy)
wide_cross_entropy = _of_scores(cross_entropy)
"""The library's own, in float32 or wider."""
