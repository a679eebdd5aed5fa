"""What is packed is what is seen: errors are below a step of the colour scale, and sizes grow with the length."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dat.explorer.html import page_html
from dat.explorer.packing import (
    LARGEST_ERROR,
    STEPS,
    PackedRows,
    measured,
    pack,
    packed_factors,
)
from dat.explorer.recording import record
from tests.lab.explorer.conftest import as_array, dat

model = partial(dat, context=2048, n_layers=1)


def recording(n, **options):
    lm = model(**options)
    tokens = torch.randint(50, (1, n))
    return record(lm, lambda: lm(tokens), {"tokens": [str(int(token)) for token in tokens[0]]})


def as_rows(packed):
    values = as_array(packed["values"]).astype(np.float64)
    return values if "scales" not in packed else values * as_array(packed["scales"])[..., None].astype(np.float64)


@pytest.mark.parametrize("bits", [None, 16, 32])
def test_no_colour_changes_by_more_than_a_step(bits):
    """Maps computed from the JSON by numpy, in double precision, against the factors that were recorded."""
    found = recording(40)
    packed = pack(found, bits)
    assert packed.error <= LARGEST_ERROR
    for heads, stored in zip(found.heads, packed.json["heads"], strict=True):
        n = heads.weights.receivers
        q, k = as_rows(stored["weights"]["queries"]), as_rows(stored["weights"]["keys"])
        k = k.repeat(len(q) // len(k), axis=0)
        z = as_array(stored["weights"]["normalisers"])
        visible = heads.visible.rows(0, n).numpy()
        alpha = np.where(visible, np.exp(q @ k.swapaxes(-1, -2) - z[..., None]), 0.0)
        drawn = np.round(STEPS * alpha / as_array(stored["ranges"]["weights"])[:, None, None])
        exact = heads.weights.values(0, n, heads.visible).numpy()
        right = np.round(STEPS * exact / exact.max((-1, -2), keepdims=True))
        assert np.abs(drawn - right).max() <= 1


def test_eight_bits_where_they_do_and_sixteen_where_not():
    found = recording(40)
    sizes = {bits: pack(found, bits) for bits in (8, 16, 32)}
    assert sizes[8].error > LARGEST_ERROR > sizes[16].error > sizes[32].error
    chosen = pack(found)
    kinds = {heads["weights"]["bits"] for heads in chosen.json["heads"]}
    assert kinds <= {8, 16} and chosen.error <= LARGEST_ERROR
    lengths = [len(json.dumps(packed.json)) for packed in sizes.values()]
    assert lengths == sorted(lengths) and lengths[0] < 0.7 * lengths[2]


def test_other_numbers_of_bits_are_refused():
    with pytest.raises(ValueError, match="bits: expected one of 8, 16, 32, or None, got 4"):
        pack(recording(4), 4)


@pytest.mark.parametrize("n", [24, 700])
def test_the_error_is_that_of_every_map(n):
    """The stated error is a bound, no smaller than the largest of all maps, found here for all receivers."""
    found = recording(n)
    exactly, worst = 0.0, 0.0
    for heads in found.heads:
        drawn = {"weights": packed_factors(heads.weights, 8)[0]}
        alpha, other = (factors.values(0, n, heads.visible) for factors in (heads.weights, drawn["weights"]))
        norms = heads.sender_norms[:, None]
        pairs = {"weights": (alpha, other), "senders": (alpha * norms, other * norms)}
        if heads.relations is not None:
            drawn["relations"] = packed_factors(heads.relations, 8)[0]
            r, s = (factors.values(0, n, heads.visible) for factors in (heads.relations, drawn["relations"]))
            pairs["relations"] = r, s
            pairs["attended"] = alpha[:, None] * r, other[:, None] * s
        ranges, _ = measured(heads, drawn)
        for name, (exact, shown) in pairs.items():
            most = exact.abs().amax((-1, -2))
            error = float(((exact - shown).abs() / most[..., None, None]).max()) * STEPS
            worst = max(worst, error)
            if name != "attended":
                torch.testing.assert_close(getattr(ranges, name), most)
                exactly = max(exactly, error)
    stated = pack(found, 8).error
    assert exactly * 0.9999 <= stated and worst * 0.9999 <= stated < 20 * worst


class Written(TorchDispatchMode):
    """Counts the numbers that operations write."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.numbers += out.numel()
            self.largest = max(self.largest, out.numel())
        return out


def test_attended_relations_are_left_to_the_page():
    """Their maps are as many as heads times relations; with them, four times the relations wrote 2.2 times as much."""
    counted = []
    for n_relations in (4, 16):
        lm, n = model(ra_kwargs={"n_relations": n_relations}), 256
        tokens = torch.randint(50, (1, n))
        found = record(lm, lambda lm=lm, tokens=tokens: lm(tokens), {"tokens": ["x"] * n})
        with Written() as written:
            pack(found, 16)
        counted.append(written.numbers)
    assert counted[1] < 2 * counted[0]


def test_recording_and_packing_build_no_map():
    lm, n = model(ra_kwargs={"n_relations": 8}), 1200
    tokens = torch.randint(50, (1, n))
    with Written() as written:
        pack(record(lm, lambda: lm(tokens), {"tokens": ["x"] * n}), 16)
    assert written.largest < 2 * n * n  # two heads, eight relations; the mask is one


@pytest.mark.parametrize(("bits", "relative"), [(8, 1 / 127), (16, 1 / 32767), (32, 0)])
def test_rows(bits, relative):
    x = torch.randn(2, 5, 7) * torch.tensor([1e-6, 1e-2, 1, 100, 0])[:, None]
    found = PackedRows.of(x, bits).unpacked
    most = x.abs().amax(-1, keepdim=True)
    assert bool(((found - x).abs() <= 0.51 * relative * most + 1e-30).all())


def test_maps_have_the_rows_of_their_numbers():
    """Each map gets its own queries, however many maps there are, and the keys that it shares with others."""
    for count in range(1, 101):
        for shared in (one for one in range(1, count + 1) if count % one == 0):
            keys = PackedRows.of(torch.arange(count // shared).float().view(-1, 1, 1), 32)
            found = [int(keys.of_map(number, count).values) for number in range(count)]
            assert found == [number // shared for number in range(count)]


def test_the_page_grows_with_the_length_only():
    lm = model()
    lengths = (256, 512, 1024)
    sizes = []
    for n in lengths:
        tokens = torch.zeros(1, n, dtype=torch.long)
        sizes.append(len(page_html(pack(record(lm, lambda t=tokens: lm(t), {"tokens": ["x"] * n}), 16).json)))
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second == pytest.approx(2 * first, rel=0.02)  # twice the tokens more, twice the bytes more


def test_empty_and_short_texts():
    for n in (1, 2):
        packed = pack(recording(n))
        assert packed.json["heads"][0]["first"]["shape"] == [n]
