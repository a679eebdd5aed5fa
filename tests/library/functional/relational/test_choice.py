"""Which implementation of relational attention runs, and the reason that a user is told."""

import inspect
import logging

import pytest
import torch

from dual_attention.functional import (
    Choice,
    MaskPattern,
    OffsetSymbols,
    explain_relational_attention,
    relational_attention,
)
from dual_attention.functional.relational import choice, dense
from dual_attention.functional.relational.table import IMPLEMENTATIONS
from dual_attention.functional.triton import support
from tests.support.combinations import mostly_slow
from tests.support.refusals import refused
from tests.support.tensors import normal

from .inputs import SCALES, assert_same_with_gradients, boolean, draw_inputs, run

LOG = "dual_attention.functional.relational"


def explain(leaves, index=None, **arguments):
    """The choice itself, where :func:`run` takes what an operation returns first."""
    return Choice(*run(lambda *a, **kw: [explain_relational_attention(*a, **kw)], leaves, index, **arguments))


def run_names(monkeypatch):
    """Names of the implementations that run from here on."""
    names = []
    for implementation in [*IMPLEMENTATIONS.values()]:

        def noted(inputs, implementation=implementation):
            names.append(implementation.name)
            return implementation.run(inputs)

        monkeypatch.setitem(IMPLEMENTATIONS, implementation.name, implementation._replace(run=noted))
    return names


CPU = [
    ({}, "dense", "fewer than 4194304 weights", {"n": 20}),
    ({}, "dense", "fewer than 131072 weights", {"n": 20, "p": 64, "groups": 4}),
    ({}, "dense", "a step of decoding has fewer than 16 receivers", {"n": 15}),
    ({"rel_activation": "relu"}, "dense", "activated relations are fastest built at once", {}),
    ({"need_weights": True}, "dense", "weights and relations were asked for", {"n": 300, "m": 300}),
    ({}, "dense", "about a row for each pair", {"n": 260, "m": 260, "symbols": "of pairs", "width": 1}),
    ({}, "linear", "too many weights", {"n": 260, "m": 260}),
    ({"rel_activation": "relu"}, "blockwise", "activated relations of so many pairs", {"n": 260, "m": 260}),
    ({"impl": "linear"}, "linear", "impl='linear' was asked for", {}),
    ({"impl": "reference"}, "reference", "impl='reference' was asked for", {}),
    ({"impl": "blockwise"}, "blockwise", "impl='blockwise' was asked for", {}),
    ({"impl": "sdpa"}, "sdpa", "impl='sdpa' was asked for", {}),
    ({"impl": "linear", "rel_activation": "relu"}, "blockwise", "activated relations must be built", {}),
]


@pytest.mark.parametrize(("arguments", "name", "reason", "sizes"), CPU)
def test_what_is_explained_runs(arguments, name, reason, sizes, monkeypatch, caplog):
    """On a CPU: the explanation, the line of the log and what runs agree."""
    leaves, index, _ = draw_inputs(**{"batch": 1, **sizes})
    found = explain(leaves, index, **arguments)
    assert found.name == name and reason in found.reason
    assert str(found) == f"{name}: {found.reason}"
    ran = run_names(monkeypatch)
    with caplog.at_level(logging.DEBUG, logger=LOG), torch.no_grad():
        run(relational_attention, leaves, index, **arguments)
    assert ran == [name]
    (record,) = caplog.records
    assert record.name == LOG and record.getMessage().startswith(str(found))


NOT_INSTALLED = "the package triton is not installed"
GPU = [
    ({}, None, "triton", "fused kernels suit bfloat16 and float16 on CUDA"),
    ({}, NOT_INSTALLED, "sdpa", "for causal masks only (not triton: the package triton is not installed)"),
    ({"bias": torch.zeros(1, 1, 4, 5, dtype=torch.float64)}, "it adds no bias", "linear", "(not triton: it adds no"),
    ({"rel_activation": "relu"}, "relations", "blockwise", "(not triton: relations"),
    ({"need_weights": True}, "maps", "dense", "were asked for, and are built whole (not triton: maps)"),
    ({"mask": MaskPattern(4, 5, causal=True, offset=1)}, None, "linear", "in a step of decoding its programs share"),
]


@pytest.mark.parametrize(("arguments", "against", "name", "reason"), GPU)
def test_reasons_on_a_gpu(arguments, against, name, reason, monkeypatch):
    monkeypatch.setattr(choice, "prefers_fused", lambda q: True)
    monkeypatch.setattr(support, "obstacle", lambda inputs: against)
    monkeypatch.setattr(dense, "LARGEST_DENSE", 0)
    found = explain(draw_inputs()[0], **arguments)
    assert found.name == name and reason in found.reason


def test_few_pairs_elsewhere_than_on_a_cpu():
    """The rule looks at pairs only; tensors without data stand for a GPU's."""
    leaves = [leaf.to("meta") for leaf in draw_inputs(n=200, m=300)[0]]
    assert explain(leaves) == ("dense", "there are at most 65536 pairs")


test_explaining_refuses_what_the_operation_refuses = refused(
    ({"impl": "fast"}, "impl: expected one of"),
    ({"dropout": 2.0}, "dropout: expected"),
    by=lambda arguments: explain(draw_inputs()[0], **arguments),
)


def test_explaining_takes_the_arguments_of_the_operation():
    """All but an observer, for which there is nothing to choose."""
    ours, theirs = map(inspect.signature, (explain_relational_attention, relational_attention))
    assert ours.parameters == {name: about for name, about in theirs.parameters.items() if name != "observe"}


def test_nothing_is_logged_unless_asked_for(caplog):
    with caplog.at_level(logging.INFO, logger=LOG):
        run(relational_attention, draw_inputs()[0], None)
    assert not caplog.records


@pytest.mark.parametrize("impl", ["auto", "linear"])
def test_compiled_in_one_graph_while_the_log_is_on(impl, caplog):
    """The compiler sees no line of the log, and the log no line of the compiler."""
    leaves, _, _ = draw_inputs(n=20, m=20)

    def operation(*leaves):
        return run(relational_attention, leaves, None, impl=impl)

    with caplog.at_level(logging.DEBUG, logger=LOG):
        compiled = torch.compile(operation, fullgraph=True, backend="aot_eager")
        ours = compiled(*leaves)
        assert not [record for record in caplog.records if record.name == LOG and "senders" in record.getMessage()]
    assert_same_with_gradients(ours, operation(*leaves), leaves)


class Lengths(torch.nn.Module):
    """Relational attention of a sequence whose length an export leaves open; tells its choices to ``note``."""

    def __init__(self, activation, symbols, note):
        super().__init__()
        self.activation, self.symbols, self.note = activation, symbols, note

    def forward(self, x):
        symbols = x[:, None]
        if self.symbols == "relative":
            symbols = OffsetSymbols(torch.linspace(0, 1, 4 * 19, dtype=x.dtype).view(19, 1, 4), *(x.shape[1],) * 2)
        tensors = (x[:, None], x[:, None], x[:, :, None], x[:, :, None], symbols, x.new_ones(1, 4, 1))
        mask = MaskPattern(x.shape[1], x.shape[1], causal=True)
        arguments = {**SCALES, "rel_activation": self.activation, "mask": mask}
        self.note(explain_relational_attention(*tensors, **arguments))
        return relational_attention(*tensors, **arguments).output


LONG, ACTIVATED = "linear suits long ones", "and relations are activated"
EXPORTED = [
    ("identity", "linear", LONG, "shared"),
    ("relu", "dense", ACTIVATED, "relative"),
    ("identity", "linear", LONG, "relative"),
    ("relu", "dense", ACTIVATED, "shared"),
    ("softmax", "dense", ACTIVATED, "shared"),
    ("softmax", "dense", ACTIVATED, "relative"),
]


@pytest.mark.parametrize(("activation", "name", "reason", "symbols"), mostly_slow(EXPORTED, quick=2))
def test_an_export_leaves_a_length_open(activation, name, reason, symbols):
    """One graph for lengths at which different implementations would be chosen."""
    choices = []
    module = Lengths(activation, symbols, choices.append)
    shapes = {"x": {1: torch.export.Dim("length", min=2, max=1024)}}
    exported = torch.export.export(module, (normal(2, 8, 4),), dynamic_shapes=shapes, strict=False).module()
    assert {found.name for found in choices} == {name}
    assert all(reason in found.reason for found in choices)
    for n in (3, 40, 300):
        x = normal(2, n, 4)
        torch.testing.assert_close(exported(x), module(x), atol=1e-11, rtol=1e-11)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_programs_for_elsewhere_hold_no_operations_of_this_library(activation):
    choices = []
    torch.jit.trace(Lengths(activation, "shared", choices.append), (normal(2, 400, 4),), check_trace=False)
    assert {found.name for found in choices} == {"dense"}


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ({"mask": MaskPattern(4, 5, causal=True)}, True),
        ({}, True),
        ({"mask": boolean(1, 1, 4, 5)}, False),
        ({"mask": MaskPattern(4, 5, causal=True, window=2)}, False),
        ({"bias": torch.zeros(1, 1, 4, 5, dtype=torch.float64)}, False),
        ({"dropout": 0.1}, False),
        ({"rel_activation": "relu"}, False),
        ({"need_weights": True}, False),
    ],
)
def test_auto_on_a_gpu_without_triton(arguments, taken, monkeypatch):
    """Library attention where it has fused kernels; elsewhere another way, never an error."""
    monkeypatch.setattr(choice, "prefers_fused", lambda q: True)
    monkeypatch.setattr(support, "obstacle", lambda inputs: NOT_INSTALLED)
    monkeypatch.setattr(dense, "LARGEST_DENSE", 0)
    ran = run_names(monkeypatch)
    leaves, _, _ = draw_inputs()
    out = run(relational_attention, leaves, None, impl="auto", **arguments)
    assert (ran == ["sdpa"]) == taken
    if "dropout" not in arguments:
        assert_same_with_gradients(out, run(relational_attention, leaves, None, impl="reference", **arguments), leaves)


@pytest.mark.parametrize(
    ("batch", "heads", "n", "p", "few"),
    [
        (1, 8, 64, 64, True),  # few weights
        (1, 8, 128, 64, False),  # tiles of relations save much
        (1, 8, 128, 1, True),  # they save nothing
        (64, 4, 128, 16, False),  # many weights
        (1, 8, 257, 1, False),  # too many pairs
        (4096, 8, 15, 64, True),  # few receivers
    ],
)
def test_where_dense_is_faster(batch, heads, n, p, few):
    sizes = batch, heads, n, n, p
    assert (dense.few_pairs(*sizes, on_cpu=True, activated=False) is not None) == few
    whole = n * n <= dense.LARGEST_DENSE
    assert (dense.few_pairs(*sizes, on_cpu=False, activated=False) is not None) == whole
    assert (dense.few_pairs(*sizes, on_cpu=True, activated=True) is not None) == whole
