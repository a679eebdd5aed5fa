"""Every score and alignment as a module, for tests over their combinations."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from dual_attention import mechanisms
from tests.support.tensors import float64, normal

WIDTH, LONGEST = 4, 16

SCORES: dict[str, Callable[[int | None], mechanisms.Score]] = {
    "dot": lambda heads: mechanisms.Dot(),
    "plain dot": lambda heads: mechanisms.Dot(scale=1.0),
    "additive": lambda heads: mechanisms.Additive(WIDTH, WIDTH, 3, heads=heads),
    "general": lambda heads: mechanisms.General(WIDTH, WIDTH, heads=heads),
    "biased general": lambda heads: mechanisms.BiasedGeneral(WIDTH, WIDTH, heads=heads),
    "activated general": lambda heads: mechanisms.ActivatedGeneral(WIDTH, WIDTH, heads=heads),
    "cosine": lambda heads: mechanisms.Cosine(2.0, learned=True, heads=heads),
    "euclidean": lambda heads: mechanisms.Euclidean(learned=True, heads=heads),
    "squared euclidean": lambda heads: mechanisms.Euclidean(squared=True, beta=0.5),
    "trilinear": lambda heads: mechanisms.Trilinear(WIDTH, heads=heads),
    "product": lambda heads: mechanisms.Product(WIDTH, WIDTH, 3, heads=heads),
    "location": lambda heads: mechanisms.Location(WIDTH, LONGEST, heads=heads),
    "only keys": lambda heads: mechanisms.KeyOnly(WIDTH, 3, n_queries=5, heads=heads),
    "features of pairs": lambda heads: mechanisms.Additive(WIDTH, WIDTH, 3, d_out=WIDTH, heads=heads),
    "bounded features": lambda heads: mechanisms.BoundedAdditive(WIDTH, WIDTH, heads=heads),
    "bilinear features": lambda heads: mechanisms.General(WIDTH, WIDTH, d_out=WIDTH, heads=heads),
    "features of keys": lambda heads: mechanisms.KeyOnly(WIDTH, 3, d_out=WIDTH, activation=F.elu, heads=heads),
}

ALIGNMENTS: dict[str, Callable[[], mechanisms.Align]] = {
    "softmax": mechanisms.Softmax,
    "cool softmax": lambda: mechanisms.Softmax(temperature=0.3),
    "sparsemax": mechanisms.Sparsemax,
    "entmax": mechanisms.Entmax,
    "learned entmax": lambda: mechanisms.Entmax(1.3, learned=True),
    "uniform": mechanisms.Uniform,
    "sigmoid": mechanisms.Sigmoid,
    "shifted sigmoid": lambda: mechanisms.Sigmoid(shift=-0.5),
    "stick-breaking": mechanisms.StickBreaking,
    "tanh": lambda: mechanisms.Elementwise("tanh"),
    "identity": lambda: mechanisms.Elementwise("identity"),
    "hard": lambda: mechanisms.Hard("reinforce"),
    "straight-through": lambda: mechanisms.Hard("st", evaluation="expected"),
}
NORMALISED = ("softmax", "cool softmax", "sparsemax", "entmax", "learned entmax", "uniform", "hard", "straight-through")


def build(score, align, heads):
    """Attention by names of both tables, alone or in heads over inputs of width 3."""
    attention = mechanisms.GeneralAttention(SCORES[score](heads), ALIGNMENTS[align]())
    if heads is not None:
        attention = mechanisms.MultiHead(attention, 3, heads, d_key=3, key_dim=WIDTH, head_dim=WIDTH)
    return float64(attention)


def a_mask(n: int = 5) -> Tensor:
    """A mask of heads ``(2, 1, n, n)``, in which one query of the first example may attend nothing."""
    mask = torch.rand(2, 1, n, n) < 0.7
    mask[0, :, 1] = False
    return mask


def longer_by_two(x: Tensor) -> Tensor:
    """The sequences ``(B, n, d)`` with two more elements, or their mask ``(B, n)``, which hides these."""
    return F.pad(x, (0, 2)) if x.dtype == torch.bool else torch.cat([x, 9 * normal(len(x), 2, x.shape[-1])], 1)
