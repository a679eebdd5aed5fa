"""Kernels that form relations once for all heads, against the reference: forward and every gradient."""

import pytest
import torch

from dual_attention.functional import explain_relational_attention, relational_attention
from dual_attention.functional.triton import support

from .fused_problems import (  # noqa: F401 (the fixture is used by every test)
    DEVICE,
    SCALES,
    Problem,
    assert_as_reference,
    needs_kernels,
    tiny_tiles_and_poisoned_memory,
)

pytestmark = needs_kernels


@pytest.mark.parametrize(
    "arguments",
    [
        {"groups": 2, "rep": 3, "causal": True, "n": 37, "n_relations": 7, "p": 5},
        {"window": 5, "causal": True, "padded": True, "packed": True, "n": 20, "batch": 2},
        {"batch": 2, "groups": 2, "rep": 2, "n": 5, "m": 18, "symbols": "one batch"},
        {"n": 33, "m": 1, "n_relations": 1, "p": 1},
        {"key_dim": 17, "width": 1, "n": 17, "n_relations": 8, "p": 17, "rep": 2},
        {"causal": True, "n": 5, "m": 21, "offset": 16},
        {"packed": "in order", "causal": True, "n": 40},
    ],
    ids=str,
)
def test_as_the_reference(arguments):
    assert_as_reference(Problem(**arguments), impl="pairs")


def test_bfloat16_is_about_as_good_as_dense():
    problem = Problem(rep=2, n=24, key_dim=8, width=8, p=4, causal=True)
    exact = problem.results("reference", torch.float64)
    ours, dense = (
        [
            float((a - b).abs().max() / b.abs().max())
            for a, b in zip(problem.results(impl, torch.bfloat16), exact, strict=True)
        ]
        for impl in ("pairs", "dense")
    )
    for error, of_dense in zip(ours, dense, strict=True):
        assert error <= 1.5 * of_dense + 2 * torch.finfo(torch.bfloat16).eps


def test_nothing_to_attend_and_empty_sides_give_zeros():
    for found in Problem(padded=True, batch=2).results("pairs")[:-1]:
        assert (found[0] == 0).all() and (found[1] != 0).any()
    for sides in ((0, 3), (3, 0)):
        for found in Problem(n=sides[0], m=sides[1]).results("pairs")[:-1]:
            assert (found == 0).all()


def test_the_same_bits_in_every_run_and_second_derivatives():
    problem = Problem(n=5, rep=2, causal=True)
    assert all(map(torch.equal, problem.results("pairs"), problem.results("pairs")))
    leaves = [x.to(DEVICE, torch.float32).requires_grad_() for x in problem.leaves]
    seconds = []
    for impl in ("pairs", "dense"):
        loss = problem.run(leaves, impl).square().sum()
        (first,) = torch.autograd.grad(loss, leaves[2], create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), leaves))
    torch.testing.assert_close(*seconds, atol=1e-3, rtol=1e-3)


def test_a_frozen_part_and_one_graph():
    """Gradients of symbols alone, and a compiled step."""
    problem = Problem(n=6, causal=True)
    leaves = [x.to(DEVICE, torch.float32) for x in problem.leaves]
    leaves[4].requires_grad_()
    ours, dense = (torch.autograd.grad(problem.run(leaves, impl).sum(), leaves[4])[0] for impl in ("pairs", "dense"))
    torch.testing.assert_close(ours, dense)
    compiled = torch.compile(lambda: problem.run(leaves, "pairs"), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(), problem.run(leaves, "dense"))


REFUSED = [
    ({"n_relations": 9}, "up to 8 relations"),
    ({"rep": 16, "key_dim": 33}, "512 columns"),
    ({"symbols": "offsets"}, "shared symbols"),
]


@pytest.mark.parametrize("arguments, words", REFUSED, ids=str)
def test_what_it_does_not_compute_is_refused(arguments, words):
    with pytest.raises(ValueError, match=f"impl='pairs' cannot compute this: .*{words}"):
        Problem(**arguments).results("pairs")


def test_float16_is_refused_in_which_relations_may_be_infinite():
    with pytest.raises(ValueError, match=r"to bfloat16, which it needs, got torch\.float16"):
        Problem(n=4).results("pairs", torch.float16)


def test_an_older_triton_is_refused(monkeypatch):
    monkeypatch.setattr(support, "INSTALLED", (3, 4))
    with pytest.raises(ValueError, match=r"Triton 3\.5 or later"):
        Problem(n=4).results("pairs")


def test_it_is_never_chosen():
    problem = Problem(n=4)
    inputs = [x.to(DEVICE, torch.float32) for x in problem.leaves]
    assert explain_relational_attention(*inputs, **SCALES).name != "pairs"
    assert relational_attention(*inputs, **SCALES, impl="pairs").weights is None
