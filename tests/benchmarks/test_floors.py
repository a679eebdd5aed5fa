"""The least work of the modules that are measured, against torch's own count of what runs."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cases import Request
from benchmarks.floors import multiply_adds
from benchmarks.runner import Runner, draw_inputs, implementation
from benchmarks.suites import crossing, layers, short
from benchmarks.work import Draw, Generation, Settings, Work
from dual_attention.functional.relational.table import IMPLEMENTATIONS

pytestmark = pytest.mark.sweep(4)

RELATIONS_FIRST, KEYS_FIRST = "tanh", "identity"
"""Activations with which the dense implementation computes relations in one or the other of the two exact forms."""


LENGTHS = 12, 13, 14


def runner_of(work: Work) -> Runner:
    torch.manual_seed(0)
    return Runner(work, Settings(), {"inputs": draw_inputs(work.inputs)})


def counted(work: Work, activation: str = KEYS_FIRST) -> tuple[int, int]:
    """Multiply-adds of the matrix products of a forward pass and of a step; attention as two products, not fused."""
    built = IMPLEMENTATIONS["dense"]
    dense = built._replace(run=lambda x: built.run(x._replace(rel_activation=activation)))

    runner = runner_of(work)
    with (
        mock.patch.dict(IMPLEMENTATIONS, dense=dense),
        implementation("dense"),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        output = runner.module(**runner.inputs)
        forward = counter.get_total_flops() // 2
        output.backward(torch.ones_like(output))
        return forward, counter.get_total_flops() // 2


def least(work: Work) -> tuple[int, int]:
    """The floors of a forward pass and of a step."""
    return multiply_adds(work, "forward"), multiply_adds(work, "step")


def without_mask(work: Work) -> Work:
    """A causal mask halves the least work, but not what products of whole matrices do."""
    kwargs = {**work.kwargs}
    for name in ("block", "decoder"):
        if name in kwargs:
            kwargs[name] = {**kwargs[name], "causal": False}
    if "causal" in kwargs:
        kwargs["causal"] = False
    return replace(work, kwargs=kwargs)


def with_offsets(work: Work, most: int) -> Work:
    """The same with relative symbols for offsets up to ``most``, if its symbols are relative."""
    kwargs, inputs = {**work.kwargs}, {**work.inputs}
    for name in ("symbols", "symbol_retrieval_kwargs"):
        if "max_rel_pos" in kwargs.get(name, ()):
            kwargs[name] = {**kwargs[name], "max_rel_pos": most}
    if kwargs.get("relative"):
        inputs["symbols"] = Draw((2 * most + 1, *inputs["symbols"].shape[1:]))
    return replace(work, kwargs=kwargs, inputs=inputs)


def works() -> dict[str, Work]:
    """Of every kind that the suites run, small.

    Relative symbols are either so few that weights of the same symbol are summed first, or more than the pairs of a
    receiver, and so many that the dense form does not sum them.
    """
    request = Request((12,), quick=True)
    suites = layers.step_cases, layers.memory_cases, layers.relative_cases, short.cases, crossing.cases
    found = {}
    for case in (case for cases in suites for case in cases(request)):
        for spec in case.sides:
            if spec.name in ("ours", "plain"):
                name, work = f"{case.suite}, {case.label}, {spec.name}", without_mask(spec.work)
                few, many = with_offsets(work, case.length // 3), with_offsets(work, 2 * case.length + 1)
                found |= {name: work} if few == work else {f"{name}, few symbols": few, f"{name}, many symbols": many}
    return found


@pytest.mark.parametrize("name", works())
def test_without_masks_it_is_what_torch_counts_of_the_cheaper_form(name: str):
    work = works()[name]
    is_ours = name.endswith(("ours", "symbols"))
    forward, step = min(counted(work, form) for form in ((RELATIONS_FIRST, KEYS_FIRST) if is_ours else (KEYS_FIRST,)))
    assert least(work) == (forward, step)


@pytest.mark.parametrize("side", ["ours", "plain"])
def test_a_causal_mask_leaves_out_what_grows_with_its_pairs(side: str):
    """The second difference of the work over the length is twice that of a pair."""
    works = [next(spec.work for spec in layers.step_case(4, n, quick=True).sides if spec.name == side) for n in LENGTHS]
    forms = [[counted(without_mask(work), form) for work in works] for form in (RELATIONS_FIRST, KEYS_FIRST)]
    for found, shortest, middle, longest in zip(least(works[0]), *min(forms), strict=True):
        of_pair = (longest - 2 * middle + shortest) // 2
        assert found == shortest - 12 * 11 // 2 * of_pair


def test_frozen_symbols_need_no_gradient():
    work = layers.step_case(4, 12, quick=True).sides[0].work
    trained = {**work.kwargs, "symbols": {**work.kwargs["symbols"], "trainable_symbols": True}}
    sizes = layers.QUICK
    expected = layers.LAYERS * 12 * sizes.symbols * sizes.d_model
    assert multiply_adds(replace(work, kwargs=trained), "step") - multiply_adds(work, "step") == expected


@pytest.mark.slow
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
    forward, step = counted(work)
    assert least(work) == (forward - masked, step - 3 * masked)
