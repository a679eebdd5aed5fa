"""The loop over any decoder, as a model with an encoder would use it."""

import torch
from torch import nn

from dual_attention.generation import Sampling, decode, evaluating

from .models import Prefixes


def test_a_row_that_ended_is_padded_while_others_go_on():
    """The last token is not fed back, nor any after all rows have ended."""
    decoder = Prefixes(6)
    free = torch.stack(list(decode(Prefixes(6), torch.tensor([[0], [5]]), 7, Sampling(0))), dim=1).tolist()
    stop = next(token for token in free[0] if free[0].index(token) != (free[1] + [token]).index(token))
    ends = [[*row, stop].index(stop) for row in free]
    arguments = {"stop_tokens": (stop,), "pad_token": 3}
    tokens = torch.stack(list(decode(decoder, torch.tensor([[0], [5]]), 7, Sampling(0), **arguments)), dim=1).tolist()
    for row, new, end in zip(free, tokens, ends, strict=True):
        assert new == [token if i <= end else 3 for i, token in enumerate(row[: len(new)])]
    assert len(tokens[0]) == min(7, max(ends) + 1)
    assert decoder.tokens.shape[1] == len(tokens[0])


def test_evaluating():
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        with evaluating(model):
            pass
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert torch.is_grad_enabled()
    with torch.no_grad(), evaluating(lambda x: x):  # no module: nothing to restore
        pass
