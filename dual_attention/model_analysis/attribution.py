"""Logit attribution: what each part of a language model writes into the prediction of the next token, directly.

The residual stream is a sum: embeddings, what heads and feed-forward blocks add, and biases. Normalisations divide by a
scale; with the scales held as they are, the logits are a sum over the same parts, which is exact. A relational head is
divided further: its message is a sum over relations and symbols.

Math: z_i = W_U N(x_i) + b,  x_i = e_i + sum of parts,  N(x) = (x - mean x) / s_i * g + its bias, s_i held

An effect through later layers is none of this; :mod:`.interventions` measure it.

Shapes: B examples, N tokens, P parts, H heads, R relations, d width of the model, V size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._base.words import repr_of_shapes
from .._layers.inputs import check_choice
from .._models.language import LanguageModel
from ..generation import evaluating
from ..relational_attention import RelationalAttention
from ..transformer_blocks import EncoderSteps, RMSNorm
from .capture import uncompiled
from .interventions.predictions import check_place, checked_tokens
from .sites import Site, find_sites

__all__ = ["LogitAttribution", "LogitPart", "attribute_logits"]


@dataclass(frozen=True)
class LogitPart:
    """A part of a language model that writes into the residual stream.

    Attributes:
        what: ``"embedding"``: of the token, with learned positions; ``"head"``; ``"relation"``: what a head receives
            through the column of ``W_r`` of one relation, ``W_r^h[:, l] sum_j alpha^h_ij r_ij,l``; ``"symbol"``: what
            it receives of symbols, ``sum_j alpha^h_ij W_s^h s_j``; ``"mlp"``: a feed-forward block, biases included;
            or ``"bias"``: of the other layers.
        layer: name of the layer; empty for embeddings and the output layer.
        kind: of heads, ``"sensory"`` or ``"relational"``; empty for parts of no head.
        head, relation: their numbers; None for parts of no head or relation, and of all heads together.

    >>> LogitPart("relation", "blocks.0", "relational", head=1, relation=3)
    LogitPart(what='relation', layer='blocks.0', kind='relational', head=1, relation=3)
    """

    what: Literal["embedding", "head", "relation", "symbol", "mlp", "bias"]
    layer: str = ""
    kind: Literal["sensory", "relational", ""] = ""
    head: int | None = None
    relation: int | None = None


@dataclass(frozen=True)
class LogitAttribution:
    """Logits of the next token as a sum over parts of the model.

    Attributes:
        parts: all parts, P.
        vectors: of each part what it adds to the input of the output layer, ``(B, P, d)``, in float32 or better; with
            one more feature if the output layer has a bias, 1 for the part of the output layer and 0 for others.
        unembedding: weights of the output layer, ``(V, d)``; with one more column if it has a bias, which holds it.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> attribution = attribute_logits(lm, torch.randint(50, (2, 9)))
    >>> attribution.logits().shape
    torch.Size([2, 6, 50])
    """

    parts: tuple[LogitPart, ...]
    vectors: Tensor
    unembedding: Tensor

    __repr__ = repr_of_shapes

    def logits(self, parts: int | Sequence[int] | None = None) -> Tensor:
        """Contributions of some parts, by number, to all logits, ``(B, P, V)``; of all parts they add up to the logits.

        >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16).eval()
        >>> tokens = torch.randint(50, (2, 9))
        >>> total = attribute_logits(lm, tokens).logits().sum(1)
        >>> torch.allclose(total, lm(tokens).logits[:, -1], atol=1e-5)
        True
        """
        chosen = [parts] if isinstance(parts, int) else parts
        return (self.vectors if chosen is None else self.vectors[:, list(chosen)]) @ self.unembedding.T

    def effects(self, token: int | Tensor, foil: int | Tensor | None = None) -> Tensor:
        """Contributions of all parts to one logit, ``(B, P)``, less their mean over the vocabulary.

        What a part adds to all logits alike changes no probability, so it does not count.

        Args:
            token: the token, one for all examples or an integer ``(B,)``.
            foil: another token, whose logit takes the place of the mean: effects on the difference of the two.

        >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
        >>> attribute_logits(lm, torch.randint(50, (2, 9))).effects(token=17, foil=4).shape
        torch.Size([2, 6])
        """
        against = self.unembedding.mean(0) if foil is None else self._row("foil", foil)
        direction = (self._row("token", token) - against).expand(len(self.vectors), -1)
        return torch.einsum("bpd,bd->bp", self.vectors, direction)

    def merged(self, by: Literal["head", "relation"]) -> LogitAttribution:
        """The same sum over fewer parts.

        Args:
            by: ``"head"``: relations and symbols of each head as one part, the head; ``"relation"``: each relation
                through all heads of its layer as one part, and symbols likewise.

        >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
        >>> merged = attribute_logits(lm, torch.randint(50, (2, 9))).merged("head")
        >>> [part.what for part in merged.parts]
        ['embedding', 'head', 'head', 'mlp', 'bias']
        """
        check_choice("by", by, ("head", "relation"))
        places: dict[LogitPart, int] = {}
        numbers = [places.setdefault(_merged(part, by), len(places)) for part in self.parts]
        vectors = self.vectors.new_zeros(len(self.vectors), len(places), self.vectors.shape[2])
        vectors.index_add_(1, torch.tensor(numbers, device=vectors.device), self.vectors)
        return replace(self, parts=tuple(places), vectors=vectors)

    def _row(self, name: str, token: int | Tensor) -> Tensor:
        """Rows of the output layer, ``(d,)`` or ``(B, d)``."""
        rows = self.unembedding
        return rows[checked_tokens(name, token, len(self.vectors), len(rows), rows.device)]


def _merged(part: LogitPart, by: str) -> LogitPart:
    if part.what not in ("relation", "symbol"):
        return part
    return replace(part, what="head", relation=None) if by == "head" else replace(part, head=None)


@torch.no_grad()
def attribute_logits(model: nn.Module, tokens: Tensor, place: int = -1) -> LogitAttribution:
    """Direct effects of all parts of a language model on the logits after one token, in evaluation mode.

    Exact where blocks normalise their inputs; where they normalise their outputs (post-norm) a part passes all later
    normalisations of the stream, whose scales are held as well. Heads of relational cross-attention are parts as a
    whole, since their message is of symbols only.

    Args:
        model: a language model of this library, also one for transformers. Interventions entered before are seen; one
            on whole heads takes the place of their relations and symbols, so that these no longer add up.
        tokens: integers ``(B, N)``.
        place: of the token after which the next one is predicted, from 0; negative ones count from the end.

    Raises:
        TypeError: if the model is none of the language models, or its normalisations or blocks are of another kind.
        ValueError: for tokens of another shape, or a place that is not in them.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> attribution = attribute_logits(lm, torch.randint(50, (1, 9)), place=4)
    >>> [part.what for part in attribution.parts]
    ['embedding', 'head', 'relation', 'symbol', 'mlp', 'bias']
    >>> promoted = (attribution.logits(2) - attribution.logits(2).mean(-1, keepdim=True)).topk(3)
    """
    language = next((module for module in model.modules() if isinstance(module, LanguageModel)), None)
    if language is None:
        raise TypeError(f"model: logits are attributed in language models of this library, got {type(model).__name__}")
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or not tokens.numel():
        raise ValueError(f"tokens: expected token ids (B, N), got {getattr(tokens, 'shape', tokens)!r}")
    n = tokens.shape[1]
    check_place(place, n)
    blocks = list(language.layers.blocks)
    for block in blocks:
        if not isinstance(block, EncoderSteps):
            raise TypeError(f"model: expected blocks of this library, got {type(block).__name__}")
    seen = _Seen(place % n)
    with ExitStack() as stack:
        for handle in seen.hooks(language, find_sites(model)):
            stack.callback(handle.remove)
        with evaluating(model), uncompiled():
            model(tokens)
    return _attribution(language, find_sites(model), seen)


class _Seen:
    """Rows at one place of what passes modules, ``(B, ...)`` by module."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.rows: dict[nn.Module, Tensor] = {}

    def hooks(self, language: LanguageModel, sites: Sequence[Site]) -> Iterator[Any]:
        """Hooks that keep what is needed; handles to remove them."""
        blocks = list(language.layers.blocks)
        yield blocks[0].register_forward_pre_hook(self._entering, with_kwargs=True)
        for norm in _norms(language):
            yield norm.register_forward_pre_hook(self._entering, with_kwargs=True)
        for block in blocks:
            yield block.ff_block.register_forward_hook(self._leaving(1))
        for site in sites:
            for name, axis in _observed(site).items():
                tap = site.tap(name)
                assert tap is not None
                yield tap.register_forward_hook(self._leaving(axis))

    def _entering(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["x"]
        self.rows[module] = _wide(x[:, self.place])

    def _leaving(self, axis: int) -> Callable[..., None]:
        def keep(module: nn.Module, _args: Any, x: Tensor) -> None:
            self.rows[module] = x.select(axis, self.place).clone()

        return keep


def _observed(site: Site) -> dict[str, int]:
    """Taps that are watched, and their axes of receivers."""
    if isinstance(site.module, RelationalAttention):
        return {"weights": 2, "relations": 1, "symbol_message": 2}
    return {"head_output": 2}


def _norms(language: LanguageModel) -> list[nn.Module]:
    """Normalisations of the residual stream itself, in their order."""
    within = [norm for block in language.layers.blocks if not block.norm_first for norm in (block.norm1, block.norm2)]
    return [*within, language.layers.norm]


def _attribution(language: LanguageModel, sites: Sequence[Site], seen: _Seen) -> LogitAttribution:
    """The sum, built up in the order in which the model does."""
    blocks, out = list(language.layers.blocks), language.layers.final_out
    parts, vectors = [LogitPart("embedding")], seen.rows[blocks[0]][:, None]

    def add(more: Sequence[LogitPart], written: Tensor) -> None:
        nonlocal vectors
        written = written.to(vectors).expand(len(vectors), -1, -1)
        if more[0] in parts:  # another bias of a layer
            vectors[:, parts.index(more[0])] += written[:, 0]
            return
        parts.extend(more)
        vectors = torch.cat([vectors, written], 1)

    def normalise(norm: nn.Module, layer: str) -> None:
        nonlocal vectors
        frozen = _frozen(norm, seen.rows[norm])
        vectors = frozen.apply(vectors)
        if frozen.bias is not None:
            add([LogitPart("bias", layer)], frozen.bias[None, None])

    bias: Tensor | None
    for block in blocks:
        members = set(block.modules())
        own = [site for site in sites if site.module in members]
        layer = own[0].layer
        for site in own:
            own_parts, written = _written(site, seen)
            add(own_parts, written)
            bias = site.output_bias(written)
            if bias is not None:
                add([LogitPart("bias", layer)], bias[None, None])
        if not block.norm_first:
            normalise(block.norm1, layer)
        add([LogitPart("mlp", layer)], seen.rows[block.ff_block][:, None])
        if not block.norm_first:
            normalise(block.norm2, layer)
    normalise(language.layers.norm, "")
    unembedding, bias = _linear(out, vectors)
    if bias is not None:
        unembedding, vectors = torch.cat([unembedding, bias[:, None]], 1), F.pad(vectors, (0, 1))
        add([LogitPart("bias")], F.pad(vectors.new_ones(1, 1, 1), (vectors.shape[2] - 1, 0)))
    return LogitAttribution(tuple(parts), vectors, unembedding)


def _written(site: Site, seen: _Seen) -> tuple[list[LogitPart], Tensor]:
    """The parts of the heads of a site, and what each adds to the output of the layer, ``(B, P, width)``."""
    rows = {name: seen.rows[tap] for name in _observed(site) if (tap := site.tap(name)) is not None}
    kind, heads = site.kind, range(site.n_heads)
    if "head_output" in rows:
        written = site.contributions(rows["head_output"][:, :, None], heads)[:, :, 0]
        return [LogitPart("head", site.layer, kind, head) for head in heads], written
    wr = site.module.wr
    weights, relations = _wide(rows["weights"]), _wide(rows["relations"])  # of which some are wider than the model
    attended = torch.einsum("bhm,bmr->bhr", weights, relations).to(wr)
    messages = torch.einsum("bhr,hdr->brhd", attended, wr)
    messages = torch.cat([messages, rows["symbol_message"][:, None].to(wr)], 1)  # (B, R + 1, H, d_h)
    written = site.contributions(messages.flatten(0, 1)[:, :, None], heads)[:, :, 0]
    written = written.unflatten(0, messages.shape[:2]).transpose(1, 2).flatten(1, 2)
    parts = [
        part
        for head in heads
        for part in (
            *(LogitPart("relation", site.layer, kind, head, number) for number in range(site.n_relations)),
            LogitPart("symbol", site.layer, kind, head),
        )
    ]
    return parts, written


class _Frozen(NamedTuple):
    """A normalisation with its scale held, ``(B, 1, 1)``: a linear map, and a bias."""

    scale: Tensor
    centres: bool
    weight: Tensor | None
    bias: Tensor | None

    def apply(self, x: Tensor) -> Tensor:
        """``(B, P, d)`` without the bias."""
        x = (x - x.mean(-1, keepdim=True) if self.centres else x) * self.scale
        return x if self.weight is None else x * self.weight


def _frozen(norm: nn.Module, x: Tensor) -> _Frozen:
    """A normalisation at the inputs ``(B, d)``."""
    x = x[:, None]
    if type(norm) is nn.Identity:
        return _Frozen(x.new_ones(()), False, None, None)
    if isinstance(norm, nn.LayerNorm):
        scale = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + norm.eps)
        return _Frozen(scale, True, *(None if p is None else p.to(x) for p in (norm.weight, norm.bias)))
    if isinstance(norm, RMSNorm):
        return _Frozen(torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps), False, norm.weight.to(x), None)
    raise TypeError(f"model: expected LayerNorm, RMSNorm or no normalisation of the stream, got {type(norm).__name__}")


def _linear(out: nn.Module, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weights ``(V, d)`` and bias ``(V,)`` of an output layer; of an adapter what it computes."""
    if type(out) is nn.Linear:
        return out.weight.detach().to(like), None if out.bias is None else out.bias.detach().to(like)
    dtype = next((one.dtype for one in out.parameters() if one.is_floating_point()), like.dtype)
    with evaluating(out):
        inputs = torch.eye(like.shape[-1], dtype=dtype, device=like.device)
        bias = out(torch.zeros_like(inputs[:1]))
        return (out(inputs) - bias).T.to(like), bias[0].to(like)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
