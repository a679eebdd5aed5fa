"""The least work of the modules that are measured, against torch's own count of what runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cases import Request
from benchmarks.floors import multiply_adds
from benchmarks.runner import Runner, draw_inputs, implementation
from benchmarks.suites import crossing, layers, short
from benchmarks.work import Draw, Generation, Settings, Work


def counted(work: Work, quantity: str) -> int:
    """Multiply-adds of products of matrices that a call makes; attention as two products, not fused."""
    torch.manual_seed(0)
    tensors: dict = {"inputs": draw_inputs(work.inputs)}
    runner = Runner(work, Settings(), tensors)
    runner.cotangent = torch.ones_like(runner.forward())
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, implementation(work.impl):
        # The counter's hooks want gradients, so this forward pass keeps what a backward pass would need.
        runner.step() if quantity == "step" else runner.module(**runner.inputs)
    return counter.get_total_flops() // 2


def without_mask(work: Work) -> Work:
    """A causal mask halves the least work, but not what products of whole matrices do."""
    kwargs = {**work.kwargs}
    for name in ("block", "decoder"):
        if name in kwargs:
            kwargs[name] = {**kwargs[name], "causal": False}
    if "causal" in kwargs:
        kwargs["causal"] = False
    return replace(work, kwargs=kwargs)


def plain_works() -> dict[str, Work]:
    """Of every kind that the suites run without relations, small."""
    request = Request((12,), quick=True)
    cases = [*layers.step_cases(request), *short.cases(request)]
    return {
        f"{case.suite}, {case.label}": without_mask(spec.work)
        for case in cases
        for spec in case.sides
        if spec.name == "plain"
    }


@pytest.mark.parametrize("quantity", ["forward", "step"])
@pytest.mark.parametrize("name", plain_works())
def test_without_relations_and_masks_it_is_what_torch_counts(name: str, quantity: str):
    work = plain_works()[name]
    assert multiply_adds(work, quantity) == counted(work, quantity)


@pytest.mark.parametrize("quantity", ["forward", "step"])
def test_no_dual_module_computes_less(quantity: str):
    request = Request((12,), quick=True)
    cases = [*layers.step_cases(request), *short.cases(request), *crossing.cases(request)]
    for case in cases:
        work = replace(case.sides[0].work, impl="dense")
        assert 0.5 * counted(work, quantity) < multiply_adds(work, quantity) <= counted(work, quantity)


def test_frozen_symbols_need_no_gradient():
    work = layers.step_case(4, 12, quick=True).sides[0].work
    trained = {**work.kwargs, "symbols": {**work.kwargs["symbols"], "trainable_symbols": True}}
    sizes = layers.QUICK
    expected = layers.LAYERS * 12 * sizes.symbols * sizes.d_model
    assert multiply_adds(replace(work, kwargs=trained), "step") - multiply_adds(work, "step") == expected


def test_the_arithmetic_of_the_specification():
    """Two 343M layers at n = 1024 take about 1.2 times the multiply-adds of a plain Transformer."""
    works = {spec.name: spec.work for spec in layers.step_case(64, 1024, quick=False).sides}
    dense = multiply_adds(works["ours"], "step") / multiply_adds(works["plain"], "step")
    assert dense == pytest.approx(1.21, abs=0.02)


def test_generation_counts_each_token_once():
    kwargs = {
        "kind": "language_models.TransformerLM",
        "d_model": 8,
        "n_layers": 3,
        "n_heads": 2,
        "dff": 32,
        "dropout_rate": 0.0,
        "activation": "gelu",
        "norm_first": True,
        "max_block_size": 10,
        "vocab_size": 50,
    }
    inputs = {"x": Draw((1, 10), below=50)}
    work = Work("model", kwargs, inputs, generation=Generation(6, 4, 6))
    projections, feed_forward, pairs = 4 * 8 * 8, 2 * 8 * 32, 10 * 11 // 2
    expected = 3 * (10 * (projections + feed_forward) + pairs * 2 * 8) + 4 * 8 * 50
    assert multiply_adds(work, "generate") == expected // 4


def test_llama_is_half_of_the_pairs_less_than_torch_counts():
    pytest.importorskip("transformers", reason="a rival that is measured where it is installed")
    (work,) = (spec.work for spec in layers.step_case(4, 12, quick=True).sides if spec.name == "llama")
    sizes = work.kwargs
    masked = 12 * 11 // 2 * 2 * sizes["hidden_size"] * sizes["num_hidden_layers"]
    assert counted(work, "step") - multiply_adds(work, "step") == 3 * masked
