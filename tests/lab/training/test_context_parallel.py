"""Processes that share each sequence compute what one does: losses, logits and every gradient."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from dat.training.context_parallel import ContextParallel
from dat.training.distributed import Workers
from dual_attention.language_models import DualAttnTransformerLM, LanguageModel, TransformerLM
from tests.support.processes import outcomes_of, together

LENGTH, VOCABULARY = 16, 31
SYMBOLS = {"d_model": 16, "n_symbols": 5, "n_heads": 2}
BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "n_layers": 2,
    "n_heads_sa": 2,
    "n_heads_ra": 2,
    "dff": 24,
    "dropout_rate": 0.0,
    "activation": "gelu",
    "norm_first": True,
    "max_block_size": LENGTH,
    "symbol_retrieval": "symbolic_attention",
    "symbol_retrieval_kwargs": SYMBOLS,
}
MODELS: dict[str, dict[str, Any]] = {
    "DAT": {},
    "keys shared by heads": {"sa_kwargs": {"n_kv_heads": 1}, "ra_kwargs": {"n_kv_heads": 1, "n_relations": 3}},
    "learned positions": {"pos_enc_type": "pos_emb"},
    "activated relations": {"ra_kwargs": {"rel_activation": "softmax"}},
    "symmetric relations": {"ra_kwargs": {"symmetric_rels": True}},
    "disentangled RCA": {"ra_type": "disrca"},
    "windows": {"sa_kwargs": {"window": 5}, "ra_kwargs": {"window": 7}},
    "positional symbols": {"symbol_retrieval": "positional_symbols",
        "symbol_retrieval_kwargs": {"symbol_dim": 16, "max_length": LENGTH}},
    "relative symbols": {"symbol_retrieval": "position_relative",
        "symbol_retrieval_kwargs": {"symbol_dim": 16, "max_rel_pos": 6},
        "ra_kwargs": {"use_relative_positional_symbols": True}},
    "symbols of neighbourhoods": {"symbol_retrieval": "rel_sym_attn",
        "symbol_retrieval_kwargs": dict(d_model=16, rel_n_heads=2, symbolic_attn_n_heads=2, n_symbols=5, nbhd_delta=2)},
}  # fmt: skip
PACKED = ("DAT", "keys shared by heads", "relative symbols", "symbols of neighbourhoods")


def build(name: str) -> LanguageModel:
    torch.manual_seed(3)
    model = DualAttnTransformerLM(**{**BASE, **MODELS[name]})
    return model.double()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, targets, and segments of which some lie across the parts of processes."""
    tokens = torch.randint(VOCABULARY, (3, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    segments = torch.tensor([0] * 3 + [1] * 6 + [2] * 7).expand(3, -1)
    return tokens[:, :-1], tokens[:, 1:], segments


def results(call: Any, model: LanguageModel, packed: bool | str) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits, loss and gradients of all parameters."""
    tokens, targets, segments = batch()
    places = {"segments": segments} if packed else {}
    if packed == "positions go on":
        places["positions"] = torch.arange(LENGTH)[None]
    logits, loss = call(tokens, targets, **places)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), loss.detach(), gradients


def shared(workers: Workers, names: list[str], packed: bool | str, recompute: bool) -> list[tuple[Tensor, Tensor, Any]]:
    found = []
    warnings.simplefilter("error", FutureWarning)  # of collectives that PyTorch renames
    for name in names:
        model = build(name)
        model.gradient_checkpointing = recompute
        found.append(results(ContextParallel(model), model, packed))
    return found


CASES = [
    pytest.param(2, list(MODELS), False, False, id="two"),
    pytest.param(2, list(PACKED), True, False, id="two, packed"),
    pytest.param(2, ["learned positions"], "positions go on", False, id="two, positions go on"),
    pytest.param(2, ["DAT", "windows"], False, True, id="two, recomputed"),
    pytest.param(4, list(MODELS), False, False, id="four", marks=pytest.mark.slow),
    pytest.param(4, list(PACKED), True, True, id="four, packed, recomputed", marks=pytest.mark.slow),
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("size", "names", "packed", "recompute"), CASES)
def test_processes_that_share_sequences_compute_what_one_does(size, names, packed, recompute):
    found = together(size, shared, names, packed, recompute)
    for number, name in enumerate(names):
        model = build(name)
        logits, loss, gradients = results(model, model, packed)
        of_model = [each[number] for each in found]
        close = {"rtol": 1e-11, "atol": 1e-12}
        torch.testing.assert_close(torch.cat([each[0] for each in of_model], dim=1), logits, **close)
        torch.testing.assert_close(torch.stack([each[1] for each in of_model]).mean(), loss, **close)
        for key, gradient in gradients.items():  # each process has the mean over its tokens
            total = sum(each[2][key] for each in of_model if key in each[2]) / size
            torch.testing.assert_close(total, gradient, **close)
        assert gradients and all(each[2].keys() == gradients.keys() for each in of_model)


def test_a_process_sees_no_later_tokens():
    """What the second of two processes has does not reach the first, nor any gradient of its loss the other way."""

    def first_logits(workers: Workers, changed: bool) -> Tensor:
        model, (tokens, targets, _) = build("DAT"), batch()
        tokens = tokens.clone()
        if changed:
            tokens[:, LENGTH // 2 :] = 0
        return ContextParallel(model)(tokens, targets)[0].detach()

    (same, other), (again, changed) = (together(2, first_logits, flag) for flag in (False, True))
    assert torch.equal(same, again) and not torch.allclose(other, changed)


def test_a_transformer():
    model = TransformerLM(VOCABULARY, 16, 2, 2, 24, 0.0, "gelu", True, LENGTH).double()
    state = model.state_dict()

    def loss(workers: Workers) -> Tensor:
        own = TransformerLM(VOCABULARY, 16, 2, 2, 24, 0.0, "gelu", True, LENGTH).double()
        own.load_state_dict(state)
        return ContextParallel(own)(*batch()[:2], loss_only=True)[1].detach()

    expected = model(*batch()[:2], loss_only=True)[1]
    torch.testing.assert_close(torch.stack(together(2, loss)).mean(), expected.detach(), rtol=1e-12, atol=0)


def test_a_length_that_processes_do_not_divide():
    def call(workers: Workers) -> None:
        ContextParallel(build("DAT"))(batch()[0][:, :15])

    failures = outcomes_of(2, call)
    messages = [failure.message for failure in failures if not failure.silent]
    assert messages == ["tokens: expected a multiple of the 2 processes, got a length of 15"]
