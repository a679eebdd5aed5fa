"""Family relations: chains of persons, each a parent, child or sibling of the one before, with one answer each.

A family is such that siblings have both parents in common, nobody marries twice, and relatives do not marry; aunts,
uncles, nieces and nephews are by blood. All persons of a chain are different.

Shapes: n chains, k relations in a chain, N tokens.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from dat.data.sequences import UNSCORED, Sequences

STEPS = ("parent", "child", "sibling")
"""Relations that facts tell."""
ANSWERS = (
    *STEPS,
    "aunt-or-uncle",
    "niece-or-nephew",
    "cousin",
    "parent-in-law",
    "child-in-law",
    "sibling-in-law",
)
"""Relations that are asked: three of each generation, the one before, the own, and the one after."""
KINDS = (*ANSWERS, "spouse", "grandparent", "grandchild")
"""All that are followed."""
NOBODY = "nobody"
COMPOSITIONS = """
parent: parent grandparent, child sibling, sibling aunt-or-uncle, spouse parent, niece-or-nephew cousin,
    parent-in-law grandparent
child: parent spouse, child grandchild, sibling child, spouse child-in-law, niece-or-nephew grandchild
sibling: parent parent, child niece-or-nephew, sibling sibling, spouse sibling-in-law, aunt-or-uncle aunt-or-uncle,
    grandparent grandparent, cousin cousin
spouse: parent parent-in-law, child child, sibling sibling-in-law, spouse nobody, grandchild grandchild,
    parent-in-law parent, child-in-law child-in-law
grandparent: spouse grandparent
grandchild: sibling grandchild
aunt-or-uncle: parent grandparent, child cousin
niece-or-nephew: sibling niece-or-nephew
cousin: sibling cousin
parent-in-law: spouse parent-in-law
child-in-law: child grandchild, spouse child
"""
"""First relation: second relation and what both make together, where that follows: the parent of a parent is a
grandparent. The spouse of a spouse is nobody, since all persons are different."""
OPEN, REFUSED = -1, -2
LONGEST_CHAIN = 10
"""Relations of a chain: all chains are listed."""

PAD, ASK = 0, 1
FIRST_WORD = 2
FIRST_NAME = FIRST_WORD + len(ANSWERS)


@lru_cache(maxsize=1)
def compositions() -> Tensor:
    """The relation that two make together, by their places in ``KINDS``; -1 where nothing follows, -2 for nobody."""
    table = torch.full((len(KINDS), len(KINDS)), OPEN)
    for line in COMPOSITIONS.strip().replace("\n    ", " ").splitlines():
        first, _, pairs = line.partition(": ")
        for pair in pairs.split(", "):
            second, made = pair.split()
            value = REFUSED if made == NOBODY else KINDS.index(made)
            table[KINDS.index(first), KINDS.index(second)] = value
    return table


@lru_cache(maxsize=LONGEST_CHAIN)
def closed(k: int) -> Tensor:
    """The relation of the last person to the first in all chains of k steps, ``(3 ** k,)``, by places in ``KINDS``.

    The number of a chain has its steps as digits, the first one first. The graph of a chain is closed: whenever two
    relations follow each other, what they make is added. -1: nothing is made between the ends. -2: no family is like
    this, or more than one relation is made somewhere.
    """
    if k == 1:
        return torch.arange(len(STEPS))
    chain, table = torch.arange(len(STEPS) ** k), compositions()
    answer, refused = torch.full_like(chain, OPEN), torch.zeros_like(chain, dtype=torch.bool)
    for m in range(1, k):
        left, right = closed(m)[chain // len(STEPS) ** (k - m)], closed(k - m)[chain % len(STEPS) ** (k - m)]
        made = torch.where((left >= 0) & (right >= 0), table[left, right], OPEN)
        refused |= (left == REFUSED) | (right == REFUSED) | (made == REFUSED)
        refused |= (made >= 0) & (answer >= 0) & (made != answer)
        answer = torch.where(made >= 0, made, answer)
    return torch.where(refused, REFUSED, answer)


def relation_of(steps: Sequence[str]) -> str:
    """The relation of the last person of a chain to the first.

    Raises:
        ValueError: if several relations are possible, or none.
    """
    number = 0
    for step in steps:
        number = number * len(STEPS) + STEPS.index(step)
    found = int(closed(len(steps))[number]) if steps else OPEN
    if found < 0:
        words = "no family is like this" if found == REFUSED else "the answer is open"
        raise ValueError(f"chain: expected relations that have one answer, got {', '.join(steps)}: {words}")
    return KINDS[found]


class _Chains(NamedTuple):
    """Groups of chains; those in ``chains[starts[g] : starts[g] + counts[g]]`` differ only in the order of steps."""

    chains: Tensor
    starts: Tensor
    counts: Tensor
    weights: Tensor


@lru_cache(maxsize=LONGEST_CHAIN)
def asked_chains(k: int) -> _Chains:
    """Chains of k steps whose answer is one of ``ANSWERS``, so grouped that the steps alone do not tell it.

    A group has chains of the same steps in other orders and with one answer. Of steps with the same generation only
    those are kept that have the most answers; each of these is as likely as the others, whatever the steps.
    """
    answer = closed(k)
    asked = ((answer >= 0) & (answer < len(ANSWERS))).nonzero().squeeze(1)
    digits = steps_of(asked, k)
    up, down = ((digits == step).sum(1) for step in (0, 1))
    bag = (up - down + k) * (k + 1) + down
    key, order = (bag * len(ANSWERS) + answer[asked]).sort(stable=True)
    groups, counts = key.unique(return_counts=True)
    bags = groups // len(ANSWERS)
    rise = bags // (k + 1) - k
    many = (bags[:, None] == bags).sum(1)
    weights = torch.zeros(len(groups), dtype=torch.float64)
    for generation in (-1, 0, 1):
        mine = rise == generation
        if mine.any():
            best = mine & (many == many[mine].max())
            weights[best] = float(many[best].max()) / float(best.sum())
    return _Chains(asked[order], counts.cumsum(0) - counts, counts, weights)


def steps_of(chains: Tensor, k: int) -> Tensor:
    """Steps of chains by their numbers ``(n,)``, by places in ``STEPS``: ``(n, k)``."""
    return chains[:, None] // len(STEPS) ** torch.arange(k - 1, -1, -1) % len(STEPS)


def draw_stories(
    n: int,
    *,
    shortest: int,
    longest: int,
    noise: int,
    names: tuple[int, int],
    shuffled: bool,
    length: int,
    generator: Generator,
) -> tuple[Sequences, Tensor]:
    """Stories with a question each, and what an untrained rule answers, which counts generations: ``(n,)`` tokens.

    ::

        Ann parent Bob   Bob sibling Cem   Bob child Dan   ? Ann Cem        fact, fact, noise, question
        .   .      .     .   .       .     .   .     .     . .   aunt-or-uncle

    Noise is about children and siblings of persons of the chain, of whom nothing else is said. The rule answers parent,
    child or sibling, as many generations up as the facts, noise included, have parents more than children.

    Args:
        noise: facts that do not matter, beside those of the chain.
        names: the first name and how many there are, of which each person has another one.
        length: N, of which a story of ``longest`` needs ``3 * (longest + noise) + 3``.
    """
    drawn: dict[str, Any] = {"generator": generator}
    tokens = torch.full((n, length), PAD)
    targets, guesses = torch.full((n, length), UNSCORED), torch.empty(n, dtype=torch.int64)
    sizes = torch.randint(shortest, longest + 1, (n,), **drawn)
    for k in sizes.unique().tolist():
        rows = (sizes == k).nonzero().squeeze(1)
        m, known = len(rows), asked_chains(k)
        group = torch.multinomial(known.weights, m, True, **drawn)
        within = (torch.rand(m, dtype=torch.float64, **drawn) * known.counts[group]).long()
        chain = known.chains[known.starts[group] + within]
        people = names[0] + FIRST_NAME + torch.rand(m, names[1], **drawn).argsort(1)[:, : k + 1 + noise]
        about = torch.randint(k + 1, (m, noise), **drawn)
        kin = torch.randint(1, 3, (m, noise), **drawn)
        first = torch.cat((people[:, :k], people.gather(1, about)), 1)
        step = torch.cat((steps_of(chain, k), kin), 1)
        facts = torch.stack((first, FIRST_WORD + step, people[:, 1:]), 2)
        if shuffled or noise:
            order = torch.rand(m, k + noise, **drawn)
            if not shuffled:  # noise between the facts, which keep their order
                order[:, :k] = order[:, :k].sort(1).values
            facts = facts.gather(1, order.argsort(1)[..., None].expand_as(facts))
        end = 3 * (k + noise)
        tokens[rows, :end] = facts.flatten(1)
        tokens[rows, end : end + 3] = torch.stack((torch.full((m,), ASK), people[:, 0], people[:, k]), 1)
        targets[rows, end + 2] = FIRST_WORD + closed(k)[chain]
        rise = ((step == 0).sum(1) - (step == 1).sum(1)).sign()
        guesses[rows] = FIRST_WORD + torch.tensor([1, 2, 0])[rise + 1]
    return Sequences(tokens, targets, torch.full_like(targets, UNSCORED)), guesses
