"""Controls of measures: scores of pairs that nobody trained to be relations, and their comparison with relations.

Each control gives scores ``(B, N, M, S)`` for the same pairs, so that :func:`compare` treats them like relations.
Another is a model that was not trained, :func:`untrained_twin`; shuffled labels are part of :func:`.detection.detect`.

Shapes: B examples, N receivers, M senders, H heads, R relations, d width of the model.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._layers.inputs import check_choice
from ..._layers.relation_size import relations_of_projections
from ..._models.encoder_heads import EncoderForMaskedLM, EncoderForSequenceClassification
from ..._models.seq2seq import Seq2SeqModel
from ..._models.token_model import TokenModel
from ..._models.vision import VisionModel
from ..._models.weights import init_weights
from ...configs import RelationScore
from ...functional.activations import Activation
from ...functional.checks import without_autocast
from ...relational_attention import RelationalAttention
from ._checks import check_floating_tensors
from .detection import Detection, Shuffle, detect


def attention_scores(weights: Tensor) -> Tensor:
    """Attention weights ``(B, H, N, M)`` as scores of pairs, ``(B, N, M, H)``.

    >>> attention_scores(torch.rand(2, 4, 9, 9)).shape
    torch.Size([2, 9, 9, 4])
    """
    check_floating_tensors(weights=weights)
    if weights.dim() != 4:
        raise ValueError(f"weights: expected shape (B, H, N, M), got {tuple(weights.shape)}")
    return weights.movedim(1, 3)


def cosine_scores(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Cosine of vectors of receivers and senders, for instance embeddings: ``(B, N, d), (B, M, d) -> (B, N, M, 1)``.

    Senders are by default the receivers. A vector of zeros has the cosine 0 to all others.

    >>> cosine_scores(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]))[0, ..., 0]
    tensor([[1., 0.],
            [0., 1.]])
    """
    y = x if y is None else y
    check_floating_tensors(x=x, y=y)
    return (_units(x) @ _units(y).transpose(1, 2)).to(x.dtype)[..., None]


def _units(x: Tensor) -> Tensor:
    """Vectors of length 1 in float32 or better, however small or large they were; zeros stay zeros."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    x = F.normalize(x, math.inf, dim=-1, eps=torch.finfo(x.dtype).tiny)  # squares may be too small or large
    return F.normalize(x, dim=-1)


def random_relations(
    x: Tensor,
    n_relations: int,
    rel_proj_dim: int,
    *,
    y: Tensor | None = None,
    symmetric: bool = False,
    activation: str | Activation = "identity",
    rel_score: RelationScore = "dot",
    seed: int = 0,
) -> Tensor:
    """Relations ``(B, N, M, R)`` as a layer computes them, by random projections of the same rank.

    Math: r_ij,ℓ = <W_q^ℓ x_i, W_k^ℓ y_j> / sqrt(p) or -|W_q^ℓ x_i - W_k^ℓ y_j|^2 / sqrt(p), entries of W from N(0, 1/d)

    Args:
        x: what enters the layer, ``(B, N, d)``.
        n_relations: R.
        rel_proj_dim: p, width of one relation's query and key.
        y: senders, ``(B, M, d)``; by default ``x``.
        symmetric: one projection for both.
        activation: of the relations; elementwise.
        rel_score: inner products or squared distances, as of the layer.
        seed: of the projections.

    >>> random_relations(torch.randn(2, 9, 32), n_relations=3, rel_proj_dim=8).shape
    torch.Size([2, 9, 9, 3])
    """
    y = x if y is None else y
    check_floating_tensors(x=x, y=y)
    generator = torch.Generator().manual_seed(seed)
    width = x.shape[-1]
    projections = [
        torch.randn(width, n_relations, rel_proj_dim, generator=generator).to(x) / math.sqrt(width) for _ in range(2)
    ]
    queries = torch.einsum("bnd,drp->bnrp", x, projections[0])
    keys = torch.einsum("bmd,drp->bmrp", y, projections[0 if symmetric else 1])
    check_choice("rel_score", rel_score, RelationScore)
    with nullcontext() if rel_score == "dot" else without_autocast(x):
        return relations_of_projections(queries, keys, activation, rel_score)


def untrained_twin(model: nn.Module, *, seed: int = 0, build: Callable[[], nn.Module] | None = None) -> nn.Module:
    """A model of the same configuration whose parameters were drawn anew and never trained, in evaluation mode.

    Modules draw their own, by ``reset_parameters``; models with an initialisation of their own (``init_weights``)
    apply it. The generators of torch are left as they were, and so is ``model``, whose device and dtype the twin has.

    Args:
        seed: of the draw.
        build: builds the model; needed if the way in which its training began was another (muP, say), or for modules
            that cannot draw their parameters anew, which the error names.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> twin = untrained_twin(lm, seed=1)
    >>> type(twin).__name__, twin.training
    ('DualAttnTransformerLM', False)
    """
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        if build is not None:
            twin = build().to(next(model.parameters()))
        else:
            twin = copy.deepcopy(model)
            _forget_hooks(twin)
            twin.apply(_draw_anew)
            module: Any
            for module in twin.modules():
                if isinstance(module, EncoderForMaskedLM | EncoderForSequenceClassification):
                    init_weights(module)
                elif hasattr(module, "_draw"):  # a model for transformers, which may have a head, too
                    module._draw()
                elif isinstance(module, TokenModel):
                    module.init_weights()
                elif isinstance(module, Seq2SeqModel):
                    module.scale_embeddings_()
                    if module.tie_weights and not module.scales_embeddings:  # the output layer drew last
                        nn.init.normal_(module.layers["target_embedder"].get_parameter("weight"))
    return twin.eval()


def _forget_hooks(twin: nn.Module) -> None:
    """Remove the hooks with which captures and interventions watch the model of which this is a copy."""
    for module in twin.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for number, hook in list(hooks.items()):
                if str(getattr(hook, "__module__", "")).startswith(__name__.partition(".measures")[0]):
                    del hooks[number]


def _draw_anew(module: nn.Module) -> None:
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if isinstance(module, RelationalAttention):
        module.reset_relations()
    elif isinstance(module, VisionModel):
        for _, parameter in module.named_parameters(recurse=False):
            nn.init.normal_(parameter)
    elif reset is not None:
        reset()
    elif next(module.parameters(recurse=False), None) is not None:
        raise ValueError(f"model: {type(module).__name__} does not draw its parameters anew; expected build")


@dataclass(frozen=True)
class Compared:
    """The best of some scores at detecting a label, chosen on one half of the examples and measured on the other.

    Attributes:
        name: of the scores.
        score: the one that was chosen.
        sign: -1 if it is low where the label holds.
        auc: on the other half, with that sign.
        chosen_auc: on the half on which it was chosen, of the larger of so many; too good, therefore.
        detection: of all examples.

    >>> labels = torch.rand(8, 5, 5) > 0.5
    >>> compare({"noise": torch.rand(8, 5, 5, 3)}, labels, permutations=9)[0].name
    'noise'
    """

    name: str
    score: int
    sign: int
    auc: float
    chosen_auc: float
    detection: Detection


def compare(
    scores: Mapping[str, Tensor],
    labels: Tensor,
    mask: Tensor | None = None,
    strata: Tensor | None = None,
    *,
    permutations: int = 100,
    shuffle: Shuffle = "objects",
    seed: int = 0,
    chosen_on: Tensor | None = None,
) -> list[Compared]:
    """Detection of a label by several kinds of scores, for instance relations and their controls.

    The best of eight relations is better than the best of two even if all are noise. So each kind's best score is
    chosen on one half of the examples and measured on the other, and p-values are of the maximum.

    Args:
        scores: ``(B, N, N, S)`` by name; S may differ.
        labels, mask, strata, permutations, shuffle, seed: as :func:`.detection.detect`.
        chosen_on: examples on which the best score is chosen, boolean ``(B,)``; by default those of even number. Keep
            all examples of a document in one half. Both halves need something to compare.

    >>> labels = torch.rand(8, 5, 5) > 0.5
    >>> kinds = {"label": labels[..., None].float(), "noise": torch.rand(8, 5, 5, 3)}
    >>> [found.name for found in compare(kinds, labels, permutations=9) if found.auc > 0.9]
    ['label']
    """
    found = []
    for name, values in scores.items():
        whole = detect(values, labels, mask, strata, permutations=permutations, shuffle=shuffle, seed=seed)
        half = torch.arange(len(values)) % 2 == 0 if chosen_on is None else chosen_on
        if half.shape != (len(values),) or half.dtype != torch.bool:
            raise ValueError(f"chosen_on: expected booleans ({len(values)},), got {half.dtype} {tuple(half.shape)}")
        chosen, other = (_detect_in(part, values, labels, mask, strata) for part in (half, ~half))
        best = chosen.best
        sign = 1 if chosen.auc[best] >= 0.5 else -1
        held_out, seen = (0.5 + sign * (float(part.auc[best]) - 0.5) for part in (other, chosen))
        found.append(Compared(name, best, sign, held_out, seen, whole))
    return found


def _detect_in(part: Tensor, scores: Tensor, labels: Tensor, mask: Tensor | None, strata: Tensor | None) -> Detection:
    """Detection in some of the examples."""
    pairs = scores.shape[:3]
    mask, strata = (None if tensor is None else tensor.expand(pairs)[part] for tensor in (mask, strata))
    return detect(scores[part], labels.expand(pairs)[part], mask, strata)


def comparison_table(compared: list[Compared]) -> str:
    """A table of comparisons in Markdown: the best score of each kind, its AUC on held-out examples, and its p.

    AUCs of a score that is low where the label holds are those of its negative.

    >>> labels = torch.rand(8, 5, 5) > 0.5
    >>> print(comparison_table(compare({"noise": torch.rand(8, 5, 5, 3)}, labels, permutations=9)))
    | scores | number | best | AUC (held out) | 95% over examples | p of the maximum | shuffled, 95% |
    | --- | --- | --- | --- | --- | --- | --- |
    | noise | 3 | ...
    """
    lines = [
        "| scores | number | best | AUC (held out) | 95% over examples | p of the maximum | shuffled, 95% |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in compared:
        whole = one.detection
        low, high = whole.interval(one.score)
        if one.sign < 0:
            low, high = 1 - high, 1 - low
        interval = f"{low:.3f} to {high:.3f}"
        p = f"{float(whole.p[one.score]):.3f}"
        best = f"{one.score}{' (low)' if one.sign < 0 else ''}"
        shuffled = f"{0.5 + whole.shuffled():.3f}"
        lines.append(f"| {one.name} | {len(whole.auc)} | {best} | {one.auc:.3f} | {interval} | {p} | {shuffled} |")
    return "\n".join(lines)
