"""Closed forms of the least work, against torch's own count of what runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import floors
from benchmarks.cases import Request
from benchmarks.floors import Sequence, multiply_adds, relation_pairs, relational_attention
from benchmarks.runner import Runner, draw_inputs, implementation
from benchmarks.subjects import SUBJECTS
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
    if "block" in kwargs:
        kwargs["block"] = {**kwargs["block"], "causal": False}
    if "causal" in kwargs:
        kwargs["causal"] = False
    if "decoder" in kwargs:
        kwargs["decoder"] = {**kwargs["decoder"], "causal": False}
    return replace(work, kwargs=kwargs)


def without_symmetry(work: Work) -> Work:
    """The layers project symmetric relations of receivers and of senders, who may be the same."""
    kwargs = {**work.kwargs}
    if "ra_kwargs" in kwargs:
        kwargs["ra_kwargs"] = {**kwargs["ra_kwargs"], "symmetric_rels": False}
    return replace(work, kwargs=kwargs)


def dense_works() -> dict[str, Work]:
    """Of every kind that the suites run, small, in the dense form, whose relations are counted as in the linear one."""
    request = Request((12,), quick=True)
    found = [*layers.step_cases(request), *short.cases(request), *crossing.cases(request)]
    works = {}
    for case in found:
        for spec in case.sides:
            if spec.name in ("ours", "plain"):
                work = without_symmetry(without_mask(spec.work))
                works[f"{case.suite}, {case.label}, {spec.name}"] = replace(work, impl="dense")
    return works


@pytest.mark.parametrize("quantity", ["forward", "step"])
@pytest.mark.parametrize("name", dense_works())
def test_closed_form_is_what_torch_counts(name: str, quantity: str):
    work = dense_works()[name]
    assert multiply_adds(work, quantity, "linear") == counted(work, quantity)


def test_relations_first_is_what_torch_counts():
    batch, heads, n, m, relations, p = 2, 3, 5, 7, 4, 6
    u, w, alpha = torch.ones(batch, n, relations, p), torch.ones(batch, m, relations, p), torch.ones(batch, heads, n, m)
    with FlopCounterMode(display=False) as counter:
        r = torch.einsum("bnrp,bmrp->bnmr", u, w)
        torch.einsum("bhnm,bnmr->bhnr", alpha, r)
    s = Sequence(batch, n, m, form="dense")
    assert relation_pairs(s, heads, relations, p) == counter.get_total_flops() // 2


def test_the_cheaper_form_counts():
    forms = {form: relation_pairs(Sequence(1, 10, 10, form=form), 8, 8, 64) for form in ("least", "linear", "dense")}
    assert forms["least"] == forms["dense"] < forms["linear"]
    forms = {form: relation_pairs(Sequence(1, 10, 10, form=form), 1, 64, 2) for form in ("least", "linear", "dense")}
    assert forms["least"] == forms["linear"] < forms["dense"]


def test_causal_pairs():
    assert Sequence(2, 4, 4, halved=True).pairs == 2 * (1 + 2 + 3 + 4)
    assert Sequence(2, 4, 5).pairs == 2 * 4 * 5


def test_symmetric_relations_are_projected_once():
    arguments = {"d_model": 16, "n_heads": 2, "n_relations": 4, "rel_proj_dim": 4}
    s = Sequence(3, 10, 10)
    both = [relational_attention(s, None, **arguments, symmetric_rels=is_so).forward for is_so in (False, True)]
    assert both[0] - both[1] == 3 * 10 * 16 * 16


def test_the_arithmetic_of_the_specification():
    """Two 343M layers at n = 1024 take 1.21 times the multiply-adds of a plain Transformer, relations first."""
    case = layers.step_case(64, 1024, quick=False)
    works = {spec.name: spec.work for spec in case.sides}
    dense = multiply_adds(works["ours"], "step", "dense") / multiply_adds(works["plain"], "step")
    assert dense == pytest.approx(1.21, abs=0.02)
    assert multiply_adds(works["ours"], "step", "linear") > multiply_adds(works["ours"], "step", "dense")


def test_generation_counts_each_token_once():
    kwargs = {
        "kind": "language_models.TransformerLM",
        "d_model": 8,
        "n_layers": 3,
        "n_heads": 2,
        "dff": 32,
        "activation": "gelu",
        "vocab_size": 50,
    }
    inputs = {"x": Draw((1, 10), below=50)}
    work = Work("model", kwargs, inputs, generation=Generation(6, 4, 6))
    projections, feed_forward, pairs = 4 * 8 * 8, 2 * 8 * 32, 10 * 11 // 2
    expected = 3 * (10 * (projections + feed_forward) + pairs * 2 * 8) + 4 * 8 * 50
    assert multiply_adds(work, "generate") == expected // 4


def test_llama_is_what_torch_counts():
    pytest.importorskip("transformers", reason="a rival that is measured where it is installed")
    case = layers.step_case(4, 12, quick=True)
    (work,) = (spec.work for spec in case.sides if spec.name == "llama")
    of_all_pairs = floors.llama_block(Sequence(1, 12, 12), work.kwargs) * work.kwargs["num_hidden_layers"]
    assert of_all_pairs.step == counted(work, "step")
    assert of_all_pairs.step > multiply_adds(work, "step")


def test_every_subject_has_a_closed_form():
    assert floors.COUNTS.keys() == SUBJECTS.keys()
