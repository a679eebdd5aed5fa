"""PyTorch's encoder as one of this library: the same outputs from its weights."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dual_attention.encoder_models import DualAttnTransformerEncoder, TransformerEncoder
from tests.support.refusals import refused
from tests.support.tensors import moved

SIZES: dict[str, Any] = {"vocab_size": 5, "max_block_size": 12}


def torch_encoder(*, final: bool = False, dtype: torch.dtype = torch.float64, **options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(12, 3, 20, **{"dropout": 0.1, "batch_first": True, **options})
    norm = nn.LayerNorm(12, bias=options.get("bias", True)) if final else None
    return moved(nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False).to(dtype), 0.2)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("options", [{}, {"activation": F.gelu}, {"activation": nn.GELU()}, {"bias": False}])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_the_same_outputs_and_gradients(norm_first: bool, final: bool, options: Any, dtype: Any, close: float):
    theirs = torch_encoder(norm_first=norm_first, final=final, dtype=dtype, **options)
    ours = TransformerEncoder.from_torch(theirs, **SIZES)
    x = torch.randn(3, 7, 12, dtype=dtype, requires_grad=True)
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 4:] = False
    for theirs_mask, ours_mask in ((None, None), (~mask, mask)):
        found, expected = ours(None, embeddings=x, padding_mask=ours_mask), theirs(x, src_key_padding_mask=theirs_mask)
        torch.testing.assert_close(found[mask], expected[mask], atol=close, rtol=close)
    grads = [torch.autograd.grad(out[mask].sin().sum(), x)[0] for out in (found, expected)]
    torch.testing.assert_close(*grads, atol=10 * close, rtol=10 * close)
    assert not ours.training and TransformerEncoder.from_torch(theirs.train(), **SIZES).training
    shared = {w.data_ptr() for w in theirs.parameters()} & {w.data_ptr() for w in ours.parameters()}
    assert not shared


@pytest.mark.parametrize("options", [{"norm_first": True}, {"bias": False}, {"dtype": torch.float32}])
def test_new_relational_heads_are_silent_unless_they_may_speak(options: Any):
    theirs = torch_encoder(final=True, **options)
    x = torch.randn(3, 7, 12, dtype=options.get("dtype", torch.float64))
    more: dict[str, Any] = {"ra_kwargs": {"n_relations": 2}, "symbol_retrieval": "positional_symbols"}
    ours = DualAttnTransformerEncoder.from_torch(theirs, 2, **SIZES, **more)
    found = ours(None, embeddings=x)
    torch.testing.assert_close(found, theirs(x), atol=1e-5, rtol=1e-5)
    found.sin().sum().backward()
    assert all(block.dual_attn.relational_attention.wo.weight.grad.any() for block in ours.blocks)
    heard = DualAttnTransformerEncoder.from_torch(theirs, 2, **SIZES, **more, silent=False)
    assert (heard(None, embeddings=x) - theirs(x)).abs().max() > 1e-5
    assert not ours.training and DualAttnTransformerEncoder.from_torch(theirs.train(), 2, **SIZES).training


def test_the_batch_may_come_second_there():
    theirs = torch_encoder(batch_first=False)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    ours = TransformerEncoder.from_torch(theirs, **SIZES)
    torch.testing.assert_close(ours(None, embeddings=x), theirs(x.transpose(0, 1)).transpose(0, 1))


def test_what_attention_returns_is_dropped_out_once():
    theirs = torch_encoder(dropout=0.5).train()
    more: dict[str, Any] = {"symbol_retrieval": "positional_symbols", "ra_kwargs": {"out_dropout": 0.0}}
    for ours in (
        TransformerEncoder.from_torch(theirs, **SIZES),
        DualAttnTransformerEncoder.from_torch(theirs, 1, **SIZES, **more, silent=False),
    ):
        dropped: list[Tensor] = []

        def note(module: nn.Module, args: Any, output: Tensor, into: list[Tensor] = dropped) -> None:
            into.append((output == 0).double().mean())

        for block in ours.blocks:
            block.dropout.register_forward_hook(note)
        ours(None, embeddings=torch.randn(200, 7, 12, dtype=torch.float64))
        torch.testing.assert_close(torch.stack(dropped).mean(), torch.tensor(0.5).double(), atol=0.03, rtol=0)


BOTH = pytest.mark.parametrize("kind, heads", [(TransformerEncoder, ()), (DualAttnTransformerEncoder, (1,))])

test_what_has_no_counterpart_is_refused = BOTH(refused(
    (lambda: torch_encoder(layer_norm_eps=1e-6), "eps=1e-5"),
    (lambda: torch_encoder(activation=torch.tanh), "expected ReLU or GELU"),
    (lambda: torch_encoder(activation=nn.GELU("tanh")), "expected ReLU or GELU"),
    (lambda: nn.Linear(2, 2), TypeError, "encoder: expected a torch.nn.TransformerEncoder, got Linear"),
    (lambda: nn.TransformerEncoderLayer(12, 3), TypeError, "expected a torch.nn.TransformerEncoder"),
    by=lambda make, *, kind, heads: kind.from_torch(make(), *heads, **SIZES),
))  # fmt: skip
