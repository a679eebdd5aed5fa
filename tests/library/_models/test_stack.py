"""A stack of blocks in every family of models: computed again, recorded, and given symbols."""

import pytest
import torch
from torch import Tensor, nn

from dual_attention.dual_attention import DualAttentionOutput
from dual_attention.symbol_retrieval import SymbolicAttention
from dual_attention.transformer_blocks import Block, DecoderSteps
from tests.support import families, language
from tests.support.families import CASES, FAMILIES, PLAIN


def build(family: str, kind: str, anew: bool) -> families.Model:
    """A model that drops in training."""
    more = {} if kind in PLAIN else {"update_symbols_each_layer": anew}
    return families.build(family, kind, dropout_rate=0.3, **more)


def blocks_of(model: nn.Module) -> list[Block]:
    return [part for part in model.modules() if isinstance(part, Block)]


@pytest.mark.parametrize(("family", "kind"), CASES)
@pytest.mark.parametrize("anew", [True, False])
def test_gradient_checkpointing_changes_nothing_but_memory(family: str, kind: str, anew: bool):
    model, inputs, masks = build(family, kind, anew)
    parameters, kept, gradients, calls = list(model.train().parameters()), [], [], []
    blocks_of(model)[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for model.gradient_checkpointing in (False, True):
        torch.manual_seed(5)
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            out = model(*inputs, **masks)
        loss = out if isinstance(out, Tensor) else out[1]
        gradients.append(torch.autograd.grad(loss.square().sum(), parameters))
        kept.append(sum(sizes))
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)
    assert kept[1] < kept[0] / 2 and len(calls) == 1 + 2


@pytest.mark.parametrize(("family", "kind"), [case for case in CASES if case[0] != "pairs"])
@pytest.mark.parametrize("anew", [True, False])
def test_a_trace_is_what_a_pass_goes_through(family: str, kind: str, anew: bool):
    model, (x, *_), masks = build(family, kind, anew)
    entered = [language.record(block, lambda: model(x, **masks))[0] for block in blocks_of(model)]
    trace = model.trace(x, **masks)
    torch.testing.assert_close(list(trace.states[:-1]), entered)
    torch.testing.assert_close(getattr(model, "layers", model).norm(trace.states[-1]), trace.hidden)
    torch.testing.assert_close(getattr(model, "hidden", model)(x, **masks), trace.hidden)
    if family == "images":
        torch.testing.assert_close(trace.scores, model(x))
    assert len(trace.maps) == len(entered) == 2
    for found in trace.maps:
        weights = found.weights if isinstance(found, DualAttentionOutput) else found
        real = masks.get("padding_mask", torch.ones(weights.shape[0], weights.shape[3], dtype=torch.bool))
        assert not weights.masked_fill(real[:, None, None], 0.0).any()
        torch.testing.assert_close(weights.sum(-1).round(), weights.sum(-1))  # 0 where there is nothing to attend
        assert weights.any() and (kind in PLAIN) == isinstance(found, Tensor)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("anew", [True, False])
def test_symbols_are_of_what_enters_each_block_or_the_first(family: str, anew: bool):
    """For a sequence-to-sequence model: the first block of each side, which share a retriever."""
    model, inputs, masks = build(family, "symbolic_attention", anew)
    retrieved, given = [], []
    for part in model.modules():
        if isinstance(part, SymbolicAttention):
            part.register_forward_hook(lambda _, args, symbols: retrieved.append((args[0], symbols)))
        elif isinstance(part, Block):
            place = 2 if isinstance(part, DecoderSteps) else 1
            part.register_forward_pre_hook(lambda _, args, place=place: given.append((args[0], args[place])))
    model(*inputs, **masks)
    assert len(given) == (4 if family == "pairs" else 2)
    expected = retrieved if anew else [pair for pair in retrieved for _ in range(2)]
    for number, ((entered, symbols), (of, found)) in enumerate(zip(given, expected, strict=True)):
        assert symbols is found and (entered is of) == (anew or number % 2 == 0)
