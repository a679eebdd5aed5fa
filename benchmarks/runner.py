"""One side of a comparison in this process: its module and the calls to measure."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks.decoding import Held, bytes_of_weights, filled
from benchmarks.measuring import peak_memory, replay, seconds_per_call
from benchmarks.subjects import build, free_workspace, library
from benchmarks.work import Draw, Settings, Work

Quantity = Literal["forward", "step", "generate", "decode"]


def draw_inputs(draws: Mapping[str, Draw]) -> dict[str, Tensor]:
    """Inputs from the global generator, on the CPU: float32, or integers."""
    drawn = {}
    for name, draw in draws.items():
        drawn[name] = torch.randn(draw.shape) if draw.below is None else torch.randint(draw.below, draw.shape)
    return drawn


@contextlib.contextmanager
def implementation(impl: str | None) -> Iterator[None]:
    """Let this library compute relational attention by ``impl``; None for its own choice."""
    if impl is None:
        yield
        return
    choice = library("functional.relational.choice")
    choose = choice.choose
    with mock.patch.object(choice, "choose", lambda x, _, **told: choose(x, impl, **told)):
        yield


@contextlib.contextmanager
def as_told(work: Work) -> Iterator[None]:
    """Let this library compute as a side does."""
    with implementation(work.impl):
        if not work.native:
            yield
            return
        library("native").enable()
        try:
            yield
        finally:
            library("native").disable()


class Runner:
    """A module with inputs, in the dtype and on the device of the settings.

    Args:
        tensors: ``state`` (of the module), ``inputs`` and ``cotangent`` (the gradient that a step begins with, of the
            shape of the output); any may be missing: then the module keeps the weights it was built with.
    """

    def __init__(self, work: Work, settings: Settings, tensors: Mapping[str, Any]) -> None:
        torch.set_num_threads(settings.threads)
        torch.set_float32_matmul_precision("highest")
        self.work, self.device, self.dtype = work, settings.device, getattr(torch, settings.dtype)
        module = build(work.subject, work.kwargs)
        if "state" in tensors:
            module.load_state_dict(tensors["state"], strict=True)
        self.module: nn.Module = module.to(self.device, self.dtype).train()
        if work.compiled:
            torch.compiler.reset()  # of one function PyTorch compiles only so many forms, whatever model they are for
            model: Any = self.module.model
            model.forward = torch.compile(model.forward)
        self.inputs: dict[str, Tensor] = {}
        for name, value in tensors["inputs"].items():
            moved = value.to(self.device, self.dtype if value.is_floating_point() else None)
            self.inputs[name] = moved.requires_grad_(moved.is_floating_point() and work.inputs[name].gradient)
        cotangent = tensors.get("cotangent")
        self.cotangent: Tensor | None = None if cotangent is None else cotangent.to(self.device, self.dtype)

    def forward(self) -> Tensor:
        """The output, without anything kept for a backward pass."""
        with torch.no_grad(), as_told(self.work):
            return self.module(**self.inputs)

    def step(self) -> Tensor:
        """Forward and backward; gradients of all parameters and real inputs are then in place."""
        assert self.cotangent is not None
        self.forget()
        with as_told(self.work):
            output = self.module(**self.inputs)
            output.backward(self.cotangent)
        return output

    def generate(self) -> Tensor:
        """Greedy continuation of the prompt."""
        assert self.work.generation is not None
        return self.continuation(self.work.generation.start, self.work.generation.new)

    def continuation(self, start: int, new: int) -> Tensor:
        """``new`` tokens after the first ``start``."""
        self.module.eval()
        prompt = self.inputs["x"][:, :start]
        with torch.no_grad(), as_told(self.work):
            tokens: Tensor = getattr(self.module, "generate")(prompt, new)  # noqa: B009 (not of every module)
        if tokens.shape[1] != start + new:
            raise RuntimeError(f"expected {start + new} tokens from generation, got {tokens.shape[1]}")
        return tokens

    def decode(self) -> Tensor:
        """Scores ``(B, 1, vocabulary)`` of one token after the context, which stays in the cache as it is.

        Or a sum, of a side that only reads.
        """
        decoding, x = self.work.decoding, self.inputs["x"]
        assert decoding is not None
        if decoding.only_read:
            return self._numbers.sum()
        with torch.no_grad(), as_told(self.work):
            if not decoding.cached:
                return self.module.eval()(x)[:, -1:].expand(decoding.batch, -1, -1)
            return self._held.try_one(x[:, -1:].expand(decoding.batch, -1))

    @functools.cached_property
    def _held(self) -> Held:
        assert self.work.decoding is not None
        with self._uncompiled():
            return filled(self.work.subject, self.module.eval().model, self.inputs["x"], self.work.decoding)

    @functools.cached_property
    def _numbers(self) -> Tensor:
        """Of a side that only reads: as many as one token needs. The cache, which told how many, is given up."""
        numbers = torch.ones(self._bytes_of_token // self.dtype.itemsize, dtype=self.dtype, device=self.device)
        del self._held
        return numbers

    @functools.cached_property
    def _bytes_of_token(self) -> int:
        assert self.work.decoding is not None
        return bytes_of_weights(self.module, self.work.decoding.context) + self._held.nbytes()

    def _uncompiled(self) -> contextlib.AbstractContextManager[Any]:
        """Context in which a compiled model is called as if it were not."""
        return torch.compiler.set_stance("force_eager") if self.work.compiled else contextlib.nullcontext()

    def forget(self) -> None:
        """Release all gradients."""
        for tensor in (*self.module.parameters(), *self.inputs.values()):
            tensor.grad = None

    def release(self) -> None:
        """Give back what is kept beside weights and inputs."""
        self.forget()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _call(self, quantity: Quantity) -> Callable[[], Tensor]:
        return getattr(self, quantity)

    def values(self, quantity: Quantity) -> dict[str, Tensor]:
        """Results, and gradients of a step, which must agree between sides of one function; on the CPU."""
        if quantity == "generate":
            return self._values_of_generation()
        results = {"output": self._call(quantity)().detach()}
        if quantity == "step":
            leaves = {**dict(self.module.named_parameters()), **self.inputs}
            for name, leaf in leaves.items():
                if leaf.requires_grad:
                    results[f"gradient of {name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        results = {name: value.detach().cpu() for name, value in results.items()}
        self.release()
        return results

    def _values_of_generation(self) -> dict[str, Tensor]:
        assert self.work.generation is not None
        check, new = self.work.generation.check, self.work.generation.checked
        with torch.no_grad(), as_told(self.work), self._uncompiled():
            scores = self.module(self.inputs["x"][:, :check])[:, -1]
        results = {"scores of the last token of the prompt": scores.cpu()}
        if self.dtype == torch.float32:  # in lower precision the best two tokens may change places
            results["tokens"] = self.continuation(check, new)[:, check:].cpu()
        return results

    def sample(self, quantity: Quantity, number: int) -> float:
        """Mean seconds of ``number`` calls; of generation, for each new token.

        A call that is timed with others comes after one that is not: it finds caches and threads as the other sides
        left them. For a single long call that makes no difference, except on a GPU, where memory is given back
        after each sample for the other sides to have, and taken anew. A step on a GPU is timed as the replay of a CUDA
        graph, if it can be captured.
        """
        call: Callable[[], object] = self._call(quantity)
        if number > 1 or self.device == "cuda":
            call()
        if quantity == "step" and self.device == "cuda":
            call = replay(call) or call
        seconds = seconds_per_call(call, number, self.device)
        self.release()
        return seconds / self.work.generation.new if self.work.generation and quantity == "generate" else seconds

    def memory(self, quantity: Quantity) -> dict[str, int | None]:
        """Peak bytes of a call beyond weights and inputs, see :func:`peak_memory`; gradients are part of the peak."""
        call = self._call(quantity)
        self.forget()
        # What libraries and the backward pass's threads set up once is not the module's.
        square = torch.zeros(64, 64, device=self.device, dtype=self.dtype, requires_grad=True)
        (square @ square).softmax(-1).sum().backward()

        def once() -> None:
            call()
            self.forget()
            free_workspace()

        free_workspace()
        return peak_memory(once, self.device)

    def traffic(self, quantity: Quantity) -> int:
        """Fewest bytes that a call can move: what comes from outside and is left behind, each once.

        Forward: weights, inputs and output. A step: weights twice (forward and backward), gradients of weights and
        inputs, inputs, output and its gradient. Nothing between layers is counted. Generation: weights, for each token.
        One token: the weights that it needs, and what the cache holds.
        """
        if self.work.decoding is not None:
            return self._bytes_of_token
        weights = size(*self.module.parameters())
        if quantity == "generate":
            return weights
        inputs, output = size(*self.inputs.values()), size(self.cotangent)
        if quantity == "forward":
            return weights + inputs + output
        leaves = [*self.module.parameters(), *self.inputs.values()]
        return 2 * weights + inputs + 2 * output + size(*(leaf for leaf in leaves if leaf.requires_grad))


def size(*tensors: Tensor | None) -> int:
    """Bytes of tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
