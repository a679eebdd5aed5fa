"""One token from a cache: its scores, what stays in the cache, and the bytes that it needs."""

import pytest
import torch

from benchmarks.cases import Case
from benchmarks.comparing import difference, draw
from benchmarks.decoding import OwnCache, bytes_of_weights, filled
from benchmarks.floors import multiply_adds
from benchmarks.runner import Runner
from benchmarks.subjects import build
from benchmarks.suites import decoding
from benchmarks.suites.generation import SYMBOLS
from benchmarks.suites.layers import QUICK
from benchmarks.work import Decoding, Settings, Work

CONTEXT, BATCH = 20, 3


def case(symbols: str, context: int = CONTEXT) -> Case:
    return decoding.case(symbols, BATCH, context, quick=True)


def side(name: str, symbols: str = SYMBOLS[0], context: int = CONTEXT) -> Work:
    return next(spec.work for spec in case(symbols, context).sides if spec.name == name)


def runner(work: Work) -> Runner:
    return Runner(work, Settings(), draw(work, Settings()))


@pytest.mark.parametrize("symbols", SYMBOLS)
def test_a_token_scores_as_in_one_pass_however_often_it_is_tried(symbols: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.decoding.CHUNK", 7)  # the last chunk is a shorter one
    wanted = runner(side("one pass", symbols)).values("decode")
    assert wanted["output"].shape == (BATCH, 1, QUICK.vocabulary)
    ours = runner(side("ours", symbols))
    for _ in range(3):
        assert difference(ours.values("decode"), wanted).size < 1e-5


@pytest.mark.parametrize("name", ["plain", "llama"])
def test_rivals_see_the_same_context_each_time(name: str):
    pytest.importorskip("transformers", reason="a rival that is measured where it is installed")
    rival = runner(side(name))
    first = rival.values("decode")
    whole = rival.module(rival.inputs["x"])[:, -1:].detach().expand(BATCH, -1, -1)
    assert difference(first, {"output": whole}).size < 1e-5
    rival.sample("decode", 3)
    assert difference(rival.values("decode"), first).size == 0.0


@pytest.mark.parametrize("name", ["plain", "llama"])
def test_bytes_of_a_rival(name: str):
    """Every weight once, the output layer is the embedding, and of each token held keys and values in each layer."""
    pytest.importorskip("transformers", reason="a rival that is measured where it is installed")
    rival = runner(side(name))
    weights = sum(p.nbytes for p in rival.module.parameters())
    assert rival.traffic("decode") == weights + BATCH * CONTEXT * 2 * QUICK.d_model * 4


def test_reading_takes_what_ours_has_to_read():
    ours, reading = (runner(side(name)) for name in ("ours", "reading"))
    assert reading.traffic("decode") == ours.traffic("decode")
    assert reading.decode().item() == ours.traffic("decode") / 4  # of as many ones
    assert multiply_adds(reading.work, "decode") == 0


def weights_of(symbols: str, context: int) -> tuple[int, int]:
    """Bytes of weights that are needed, and all."""
    work = side("ours", symbols, context)
    with torch.device("meta"):
        module = build(work.subject, work.kwargs)
    return bytes_of_weights(module, context), sum(p.nbytes for p in module.parameters())


def test_tables_that_are_looked_up_need_no_bytes():
    one = QUICK.d_model * 4
    needed, everything = weights_of("positional_symbols", CONTEXT)
    assert everything - needed == (CONTEXT + 1) * one
    needed, everything = weights_of("symbolic_attention", CONTEXT)
    assert needed == everything
    needed, everything = weights_of("position_relative", CONTEXT)  # of 2 * 21 + 1 offsets those of 20 tokens and itself
    assert everything - needed == (43 - 21) * one


def test_an_output_layer_of_its_own_leaves_the_embedding_out():
    work = side("plain")
    with torch.device("meta"):
        module = build(work.subject, {**work.kwargs, "tie_weights": False})
    everything = sum(p.nbytes for p in module.parameters())
    assert everything - bytes_of_weights(module, CONTEXT) == QUICK.vocabulary * QUICK.d_model * 4


def test_reserved_memory_is_not_held():
    ours = runner(side("ours"))
    decoding_of = Decoding(CONTEXT, batch=2)
    held = filled("model", ours.module.eval().model, ours.inputs["x"], decoding_of)
    assert isinstance(held, OwnCache)
    assert held.nbytes() < held.cache.nbytes()
    assert held.nbytes() == 2 * CONTEXT * held.cache.numbers_per_token * 4


def test_arithmetic_of_a_token():
    """Of a plain layer: its weights, the output layer, and the products with every token that it sees, for each row."""
    sizes = QUICK
    weights = 4 * sizes.d_model**2 + 2 * sizes.d_model * sizes.dff
    seen = 2 * sizes.d_model * (CONTEXT + 1)
    assert multiply_adds(side("plain"), "decode") == BATCH * (weights + seen + sizes.vocabulary * sizes.d_model)
    assert multiply_adds(side("ours"), "decode") > 0
