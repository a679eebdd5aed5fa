"""Progressive matrices: panels whose attributes follow rules along the rows, and answers to the missing one.

Answers differ from the right one in some attributes, in every combination (Hu et al. 2021, arXiv 2002.06838, build
them as a tree), so that no value is the commonest among them. Within a matrix a wrong value is drawn as the right one
is. Without the panels of the context, nothing tells which is which: the best guess is right once in as many times as
there are answers.

Shapes: n matrices, A answers, K attributes; the eight panels of the context come first, row by row.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize, pad

from dual_attention._base.digests import stream_seed

RuleName = Literal["constant", "progression", "arithmetic", "distribution"]
RULES: tuple[RuleName, ...] = get_args(RuleName)
ORDERED: tuple[RuleName, ...] = ("progression", "arithmetic")
"""Rules that need an order of values."""
LEAST_VALUES, MOST_VALUES = 4, 12
"""Values of an attribute: with fewer, some rule has one answer only; of more, all grids are too many to be listed."""

Row = tuple[int, ...]


class FilledGrids(NamedTuple):
    """All grids of a rule that are clear without their last value, sorted by it.

    Attributes:
        grids: ``(n, 9)``.
        answers: last values that occur, ascending ``(k,)``.
        starts, counts: where the grids of each of them begin, and how many there are, ``(k,)``.
    """

    grids: Tensor
    answers: Tensor
    starts: Tensor
    counts: Tensor


def completions(context: Tensor, values: int) -> Tensor:
    """Last values that rules give eight ones ``(..., 8)``: ``(..., 5)``, -1 where a rule does not hold.

    Rules are constant, progression, sum, difference and distribution of three. They hold of the first two rows and of
    the beginning of the third, and what they give is a value.
    """
    a, b, c, d, e, f, g, h = context.unbind(-1)
    step = b - a
    same = (a == b) & (b == c) & (d == e) & (e == f) & (g == h)
    moved = (step != 0) & (c - b == step) & (e - d == step) & (f - e == step) & (h - g == step)
    first, second = torch.stack((a, b, c), -1), torch.stack((d, e, f), -1)
    latin = (a != b) & (b != c) & (a != c) & (first != second).all(-1) & (g != h)
    latin &= (first.sort(-1).values == second.sort(-1).values).all(-1)
    for mine, column in ((g, (a, d)), (h, (b, e))):
        latin &= (first == mine[..., None]).any(-1) & (mine != column[0]) & (mine != column[1])
    total, rest = (a + b == c) & (d + e == f), (a - b == c) & (d - e == f)
    holds = torch.stack((same, moved, total, rest, latin), -1)
    last = torch.stack((g, h + step, g + h, g - h, a + b + c - g - h), -1)
    return torch.where(holds & (last >= 0) & (last < values), last, -1)


def _families(rule: RuleName, values: int) -> list[list[Row]]:
    """Rows that may stand in one grid, in any order and number; of the other rule all of its grids, as one row."""
    within = range(values)
    if rule == "constant":
        return [[(v, v, v) for v in within]]
    if rule == "progression":
        steps = [step for step in range(-(values // 2), values // 2 + 1) if step]
        return [[(v, v + s, v + 2 * s) for v in within if 0 <= v + 2 * s < values] for s in steps]
    return [
        [(v, w, v + w) for v in within for w in within if v + w < values],
        [(v, w, v - w) for v in within for w in within if v >= w],
    ]


@lru_cache(maxsize=64)
def filled_grids(rule: RuleName, values: int, held_out: int, unseen: bool) -> FilledGrids:
    """Grids of a rule whose rows have no held-out value, or which all have one, if ``unseen``.

    The last ``held_out`` of the values are those. Grids to whose first eight values some rule gives another last value
    are left out.
    """
    if rule == "distribution":
        squares = [
            (*first, *second, *third)
            for chosen in combinations(range(values), 3)
            for first, second, third in product(permutations(chosen), repeat=3)
            if all(len({*column}) == 3 for column in zip(first, second, third, strict=True))
        ]
        grids = torch.tensor(squares, dtype=torch.int64).reshape(-1, 9)
    else:
        families = [torch.tensor(rows) for rows in _families(rule, values) if rows]
        places = [torch.cartesian_prod(*[torch.arange(len(rows))] * 3) for rows in families]
        grids = torch.cat([rows[place].flatten(1) for rows, place in zip(families, places, strict=True)])
    held = (grids >= values - held_out).unflatten(1, (3, 3))
    grids = grids[held.any(2).all(1) if unseen else ~held.flatten(1).any(1)]
    given = completions(grids[:, :8], values)
    grids = grids[((given == grids[:, 8:]) | (given == -1)).all(1)]
    grids = grids[grids[:, 8].argsort(stable=True)]
    answers, counts = grids[:, 8].unique(return_counts=True)
    return FilledGrids(grids, answers, counts.cumsum(0) - counts, counts)


SetName = Literal["train", "values", "pairs", "noise"]
"""Matrices as in training, with held-out values in every row, with held-out rules, and with more noise."""
CONTEXT = 8


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


def sample_matrices(n: int, rules: MatrixRules, name: SetName, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw n matrices of a set, integers ``(n, 8 + A, K)``, and the places of their right answers ``(n,)``.

    For each attribute with a rule, the right value is drawn evenly from those that the rule can lead to, then the grid
    from those that lead to it, and the wrong value evenly from the other values that the rule can lead to. Noise that
    happens to follow a rule is drawn again.
    """
    options: dict[str, Any] = {"generator": generator}
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
        differs = ((torch.arange(rules.answers) ^ labels[:, None]) >> slot & 1).bool()  # none once bits are used up
        for number, rule in enumerate(rules.rules):
            mine = (chosen == number).nonzero().squeeze(1)
            if len(mine):
                known = filled_grids(rule, rules.values, rules.held_out_values, name == "values")
                k = len(known.answers)
                right, shift = (torch.randint(k - i, (len(mine),), **options) for i in (0, 1))
                within = (torch.rand(len(mine), dtype=torch.float64, **options) * known.counts[right]).long()
                grids, wrong = known.grids[known.starts[right] + within], known.answers[(right + 1 + shift) % k]
                answers = torch.where(differs[mine], wrong[:, None], grids[:, CONTEXT:])
                column[mine] = torch.cat((grids[:, :CONTEXT], answers), 1)
        panels.scatter_(2, attribute[:, None, None].expand(-1, panels.shape[1], 1), column[..., None])
    for slot in range(rules.ruled, rules.ruled + varying):
        column = _draw_noise(n, panels.shape[1], below, rules.values, generator)
        panels.scatter_(2, order[:, slot, None, None].expand(-1, panels.shape[1], 1), column[..., None])
    return panels, labels


def _draw_noise(n: int, panels: int, below: int, values: int, generator: Generator) -> Tensor:
    """Random values ``(n, panels)``; to the first eight of none of them a rule fits."""
    noise = torch.randint(below, (n, panels), generator=generator)
    while len(again := (completions(noise[:, :CONTEXT], values) >= 0).any(1).nonzero().squeeze(1)):
        noise[again] = torch.randint(below, (len(again), panels), generator=generator)
    return noise


def likeliest_by_counting(panels: Tensor) -> Tensor:
    """An untrained rule: the answer ``(n,)`` whose values occur most often in the context, the first one of several."""
    equal = panels[:, CONTEXT:, None] == panels[:, None, :CONTEXT]
    return equal.sum((2, 3)).argmax(1)


Form = Literal["codes", "numbers", "drawings"]
DRAWN = ("column", "row", "size", "shade", "ground", "frame")
"""Attributes of a drawing: place, size and grey of a square, grey of the ground, and grey of the frame around it."""
PIXELS = 2
"""Pixels of a drawing's side for each value, so that no two drawings are equal."""


def rendered(panels: Tensor, form: Form, *, values: int, width: int, seed: int) -> Tensor:
    """Panels by their values, integers ``(..., K)``, as vectors ``(..., features)`` or drawings, uint8.

    Codes are random vectors of length 1, which say nothing of an order of values: K times ``width`` features. Numbers
    go from -1 to 1: K features. Drawings are ``(..., width, width)``.

    Args:
        seed: of the codes.
    """
    if form == "numbers":
        return panels.float() * (2 / (values - 1)) - 1
    if form == "drawings":
        return _drawn(panels, values, width)
    generator = torch.Generator().manual_seed(stream_seed("matrices", "codes", seed))
    codes = normalize(torch.randn(values, width, generator=generator), dim=1)
    return codes[panels].flatten(-2)


def _drawn(panels: Tensor, values: int, side: int) -> Tensor:
    share = panels / (values - 1)
    missing = len(DRAWN) - panels.shape[-1]
    share = pad(share, (0, missing), value=0.5)[..., None, None]
    column, row, size, shade, ground, frame = share.unbind(-3)
    pixel = torch.arange(side) + 0.5
    reach = side * (0.08 + 0.14 * size)
    across, down = ((reach + 0.5 - (pixel - side * (0.28 + 0.44 * at)).abs()).clamp(0, 1) for at in (column, row))
    square = across * down.transpose(-1, -2)
    base, grey = 0.4 * ground, 0.55 + 0.45 * shade
    image = base + square * (grey - base)
    inside = (pixel > 1) & (pixel < side - 1)
    image = torch.where(inside & inside[:, None], image, frame.expand_as(image))
    return (255 * image).round().to(torch.uint8)
