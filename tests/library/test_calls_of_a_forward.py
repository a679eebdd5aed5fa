"""What a forward pass costs before any mathematics: files and functions of the library that it enters, and checks."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import dual_attention
from dual_attention import Attention, DualAttention, DualAttnTransformerLM, RelationalAttention, SymbolicAttention
from tests.support import language

LIBRARY = str(Path(dual_attention.__file__).parent)
CHECKS = ("check_padding", "check_places", "_check_parts", "_check_devices", "_checked_mask", "_checked_segments")
"""Functions that look at the tensors of a mask."""


@torch.no_grad()
def entered(run):
    """Functions of the library that a call enters after a first one, by file and name."""
    run()
    calls = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            calls[frame.f_code.co_filename, frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("layer", "inputs", "files", "most"),
    [
        (RelationalAttention(64, 4, 8), 2, 14, 70),
        (Attention(64, 4), 3, 9, 30),
        (DualAttention(64, 2, 2), 2, 18, 100),
        (SymbolicAttention(64, 4, 16), 1, 9, 20),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_a_layer_enters_few_files_and_functions(layer, inputs, files, most):
    x = torch.randn(2, 9, 64)
    calls = entered(lambda: layer(*[x] * inputs))
    assert len({file for file, _ in calls}) <= files and calls.total() <= most, calls


def test_a_language_model_of_one_layer_makes_few_calls():
    model, x = DualAttnTransformerLM(50, 32, 1, 1, 1, max_block_size=16), torch.randint(50, (2, 9))
    calls = entered(lambda: model(x, x))
    assert calls.total() <= 150, calls


@pytest.mark.parametrize("kind", ["transformer", "symbolic_attention"])
@pytest.mark.parametrize("window", [None, 3])
def test_a_model_checks_masks_once_whatever_its_depth(kind, window):
    x, real = language.tokens(2, 6), torch.tensor([[False, True, True, True, True, True], [True] * 6])
    masks = {"padding_mask": real, "segments": torch.tensor([[0, 0, 1, 1, 1, 2]])}
    numbers = []
    for depth in (1, 3):
        sizes = {} if window is None else language.with_attention(kind, window=window)
        model = language.lm(kind, n_layers=depth, **sizes)
        calls = entered(lambda model=model: model(x, **masks))
        numbers.append({name: number for (_, name), number in calls.items() if name in CHECKS})
    assert numbers[0] == numbers[1] == {"check_padding": 1, "check_places": 1, "_check_devices": 1}


def test_a_mask_given_to_dual_attention_is_checked_once_for_both_kinds_of_head():
    layer, x = DualAttention(8, 2, 2), torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    calls = entered(lambda: layer(x, x, attn_mask=mask, padding_mask=torch.ones(2, 5, dtype=torch.bool)))
    found = Counter({name: calls[key] for key in calls if (name := key[1]) in CHECKS})
    assert found == {"_checked_mask": 1, "_check_devices": 1}
