"""An estimate: its figures, and how they read."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from .units import aligned, count, dtype_name, flops, nbytes

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Part:
    """Figures of one part of a model.

    Attributes:
        name: for instance ``"feed-forward"``.
        parameters, trainable: numbers; what several parts share belongs to the first.
        forward_flops, backward_flops: operations of the whole batch, as they are run.
        least_flops: of the forward pass, if no masked pair were computed and every exact form the cheapest.
        activation_bytes: kept for the backward pass.
    """

    name: str
    parameters: int = 0
    trainable: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    least_flops: int = 0
    activation_bytes: int = 0


@dataclass(frozen=True)
class Estimate:
    """Parameters, arithmetic and memory of a model for one batch; times follow from :meth:`time`.

    Attributes:
        model: its name.
        batch, length: sequences, and tokens of each; of an encoder-decoder model, tokens of the target.
        context_length: tokens of the source, or 0.
        dtype, param_dtype: of products and activations, and of parameters.
        device, training, checkpointing: what was assumed.
        parts: figures by part.
        parameter_tensors: number of tensors that learn.
        cast_bytes: copies of the parameters in ``dtype``, under autocast.
        transient_bytes: what a training step needs at its worst moment besides parameters, gradients, optimiser state
            and what is kept for the backward pass.
        inference_bytes: activations at the worst moment of a forward pass without gradients.
        cached: what decoding keeps of an example, for each layer: bytes a token, and a window or None.
        context_cached: bytes kept of each token of the context, all layers together.
        traced_on: the device whose kernels were traced.
        notes: what is approximate or unknown, and why.
        beside_plain: least arithmetic of the layers of a language model with relational heads, as multiples of a plain
            Transformer's as large: by the linear form, and with relations per pair.
    """

    model: str
    batch: int
    length: int
    context_length: int
    dtype: torch.dtype
    param_dtype: torch.dtype
    device: Device
    training: bool
    checkpointing: bool
    parts: tuple[Part, ...]
    parameter_tensors: int
    cast_bytes: int
    transient_bytes: int
    inference_bytes: int
    cached: tuple[tuple[int, int | None], ...]
    context_cached: int
    traced_on: Device
    notes: tuple[str, ...]
    beside_plain: tuple[float, float] | None = None

    def _sum(self, name: str) -> int:
        return sum(getattr(part, name) for part in self.parts)

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return self.batch * self.length

    @property
    def parameters(self) -> int:
        """Parameters, shared ones counted once."""
        return self._sum("parameters")

    @property
    def trainable_parameters(self) -> int:
        """Parameters that learn."""
        return self._sum("trainable")

    @property
    def non_embedding_parameters(self) -> int:
        """Parameters without the embeddings of tokens, patches and positions; a tied output matrix is an embedding."""
        return self.parameters - sum(part.parameters for part in self.parts if part.name == "embeddings")

    @property
    def forward_flops(self) -> int:
        """Operations of a forward pass of the batch."""
        return self._sum("forward_flops")

    @property
    def backward_flops(self) -> int:
        """Operations of a backward pass of the batch, with what is computed again; 0 without training."""
        return self._sum("backward_flops")

    @property
    def step_flops(self) -> int:
        """Forward and backward."""
        return self.forward_flops + self.backward_flops

    @property
    def least_step_flops(self) -> int:
        """Forward and backward if no masked pair were computed, nothing twice, and every exact form the cheapest."""
        return self._sum("least_flops") * (3 if self.training else 1)

    @property
    def forward_flops_per_token(self) -> float:
        """Operations of a forward pass for each token."""
        return self.forward_flops / self.tokens

    @property
    def backward_flops_per_token(self) -> float:
        """Operations of a backward pass for each token."""
        return self.backward_flops / self.tokens

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters."""
        return self.parameters * self.param_dtype.itemsize

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients."""
        return self.trainable_parameters * self.param_dtype.itemsize if self.training else 0

    @property
    def optimizer_bytes(self) -> int:
        """Bytes of the state of Adam or AdamW: two numbers for each parameter that learns, and counts of steps."""
        if not self.training:
            return 0
        return 2 * self.gradient_bytes + 4 * self.parameter_tensors  # each with a count of steps in float32

    @property
    def activation_bytes(self) -> int:
        """Bytes kept between forward and backward pass."""
        return self._sum("activation_bytes")

    @property
    def training_bytes(self) -> int:
        """Bytes of a training step at its worst moment, gradients of all parameters and AdamW's state included."""
        held = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes + self.cast_bytes
        return held + self.activation_bytes + self.transient_bytes

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes that decoding keeps of each token of an example, as long as no window drops any."""
        return sum(nbytes for nbytes, _ in self.cached)

    def cache_bytes(self, length: int | None = None, batch: int | None = None) -> int:
        """Bytes that decoding keeps after ``length`` tokens of ``batch`` examples, by default those of the estimate.

        With a window the last ``window - 1`` tokens are kept; an encoder-decoder model keeps its context, too.
        """
        length = self.length if length is None else length
        held = sum(n * (length if window is None else min(length, window - 1)) for n, window in self.cached)
        held += self.context_cached * self.context_length
        return held * (self.batch if batch is None else batch)

    def time(self, rate: float, utilisation: float = 1.0, *, tokens: float | None = None, devices: int = 1) -> float:
        """Seconds, if only arithmetic took time.

        Args:
            rate: operations a second of one device, for instance ``990e12``.
            utilisation: share of that rate that is reached, in (0, 1].
            tokens: how many to process; by default one step's.
            devices: that share the work evenly.

        Raises:
            ValueError: if a number is out of range.
        """
        for name, value in (("rate", rate), ("devices", devices), ("tokens", 1 if tokens is None else tokens)):
            if not value > 0:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        if not 0 < utilisation <= 1:
            raise ValueError(f"utilisation: expected a number in (0, 1], got {utilisation}")
        steps = 1.0 if tokens is None else tokens / self.tokens
        return steps * self.step_flops / (rate * utilisation * devices)

    def to_dict(self) -> dict[str, Any]:
        """All figures under their names, for JSON."""
        names = (
            "model batch length context_length device training checkpointing parameters trainable_parameters "
            "non_embedding_parameters forward_flops backward_flops step_flops least_step_flops "
            "forward_flops_per_token backward_flops_per_token parameter_bytes gradient_bytes optimizer_bytes "
            "cast_bytes activation_bytes transient_bytes training_bytes inference_bytes cache_bytes_per_token"
        )
        figures: dict[str, Any] = {name: getattr(self, name) for name in names.split()}
        figures["cache_bytes"] = self.cache_bytes()
        figures["least_beside_plain"] = self.beside_plain
        for name in ("dtype", "param_dtype"):
            figures[name] = dtype_name(getattr(self, name))
        figures["traced_on"], figures["notes"] = self.traced_on, list(self.notes)
        figures["parts"] = {part.name: {k: v for k, v in vars(part).items() if k != "name"} for part in self.parts}
        return figures

    def __str__(self) -> str:
        return _report(self)


EXCLUDED = (
    "Counted: matrix products, a multiply-add as two operations, and tensors.",
    "Not counted: elementwise work, norms, softmax, and what an allocator adds.",
)


def _report(estimate: Estimate) -> str:
    """Tables of the parts, of memory and of arithmetic."""
    e = estimate
    context = f" after {e.context_length:,}" if e.context_length else ""
    precision = dtype_name(e.dtype)
    if e.param_dtype != e.dtype:
        precision += f" (autocast; parameters in {dtype_name(e.param_dtype)})"
    passes = "training" if e.training else "inference"
    if e.checkpointing and e.training:
        passes += " with checkpointed blocks"
    title = f"{e.model}: {e.batch:,} x {e.length:,} tokens{context}, {passes}, {precision}, {e.device}"
    return "\n".join([title, "", *parts_table(e), "", *aligned(cost_figures(e)), "", *EXCLUDED, *e.notes])


def parts_table(e: Estimate) -> list[str]:
    """One line for each part, and their sum."""
    table = [["part", "parameters", "forward/token", "backward/token", "activations"]]
    total = Part("total", e.parameters, 0, e.forward_flops, e.backward_flops, 0, e.activation_bytes)
    for part in (*e.parts, total):
        passes = [flops(number / e.tokens) for number in (part.forward_flops, part.backward_flops)]
        table.append([part.name, count(part.parameters), *passes, nbytes(part.activation_bytes)])
    return aligned([line if e.training else line[:3] for line in table], right=range(1, 5))


def cost_figures(e: Estimate) -> list[tuple[str, str]]:
    """Figures of the whole model by name."""
    frozen = e.parameters - e.trainable_parameters
    found = [("parameters", f"{e.parameters:,}")]
    if frozen:
        found.append(("  frozen", f"{frozen:,}"))
    found.append(("  without embeddings", f"{e.non_embedding_parameters:,}"))
    found.append(("arithmetic of a step" if e.training else "arithmetic", flops(e.step_flops)))
    found.append(("  at least", flops(e.least_step_flops)))
    if e.beside_plain is not None:
        linear, per_pair = e.beside_plain
        words = f"{linear:.2f} times a plain Transformer's at least, {per_pair:.2f} with relations per pair"
        found.append(("  layers", words))
    if e.training:
        found += [
            ("memory, training", nbytes(e.training_bytes)),
            ("  parameters", nbytes(e.parameter_bytes)),
            ("  gradients", nbytes(e.gradient_bytes)),
            ("  AdamW", nbytes(e.optimizer_bytes)),
            ("  activations", nbytes(e.activation_bytes)),
            *([("  parameters, cast", nbytes(e.cast_bytes))] if e.cast_bytes else []),
            ("  transient", nbytes(e.transient_bytes)),
        ]
    found += [
        ("memory, inference", nbytes(e.parameter_bytes + e.inference_bytes)),
        ("  parameters", nbytes(e.parameter_bytes)),
        ("  activations", nbytes(e.inference_bytes)),
    ]
    if e.cached:
        found.append(("cache, a token", nbytes(e.cache_bytes_per_token)))
        found.append(("cache, the batch", nbytes(e.cache_bytes())))
    return found
