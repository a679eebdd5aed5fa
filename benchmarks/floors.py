"""Fewest multiply-adds of the modules that are measured, as ``dat estimate`` counts them: no masked pair, and of every
exact form the cheapest. The modules run on fake tensors, so the largest case costs neither time nor memory.

A training step is three times the forward products, less those for gradients that nobody needs; weights that are
computed again in the backward pass are not part of the floor. Symmetric relations are projected once: their keys are
their queries, though the layers compute both.
"""

import functools
import json
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.subjects import build
from benchmarks.work import Draw, Work
from dat.estimate import estimate
from dat.estimate.flops import RelationalSizes, pairs

OUTPUT = "output"
"""Heading under which an estimate has the output layer of a language model."""


def multiply_adds(work: Work, quantity: str) -> int:
    """Of one call; of generation for each new token, where only new ones are scored.

    Of one token after a context: what a causal pass takes more with it than without. Of reading: none.
    """
    if work.decoding is not None and work.decoding.only_read:
        return 0
    if work.decoding is not None:
        now, before = (sum(forward_flops(of_length(work, work.decoding.context + more)).values()) for more in (1, 0))
        return work.decoding.batch * (now - before) // 2
    if work.generation is None:
        forward = sum(forward_flops(work).values()) // 2
        return 3 * forward - without_gradient(work) if quantity == "step" else forward
    tokens = work.generation.start + work.generation.new
    found = forward_flops(of_length(work, tokens))
    found[OUTPUT] = found[OUTPUT] * work.generation.new // tokens
    return sum(found.values()) // 2 // work.generation.new


def of_length(work: Work, tokens: int) -> Work:
    """A language model's work on that many tokens."""
    return replace(work, inputs={"x": replace(work.inputs["x"], shape=(work.inputs["x"].shape[0], tokens))})


def forward_flops(work: Work) -> dict[str, int]:
    """Least operations of a forward pass by part."""
    if work.subject == "operation":
        return {"operation": operation(work)}
    found = dict(_estimated(json.dumps(replace(work, impl=None, generation=None, decoding=None).to_json())))
    if work.subject.startswith("llama"):  # transformers writes the causal mask of fake tensors out
        batch, n = work.inputs["x"].shape[:2]
        masked = batch * (n * n - pairs(n, n, causal=True))
        found["masked"] = -4 * masked * work.kwargs["hidden_size"] * work.kwargs["num_hidden_layers"]
    return found


@functools.cache
def _estimated(text: str) -> dict[str, int]:
    work = Work.from_json(json.loads(text))
    with torch.device("meta"):
        module = build(work.subject, work.kwargs)
        inputs = {name: given(draw) for name, draw in work.inputs.items()}
    parts = estimate(module, device="cpu", training=False, inputs=inputs).parts
    return {part.name: part.least_flops for part in parts}


def given(draw: Draw) -> Tensor:
    """A tensor like the input, which :func:`estimate` takes only the shape and dtype of."""
    return torch.empty(draw.shape, dtype=torch.float32 if draw.below is None else torch.int64)


def operation(work: Work) -> int:
    """Only the operation, with W_r."""
    batch, heads, n, width = work.inputs["q"].shape
    m, relations, p = work.inputs["w"].shape[1:]
    head_width = work.inputs["w_r"].shape[1]
    allowed = pairs(n, m, causal=work.kwargs["causal"])
    with_symbols = min(n * work.inputs["symbols"].shape[0], allowed) if work.kwargs.get("relative") else allowed
    maps = 2 * batch * n * heads * relations * head_width
    return maps + RelationalSizes(batch, heads, allowed, with_symbols, width, head_width, relations, p).least()


def without_gradient(work: Work) -> int:
    """Products of weights with the frozen symbols of symbolic attention, which are asked for by every layer."""
    symbols = work.kwargs.get("symbols") or {}
    if symbols.get("trainable_symbols", True):
        return 0
    batch, n, d_model = work.inputs["x"].shape
    return batch * n * symbols["n_symbols"] * d_model * work.kwargs["n_layers"]
