"""Matrices of panels, by the values of their attributes.

Shapes: n matrices, A answers, K attributes; the eight panels of the context come first, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from .rules import ORDERED, RULES, FilledGrids, RuleName, completions, filled_grids

SetName = Literal["train", "values", "pairs", "noise"]
"""Matrices as in training, with held-out values in every row, with held-out rules, and with more noise."""
CONTEXT = 8


class Matrices(NamedTuple):
    """Matrices and the places of their right answers.

    Attributes:
        panels: values, integers ``(n, 8 + A, K)``.
        labels: integers ``(n,)``.
    """

    panels: Tensor
    labels: Tensor


@dataclass(frozen=True)
class MatrixRules:
    """Rules of a family of matrices, by which all of its sets are drawn."""

    rules: tuple[RuleName, ...] = RULES
    """Rules along the rows: one value; equal steps; the third value the sum or the difference of the others; or the
    same three values in each row, in other orders."""
    attributes: int = 6
    """Attributes of a panel."""
    values: int = 10
    """Values of each attribute."""
    ruled: int = 3
    """Attributes of a matrix that follow a rule. Which ones, and which rules, is drawn for each matrix."""
    noise: int = 1
    """Other attributes that vary at random; those that are left have one value in all panels of a matrix."""
    more_noise: int = 3
    """The same in the test set noise."""
    answers: int = 8
    """Answers, 2 to the power of attributes with a rule; in each of these half of the answers are wrong."""
    held_out_values: int = 3
    """The largest values, so many, are left out of training: every row has some in the test set values."""
    held_out_rules: int = 1
    """Rules of each attribute that are left out of training; in the test set pairs there are no others."""

    @property
    def ordered(self) -> bool:
        """Whether panels tell which of two values is larger; if not, the set ``values`` has no rule that needs it."""
        return True

    @property
    def bits(self) -> int:
        """Attributes in which answers differ from the right one."""
        return self.answers.bit_length() - 1

    def allowed(self, name: SetName) -> Tensor:
        """The rules that attributes may follow in a set, boolean ``(attributes, rules)``.

        A rule that leads to one value only, of which nothing could be asked, is none.
        """
        number = torch.arange(len(self.rules))
        held = (number - torch.arange(self.attributes)[:, None]) % len(self.rules) < self.held_out_rules
        if name != "values":
            return held if name == "pairs" else ~held
        left_out = {*(() if self.ordered else ORDERED), *(("constant",) if self.held_out_values < 2 else ())}
        return ~held & torch.tensor([rule not in left_out for rule in self.rules])

    def grids_of(self, rule: RuleName, name: SetName) -> FilledGrids:
        """Grids of a rule in a set."""
        return filled_grids(rule, self.values, self.held_out_values, name == "values")


def sample_matrices(n: int, rules: MatrixRules, name: SetName, generator: Generator) -> Matrices:
    """Draw n matrices of a set, which depend on the arguments only.

    For each attribute with a rule, the right value is drawn evenly from those that the rule can lead to, then the grid
    from those that lead to it, and the wrong value evenly from the other values that the rule can lead to. Noise that
    happens to follow a rule is drawn again.
    """
    options = {"generator": generator}
    below = rules.values if name == "values" else rules.values - rules.held_out_values
    varying = rules.more_noise if name == "noise" else rules.noise
    labels = torch.randint(rules.answers, (n,), **options)
    order = torch.rand(n, rules.attributes, **options).argsort(1)
    panels = torch.randint(below, (n, 1, rules.attributes), **options).repeat(1, CONTEXT + rules.answers, 1)
    allowed = rules.allowed(name)
    for slot in range(rules.ruled):
        attribute = order[:, slot]
        chosen = torch.multinomial(allowed[attribute].double(), 1, **options).squeeze(1)
        column = torch.empty(n, CONTEXT + rules.answers, dtype=torch.int64)
        wrong = _is_wrong(labels, slot, rules)
        for number, rule in enumerate(rules.rules):
            mine = (chosen == number).nonzero().squeeze(1)
            if len(mine):
                grids, other = _draw_grids(len(mine), rules, rule, name, generator)
                answers = torch.where(wrong[mine], other[:, None], grids[:, CONTEXT:])
                column[mine] = torch.cat((grids[:, :CONTEXT], answers), 1)
        panels.scatter_(2, attribute[:, None, None].expand(-1, panels.shape[1], 1), column[..., None])
    for slot in range(rules.ruled, rules.ruled + varying):
        column = _draw_noise(n, panels.shape[1], below, rules.values, generator)
        panels.scatter_(2, order[:, slot, None, None].expand(-1, panels.shape[1], 1), column[..., None])
    return Matrices(panels, labels)


def _is_wrong(labels: Tensor, slot: int, rules: MatrixRules) -> Tensor:
    """The answers that have a wrong value in the attribute of a slot, ``(n, A)``: half of them, or none."""
    if slot >= rules.bits:
        return torch.zeros(len(labels), rules.answers, dtype=torch.bool)
    return ((torch.arange(rules.answers) ^ labels[:, None]) >> slot & 1).bool()


def _draw_grids(
    n: int, rules: MatrixRules, rule: RuleName, name: SetName, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Grids ``(n, 9)`` of a rule, and a wrong last value of each ``(n,)``."""
    known = rules.grids_of(rule, name)
    k = len(known.answers)
    right, shift = (torch.randint(k - i, (n,), generator=generator) for i in (0, 1))
    within = (torch.rand(n, generator=generator, dtype=torch.float64) * known.counts[right]).long()
    return known.grids[known.starts[right] + within], known.answers[(right + 1 + shift) % k]


def _draw_noise(n: int, panels: int, below: int, values: int, generator: Generator) -> Tensor:
    """Random values ``(n, panels)``; to the first eight of none of them a rule fits."""
    noise = torch.randint(below, (n, panels), generator=generator)
    while len(again := (completions(noise[:, :CONTEXT], values) >= 0).any(1).nonzero().squeeze(1)):
        noise[again] = torch.randint(below, (len(again), panels), generator=generator)
    return noise


def solutions(panels: Tensor, values: int) -> Tensor:
    """The answers that follow every rule that the contexts of panels ``(n, 8 + A, K)`` show: boolean ``(n, A)``."""
    given = completions(panels[:, :CONTEXT].transpose(1, 2), values)[:, None]
    fits = (given == panels[:, CONTEXT:, :, None]).any(-1) | (given < 0).all(-1)
    return fits.all(-1)


def likeliest_by_counting(panels: Tensor) -> Tensor:
    """An untrained rule: the answer ``(n,)`` whose values occur most often in the context, the first one of several."""
    equal = panels[:, CONTEXT:, None] == panels[:, None, :CONTEXT]
    return equal.sum((2, 3)).argmax(1)
