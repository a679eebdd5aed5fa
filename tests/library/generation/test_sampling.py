"""Each way to reshape logits against its definition, worked out token by token in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.generation import (
    Sampling,
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    tokens_seen,
)
from tests.support.refusals import refused

# Quarters: sums and ties are exact, and distinct logits are far enough apart for every comparison.
LOGITS = st.lists(st.integers(-12, 12).map(lambda n: n / 4), min_size=1, max_size=9)


def tensor(logits: list[float]) -> torch.Tensor:
    return torch.tensor([logits], dtype=torch.float64)


def kept(logits: torch.Tensor) -> set[int]:
    assert ((logits == -math.inf) | logits.isfinite()).all()
    return set(logits[0].isfinite().nonzero().flatten().tolist())


def softmax(logits: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in logits)
    return [math.exp(x) / total for x in logits]


def unchanged_where_kept(before: list[float], after: torch.Tensor) -> bool:
    return all(after[0, v] == before[v] for v in kept(after))


@given(LOGITS, st.integers(1, 12))
def test_top_k(logits, k):
    after = keep_top_k(tensor(logits), k)
    assert kept(after) == {v for v, x in enumerate(logits) if sum(other > x for other in logits) < k}
    assert unchanged_where_kept(logits, after)


@given(LOGITS, st.floats(0.01, 1))
def test_top_p(logits, p):
    after = keep_top_p(tensor(logits), p)
    probabilities = softmax(logits)
    nucleus, mass = set(), 0.0
    for v in sorted(range(len(logits)), key=lambda v: -logits[v]):
        if abs(mass - p) < 1e-9 and p < 1:  # which side a rounded sum falls on is no matter of definition
            return
        if mass >= p:
            break
        nucleus.add(v)
        mass += probabilities[v]
    assert kept(after) == (nucleus if p < 1 else set(range(len(logits))))
    assert unchanged_where_kept(logits, after)


@given(LOGITS, st.floats(0, 1))
def test_min_p(logits, p):
    after = keep_min_p(tensor(logits), p)
    probabilities = softmax(logits)
    threshold = p * max(probabilities)
    if any(abs(q - threshold) < 1e-9 for q in probabilities) and p < 1:
        return
    expected = {v for v, x in enumerate(logits) if x == max(logits) or (p < 1 and probabilities[v] >= threshold)}
    assert kept(after) == expected
    assert unchanged_where_kept(logits, after)


@given(LOGITS, st.floats(0.1, 5), st.data())
def test_repetition_penalty(logits, penalty, data):
    seen = data.draw(st.lists(st.booleans(), min_size=len(logits), max_size=len(logits)))
    after = penalise_repetition(tensor(logits), torch.tensor([seen]), penalty)
    for x, y, was_seen in zip(logits, after[0].tolist(), seen, strict=True):
        assert y == (x if not was_seen else x / penalty if x > 0 else x * penalty)


@given(LOGITS, st.floats(0.05, 5))
def test_temperature(logits, temperature):
    probabilities = apply_temperature(tensor(logits), temperature).softmax(dim=-1)
    expected = softmax([x / temperature for x in logits])
    torch.testing.assert_close(probabilities[0].tolist(), expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_temperature_is_too_small(dtype):
    logits = torch.tensor([[1.0, 3.0, -math.inf, 2.0]], dtype=dtype)
    for temperature in (1e-3, 1e-30, 1e-50, 5e-324):
        assert apply_temperature(logits, temperature).softmax(dim=-1).tolist() == [[0, 1, 0, 0]]


def test_excluded_tokens_stay_excluded():
    logits = torch.tensor([[0.0, -math.inf, 1.0, 0.5]])
    for after in (
        apply_temperature(logits, 0.5),
        keep_top_k(logits, 4),
        keep_top_p(logits, 0.99),
        keep_min_p(logits, 0.01),
        penalise_repetition(logits, torch.ones(4, dtype=torch.bool), 1.5),
    ):
        assert kept(after) == {0, 2, 3}


def test_pure():
    """No function changes what it is given."""
    logits = torch.randn(2, 7)
    before = logits.clone()
    tokens = torch.tensor([[1, 2], [3, 3]])
    Sampling(0.5, 3, 0.8, 0.1, 1.3, [lambda tokens, logits: logits]).process(logits, tokens)
    assert torch.equal(logits, before)


def test_tokens_seen():
    tokens = torch.tensor([[2, 2, 0], [1, 3, 1]])
    assert tokens_seen(tokens, 5).int().tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0]]
    assert tokens_seen(tokens, 2).int().tolist() == [[1, 0], [0, 1]]  # of a decoder that reads more than it predicts
    padding = torch.tensor([[False, True, True], [False, False, True]])
    assert tokens_seen(tokens, 5, padding).int().tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]


def test_order():
    """Processors, penalty, temperature, top-k, top-p, min-p; any other order gives something else here."""
    logits = torch.tensor([[2.0, 1.9, 1.5, 1.0, -0.2, -1.0]], dtype=torch.float64)
    tokens = torch.tensor([[0, 4]])

    def shift(tokens, logits):
        return logits - 0.1 * tokens.shape[1]

    sampling = Sampling(0.7, top_k=4, top_p=0.8, min_p=0.3, repetition_penalty=1.6, processors=[shift])
    expected = penalise_repetition(logits - 0.2, tokens_seen(tokens, 6), 1.6)
    expected = keep_min_p(keep_top_p(keep_top_k(apply_temperature(expected, 0.7), 4), 0.8), 0.3)
    torch.testing.assert_close(sampling.process(logits, tokens), expected)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=1.7),
        Sampling(top_k=4),
        Sampling(top_p=0.7),
        Sampling(min_p=0.3),
        Sampling(0.8, 6, 0.9, 0.1, 1.4),
    ],
    ids=repr,
)
def test_draws_follow_the_distribution(sampling):
    """Frequencies of many draws, by a chi-squared statistic that exceeds its bound once in a million seeds."""
    logits, tokens, n = torch.randn(8, dtype=torch.float64), torch.tensor([[1, 3]]), 20_000
    expected = sampling.process(logits[None], tokens)[0].softmax(dim=-1)
    generator = torch.Generator().manual_seed(3)
    drawn = sampling.choose(logits.expand(n, -1), tokens.expand(n, -1), generator=generator)
    counts = drawn.bincount(minlength=8)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    statistic = ((counts - n * expected) ** 2 / (n * expected))[possible].sum()
    assert statistic < 45  # 7 degrees of freedom


def test_ties():
    """A nucleus keeps the first of equal tokens that it needs; top-k and min-p keep all; greedy takes the first."""
    equal = torch.zeros(1, 4)
    assert kept(keep_top_p(equal, 0.5)) == {0, 1} and kept(keep_top_p(equal, 0.51)) == {0, 1, 2}
    assert kept(keep_top_k(equal, 2)) == kept(keep_min_p(equal, 1)) == {0, 1, 2, 3}
    assert Sampling(0).choose(equal, torch.zeros(1, 1, dtype=torch.long)).item() == 0
    assert kept(keep_top_p(torch.tensor([[0.0, -50.0]]), 1)) == {0, 1}  # though the first has a mass that rounds to 1


def test_temperature_zero_is_the_largest_logit():
    logits, tokens = torch.randn(50, 9), torch.zeros(50, 1, dtype=torch.long)
    for more in ({}, {"top_k": 2}, {"top_p": 0.3, "min_p": 0.2}):
        assert torch.equal(Sampling(0, **more).choose(logits, tokens), logits.argmax(dim=-1))
    assert Sampling(0, repetition_penalty=10.0).choose(torch.tensor([[2.0, 1.0]]), torch.tensor([[0]])).item() == 1


def test_half_precision_logits_are_drawn_from_in_single_precision():
    logits = torch.randn(3, 9).bfloat16()
    processed = Sampling(0.7, top_p=0.9).process(logits, torch.zeros(3, 1, dtype=torch.long))
    assert processed.dtype == torch.float32
    torch.testing.assert_close(
        processed, Sampling(0.7, top_p=0.9).process(logits.float(), torch.zeros(3, 1, dtype=torch.long))
    )


ONE = torch.zeros(2, 1, dtype=torch.long)


test_what_is_refused = refused(
    (lambda: Sampling(temperature=-0.1), "temperature: expected a number of at least 0 .*-0.1"),
    (lambda: Sampling(temperature=math.nan), "temperature"),
    (lambda: Sampling(temperature=math.inf), "temperature"),
    (lambda: Sampling(temperature="1"), TypeError, "temperature: .*str"),
    (lambda: Sampling(temperature=None), TypeError, "temperature: .*NoneType"),
    (lambda: Sampling(top_k=0), "top_k: expected an integer of at least 1, got 0"),
    (lambda: Sampling(top_k=2.0), TypeError, "top_k: expected an integer, got float"),
    (lambda: Sampling(top_k=True), TypeError, "top_k"),
    (lambda: Sampling(top_p=0), r"top_p: expected a number in \(0, 1\], got 0"),
    (lambda: Sampling(top_p=1.01), "top_p"),
    (lambda: Sampling(top_p=math.nan), "top_p"),
    (lambda: Sampling(top_p=True), TypeError, "top_p"),
    (lambda: Sampling(min_p=-0.1), r"min_p: expected a number in \[0, 1\]"),
    (lambda: Sampling(min_p=2), "min_p"),
    (lambda: Sampling(repetition_penalty=0), "repetition_penalty: expected a number above 0, got 0"),
    (lambda: Sampling(repetition_penalty=-1.0), "repetition_penalty"),
    (lambda: Sampling(processors=[3]), TypeError, "logits_processors: expected a sequence of functions"),
    (lambda: Sampling(processors=abs), TypeError, "logits_processors"),
    *((lambda bad=bad, at=at: Sampling(at).choose(torch.tensor([[0.0] * 3, [bad] * 3]), ONE), "logits: .* finite")
      for bad in (math.nan, math.inf, -math.inf) for at in (0, 1)),
    *((lambda f=f: Sampling(processors=[f]).process(torch.zeros(1, 3), ONE[:1]), "logits_processors: expected logits")
      for f in (lambda t, x: x[:, :-1], lambda t, x: None)),
)  # fmt: skip
