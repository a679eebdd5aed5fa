"""Example inputs of the library's models, without memory: what a batch of a given length looks like.

Shapes: B batch, L length, C classes or vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..baselines import VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet
from ..encoder_models import (
    DualAttnTransformerEncoder,
    EncoderForMaskedLM,
    EncoderForSequenceClassification,
    TransformerEncoder,
)
from ..functional import OffsetSymbols, RelativeSymbols, cross_entropy
from ..functional.losses import LOGITS_AT_A_TIME
from ..language_models import LanguageModel
from ..seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from ..vision_models import VisionDualAttnTransformer, VisionTransformer
from .registry import Setting


@dataclass(frozen=True)
class Example:
    """A call of a model.

    Attributes:
        args, kwargs: its arguments, on the meta device.
        batch, length: sequences, and tokens of each.
        loss: of the model's output, or None where none is taken.
        context_length: tokens of the source, where there is one.
        kept: tensors that the loss keeps for the backward pass, if it is not taken here.
        scored: whether there is a loss at all.
        logits_at_a_time: most numbers that the loss holds of the logits at a time.
        logits_again: the backward pass computes the output layer again.
        loss_gradients: numbers of the gradients that the loss itself builds up.
        fused_loss: the same call with a loss that never holds all logits, if there is one.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    batch: int = 1
    length: int = 1
    loss: Callable[[Any], Tensor] | None = None
    context_length: int = 0
    kept: tuple[Tensor, ...] = ()
    scored: bool = True
    logits_at_a_time: int | None = None
    logits_again: bool = False
    loss_gradients: int = 0
    fused_loss: Example | None = None

    def loss_bytes(self, logits: Tensor, setting: Setting) -> int:
        """Logits and their gradients, in float32 or wider, as the backward pass of the loss holds them."""
        if not self.scored:
            return 0
        numbers = logits.numel() if self.logits_at_a_time is None else min(logits.numel(), self.logits_at_a_time)
        return (2 * numbers + self.loss_gradients) * setting.wide.itemsize


def example(
    model: nn.Module,
    setting: Setting,
    batch: int,
    length: int | None,
    context_length: int | None,
    inputs: Any,
    fused_loss: bool | None,
) -> Example:
    """The arguments with which a model is called.

    Raises:
        ValueError: if no inputs are given to a model that is none of these, or a length to one that has its own.
    """
    if inputs is not None:
        return _given(inputs, setting, length)
    sizes = Sizes(batch, length, context_length)
    make = next((make for kinds, make in _MAKERS if isinstance(model, kinds)), None)
    if make is None:
        raise ValueError(f"inputs: expected the arguments of a call, since those of {type(model).__name__} are unknown")
    call = make(model, setting, sizes)
    if fused_loss and call.fused_loss is None:
        raise ValueError(f"fused_loss: {type(model).__name__} has none")
    if call.fused_loss is not None and setting.training and fused_loss is not False:
        return call.fused_loss
    return call


@dataclass(frozen=True)
class Sizes:
    """What the user asks for."""

    batch: int
    length: int | None
    context_length: int | None

    def length_within(self, context: int) -> int:
        """The length, by default that of the context."""
        return context if self.length is None else self.length


def _given(inputs: Any, setting: Setting, length: int | None) -> Example:
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    args = args if isinstance(args, tuple) else (args,)
    moved: dict[int, Tensor] = {}  # a tensor that is given twice stays one

    def to_meta(value: Any) -> Any:
        if isinstance(value, RelativeSymbols):
            if isinstance(value, OffsetSymbols):  # whose index is computed where the library is
                return value.with_library(to_meta(value.library))
            return RelativeSymbols(to_meta(value.library), to_meta(value.index))
        if not isinstance(value, Tensor):
            return value
        if id(value) not in moved:
            dtype = setting.param_dtype if value.is_floating_point() else value.dtype
            moved[id(value)] = value.detach().to("meta", dtype).requires_grad_(value.requires_grad)
        return moved[id(value)]

    args, kwargs = tuple(to_meta(item) for item in args), {key: to_meta(item) for key, item in kwargs.items()}
    first = next((item for item in (*args, *kwargs.values()) if isinstance(item, Tensor)), None)
    if first is None or first.dim() < 2:
        raise ValueError("inputs: expected a tensor of shape (batch, length, ...) among them")
    length = first.shape[1] if length is None else length
    return Example(args, kwargs, batch=first.shape[0], length=length, scored=False)


def _images(model: Any, setting: Setting, sizes: Sizes) -> Example:
    rows, columns = model.grid_size
    tokens = 1 + rows * columns
    if sizes.length not in (None, tokens):
        raise ValueError(
            f"length: images of this model have {tokens} tokens, got {sizes.length}; leave it out, or give other "
            "images as inputs"
        )
    height, width = rows * model.patch_height, columns * model.patch_width
    x = torch.empty(sizes.batch, model.image_channels, height, width, device="meta", dtype=setting.param_dtype)
    return Example((x,), batch=sizes.batch, length=tokens, loss=mean_cross_entropy(setting))


def _objects(model: Any, setting: Setting, sizes: Sizes) -> Example:
    if sizes.length not in (None, model.n_objects):
        raise ValueError(f"length: images of this model have {model.n_objects} objects, got {sizes.length}")
    shape = (sizes.batch, model.image_channels, model.image_height, model.image_width)
    x = torch.empty(shape, device="meta", dtype=setting.param_dtype)
    return Example((x,), batch=sizes.batch, length=model.n_objects, loss=mean_cross_entropy(setting))


def _language(model: Any, setting: Setting, sizes: Sizes) -> Example:
    length = sizes.length_within(model.block_size)
    x, targets = _tokens(sizes.batch, length), _tokens(sizes.batch, length)
    common = {"args": (x,), "batch": sizes.batch, "length": length}
    count = torch.empty((), dtype=torch.int64, device="meta")
    fused = Example(
        **common,
        kept=(targets, count),
        logits_at_a_time=LOGITS_AT_A_TIME,
        logits_again=True,
        loss_gradients=model.layers.final_out.weight.numel(),
    )
    return Example(**common, loss=wide_cross_entropy, fused_loss=fused)


def _encoder(model: Any, setting: Setting, sizes: Sizes) -> Example:
    length = sizes.length_within(getattr(model, "encoder", model).block_size)
    return Example((_tokens(sizes.batch, length),), batch=sizes.batch, length=length, scored=False)


def _encoder_with_head(model: Any, setting: Setting, sizes: Sizes) -> Example:
    call = _encoder(model, setting, sizes)
    return Example(call.args, batch=call.batch, length=call.length, loss=wide_cross_entropy)


def _seq2seq(model: Any, setting: Setting, sizes: Sizes) -> Example:
    length = sizes.length_within(model.out_block_size)
    source = min(length, model.in_block_size) if sizes.context_length is None else sizes.context_length

    def entered(spec: Mapping[str, Any], tokens: int) -> Tensor:
        if spec["type"] == "token":
            return _tokens(sizes.batch, tokens)
        return torch.empty(sizes.batch, tokens, spec["dim"], device="meta", dtype=setting.param_dtype)

    if model.loss_type == "mse":
        targets = torch.empty(sizes.batch, length, model.out_dim, device="meta", dtype=setting.param_dtype)
    else:
        targets = _tokens(sizes.batch, length)
    args = entered(model.input_spec, source), entered(model.output_spec, length), targets
    return Example(args, batch=sizes.batch, length=length, context_length=source)


def _tokens(batch: int, length: int) -> Tensor:
    return torch.empty(batch, length, device="meta", dtype=torch.int64)


_MAKERS: tuple[tuple[tuple[type[nn.Module], ...], Callable[[Any, Setting, Sizes], Example]], ...] = (
    ((VisionTransformer, VisionDualAttnTransformer), _images),
    ((VisionAbstractor, VisionCoRelNet, VisionESBN, VisionPrediNet), _objects),
    ((LanguageModel,), _language),
    ((TransformerEncoder, DualAttnTransformerEncoder), _encoder),
    ((EncoderForMaskedLM, EncoderForSequenceClassification), _encoder_with_head),
    ((Seq2SeqTransformer, Seq2SeqDualAttnTransformer), _seq2seq),
)


def mean_cross_entropy(setting: Setting) -> Callable[[Any], Tensor]:
    """PyTorch's cross-entropy of class scores ``(..., C)``, which autocast runs in float32."""

    def loss(output: Any) -> Tensor:
        scores = logits_of(output)
        scores = scores.to(setting.wide) if setting.autocast else scores
        targets = torch.empty(scores.shape[:-1], dtype=torch.int64, device="meta")
        return F.cross_entropy(scores.flatten(0, -2), targets.flatten())

    return loss


def wide_cross_entropy(output: Any) -> Tensor:
    """The library's cross-entropy, in float32 or wider."""
    scores = logits_of(output)
    return cross_entropy(scores, torch.empty(scores.shape[:-1], dtype=torch.int64, device="meta"))


def logits_of(output: Any) -> Tensor:
    """The scores in what a model returns: a tensor, what is called ``logits``, or the first of a tuple."""
    if isinstance(output, Tensor):
        return output
    return output.logits if hasattr(output, "logits") else output[0]
