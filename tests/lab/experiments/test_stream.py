"""The stream of draws."""

import torch

from dat.experiments.stream import BLOCK, Stream


def drawn(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed))
    return numbers, numbers.sum(-1)


def test_an_index_is_always_the_same_example():
    stream = Stream(drawn, seed=1)
    whole = stream.batch(torch.arange(2 * BLOCK))
    again = Stream(drawn, seed=1)
    for indices in (torch.tensor([BLOCK + 5, 3]), torch.arange(BLOCK - 2, BLOCK + 2), torch.tensor([3, 3])):
        for of_all, some in zip(whole, again.batch(indices), strict=True):
            assert torch.equal(of_all[indices], some)
    assert not torch.equal(whole[0], Stream(drawn, seed=2).batch(torch.arange(2 * BLOCK))[0])
    assert not torch.equal(whole[0][:BLOCK], whole[0][BLOCK:])


def test_a_block_is_drawn_once_for_the_batches_in_it():
    calls = []
    stream = Stream(lambda n, seed: (calls.append(seed), drawn(n, seed))[1], seed=0)
    for indices in torch.arange(2 * BLOCK).split(BLOCK // 4):
        stream.batch(indices)
    assert len(calls) == 2
