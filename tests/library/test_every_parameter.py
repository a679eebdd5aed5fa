"""Every parameter gets a gradient, in all layers and families of models: DistributedDataParallel refuses one that has
none.
"""

from dataclasses import is_dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from dual_attention import EncoderForMaskedLM, EncoderForSequenceClassification
from dual_attention.checkpoints.weights import Weights, filled
from tests.library.test_wrong_calls import objects
from tests.support import encoders, families
from tests.support.families import PLAIN
from tests.support.processes import together

HEADS = [(2, 0), (1, 1), (0, 2)]
CASES = [case for case in (*families.CASES, *(("classes", kind) for kind in encoders.KINDS)) if case[1] not in PLAIN]


def build(family: str, kind: str, sensory: int, relational: int, **more) -> tuple[nn.Module, tuple[Tensor, ...]]:
    of = "text" if family == "classes" else family
    model, inputs, _ = families.build(of, kind, n_heads_sa=sensory, n_heads_ra=relational, **more)
    if family in ("text", "classes"):
        model = EncoderForMaskedLM(model) if family == "text" else EncoderForSequenceClassification(model, 3)
    return model.double(), inputs


def without_gradient(model: nn.Module) -> list[str]:
    """Names of parameters that got none, one that is zero, or one that is not finite."""
    learned = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, p in learned if p.grad is None or not p.grad.any() or not p.grad.isfinite().all()]


@pytest.mark.parametrize(("sensory", "relational"), HEADS)
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_every_parameter_gets_a_gradient(family: str, kind: str, sensory: int, relational: int):
    model, inputs = build(family, kind, sensory, relational)
    model(*inputs)[0].square().sum().backward()
    assert not without_gradient(model)
    assert relational or not [name for name in model.state_dict() if "symbol_retriever" in name]


UNUSED = {"slot attention": {"mean", "log_scale"}, "alternating": {"first.score.weight_q"}}
"""Slots are given, and a first step has no query."""


@pytest.mark.parametrize("name", objects())
def test_so_does_every_parameter_of_a_layer(name: str):
    layer, *given = objects()[name]
    out = layer(*given)
    results = tree_leaves([*vars(out).values()] if is_dataclass(out) else out)
    if list(layer.parameters()):
        sum(x.square().sum() for x in results if isinstance(x, Tensor) and x.requires_grad).backward()
    assert set(without_gradient(layer)) == UNUSED.get(name, set())


APART = {"shared_symbol_retriever": False}
SHARING = {"one each": APART, "tied": {**APART, "weight_tie_symbol_library": True}}


@pytest.mark.parametrize("relational", [0, 1])
@pytest.mark.parametrize("options", SHARING.values(), ids=SHARING)
def test_so_it_is_with_retrievers_of_each_layer(options: dict, relational: int):
    model, inputs = build("language", "symbolic_attention", 1, relational, symbol_retriever_config=options)
    model(*inputs)[0].square().sum().backward()
    assert not without_gradient(model)


def test_copies_in_two_processes_take_steps():
    """The second step of plain DistributedDataParallel is the one that complains of parameters without a gradient."""

    def losses(workers) -> list[float]:
        torch.manual_seed(workers.rank)
        found = []
        for family in ("language", "text", "classes", "pairs", "images"):
            model, inputs = build(family, "symbolic_attention", 2, 0)
            called = DistributedDataParallel(model)
            for _ in range(3):
                loss = called(*inputs)[0].square().mean()
                loss.backward()
                found.append(float(loss))
        return found

    assert all(len(found) == 3 * 5 for found in together(2, losses))


OLD = {
    "language": ("layers.symbol_retrievers.0.symbol_library", "layers.symbol_retrievers.1.q_proj.weight"),
    "pairs": ("layers.symbol_retriever.symbol_library", "layers.symbol_retriever.q_proj.weight"),
    "images": ("symbol_retriever.symbol_library", "symbol_retriever.q_proj.weight"),
}
"""Families, and weights that their state dicts had of retrievers that nothing read."""


@pytest.mark.parametrize("family", OLD)
def test_weights_of_retrievers_that_nothing_reads_are_left_out(family: str):
    """State dicts of the published package, and of earlier versions, hold them."""
    model, again, files = (build(family, "symbolic_attention", 2, 0)[0] for _ in range(3))
    state = {**model.state_dict(), **dict.fromkeys(OLD[family], torch.zeros(3))}
    given = dict(state)
    again.load_state_dict(state)
    assert state.keys() == given.keys()
    filled(files, Weights(state, {}), source="a file")
    for loaded in (again, files):
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("family", OLD)
def test_weights_of_other_retrievers_are_refused(family: str):
    model, relational = (build(family, "symbolic_attention", *heads)[0] for heads in ((2, 0), (1, 1)))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        model.load_state_dict({**model.state_dict(), "symbols": torch.zeros(3)})
    with pytest.raises(RuntimeError, match="size mismatch"):
        relational.load_state_dict({**relational.state_dict(), OLD[family][0]: torch.zeros(3)})
