"""Models of progressive matrices: a Wild Relation Network, and a scattering compositional learner.

Shapes: B batch, N objects, d width, h hidden width, K groups of features.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn


def _network(features: int, hidden: int, out: int, n_layers: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    widths = [features, *[hidden] * (n_layers - 1), out]
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])


class WReN(nn.Module):
    """Wild Relation Network (Barrett, Hill, Santoro et al. 2018, arXiv 1807.04225): a sum over pairs of objects.

    Math: f(sum_ij g([x_i, e_i, x_j, e_j])),  e_i = the unit vector of place i

    g and f have ReLU between their layers. Objects are the panels of a matrix, one of its answers among them.

    Args:
        d_model: d.
        n_objects: N.
        dff: h, width of both networks; 512 and 256 in the paper. By default 4 d.
        n_layers: linear layers of g; f has one less, and at least one.

    Attributes:
        out_features: h.

    >>> WReN(d_model=32, n_objects=9, dff=64)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 64])
    """

    places: Tensor

    def __init__(self, d_model: int, n_objects: int, dff: int | None = None, n_layers: int = 4) -> None:
        super().__init__()
        dff = 4 * d_model if dff is None else dff
        self.out_features = dff
        self.pair = _network(2 * (d_model + n_objects), dff, dff, n_layers)
        self.whole = _network(dff, dff, dff, max(n_layers - 1, 1))
        self.register_buffer("places", torch.eye(n_objects), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, N, d) -> (B, h)``."""
        n = x.shape[1]
        tagged = torch.cat((x, self.places[:n].to(x).expand(len(x), -1, -1)), -1)
        first = tagged[:, :, None].expand(-1, -1, n, -1)
        pairs = torch.cat((first, first.transpose(1, 2)), -1)
        return self.whole(torch.relu(self.pair(pairs)).sum((1, 2)))


class ScatteringLearner(nn.Module):
    """Scattering compositional learner (SCL; Wu, Dong, Grosse & Ba 2020, arXiv 2007.04212).

    Math, where x_n^k is the k-th of K equal parts of x_n:
        y_n = N_o(x_n),  z_n^k = N_a(y_n^k),  r^k = N_r([z_1^k, ..., z_N^k]),  output = [r^1, ..., r^K]

    N_o, N_a and N_r find objects, attributes and their relations; the last two are shared by all parts. N_o and N_a are
    added to what they take, each after one hidden layer of ReLU.

    Args:
        d_model: d, a multiple of K.
        n_objects: N.
        dff: h, width of the hidden layers; by default 4 d.
        n_groups: K.
        n_relations: numbers of each r^k; 5 in the authors' code.

    Attributes:
        out_features: ``n_groups * n_relations``.

    >>> ScatteringLearner(d_model=32, n_objects=9, n_groups=8)(torch.randn(2, 9, 32)).shape
    torch.Size([2, 40])
    """

    def __init__(
        self, d_model: int, n_objects: int, dff: int | None = None, n_groups: int = 8, n_relations: int = 5
    ) -> None:
        super().__init__()
        dff = 4 * d_model if dff is None else dff
        if d_model % n_groups:
            raise ValueError(f"d_model: expected a multiple of n_groups={n_groups}, got {d_model}")
        self.n_groups = n_groups
        self.out_features = n_groups * n_relations
        part = d_model // n_groups
        self.object = _network(d_model, dff, d_model, 2)
        self.attribute = _network(part, dff, part, 2)
        self.relation = _network(n_objects * part, dff, n_relations, 3)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, N, d) -> (B, K * n_relations)``; all N objects are there."""
        parts = (x + self.object(x)).unflatten(-1, (self.n_groups, -1))
        parts = parts + self.attribute(parts)
        return self.relation(parts.transpose(1, 2).flatten(2)).flatten(1)
