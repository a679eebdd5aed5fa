"""A permutation that is computed index by index, so that an order of any length takes no memory and has no state.

A Feistel network (Luby & Rackoff 1988) permutes the integers of 2h bits: in each round, one half of the bits is changed
by a hash of the other. Of n integers it permutes those below n by cycle walking (Black & Rogaway 2002): what falls
outside is permuted again, until it falls inside; with the smallest h that is fewer than four times on average.
"""

from torch import Tensor

from .seeding import derive_seed

ROUNDS = 12
"""More than the four that make the network a pseudorandom permutation, for the sake of halves of few bits."""
MOST = 1 << 62
"""Length of the longest permutation: its indices, and those outside that are walked over, are int64."""


class Permutation:
    """A permutation of the integers below n that depends on a seed and names, the same on every machine.

    Args:
        n: length, from 1 to 2**62.
        seed: any integer.
        names: tell this use of the seed from others, as in :func:`~.seeding.derive_seed`.

    Raises:
        ValueError: if ``n`` is out of range.
    """

    def __init__(self, n: int, seed: int, *names: object) -> None:
        if not 1 <= n <= MOST:
            raise ValueError(f"n: expected an integer from 1 to 2**62, got {n}")
        self.n = n
        self._half = -(-max((n - 1).bit_length(), 2) // 2)
        self._keys = [derive_seed(seed, *names, "round", number) for number in range(ROUNDS)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, places: Tensor) -> Tensor:
        """The integers at ``places``, int64 of any shape, each from 0 to n - 1.

        Raises:
            IndexError: if a place is out of range.
        """
        if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < self.n):
            raise IndexError(f"places: expected integers from 0 to {self.n - 1}, got others")
        found = self._permuted(places)
        while bool((outside := found >= self.n).any()):
            found[outside] = self._permuted(found[outside])
        return found

    def _permuted(self, x: Tensor) -> Tensor:
        """The permutation of the integers of 2h bits."""
        mask = (1 << self._half) - 1
        left, right = x >> self._half, x & mask
        for key in self._keys:
            left, right = right, left ^ (_hashed(right, key) & mask)
        return (left << self._half) | right


def _hashed(x: Tensor, key: int) -> Tensor:
    """Hash of integers of up to 32 bits, int64 of which the lower 32 bits count.

    Products wrap around, as int64 does everywhere; their upper halves, which depend on all bits of the factors, are
    added to the lower ones.
    """
    x = x + key
    for factor in (0x2545F4914F6CDD1D, 0x369DEA0F31A53F85):  # odd, with about as many ones as zeros
        x = x * factor
        x = x ^ ((x >> 32) & 0xFFFFFFFF)
    return x
