"""Seeds: one number given by the user, and an independent one derived from it for every use."""

import hashlib

import torch
from torch import Tensor


def derive_seed(seed: int, *names: object) -> int:
    """A seed in [0, 2**63) that depends on ``seed`` and on every name, the same on every machine and version."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def epoch_order(n: int, seed: int, epoch: int) -> Tensor:
    """The order (n,) in which ``epoch`` visits n examples; it depends on nothing else, so a resumed run keeps it."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    return torch.randperm(n, generator=generator)
