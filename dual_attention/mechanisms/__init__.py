"""The toolbox of attention: scores, alignments, selections and messages that compose.

A mechanism is a composition, not a class::

    GeneralAttention(score, align, select=..., message=...)      one attention
    MultiHead(attention, d_model, n_heads)                       several heads of it
    MultiHop(attention, hops)                                    several in a row

====================  =================================================================================================
Score                 :class:`Dot`, :class:`General`, :class:`BiasedGeneral`, :class:`ActivatedGeneral`,
                      :class:`Additive`, :class:`BoundedAdditive`, :class:`Product`, :class:`Trilinear`,
                      :class:`Cosine`, :class:`Euclidean`, :class:`Location`, :class:`KeyOnly`, :class:`SlotPair`,
                      :class:`TripleProduct`
Align                 :class:`Softmax`, :class:`Sparsemax`, :class:`Entmax`, :class:`Sigmoid`, :class:`Elementwise`,
                      :class:`StickBreaking`, :class:`MultiToken`, :class:`Uniform`, :class:`Hard`
Select                :class:`MonotonicWindow`, :class:`PredictiveWindow`, :class:`ReinforcedSubset` (with
                      :class:`SubsetSampler`)
Message               :class:`ValueMessage`, :class:`FeatureMessage`, :class:`ValueResidual`,
                      :class:`PairwiseMessage`, :class:`RelationalMessage` (with :class:`Relation`)
Query, if not given   :class:`SelfQuery`, :class:`LearnedQuery`, :class:`ConstantQuery`
Composition           :class:`GeneralAttention`, :class:`MultiHead`, :class:`MultiHop`; by name in :mod:`.recipes`
Projection            linear; a :class:`TensorProductProjection` may take its place in :class:`MultiHead`
Architectures         co-attention, differential, latent and simplicial attention, of several: ``architectures/``
====================  =================================================================================================

Relational attention is one composition among them: its message is a relation and a symbol, where that of self-attention
is the sender's features. All answer what does not fit with a ``TypeError`` or ``ValueError`` that names the argument.

After Brauwers & Frasincar 2023, "A General Survey on Attention Mechanisms in Deep Learning" (arXiv 2203.14263).
"""

from . import recipes
from .alignments import (
    Align,
    Elementwise,
    Entmax,
    Hard,
    MultiToken,
    Sigmoid,
    Softmax,
    Sparsemax,
    StickBreaking,
    Uniform,
)
from .architectures.coattention import (
    AlternatingCoAttention,
    CoAttentionOutput,
    InteractiveCoAttention,
    ParallelCoAttention,
    ScoreFactory,
)
from .architectures.differential import DifferentialAttention
from .architectures.hops import GRUUpdate, LinearUpdate, MultiHop, MultiHopOutput, replace, residual
from .architectures.latent import LatentAttention
from .architectures.simplicial import SimplicialAttention, TripleProduct
from .general import GeneralAttention, GeneralAttentionOutput
from .messages import (
    FeatureMessage,
    Message,
    Messages,
    PairwiseMessage,
    PairwiseValues,
    RelativeValues,
    SharedValues,
    ValueMessage,
    ValueResidual,
)
from .multi_head import MultiHead
from .projections import TensorProductProjection
from .queries import ConstantQuery, LearnedQuery, SelfQuery
from .relations import Relation, RelationalMessage, RelationalMessages
from .scores import (
    ActivatedGeneral,
    Additive,
    BiasedGeneral,
    BoundedAdditive,
    Cosine,
    Dot,
    Euclidean,
    General,
    KeyOnly,
    Location,
    Product,
    Score,
    SlotPair,
    Trilinear,
)
from .selections import MonotonicWindow, PredictiveWindow, ReinforcedSubset, Select, Selection, SubsetSampler

__all__ = [
    "ActivatedGeneral",
    "Additive",
    "Align",
    "AlternatingCoAttention",
    "BiasedGeneral",
    "BoundedAdditive",
    "CoAttentionOutput",
    "ConstantQuery",
    "Cosine",
    "DifferentialAttention",
    "Dot",
    "Elementwise",
    "Entmax",
    "Euclidean",
    "FeatureMessage",
    "GRUUpdate",
    "General",
    "GeneralAttention",
    "GeneralAttentionOutput",
    "Hard",
    "InteractiveCoAttention",
    "KeyOnly",
    "LatentAttention",
    "LearnedQuery",
    "LinearUpdate",
    "Location",
    "Message",
    "Messages",
    "MonotonicWindow",
    "MultiHead",
    "MultiHop",
    "MultiHopOutput",
    "MultiToken",
    "PairwiseMessage",
    "PairwiseValues",
    "ParallelCoAttention",
    "PredictiveWindow",
    "Product",
    "ReinforcedSubset",
    "Relation",
    "RelationalMessage",
    "RelationalMessages",
    "RelativeValues",
    "Score",
    "ScoreFactory",
    "Select",
    "Selection",
    "SelfQuery",
    "SharedValues",
    "Sigmoid",
    "SimplicialAttention",
    "SlotPair",
    "Softmax",
    "Sparsemax",
    "StickBreaking",
    "SubsetSampler",
    "TensorProductProjection",
    "Trilinear",
    "TripleProduct",
    "Uniform",
    "ValueMessage",
    "ValueResidual",
    "recipes",
    "replace",
    "residual",
]
