"""CoRelNet, the compositional relational network (Kerg et al. 2022, arXiv 2206.05056).

Shapes: B batch, N objects given, n_objects places, d width.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .._layers.calls import TypedModule
from .._layers.inputs import check_boolean, check_positive
from .._layers.taps import Taps, observer_of
from ..functional import reference
from ..functional.activations import Activation, activation_function
from ..transformer_blocks import FeedForwardBlock
from ._objects import check_objects
from .context_norm import ContextNorm


class CoRelNet(TypedModule):
    """The matrix of similarities between objects, and nothing else of them.

    Math: z_i = MLP(x_i),  R_ij = softmax_j(<z_i, z_j>)

    A classifier on R sees only relations. The softmax is part of the definition; the learning curves named CoRelNet in
    arXiv 2405.16727 (Figure 7) are without it, ``activation="identity"``.

    Args:
        d_model: d.
        n_objects: number of places; the output has one entry for each pair of them.
        dff: hidden width of the MLP, ``nn.Linear(d, dff)``, ReLU, ``nn.Linear(dff, d)``; by default ``4 * d_model``.
        activation: activation of the similarities: softmax over the senders, or an elementwise one such as identity.
        symmetric_rels: compare ``z`` itself; otherwise ``R_ij = act(<W_q z_i, W_k z_j>)``, for "left of" and the like.
        context_norm: normalise the compared vectors over the objects, see
            :class:`~dual_attention.baselines.ContextNorm`.

    Attributes:
        out_features: ``n_objects ** 2``.

    >>> model = CoRelNet(d_model=32, n_objects=4)
    >>> model(torch.randn(2, 4, 32)).shape, model.out_features
    (torch.Size([2, 16]), 16)
    """

    def __init__(
        self,
        d_model: int,
        n_objects: int,
        dff: int | None = None,
        activation: str | Activation = "softmax",
        *,
        symmetric_rels: bool = True,
        context_norm: bool = False,
    ) -> None:
        super().__init__()
        check_boolean(symmetric_rels=symmetric_rels, context_norm=context_norm)
        check_positive(d_model=d_model, n_objects=n_objects, dff=1 if dff is None else dff)
        activation_function(activation)
        self.d_model = d_model
        self.n_objects = n_objects
        self.out_features = n_objects**2
        self.activation = activation
        self.symmetric_rels = symmetric_rels
        self.embed = FeedForwardBlock(d_model, dff, "relu", use_bias=True)
        self.wq = nn.Identity() if symmetric_rels else nn.Linear(d_model, d_model, bias=False)
        self.wk = nn.Identity() if symmetric_rels else nn.Linear(d_model, d_model, bias=False)
        norms = 0 if not context_norm else 1 if symmetric_rels else 2
        self.context_norms = nn.ModuleList(ContextNorm(d_model) for _ in range(norms))
        self.taps = Taps(("visible", "relations"))

    def relations(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """R as a matrix, ``(B, N, d) -> (B, N, N)``; arguments as :meth:`forward`."""
        check_objects(x, padding_mask, self.d_model, self.n_objects)
        z = self.embed(x)
        u, w = self.wq(z), self.wk(z)
        if self.context_norms:  # one for both sides, or one for each
            u = self.context_norms[0](u, padding_mask=padding_mask)
            w = self.context_norms[-1](w, padding_mask=padding_mask)
        mask = None if padding_mask is None else padding_mask[:, None, None, :]
        observe = observer_of(self)
        if observe is not None:
            mask = reference.visible_pairs(observe, mask, None, (x.shape[1], x.shape[1]), x.device)
        r = reference.relations(u[:, :, None], w[:, :, None], scale=1.0, activation=self.activation, mask=mask)
        r = (r if observe is None else observe("relations", r))[..., 0]
        if padding_mask is None:
            return r
        return r.masked_fill(~(padding_mask[:, :, None] & padding_mask[:, None, :]), 0.0)

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """``(B, N, d) -> (B, n_objects ** 2)``, the rows of R one after the other.

        Args:
            x: N at most ``n_objects``; the relations of empty places are zero, as if they were masked.
            padding_mask: boolean, ``(B, N)``; True = an object is there.
        """
        r = self.relations(x, padding_mask=padding_mask)
        missing = self.n_objects - r.shape[1]
        return F.pad(r, (0, missing, 0, missing)).flatten(1)
