"""Peak memory: exact sums on the CPU; and the best rates, of whatever runs."""

import sys

import pytest
import torch

from benchmarks.measuring import RateMeter, highest_sum, peak_allocated, peak_memory, peak_resident
from benchmarks.work import Settings


def test_highest_sum_is_in_order_of_time():
    assert highest_sum([(2.0, -8), (0.0, 5), (1.0, 4), (3.0, 6)]) == 9
    assert highest_sum([]) == 0


def test_peak_of_known_allocations():
    def call() -> None:
        first = torch.empty(1000)  # 4000 bytes
        second = torch.empty(500, dtype=torch.float64)  # 8000 in all: the peak
        del first
        third = torch.empty(250)
        del second, third

    assert peak_allocated(call) == 8000


def test_what_was_held_before_does_not_count():
    held = [torch.ones(10_000)]

    def call() -> None:
        held.clear()
        torch.empty(100)

    assert peak_allocated(call) == 400


def test_memory_within_operators_counts():
    """The product of three is made in two steps, the first of which nobody sees."""
    a, b, c = torch.ones(64, 32), torch.ones(32, 128), torch.ones(128, 1)
    inner = min(64 * 128, 32)  # multi_dot picks the smaller intermediate result
    assert peak_allocated(lambda: torch.linalg.multi_dot((a, b, c))) >= 4 * (inner + 64)


def test_attention_without_weights_takes_less_than_with():
    q, k, v = (torch.randn(1, 1, 512, 8) for _ in range(3))
    fused = peak_allocated(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
    dense = peak_allocated(lambda: torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v)
    assert dense >= 2 * 4 * 512**2 > 4 * fused


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_resident_memory_follows_pages_that_are_touched():
    rise = peak_resident(lambda: torch.ones(2**27, dtype=torch.uint8))  # too large for what the heap has kept
    if rise is None:
        pytest.skip("this kernel does not let the peak be reset")
    assert rise > 2**26


def test_both_figures():
    assert peak_memory(lambda: torch.empty(1000), "cpu")["allocated"] == 4000


@pytest.mark.parametrize("faster", ["mm", "copy", "sum"])
def test_rates_are_of_the_fastest_way(faster: str, monkeypatch: pytest.MonkeyPatch):
    """The bandwidth is that of a copy or of a sum, whichever is faster."""
    calls = []

    def seconds(self: RateMeter, call: object) -> float:
        calls.append(call)
        return 1.0 if ["copy", "sum", "mm"][len(calls) - 1] == faster else 100.0

    monkeypatch.setattr(RateMeter, "_fastest", seconds)
    n, n_bytes = 256, 2**22
    best = RateMeter(Settings(), quick=True).best
    assert best.multiply_adds == (n**3 if faster == "mm" else n**3 / 100)
    assert best.bytes == {"copy": 2 * n_bytes, "sum": n_bytes}.get(faster, 2 * n_bytes / 100)
