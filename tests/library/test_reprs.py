"""What a notebook shows of an output or a record: its shapes, not its numbers."""

import pytest
import torch

from dual_attention.functional.relational.inputs import RelationalAttentionOutput
from dual_attention.functional.symbols import OffsetSymbols, RelativeSymbols
from dual_attention.mechanisms import Dot, GeneralAttention
from dual_attention.model_analysis.capture import capture
from dual_attention.symbol_retrieval import SymbolicAttention
from tests.support import language

LIBRARY = torch.randn(5, 4)
X = torch.randn(1, 2, 3, 4)


def dual():
    model = language.lm("symbolic_attention")
    with torch.no_grad(), capture(model, ["weights", "relations"]) as maps:
        output = model(language.tokens(2, 5))
    return model, output, maps


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        (OffsetSymbols(LIBRARY, 3, 4), "OffsetSymbols(library=Tensor(5, 4), receivers=3, senders=4, offset=0)"),
        (RelativeSymbols(LIBRARY, torch.zeros(3, 4, dtype=torch.long)),
         "RelativeSymbols(library=Tensor(5, 4), index=Tensor(3, 4))"),
        (
            RelationalAttentionOutput(X, X[..., :3], X.movedim(1, -1)[..., :2]),
            "RelationalAttentionOutput(output=Tensor(1, 2, 3, 4), weights=Tensor(1, 2, 3, 3), "
            "relations=Tensor(1, 3, 4, 2))",
        ),
        (GeneralAttention(Dot())(X[0], X[0]), "GeneralAttentionOutput(context=Tensor(2, 3, 4)"),
        (SymbolicAttention(16, 4, 8), "(16, n_heads=4, n_symbols=8\n"),
    ],
)  # fmt: skip
def test_shapes_in_place_of_numbers(thing, shown):
    assert shown in repr(thing).replace("SymbolicAttention(\n  ", "(")


def test_outputs_and_maps_of_a_model():
    model, output, maps = dual()
    assert repr(output) == f"LanguageModelOutput(logits=Tensor{tuple(output.logits.shape)})"
    x = torch.randn(2, 5, model.d_model).double()
    block = model.layers.blocks[0].dual_attn
    shown = repr(block(x, torch.randn(2, 5, model.d_model).double(), need_weights=True))
    assert shown.startswith("DualAttentionOutput(output=Tensor(2, 5,") and "ra_maps=(Tensor(2," in shown
    for heads in maps.heads():
        assert "weights=Tensor(2," in repr(heads) and "tensor(" not in repr(heads)
    assert "tensor(" not in repr(maps) and repr(maps).startswith("Maps(calls=[CallMaps([HeadMaps(layer='blocks.0'")
