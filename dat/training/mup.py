"""Maximal update parametrisation (muP) of DATs and Transformers, as initial values and settings of the optimiser only.

A model is compared with the same model at another width, its base: a side of a parameter that differs between the two
grows with the width, one that does not is finite. The forward pass stays as it is, so that weights mean the same
wherever they are loaded. docs/mup.md derives the rule.

Math: with g = side / side of the base, for a matrix from n_in to n_out (2310.17813; Adam as in 2203.03466, Table 3)

    initial size ~ g_in^(-1/2) min(1, (g_out / g_in)^(1/2)),   Adam's rate ~ 1 / g_in,
    spectral norm of Muon's step ~ (g_out / g_in)^(1/2)

Whatever makes the queries of a score also gets a factor (its square root, where it makes the keys, too) by which the
scale of the score becomes 1 / width of a query, since queries and keys align in training. Entries of a gradient, and
with them Adam's eps, go as 1 / (number of entries * Adam's rate), since the change of a loss, their sum, stays.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from dual_attention.attention import Attention
from dual_attention.language_models import DualAttnTransformerLM, LanguageModel, TransformerLM
from dual_attention.positional_encoding import RelativePositionalEncoding
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqModel, Seq2SeqTransformer
from dual_attention.symbol_retrieval import (
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from dual_attention.transformer_blocks import RMSNorm
from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer

from .optim import Factors

MODELS = (
    *(DualAttnTransformerLM, TransformerLM),
    *(Seq2SeqDualAttnTransformer, Seq2SeqTransformer),
    *(VisionDualAttnTransformer, VisionTransformer),
)
"""Models that the rule was derived for."""


@torch.no_grad()
def scale_by_mup(model: nn.Module, base: nn.Module) -> dict[str, Factors]:
    """Scale the initial values of ``model`` in place; returns the factors, those of learning rates among them.

    Args:
        model: with the values that its class draws.
        base: the same model at the base width; it may be on the meta device, only its sizes count.

    Raises:
        ValueError: as :func:`mup_factors`.
    """
    factors = mup_factors(model, base)
    scale_initial(model, factors)
    return factors


@torch.no_grad()
def scale_initial(model: nn.Module, factors: Mapping[str, Factors]) -> None:
    """Scale the values that the class of ``model`` draws in place, by the factors of :func:`mup_factors`."""
    for name, parameter in model.named_parameters():
        if factors[name].initial != 1:
            parameter.mul_(factors[name].initial)


def mup_factors(model: nn.Module, base: nn.Module) -> dict[str, Factors]:
    """Factors by the names of parameters; all 1 if both models have one width.

    Raises:
        ValueError: if the model is none that the rule was derived for, the two differ in more than sizes, or the
            output layer shares its weight with an embedding and no normalisation before it could take its factor.
    """
    if type(model) not in MODELS:
        known = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"model: muP is derived for {known}, got {type(model).__name__}")
    names = {parameter: name for name, parameter in model.named_parameters()}
    sizes = {name: parameter.shape for name, parameter in base.named_parameters()}
    if type(base) is not type(model) or sizes.keys() != {*names.values()}:
        raise ValueError("base: expected the same model at another width, got one with other parameters")
    of_scores = dict(_score_factors(model, base))
    others = dict(base.named_modules())
    if any(isinstance(m, RelationalAttention) and m.rel_init_size is not None for m in model.modules()):
        raise ValueError("rel_init_size: expected None under muP, which keeps the size of W_r, got one")
    factors: dict[str, Factors] = {}
    for place, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if (name := names[parameter]) not in factors:  # else tied to an embedding, which comes first
                own = _factors(module, parameter.shape, sizes[name])
                standard = [_standard(kind, part, key) for kind, part in ((model, module), (base, others[place]))]
                own = own._replace(initial=own.initial * standard[1] / standard[0])
                factors[name] = _times(own, of_scores.get(parameter, 1.0))
    for name in _readout(model):
        width, of_base = model.get_parameter(name).shape[0], sizes[name][0]
        factors[name] = _times(factors[name], of_base / width)
    entries = {name: parameter.numel() / sizes[name].numel() for parameter, name in names.items()}
    return {name: found._replace(eps=1 / (entries[name] * found.adam)) for name, found in factors.items()}


def _factors(module: nn.Module, shape: torch.Size, base: torch.Size) -> Factors:
    """Factors of a parameter by its sides; that of initial values is to replace the growth that they have by class."""
    is_matrix = isinstance(module, nn.Linear) and len(shape) == 2
    is_wr = isinstance(module, RelationalAttention) and len(shape) == 3  # (H, d_h, R)
    if not is_matrix and not is_wr:
        return Factors()  # looked up, added or multiplied by entry: every entry counts for itself
    g_in, g_out = shape[-1] / base[-1], shape[-2] / base[-2]
    step = math.sqrt(g_out / g_in)
    return Factors(
        initial=min(1.0, step) / math.sqrt(g_in), adam=1 / g_in, muon=step * math.sqrt(max(base) / max(shape))
    )


def _times(factors: Factors, factor: float) -> Factors:
    return Factors(*(value * factor for value in factors))


def _standard(model: nn.Module, module: nn.Module, key: str) -> float:
    """Size of initial values by the library's own initialisation, up to a factor that no width enters."""
    of_tokens = isinstance(model, LanguageModel)  # constants, see `TokenModel.init_weights`
    if isinstance(module, RelationalAttention) and key == "wr":
        inputs = module.n_relations * (module.head_dim if module.wr_init == "published" else 1)
        return 1.0 if of_tokens and module.wr_init == "published" else inputs**-0.5
    if isinstance(module, RelativePositionalEncoding | PositionRelativeSymbolRetriever2D):
        return sum(module.get_parameter(key).shape) ** -0.5
    if isinstance(module, nn.Embedding) and isinstance(model, Seq2SeqModel) and model.scales_embeddings:
        return module.embedding_dim**-0.5
    return module.in_features**-0.5 if isinstance(module, nn.Linear) and not of_tokens else 1.0


def _score_factors(model: nn.Module, base: nn.Module) -> Iterator[tuple[Tensor, float]]:
    """Factors of the projections of queries: those that make the scale of a score 1 / width of a query."""
    others = dict(base.named_modules())
    for place, module in model.named_modules():
        for (layer, scale, both), (_, of_base, _) in zip(_scores(module), _scores(others[place]), strict=True):
            factor = of_base / scale
            for parameter in layer.parameters():
                yield parameter, math.sqrt(factor) if both else factor


def _scores(module: nn.Module) -> list[tuple[nn.Linear, float, bool]]:
    """Scores of a module: projection of queries, scale times width of a query, and whether it is that of keys, too."""
    match module:
        case RelationalAttention():
            scale = module.rel_scale * module.rel_proj_dim
            relations = [(module.wq_rel, scale, module.symmetric_rels)]
            if module.rel_score == "squared_distance":  # of queries and keys of one size
                relations = [(layer, scale, True) for layer in {module.wq_rel: None, module.wk_rel: None}]
            return [(module.wq_attn, module.attn_scale * module.key_dim, False), *relations]
        case DisentangledRelationalCrossAttention():
            scale = module.attn_scale * module.head_dim
            return [(module.wq_attn, scale, False), (module.wq_rel, scale, False)]
        case Attention() | RelationalCrossAttention():
            return [(module.wq, module.attn_scale * module.key_dim, False)]
        case SymbolicAttention():
            return [(module.q_proj, module.scale * module.d_model / module.n_heads, False)]
        case RelationalSymbolicAttention():
            scale = module.rel_scale if module.normalize_rels else 1.0
            return [(module.q_proj, scale * module.d_model / module.rel_n_heads, False)]
        case _:
            return []


def _readout(model: nn.Module) -> list[str]:
    """Parameters that scale what an output layer tied to an embedding reads: those of the last normalisation."""
    if not getattr(model, "tie_weights", False):
        return []
    norm = model.layers.norm if isinstance(model, LanguageModel) else None
    if not isinstance(norm, nn.LayerNorm | RMSNorm):
        raise ValueError(
            "tie_weights: expected false or a normalisation before the output layer, which takes the factor of muP "
            "that an embedding must not have"
        )
    return [f"layers.norm.{name}" for name, _ in norm.named_parameters()]
