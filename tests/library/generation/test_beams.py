"""Beam search against all texts there are, against a plain search one row at a time, and with language models."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dual_attention.generation import BeamSearch, beam_search, left_pad, search_beams
from tests.support.refusals import refusals

from .models import CONTEXT, Prefixes, greedily, next_logits, small_lm

PROMPT = [4, 1, 7]


def log_probabilities(logits, prefix: list[int]) -> list[float]:
    return logits(prefix).log_softmax(dim=-1).tolist()


def all_texts(logits, prompt, longest, vocabulary, stops, penalty) -> list[tuple[float, list[int]]]:
    """Every text that ends with a stop token, or is cut at ``longest``, with its score; best first."""
    found = []
    for length in range(1, longest + 1):
        for text in itertools.product(range(vocabulary), repeat=length):
            ends = text[-1] in stops
            if any(token in stops for token in text[:-1]) or not (ends or length == longest):
                continue
            total = sum(log_probabilities(logits, [*prompt, *text[:i]])[text[i]] for i in range(length))
            found.append((total / length**penalty, list(text)))
    return sorted(found, reverse=True)


def plain_search(logits, prompt, longest, search: BeamSearch) -> list[tuple[float, list[int]]]:
    """The definition for one prompt, with lists, without its rule for when to stop; best first."""
    live, finished = [(0.0, [])], []
    for length in range(1, longest + 1):
        candidates = [
            (total + step, [*text, token])
            for total, text in live
            for token, step in enumerate(log_probabilities(logits, [*prompt, *text]))
        ]
        candidates.sort(key=lambda c: -c[0])
        ending = [c for c in candidates[: search.num_beams] if c[1][-1] in search.stop_tokens]
        finished += [(total / length**search.length_penalty, text) for total, text in ending]
        finished = sorted(finished, key=lambda c: -c[0])[: search.num_beams]
        live = [c for c in candidates if c[1][-1] not in search.stop_tokens][: search.num_beams]
        if search.early_stopping and len(finished) == search.num_beams:
            return finished
    finished += [(total / longest**search.length_penalty, text) for total, text in live]
    return sorted(finished, key=lambda c: -c[0])


def assert_found(output, row: int, expected: list[tuple[float, list[int]]], pad: int) -> None:
    tokens, scores = output.tokens[row].tolist(), output.scores[row].tolist()
    expected = expected[: len(tokens)]
    torch.testing.assert_close(scores[: len(expected)], [score for score, _ in expected], atol=1e-12, rtol=1e-12)
    for found, (_, text) in zip(tokens, expected, strict=False):
        assert found == [*text, *[pad] * (len(found) - len(text))]
    for found, score in zip(tokens[len(expected) :], scores[len(expected) :], strict=True):
        assert score == -math.inf
        assert set(found) <= {pad}


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("stops", [(), (1,), (0, 3)])
def test_with_room_for_all_texts_the_best_are_found(stops, penalty):
    vocabulary, longest = 4, 3
    search = BeamSearch(4**3, 10, penalty, stop_tokens=stops, pad_token=2)
    prompts = torch.tensor([[0, 1], [2, 2], [3, 0]])
    output = search_beams(Prefixes(vocabulary), prompts, longest, search)
    for row, prompt in enumerate(prompts.tolist()):
        expected = all_texts(Prefixes(vocabulary).logits, prompt, longest, vocabulary, stops, penalty)
        assert_found(output, row, expected, pad=2)


@given(
    seed=st.integers(0, 10**6),
    vocabulary=st.integers(2, 6),
    beams=st.integers(1, 5),
    data=st.data(),
    longest=st.integers(1, 7),
    penalty=st.sampled_from([0.0, 0.5, 1.0, 3.0, -0.5]),
    early=st.booleans(),
    scale=st.sampled_from([0.3, 1.0, 4.0]),
)
def test_as_the_definition(seed, vocabulary, beams, data, longest, penalty, early, scale):
    """Rows of a batch end at different times, and stopping early enough loses nothing that is returned."""
    stops = data.draw(st.lists(st.integers(0, vocabulary - 1), max_size=vocabulary - 1, unique=True))
    search = BeamSearch(beams, data.draw(st.integers(1, beams)), penalty, early, tuple(stops), pad_token=0)
    prompts = torch.tensor([[0], [1], [vocabulary - 1]])
    decoder = Prefixes(vocabulary, seed, scale)
    output = search_beams(decoder, prompts, longest, search)
    for row, prompt in enumerate(prompts.tolist()):
        assert_found(output, row, plain_search(decoder.logits, prompt, longest, search), pad=0)


def test_a_row_that_is_done_costs_no_more_steps():
    """With a stop token that is nearly certain, one step decides."""

    class Certain(Prefixes):
        steps = 0

        def step(self, tokens):
            self.steps += 1
            logits = super().step(tokens)
            logits[:, 1] = 50.0
            return logits

    for penalty in (0.0, 1.0):
        decoder = Certain(4)
        output = search_beams(decoder, torch.tensor([[0], [2]]), 100, BeamSearch(3, 1, penalty, stop_tokens=(1,)))
        assert output.tokens.tolist() == [[[1]], [[1]]]
        assert decoder.steps == 1


@pytest.mark.parametrize(("early", "longest", "wins"), [(False, 5, True), (True, 5, False), (False, 2, False)])
def test_a_longer_text_may_still_win(early, longest, wins):
    """Stopping at once is likelier, but what goes on is certain: over enough tokens it scores better."""

    class GoesOn(Prefixes):
        def logits(self, prefix):
            stop = 0.7 if len(prefix) == 1 else 1e-9
            return torch.tensor([stop, 1 - stop], dtype=torch.float64).log()

    output = search_beams(GoesOn(2), torch.tensor([[0]]), longest, BeamSearch(2, 1, 1.0, early, (0,)))
    assert set(output.tokens[0, 0].tolist()) == ({1} if wins else {0})
    assert output.scores.item() == pytest.approx(math.log(0.3) / 5 if wins else math.log(0.7))


def test_what_could_only_equal_the_finished_texts_is_not_looked_for():
    class GoesOn(Prefixes):
        """Stops or not, alike; then goes on for certain."""

        def logits(self, prefix):
            return torch.tensor([0.0, 0.0 if len(prefix) == 1 else 1e9], dtype=torch.float64)

    decoder = GoesOn(2)
    output = search_beams(decoder, torch.tensor([[1]]), 5, BeamSearch(1, 1, 0.0, stop_tokens=(0,)))
    assert output.tokens.tolist() == [[[0]]] and decoder.tokens.shape[1] == 1


def test_sums_of_half_precision_are_in_single_precision():
    class Rounded(Prefixes):
        dtype = torch.bfloat16

        def step(self, tokens):
            return super().step(tokens).bfloat16().to(self.dtype)

    narrow, wide = Rounded(5), Rounded(5)
    wide.dtype = torch.float32
    ours, theirs = (search_beams(x, torch.tensor([[0], [2]]), 6, BeamSearch(3, 3)) for x in (narrow, wide))
    assert torch.equal(ours.tokens, theirs.tokens)
    torch.testing.assert_close(ours.scores, theirs.scores)


def test_only_stop_tokens():
    """Nothing can live on; what was asked for beyond that does not exist."""
    output = search_beams(Prefixes(3), torch.tensor([[0]]), 5, BeamSearch(5, 5, stop_tokens=(0, 1, 2), pad_token=1))
    assert_found(output, 0, all_texts(Prefixes(3).logits, [0], 5, 3, (0, 1, 2), 1.0), pad=1)
    assert output.scores.isfinite().sum() == 3


# ---- With language models


@pytest.fixture
def model():
    return small_lm()


def test_one_beam_is_greedy(model):
    tokens, scores = beam_search(model, torch.tensor([PROMPT]), 15, 1)
    expected = greedily(model, PROMPT, 15)
    assert tokens.tolist() == [[expected]]
    total = sum(next_logits(model, expected[:i]).log_softmax(-1)[expected[i]].item() for i in range(3, 18))
    assert scores.item() == pytest.approx(total / 15)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("arguments", [{}, {"rope": True, "dual": False}, {"window": 3}], ids=str)
@pytest.mark.parametrize("stride", [1, 3])
def test_padded_batches_past_the_context(arguments, use_cache, stride):
    """Each row finds what the definition finds with its prompt alone."""
    model = small_lm(**arguments)
    texts = [PROMPT, [6], [2, 9, 4, 4, 0, 1]]
    tokens, mask = left_pad(texts)
    longest, stops, kind = CONTEXT + 3, (5, 11), {"length_penalty": 2.0 - stride, "early_stopping": use_cache}
    options = {"stop_tokens": stops, "pad_token": 0, "use_cache": use_cache, "window_stride": stride, **kind}
    output = beam_search(model, tokens, longest, 3, num_return=2, padding_mask=mask, **options)
    assert torch.equal(output.tokens[:, 0, :6], tokens)
    assert torch.equal(output.tokens[:, 1, :6], tokens)
    search = BeamSearch(3, 2, stop_tokens=stops, **kind)
    for row, text in enumerate(texts):
        expected = plain_search(lambda prefix: next_logits(model, prefix, stride), text, longest, search)
        new = output._replace(tokens=output.tokens[:, :, 6:])
        assert_found(new, row, expected, pad=0)


def test_methods_and_modes(model):
    model.train()
    model.blocks[1].eval()
    before = [module.training for module in model.modules()]
    output = model.beam_search(torch.tensor([PROMPT]), 5, 3)
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()
    assert not output.scores.requires_grad
    again = beam_search(model.eval(), torch.tensor([PROMPT]), 5, num_beams=3)
    assert torch.equal(output.tokens, again.tokens)


def test_nothing_to_add(model):
    tokens, scores = beam_search(model, torch.tensor([PROMPT]), 0, 3, num_return=2)
    assert tokens.tolist() == [[PROMPT, PROMPT]]
    assert scores.tolist() == [[0, -math.inf]]
    assert beam_search(model, torch.empty(0, 2, dtype=torch.long), 4, 3).tokens.shape == (0, 1, 2)
    assert model.calls == []


@refusals(
    ({"num_beams": 0}, "num_beams: expected an integer of at least 1, got 0"),
    ({"num_beams": 2.0}, TypeError, "num_beams"),
    ({"num_return": 0}, "num_return"),
    ({"num_return": 4}, "num_return: expected at most num_beams=3, got 4"),
    ({"length_penalty": math.nan}, "length_penalty: expected a finite number"),
    ({"length_penalty": "1"}, TypeError, "length_penalty"),
    ({"early_stopping": "never"}, TypeError, "early_stopping: expected True or False"),
    ({"use_cache": "no"}, TypeError, "use_cache: expected True or False"),
    ({"max_new_tokens": -1}, "max_new_tokens"),
    ({"stop_tokens": [13]}, "stop_tokens"),
    ({"idx": torch.zeros(2, 0, dtype=torch.long)}, "idx"),
    ({"padding_mask": torch.tensor([[True, True, False]])}, "padding_mask: expected left padding"),
    ({"window_stride": 0}, "window_stride"),
    ({"temperature": 0.5}, TypeError, "temperature"),
    of="arguments",
)
def test_bad_arguments(model, arguments, error, message):
    with pytest.raises(error, match=message):
        beam_search(model, **{"idx": torch.tensor([PROMPT]), "max_new_tokens": 3, "num_beams": 3, **arguments})
    assert model.calls == []


def test_a_diverged_model(model):
    with torch.no_grad():
        model.out.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="logits: expected finite ones"):
        beam_search(model, torch.tensor([PROMPT]), 3, 2)
