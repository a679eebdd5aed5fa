"""Few combinations of options that still hold a lot, and the number of examples that property tests draw."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st


def examples(usual: int, explore: int = 100) -> hypothesis.settings:
    """Settings that draw ``usual`` examples, or ``explore`` under the profile of that name (see ``conftest.py``)."""
    exploring = not hypothesis.settings().derandomize
    return hypothesis.settings(max_examples=explore if exploring else usual)


def mostly_slow(values: Iterable[Any], *, quick: int) -> list[Any]:
    """The values of a parameter, or tuples of them, all but the first ``quick`` of which are left to the slow tests."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[pytest.mark.slow] * (place >= quick)) for place, row in enumerate(rows)]


def each_once(options: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """As many combinations as the longest option has values; every value of every option occurs."""
    values = [list(option) for option in options.values()]
    rows = zip(range(max(map(len, values))), *map(itertools.cycle, values), strict=False)
    return [dict(zip(options, row, strict=True)) for _, *row in rows]


def sampled(drawn: int, **options: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with every value of every option at least once, and with ``drawn`` combinations of them, each seeded.

    Under the ``explore`` profile, five times as many are drawn.
    """
    options = {name: list(values) for name, values in options.items()}

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(seed: int, **chosen: Any) -> None:
            torch.manual_seed(seed)
            test(**chosen)

        run.__name__, run.__qualname__, run.__module__ = test.__name__, test.__qualname__, test.__module__
        run.__doc__ = test.__doc__
        strategies = {name: st.sampled_from(values) for name, values in options.items()}
        run = hypothesis.given(seed=st.integers(0, 999), **strategies)(run)
        for seed, chosen in enumerate(each_once(options)):
            run = hypothesis.example(seed=seed, **chosen)(run)
        return examples(drawn, 5 * drawn)(run)

    return decorate


def pairwise(options: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Combinations in which every pair of values of any two options occurs; greedily few of them."""
    names = list(options)
    counts = [len(options[name]) for name in names]

    def pair(*chosen: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(chosen))

    missing = dict.fromkeys(  # in order, so that every run finds the same combinations
        pair((a, i), (b, j))
        for a, b in itertools.combinations(range(len(names)), 2)
        for i, j in itertools.product(range(counts[a]), range(counts[b]))
    )
    found = []
    while missing:
        chosen = dict(next(iter(missing)))
        for a in sorted(set(range(len(names))) - set(chosen), key=lambda a: -counts[a]):
            gains = [sum(pair((a, i), other) in missing for other in chosen.items()) for i in range(counts[a])]
            chosen[a] = gains.index(max(gains)) if max(gains) else len(found) % counts[a]
        for two in itertools.combinations(chosen.items(), 2):
            missing.pop(pair(*two), None)
        found.append({names[a]: options[names[a]][i] for a, i in sorted(chosen.items())})
    return found
