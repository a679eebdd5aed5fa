"""Whole models: parameters, arithmetic, kept tensors, caches and optimiser state are those of the real ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dat.estimate import Estimate, estimate
from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from dual_attention import (
    LANGUAGE_PRESETS,
    DualAttnTransformerEncoder,
    DualAttnTransformerLM,
    EncoderForMaskedLM,
    EncoderForSequenceClassification,
    Seq2SeqDualAttnTransformer,
    Seq2SeqTransformer,
    TransformerEncoder,
    TransformerLM,
)
from dual_attention._models.seq2seq import Seq2SeqModel
from dual_attention.baselines import Seq2SeqAbstractor
from tests.lab.estimate.measuring import Measured, in_pairs, measure, peak

pytestmark = pytest.mark.sweep(8)

VOCABULARY = 50

# Exact numbers of the paper's models; their names tell the trained parameters only.
PAPER = {
    "T-353M": (353_601_536, 353_601_536),
    "T-757M": (756_894_720, 756_894_720),
    "T-1.31B": (1_311_182_848, 1_311_182_848),
    "DAT-343M-nr8": (344_386_560, 343_337_984),
    "DAT-343M-nr32": (344_681_472, 343_632_896),
    "DAT-343M-nr64": (345_074_688, 344_026_112),
    "DAT-734M": (735_453_696, 733_880_832),
    "DAT-1.27B-nr128": (1_276_827_648, 1_272_633_344),
}


def tokens(*shape: int) -> Tensor:
    return torch.randint(VOCABULARY, shape)


def language_model(kind: str, length: int = 40, **changes: Any) -> TransformerLM | DualAttnTransformerLM:
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "n_layers": 2,
        "dff": None,
        "dropout_rate": 0.0,
        "activation": "gelu",
        "norm_first": True,
        "max_block_size": length,
        **changes,
    }
    if kind == "transformer":
        return TransformerLM(n_heads=4, **common)
    symbols = {"d_model": common["d_model"], "n_heads": 4, "n_symbols": 7}
    return DualAttnTransformerLM(n_heads_sa=2, n_heads_ra=2, symbol_retrieval_kwargs=symbols, **common)


def assert_same(found: Estimate, model: nn.Module, real: Measured) -> None:
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.trainable_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert found.forward_flops == real.forward
    assert found.backward_flops == real.backward
    assert found.activation_bytes == real.saved


@pytest.mark.slow
def test_heads_that_write_everywhere():
    everywhere = {"out_dim": 32}
    model = language_model("dat", sa_kwargs=everywhere, ra_kwargs=everywhere).train()
    x, targets = tokens(3, 20), tokens(3, 20)
    real = measure(model, lambda model: model(x, targets, loss_only=True).loss)
    assert_same(estimate(model, batch=3, length=20, device="cpu", fused_loss=True), model, real)


@pytest.mark.parametrize(
    "name", ["dat-1+1-sym", "rca-1+1", "dat-0+2-nr8-asym-symbolic-small-wr", "abstractor-symbol-stream", "esbn"]
)
def test_models_of_relational_games(name: str):
    model = build_games_model(PRESETS[name], 2, seed=0).train()
    images, labels = torch.randn(3, 3, 36, 36), torch.randint(2, (3,))
    real = measure(model, lambda model: F.cross_entropy(model(images), labels))
    assert_same(estimate(model, batch=3, device="cpu"), model, real)


@pytest.mark.parametrize("name", LANGUAGE_PRESETS)
def test_presets_of_language_models(name: str):
    """As many parameters as the paper says."""
    config = LANGUAGE_PRESETS[name]
    parameters = list(config.build(device="meta").parameters())
    counts = (sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad))
    assert counts == PAPER.get(name, counts)


@pytest.mark.parametrize("name", ["T-353M", "DAT-343M-nr8"])
def test_a_tied_output_counts_with_the_embedding(name: str):
    shallow = replace(LANGUAGE_PRESETS[name], n_layers=1)
    found = estimate(shallow, length=16, training=False)
    assert found.parameters == sum(parameter.numel() for parameter in shallow.build(device="meta").parameters())
    assert found.non_embedding_parameters == found.parameters - shallow.vocab_size * shallow.d_model


@pytest.mark.slow
def test_a_configuration_is_a_model():
    assert estimate(LANGUAGE_PRESETS["DAT-tiny"], length=16).parts == estimate("DAT-tiny", length=16).parts


CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "modern": {"pos_enc_type": "RoPE", "dropout_rate": 0.1, "activation": "swiglu", "norm_type": "rmsnorm"},
    "post-norm": {"norm_first": False, "tie_weights": False, "pos_enc_type": "none", "output_bias": True},
}


@in_pairs(kind=["transformer", "dat"], fused=[True, False], changes=list(CHANGES))
def test_language_models(kind: str, fused: bool, changes: str):
    model = language_model(kind, **CHANGES[changes]).train()
    x, targets = tokens(3, 20), tokens(3, 20)
    real = measure(model, lambda model: model(x, targets, loss_only=fused).loss)
    assert_same(estimate(model, batch=3, length=20, device="cpu", fused_loss=fused), model, real)


@pytest.mark.parametrize(("kind", "dropout"), [("transformer", 0.1), ("dat", 0.0), ("dat", 0.1)])
def test_checkpointed_blocks(kind: str, dropout: float):
    """Arithmetic is that of a real step; what is kept while a block is computed again is not seen by hooks."""
    model = language_model(kind, dropout_rate=dropout).train()
    model.gradient_checkpointing = True
    x, targets = tokens(3, 20), tokens(3, 20)
    real = measure(model, lambda model: model(x, targets, loss_only=True).loss)
    found = estimate(model, batch=3, length=20, device="cpu")
    assert found.checkpointing
    assert (found.forward_flops, found.backward_flops) == (real.forward, real.backward)
    plain = estimate(model, batch=3, length=20, device="cpu", checkpointing=False)
    assert real.saved < found.activation_bytes < plain.activation_bytes
    assert {"checkpoints", "recomputed block"} <= {part.name for part in found.parts}
    assert found.forward_flops == plain.forward_flops
    assert plain.backward_flops < found.backward_flops < plain.backward_flops + plain.forward_flops
    assert model.gradient_checkpointing


def encoders() -> dict[str, Callable[[], TransformerEncoder | DualAttnTransformerEncoder]]:
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "n_layers": 2,
        "dff": None,
        "dropout_rate": 0.1,
        "activation": "gelu",
        "norm_first": True,
        "max_block_size": 40,
    }
    symbols = {"d_model": 32, "n_heads": 4, "n_symbols": 7}
    return {
        "transformer": lambda: TransformerEncoder(n_heads=4, **common),
        "dat": lambda: DualAttnTransformerEncoder(
            n_heads_sa=2, n_heads_ra=2, symbol_retrieval_kwargs=symbols, pos_enc_type="RoPE", **common
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", encoders())
def test_encoders(kind: str):
    encoder = encoders()[kind]().train()
    x = tokens(3, 20)
    sizes: dict[str, Any] = {"batch": 3, "length": 20, "device": "cpu"}
    assert_same(estimate(encoder, **sizes), encoder, measure(encoder, lambda model: model(x).sum()))
    masked, targets = EncoderForMaskedLM(encoder).train(), tokens(3, 20)
    assert_same(estimate(masked, **sizes), masked, measure(masked, lambda model: model(x, targets).loss))
    classifier, labels = EncoderForSequenceClassification(encoder, 3).train(), torch.randint(3, (3,))
    assert_same(estimate(classifier, **sizes), classifier, measure(classifier, lambda model: model(x, labels).loss))


def seq2seq(kind: str, spec: dict[str, Any], out_dim: int) -> Seq2SeqModel:
    common: dict[str, Any] = {"dff": 64, "dropout_rate": 0.1, "activation": "relu", "norm_first": False}
    cross = {"n_heads_cross": 4}
    if kind == "transformer":
        common["n_heads"] = 4
        return Seq2SeqTransformer(spec, spec, 32, out_dim, 2, 1, common, {**common, **cross}, 30, 40)
    symbols = {"d_model": 32, "n_heads": 4, "n_symbols": 7}
    if kind == "abstractor":
        common["n_heads"] = 4
        depths, decoder = (1, 1, 1), {**common, **cross}
        return Seq2SeqAbstractor(
            spec, spec, "symbolic_attention", symbols, 32, out_dim, *depths, common, common, decoder, 30, 40
        )
    common |= {"n_heads_sa": 2, "n_heads_ra": 2}
    return Seq2SeqDualAttnTransformer(
        spec, spec, "symbolic_attention", symbols, 32, out_dim, 2, 2, common, {**common, **cross}, 30, 40
    )


@pytest.mark.parametrize("kind", ["transformer", "dat", "abstractor"])
def test_sequence_to_sequence(kind: str):
    model = seq2seq(kind, {"type": "token", "vocab_size": VOCABULARY}, VOCABULARY).train()
    source, target, targets = tokens(3, 15), tokens(3, 20), tokens(3, 20)
    real = measure(model, lambda model: model(source, target, targets)[1])
    found = estimate(model, batch=3, length=20, context_length=15, device="cpu")
    assert_same(found, model, real)
    cache = model.eval().new_cache()
    with torch.no_grad():
        model.decode(target, model.encode(source), cache=cache)
    assert found.cache_bytes() == 4 * cache.numel()


def test_sequences_of_vectors():
    model = seq2seq("transformer", {"type": "vector", "dim": 6}, 6).train()
    source, target, targets = torch.randn(3, 15, 6), torch.randn(3, 20, 6), torch.randn(3, 20, 6)
    real = measure(model, lambda model: model(source, target, targets)[1])
    assert_same(estimate(model, batch=3, length=20, context_length=15, device="cpu"), model, real)


@in_pairs(
    retrieval=["symbolic_attention", "rel_sym_attn", "positional_symbols", "position_relative"],
    window=[None, 6],
    ra_type=["relational_attention", "rca", "disrca"],
)
def test_caches(retrieval: str, window: int | None, ra_type: str):
    """Bytes of a real cache after as many tokens, window and all."""
    symbols: dict[str, Any] = {
        "symbolic_attention": {"d_model": 32, "n_heads": 4, "n_symbols": 7},
        "rel_sym_attn": {"d_model": 32, "rel_n_heads": 2, "symbolic_attn_n_heads": 4, "n_symbols": 7, "nbhd_delta": 3},
        "positional_symbols": {"symbol_dim": 32, "max_length": 40},
        "position_relative": {"symbol_dim": 32, "max_rel_pos": 5},
    }[retrieval]
    relative = {"use_relative_positional_symbols": retrieval == "position_relative"}
    model = DualAttnTransformerLM(
        VOCABULARY, 32, 1, 2, 2, symbols, None, 0.0, "gelu", True, 40,
        symbol_retrieval=retrieval, ra_type=ra_type,
        sa_kwargs={"n_kv_heads": 1, "window": window}, ra_kwargs={"window": window, **relative},
    )  # fmt: skip
    found = estimate(model, batch=2, length=20, training=False)
    for length in (3, 20):
        cache = model.eval().new_cache()
        with torch.no_grad():
            model(tokens(2, length), cache=cache)
        assert found.cache_bytes(length) == 4 * cache.numel()
        assert found.cache_bytes_per_token == 4 * cache.numbers_per_token
    assert found.cache_bytes() == 4 * cache.numel()
    assert found.cache_bytes(batch=5) * 2 == found.cache_bytes() * 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("window", [None, 4])
def test_caches_of_squared_distances(dtype: torch.dtype, window: int | None):
    """Their relation keys are kept in float32."""
    relational = {"n_relations": 2, "rel_proj_dim": 4, "rel_score": "squared_distance", "window": window}
    model = language_model("dat", ra_kwargs=relational).eval().to(dtype)
    found, cache = estimate(model, batch=2, length=20, training=False), model.new_cache(max_length=20)
    with torch.no_grad():
        model(tokens(2, 20), cache=cache)
    kept = [(part, buffer) for part in token_caches(cache) for buffer in part._buffers.values()]
    assert found.cache_bytes() == sum(buffer[..., : part.held, :].nbytes for part, buffer in kept)


def token_caches(cache: Any) -> list[Any]:
    if not hasattr(cache, "caches"):
        return [cache]
    return [part for inner in cache.caches.values() for part in token_caches(inner)]


@pytest.mark.slow
def test_optimizer_state():
    model = language_model("dat")
    model.layers.symbol_retrievers[0].symbol_library.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(tokens(2, 5), tokens(2, 5)).loss.backward()
    optimizer.step()
    state = [tensor for of_tensor in optimizer.state.values() for tensor in of_tensor.values()]
    found = estimate(model, batch=2, length=5)
    assert found.optimizer_bytes == sum(tensor.nbytes for tensor in state)
    assert found.gradient_bytes == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    assert found.parameter_bytes == sum(p.nbytes for p in model.parameters())


@pytest.fixture
def fused_symbols(monkeypatch):
    """Symbols come from fused attention, as on a GPU, which some CPUs leave in bfloat16."""
    monkeypatch.setattr("dual_attention.functional.symbol_assignment.multiplies_bfloat16_in_vectors", lambda q: False)


@pytest.mark.usefixtures("fused_symbols")
@pytest.mark.parametrize(("kind", "fused"), [("transformer", False), ("dat", True)])
def test_autocast(kind: str, fused: bool):
    """Kept tensors and the parameters' copies; biases are copied, but not kept for the backward pass."""
    model = language_model(kind, norm_type="rmsnorm", pos_enc_type="RoPE", dropout_rate=0.1).train()
    x, targets = tokens(3, 20), tokens(3, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        real = measure(model, lambda model: model(x, targets, loss_only=fused).loss)
    found = estimate(model, batch=3, length=20, device="cpu", dtype="bf16", param_dtype=torch.float32, fused_loss=fused)
    biases = sum(p.numel() for name, p in model.named_parameters() if name.endswith("bias") and "norm" not in name)
    assert found.activation_bytes + found.cast_bytes == real.saved + 2 * biases
    assert (found.forward_flops, found.backward_flops) == (real.forward, real.backward)


@pytest.mark.usefixtures("fused_symbols")
@pytest.mark.parametrize(("kind", "fused"), [("transformer", True), ("dat", False)])
def test_low_precision(kind: str, fused: bool):
    model = language_model(kind, pos_enc_type="RoPE").to(torch.bfloat16).train()
    x, targets = tokens(3, 20), tokens(3, 20)
    real = measure(model, lambda model: model(x, targets, loss_only=fused).loss)
    found = estimate(model, batch=3, length=20, device="cpu", fused_loss=fused)
    assert found.dtype == found.param_dtype == torch.bfloat16
    assert_same(found, model, real)
    # The model in float32, and the dtype asked for.
    assert estimate(model.float(), batch=3, length=20, device="cpu", fused_loss=fused, dtype="bfloat16") == found


@pytest.mark.slow
@in_pairs(
    kind=["transformer", "dat"],
    sizes=[(50, 256), (3000, 256), (50, 400)],
    fused=[True, False],
    checkpointing=[False, True],
)
def test_peaks(kind: str, sizes: tuple[int, int], fused: bool, checkpointing: bool):
    """A profiler's peak of a whole step and of a forward pass, by PyTorch's operations: within a tenth."""
    vocabulary, length = sizes
    model = language_model(kind, length, vocab_size=vocabulary, d_model=64, n_layers=3)
    model.gradient_checkpointing = checkpointing
    found = estimate(model, batch=4, length=length, device="cpu", fused_loss=fused)
    x = tokens(4, length)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    training = peak(lambda: model.train()(x, x, loss_only=fused).loss.backward())
    assert found.activation_bytes + found.transient_bytes == pytest.approx(training, rel=0.1)
    with torch.no_grad():
        inference = peak(lambda: model.eval()(x))
    assert found.inference_bytes == pytest.approx(inference, rel=0.1)


@pytest.mark.parametrize(
    "name", ["transformer-128-h8", "dat-0+2-sym", "rca-1+1", "dat-4+4-sym", "dat-0+2-sym-symbolic"]
)
def test_peaks_of_image_models(name: str):
    model = build_games_model(PRESETS[name], 2, seed=0)
    found = estimate(model, batch=64, device="cpu")
    images, labels = torch.randn(64, 3, 36, 36), torch.randint(2, (64,))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    training = peak(lambda: F.cross_entropy(model.train()(images), labels).backward())
    assert found.activation_bytes + found.transient_bytes == pytest.approx(training, rel=0.1)
    with torch.no_grad():
        inference = peak(lambda: model.eval()(images))
    assert found.inference_bytes == pytest.approx(inference, rel=0.15)
