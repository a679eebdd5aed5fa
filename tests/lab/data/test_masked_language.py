"""Masking of tokens for masked language modelling."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dat.data.masked_language import mask_tokens

MASK, VOCABULARY = 3, 20


def mask(tokens, **arguments):
    return mask_tokens(tokens, **{"mask_token": MASK, "vocab_size": VOCABULARY, **arguments})


def test_shares_are_berts():
    tokens = torch.randint(4, VOCABULARY, (400, 500))
    inputs, targets = mask(tokens, special_tokens=(0, 1, 2), generator=torch.Generator().manual_seed(0))
    chosen = targets != -100
    assert torch.equal(targets[chosen], tokens[chosen]) and torch.equal(inputs[~chosen], tokens[~chosen])
    assert chosen.double().mean().item() == pytest.approx(0.15, abs=0.003)
    masked = (inputs == MASK)[chosen].double().mean().item()
    changed = ((inputs != MASK) & (inputs != tokens))[chosen].double().mean().item()
    assert masked == pytest.approx(0.8, abs=0.01)
    assert changed == pytest.approx(0.1 * 15 / 16, abs=0.006)  # one random token in sixteen is the old one
    drawn = inputs[chosen & (inputs != MASK) & (inputs != tokens)]
    assert set(drawn.tolist()) == set(range(4, VOCABULARY))


@given(
    seed=st.integers(0, 1000),
    probability=st.floats(0, 1),
    shares=st.sampled_from([(0.8, 0.1), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 0.5)]),
    special=st.lists(st.integers(0, VOCABULARY - 1), max_size=4),
)
def test_what_may_not_be_chosen_is_left_alone(seed, probability, shares, special):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (4, 9), generator=generator)
    real = torch.rand(4, 9, generator=generator) < 0.7
    before = tokens.clone()
    arguments = {"mask_share": shares[0], "random_share": shares[1], "probability": probability, "ignore_index": -1}
    inputs, targets = mask(tokens, special_tokens=special, padding_mask=real, generator=generator, **arguments)
    assert torch.equal(tokens, before)
    chosen = targets != -1
    left = ~real | torch.isin(tokens, torch.tensor([MASK, *special]))
    assert not (chosen & left).any() and torch.equal(inputs[~chosen], tokens[~chosen])
    if probability == 1:
        assert torch.equal(chosen, ~left)
    found = inputs[chosen]
    assert not torch.isin(found, torch.tensor([token for token in special if token != MASK])).any()
    if shares == (1.0, 0.0):
        assert (found == MASK).all()
    if shares[0] == 0:
        assert not (found == MASK).any()
    if shares == (0.0, 0.0):
        assert torch.equal(inputs, tokens)


def test_the_same_seed_masks_the_same():
    tokens = torch.randint(4, VOCABULARY, (4, 30))
    one, other = (mask(tokens, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    torch.manual_seed(3)
    globally = mask(tokens)[0]
    torch.manual_seed(3)
    assert torch.equal(mask(tokens)[0], globally)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"tokens": torch.zeros(2, 3)}, TypeError, "tokens: expected integers"),
        ({"probability": 1.5}, ValueError, "probability: .*got 1.5"),
        ({"mask_share": -0.1}, ValueError, "mask_share: .*got -0.1"),
        ({"mask_share": 0.8, "random_share": 0.3}, ValueError, "mask_share, random_share: .*at most 1"),
        ({"mask_token": VOCABULARY}, ValueError, "mask_token: expected ids from 0 to 19"),
        ({"special_tokens": [-1]}, ValueError, "special_tokens: expected ids from 0 to 19"),
        ({"special_tokens": range(VOCABULARY)}, ValueError, "special_tokens: expected some token"),
        ({"padding_mask": torch.ones(2, 3)}, TypeError, "padding_mask: expected a boolean"),
        ({"padding_mask": torch.ones(2, 4).bool()}, ValueError, "padding_mask: expected shape"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        mask(**{"tokens": torch.zeros(2, 3, dtype=torch.long), **arguments})
