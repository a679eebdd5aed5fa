"""DeepMind's generator (the package ``mathematics_dataset`` 1.0.1, of 2019), adapted when it is imported.

Nothing of it is copied or changed on the disk. Today's numpy and sympy, and a text that a seed decides, need this:

* ``base_solution_linear`` has moved within sympy, and is put where the generator looks for it while it is imported.
* ``numpy.object`` and ``ndarray.itemset`` are gone; the one file that uses them is given a numpy that has them.
* Greatest common divisors of integers are Python's, the same as sympy's in a hundredth of the time: a third of it all.
* Symbols, and parts of a question, are drawn from sets, whose order depends on the process: on the hashes of strings,
  or on addresses in memory. The file that does so is given sets that keep the order in which they were filled.
"""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from dual_attention._base.extras import require

from ..._numpy import np
from .files import LEVELS, Pair
from .vocabulary import LONGEST_ANSWER, LONGEST_QUESTION

EXTRAPOLATION = (12.0, 12.0)
"""Entropy of questions beyond training, as of the generator's own extrapolation in algebra; it has none of the five
modules. Training has 3 to 10, interpolation 8: powers of ten of the number of questions, about."""


class _Filled(dict[Any, None]):
    """A set that keeps its order, with the methods that the generator uses."""

    def __init__(self, members: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(members))

    def add(self, member: Any) -> None:
        self[member] = None

    def copy(self) -> _Filled:
        return _Filled(self)

    def union(self, *others: Iterable[Any]) -> _Filled:
        return _Filled([*self, *(member for other in others for member in other)])

    def difference(self, other: Iterable[Any]) -> _Filled:
        without = set(other)
        return _Filled(member for member in self if member not in without)


@cache
def _settable() -> type[np.ndarray]:
    """Arrays with the method ``itemset`` of numpy 1."""

    class Settable(np.ndarray):
        def itemset(self, index: Any, value: Any) -> None:
            self[index] = value

    return Settable


class _Numpy1:
    """The numpy of today with what the generator uses of numpy 1."""

    object = object

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def zeros(self, shape: Any, dtype: Any = float) -> np.ndarray:
        return np.zeros(shape, dtype).view(_settable())

    def empty(self, shape: Any, dtype: Any = float) -> np.ndarray:
        return np.empty(shape, dtype).view(_settable())


class _Integers:
    """sympy with Python's ``gcd``."""

    gcd = staticmethod(math.gcd)

    def __getattr__(self, name: str) -> Any:
        self.__dict__[name] = found = getattr(importlib.import_module("sympy"), name)  # looked up once
        return found


@cache
def adapted() -> dict[str, Any]:
    """The generator's modules by category, all of them: the parts of a composed question are drawn from every category.

    Raises:
        ImportError: it is not installed; ``pip install relational-attention[mathematics]`` brings it.
    """
    diophantine = require("sympy.solvers.diophantine.diophantine", extra="mathematics")
    package: Any = importlib.import_module("sympy.solvers.diophantine")
    missing = not hasattr(package, "base_solution_linear")
    if missing:
        package.base_solution_linear = diophantine.base_solution_linear
    try:
        composition = require("mathematics_dataset.util.composition", extra="mathematics")
    finally:
        if missing:
            del package.base_solution_linear
    composition.set = _Filled
    composition._ALLOWED_SYMBOLS = _Filled(sorted(composition._ALLOWED_SYMBOLS))
    coefficients: Any = importlib.import_module("mathematics_dataset.sample.polynomials")
    coefficients.np = _Numpy1()
    numbers: Any = importlib.import_module("mathematics_dataset.sample.number")
    numbers.sympy = _Integers()
    return importlib.import_module("mathematics_dataset.modules.modules").all_


def sampler(module: str, split: str) -> Callable[[], Any]:
    """The generator's function that draws a problem of a module, for a split."""
    category, _, name = module.partition("__")
    source = adapted()[category]
    if split == "interpolate":
        return source.test()[name]
    return source.train(_entropies(split))[name]


def _entropies(split: str) -> Callable[[tuple[float, float]], tuple[float, float]]:
    """The range of entropies of a split, given that of all training."""
    if split == "extrapolate":
        return lambda _: EXTRAPOLATION
    level, levels = LEVELS.index(split), len(LEVELS)
    return lambda whole: (_within(whole, level / levels), _within(whole, (level + 1) / levels))


def _within(ends: tuple[float, float], share: float) -> float:
    return ends[0] + share * (ends[1] - ends[0])


def draw_pairs(module: str, split: str, n: int, seed: int) -> list[Pair]:
    """``n`` questions with their answers; they depend on the arguments only, and more of them begin with the same.

    As in the generator's own program, those with a question of more than 160 characters or an answer of more than 30
    are drawn again, and so are those that fail an assertion of the generator. The global random generators are left as
    they were.
    """
    problem_of, pairs, failed = sampler(module, split), [], 0
    with _seeded(seed):
        while len(pairs) < n:
            try:
                problem = problem_of()
            except AssertionError:  # one time in a million: a part got entropy that it has no place for
                failed += 1
                if failed > 10:  # which is no accident
                    raise
                continue
            question, answer = str(problem.question), str(problem.answer)
            if len(question) <= LONGEST_QUESTION and len(answer) <= LONGEST_ANSWER:
                pairs.append((question, answer))
    return pairs


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Context in which Python's and numpy's global generators, which the generator uses, begin at ``seed``."""
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
