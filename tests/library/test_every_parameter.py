"""Every parameter gets a gradient, in all families of models: DistributedDataParallel refuses one that has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dual_attention import EncoderForMaskedLM, EncoderForSequenceClassification
from dual_attention._checkpoints.weights import Weights, filled
from tests.library.test_vision_models import COMMON as IMAGE_SIZES
from tests.library.test_vision_models import SYMBOLS as IMAGE_SYMBOLS
from tests.library.test_vision_models import VisionDualAttnTransformer
from tests.support import encoders, language, seq2seq
from tests.support.processes import together

HEADS = [(2, 0), (1, 1), (0, 2)]
Model = tuple[nn.Module, Callable[[nn.Module], Tensor]]


def of_language(kind: str, sensory: int, relational: int, **more) -> Model:
    model = language.build(kind, n_heads_sa=sensory, n_heads_ra=relational, **more)
    return model, lambda called: called(language.tokens(2, 5))[0]


def of_text(kind: str, sensory: int, relational: int, head: Callable = EncoderForMaskedLM, **more) -> Model:
    encoder = encoders.create(kind, n_heads_sa=sensory, n_heads_ra=relational, **more)
    model = head(encoder)
    return model, lambda called: called(encoders.tokens(2, 5))[0]


def of_classes(kind: str, sensory: int, relational: int, **more) -> Model:
    return of_text(kind, sensory, relational, lambda encoder: EncoderForSequenceClassification(encoder, 3), **more)


def of_pairs(kind: str, sensory: int, relational: int, **more) -> Model:
    heads = {"n_heads_sa": sensory, "n_heads_ra": relational}
    model = seq2seq.build(kind, encoder=heads, decoder=heads, **more)
    x, y = seq2seq.words(2)
    return model, lambda called: called(x, y)[0]


def of_images(kind: str, sensory: int, relational: int) -> Model:
    model = VisionDualAttnTransformer(
        **IMAGE_SIZES,
        n_heads_sa=sensory,
        n_heads_ra=relational,
        symbol_retrieval=kind,
        symbol_retrieval_kwargs=IMAGE_SYMBOLS[kind],
        ra_kwargs={"use_relative_positional_symbols": kind.startswith("position_relative")},
    )
    return model, lambda called: called(torch.randn(2, 3, 8, 12))


FAMILIES = {
    "language": (of_language, language.SYMBOLS),
    "text": (of_text, encoders.SYMBOLS),
    "classes": (of_classes, encoders.SYMBOLS),
    "pairs": (of_pairs, seq2seq.SYMBOLS),
    "images": (of_images, IMAGE_SYMBOLS),
}
CASES = [(name, kind) for name, (_, kinds) in FAMILIES.items() for kind in kinds]


@pytest.mark.parametrize(("sensory", "relational"), HEADS)
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_every_parameter_gets_a_gradient(family: str, kind: str, sensory: int, relational: int):
    model, run = FAMILIES[family][0](kind, sensory, relational)
    run(model).square().sum().backward()
    without = [name for name, part in model.named_parameters() if part.requires_grad and part.grad is None]
    assert not without
    assert relational or not [name for name in model.state_dict() if "symbol_retriever" in name]


SHARING = {
    "one each": {"shared_symbol_retriever": False},
    "tied": {"shared_symbol_retriever": False, "weight_tie_symbol_library": True},
}


@pytest.mark.parametrize("relational", [0, 1])
@pytest.mark.parametrize("options", SHARING.values(), ids=SHARING)
def test_so_it_is_with_retrievers_of_each_layer(options: dict, relational: int):
    model, run = of_language("symbolic_attention", 1, relational, symbol_retriever_config=options)
    run(model).square().sum().backward()
    assert all(part.grad is not None for part in model.parameters() if part.requires_grad)


def test_copies_in_two_processes_take_steps():
    """The second step of plain DistributedDataParallel is the one that complains of parameters without a gradient."""

    def losses(workers) -> list[float]:
        torch.manual_seed(workers.rank)
        found = []
        for make, kinds in FAMILIES.values():
            model, run = make(next(iter(kinds)), 2, 0)
            called = DistributedDataParallel(model)
            for _ in range(3):
                loss = run(called).square().mean()
                loss.backward()
                found.append(float(loss))
        return found

    assert all(len(found) == 3 * len(FAMILIES) for found in together(2, losses))


OLD = {
    "language": ("layers.symbol_retrievers.0.symbol_library", "layers.symbol_retrievers.1.q_proj.weight"),
    "pairs": ("layers.symbol_retriever.symbol_library", "layers.symbol_retriever.q_proj.weight"),
    "images": ("symbol_retriever.symbol_library", "symbol_retriever.q_proj.weight"),
}
"""Families, and weights that their state dicts had of retrievers that nothing read."""


@pytest.mark.parametrize("family", OLD)
def test_weights_of_retrievers_that_nothing_reads_are_left_out(family: str):
    """State dicts of the published package, and of earlier versions, hold them."""
    model, _ = FAMILIES[family][0]("symbolic_attention", 2, 0)
    again, _ = FAMILIES[family][0]("symbolic_attention", 2, 0)
    state = {**model.state_dict(), **dict.fromkeys(OLD[family], torch.zeros(3))}
    given = dict(state)
    again.load_state_dict(state)
    assert state.keys() == given.keys()
    files, _ = FAMILIES[family][0]("symbolic_attention", 2, 0)
    filled(files, Weights(state, {}), source="a file")
    for loaded in (again, files):
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    with pytest.raises(RuntimeError, match="Unexpected key"):
        again.load_state_dict({**state, "symbols": torch.zeros(3)})
    relational, _ = FAMILIES[family][0]("symbolic_attention", 1, 1)
    with pytest.raises(RuntimeError, match="size mismatch"):
        relational.load_state_dict({**relational.state_dict(), OLD[family][0]: torch.zeros(3)})
