"""Memory that is kept between calls."""

import threading

import pytest
import torch

from dual_attention.functional import free_workspace, relational_attention
from dual_attention.functional.relational import workspace
from dual_attention.functional.relational.workspace import Workspace


@pytest.fixture(autouse=True)
def nothing_kept():
    free_workspace()
    yield
    free_workspace()


def test_the_same_memory_again():
    memory = Workspace(torch.zeros(1, dtype=torch.float64))
    first = memory.tensor("a", 4, 5)
    assert first.dtype == torch.float64
    assert memory.tensor("a", 2, 3).data_ptr() == first.data_ptr()
    assert memory.tensor("b", 2, 3).data_ptr() != first.data_ptr()
    assert memory.tensor("a", 100).shape == (100,)


def test_memory_serves_the_next_workspace_of_its_type():
    first = Workspace(torch.zeros(1)).tensor("a", 10)
    assert Workspace(torch.ones(3)).tensor("a", 10).data_ptr() == first.data_ptr()
    assert Workspace(torch.zeros(1, dtype=torch.float64)).tensor("a", 10).data_ptr() != first.data_ptr()


def test_large_tensors_are_not_kept():
    numbers = workspace.LARGEST_KEPT // 4
    memory = Workspace(torch.zeros(1))
    memory.tensor("a", numbers)
    large = memory.tensor("b", numbers + 1)
    assert memory.tensor("b", numbers + 1).data_ptr() == large.data_ptr()
    assert set(memory.kept) == {"a"}
    assert "b" not in Workspace(torch.zeros(1)).kept
    memory.tensor("a", numbers + 1)  # for which what is kept makes way
    assert not memory.kept


def test_memory_is_given_back():
    Workspace(torch.zeros(1)).tensor("a", 10)
    assert Workspace(torch.zeros(1)).kept
    free_workspace()
    assert not Workspace(torch.zeros(1)).kept


def test_a_workspace_on_another_device_keeps_nothing():
    memory = Workspace(torch.zeros(1, device="meta"))
    memory.tensor("a", 10)
    assert not Workspace(torch.zeros(1)).kept
    assert not Workspace(torch.zeros(1, device="meta")).kept


def attend(seed: int, batch: int = 2) -> tuple[torch.Tensor, ...]:
    """An output of blocks of receivers, and gradients."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    heads, n = 4, 150
    q, k, symbols = draw(batch, heads, n, 8), draw(batch, heads, n, 8), draw(batch, heads, n, 8)
    u, w, w_r = draw(batch, n, 4, 8), draw(batch, n, 4, 8), draw(heads, 8, 4)
    inputs = (q, k, u, w, symbols, w_r)
    out = relational_attention(*inputs, scale=0.3, rel_scale=0.5, impl="linear").output
    return out.detach(), *torch.autograd.grad(out, inputs, out.detach())


def test_memory_made_in_inference_mode_serves_training():
    expected = attend(0)
    free_workspace()
    with torch.inference_mode():
        relational_attention(
            *(torch.randn(1, 1, 20, 4, dtype=torch.float64) for _ in range(2)),
            *(torch.randn(1, 20, 1, 4, dtype=torch.float64) for _ in range(2)),
            torch.randn(1, 1, 20, 4, dtype=torch.float64),
            torch.randn(1, 4, 1, dtype=torch.float64),
            scale=1.0,
            rel_scale=1.0,
            impl="linear",
        )
    torch.testing.assert_close(attend(0), expected)


def test_threads_have_memory_of_their_own():
    """Both compute at the same time; each result is that of its own numbers."""
    expected = {seed: attend(seed) for seed in (1, 2)}
    found: dict[int, list[tuple[torch.Tensor, ...]]] = {1: [], 2: []}
    together = threading.Barrier(2)

    def work(seed: int) -> None:
        for _ in range(5):
            together.wait()
            found[seed].append(attend(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, results in found.items():
        assert len(results) == 5
        for result in results:
            torch.testing.assert_close(result, expected[seed])
