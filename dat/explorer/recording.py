"""Recordings: what the heads of a model compute on one text, kept so that its size grows with the length only.

Maps of heads that are not of queries and keys, those of the toolbox and of the baselines, are kept as they are.

Shapes: H heads, N receivers, M senders, R relations, S heads and K symbols of the symbol assignment.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.words import repr_of_shapes
from dual_attention.attention import Attention
from dual_attention.functional import (
    MaskPattern,
    RelativeSymbols,
    apply_rotary,
    mask_pattern,
    relational_cross_attention,
)
from dual_attention.functional.activations import activation_name
from dual_attention.functional.reference import repeat_heads
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions.targets import TAPS, Mediator
from dual_attention.model_analysis.maps import HeadMaps, Quantity
from dual_attention.model_analysis.sites import LayerChoice, Site, choose_sites, find_retrievers
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.symbol_retrieval import SymbolicAttention

from .factors import ScoreFactors, Visible

SWITCHED: tuple[Mediator, ...] = ("head", "relation", "symbol")
"""Mediators that a page can switch."""


_FACTORED = Attention | RelationalAttention | RelationalCrossAttention | DisentangledRelationalCrossAttention
"""Heads whose maps are of queries and keys."""


def _by_head(x: Tensor, heads: int) -> Tensor:
    """``(B, L, H * D) -> (B, H, L, D)``."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


@dataclass(frozen=True)
class RecordedHeads:
    """Heads of one kind in one layer, on one text.

    Attributes:
        layer, kind: name of the layer, and ``"sensory"`` or ``"relational"``.
        receivers, senders: names of the sequences in :attr:`Recording.sequences`.
        visible: senders that may be attended.
        weights: of attention, a map for each head; None for what compares objects and attends to none, CoRelNet.
        relations: a map for each relation; None for heads without.
        relation_of_head: whether a relation belongs to the head of its number only (disentangled RCA).
        relation_products: inner products of what a relation of 1 contributes to the output of the layer through each
            two heads, ``<W_o^h W_r^h e_l, W_o^g W_r^g e_l>``, ``(R, H, H)``; None without such relations.
        sender_norms: length of what a sender of weight 1 contributes, ``(H, M)``: a value, or a symbol; None where it
            depends on the receiver, too.
        message_norms: lengths of what each receiver gets, ``(H, N)``, by name: ``relations``, ``symbols`` and
            ``all``, in the output of the layer, to the precision of the model.
        assignment: weights of the symbols of a library, a map of tokens and symbols for each part; None for other
            symbols and for sensory heads.
        mediators: of ``"head"``, ``"relation"`` and ``"symbol"`` those that interventions can change.
    """

    layer: str
    kind: str
    receivers: str
    senders: str
    visible: Visible
    weights: ScoreFactors | None = None
    relations: ScoreFactors | None = None
    relation_of_head: bool = False
    relation_products: Tensor | None = None
    sender_norms: Tensor | None = None
    message_norms: Mapping[str, Tensor] = field(default_factory=dict)
    assignment: ScoreFactors | None = None
    mediators: Sequence[str] = ()

    __repr__ = repr_of_shapes

    @property
    def n_heads(self) -> int:
        """H; 0 where nothing is attended."""
        return 0 if self.weights is None else self.weights.maps


@dataclass(frozen=True)
class Recording:
    """Maps, messages and symbols of all heads of a model on one text.

    Attributes:
        title: of the page that shows it.
        facts: of the model, in words: names and values.
        sequences: labels of tokens by the name of the sequence, such as ``{"tokens": ["The", " cat"]}``.
        heads: those of every layer, in order, sensory before relational.
        reads: what the model reads: ``"text"``, ``"image"``, or nothing that a page could ask for, ``""``.
    """

    title: str
    facts: Mapping[str, str]
    sequences: Mapping[str, Sequence[str]]
    heads: Sequence[RecordedHeads]
    reads: str = ""

    def __repr__(self) -> str:
        lengths = ", ".join(f"{len(labels)} {name}" for name, labels in self.sequences.items())
        heads = ", ".join(f"{heads.layer} {heads.kind}" for heads in self.heads)
        return f"Recording({self.title!r}: {lengths}; {heads})"


@torch.no_grad()
def record(
    model: nn.Module,
    call: Callable[[], Any],
    sequences: Mapping[str, Sequence[str]],
    *,
    title: str = "",
    facts: Mapping[str, str] | None = None,
    reads: str = "",
    layers: LayerChoice = None,
) -> Recording:
    """Record the attention heads of a model during one call of it, on one example.

    Args:
        model: any with attention layers of this library.
        call: calls the model once; what it returns is not read. It runs without gradients, and in the mode that the
            model is in.
        sequences: labels of the tokens, by name; sequences of one length are told apart by the place of the layer:
            those of ``encoder`` layers, and the senders of cross-attention, are the first, other ones the last.
        title, facts, reads: of the page, see :class:`Recording`.
        layers: as :func:`~dual_attention.model_analysis.capture.capture`; by default all.

    Returns:
        The recording, in float32 on the CPU.

    Raises:
        TypeError: if sequences have no names.
        ValueError: if the model is called with several examples or not at all, if a layer's sequence has no labels, or
            if a map cannot be kept as factors: with a bias on its scores, a mask with gaps, or an activation that is a
            function of one's own.
    """
    if not isinstance(sequences, Mapping):
        raise TypeError(f'sequences: expected labels by name, {{"tokens": [...]}}, got {type(sequences).__name__}')
    if not sequences:
        raise ValueError("sequences: expected the labels of at least one sequence, got none")
    sites = [choice.site for choice in choose_sites(model, layers)]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    retrieved: list[tuple[Tensor, ScoreFactors]] = []
    handles = [one.register_forward_hook(_assigns(retrieved)) for one in find_retrievers(model)]
    needed: list[Quantity] = ["head_output"]
    # Of these heads no step has to be watched, so that no map is built.
    if not all(isinstance(site.module, Attention | RelationalAttention) for site in sites):
        needed.extend(("visible", "symbol_values", "relational_message", "symbol_message"))
    if not all(isinstance(site.module, _FACTORED) for site in sites):
        needed.extend(("weights", "relations"))
    names: list[Quantity] = [name for name in needed if any(site.tap_of(name) is not None for site in sites)]
    try:
        for site in sites:
            handles.append(site.module.register_forward_pre_hook(_hook(site, found, retrieved), with_kwargs=True))
        with capture(model, names, layers=layers, device="cpu") as maps:
            call()
    finally:
        for handle in handles:
            handle.remove()
    if not maps.calls:
        raise ValueError("call: expected a call of the model, but none of its attention layers was entered")
    if len(maps.calls) > 1:
        raise ValueError(f"call: expected one call of the model, got {len(maps.calls)}")
    heads = [_recorded(kept, found[kept.layer, kept.kind], sequences) for kept in maps.heads()]
    labels = {name: list(found) for name, found in sequences.items()}
    return Recording(title, dict(facts or {}), labels, heads, reads)


def _assigns(retrieved: list[tuple[Tensor, ScoreFactors]]) -> Callable[..., None]:
    """A hook that keeps the symbols that were retrieved last, and the weights with which they were."""

    def after(module: SymbolicAttention, args: tuple[Any, ...], symbols: Tensor) -> None:
        q, templates = (_by_head(x, module.n_heads) for x in (module.q_proj(args[0]), module.template_features[None]))
        weights = ScoreFactors(_kept(module.scale * q), _kept(templates), "softmax")
        retrieved[:] = [(symbols, weights.normalised(Visible.whole(q.shape[2], module.n_symbols)))]

    return after


def _hook(
    site: Site, found: dict[tuple[str, str], dict[str, Any]], retrieved: list[tuple[Tensor, ScoreFactors]]
) -> Callable[..., None]:
    signature = inspect.signature(site.module.forward)

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        factored = isinstance(site.module, _FACTORED)
        kept: dict[str, Any] = _factors(site, given.arguments) if factored else {"site": site}
        if retrieved and retrieved[0][0] is given.arguments.get("symbols"):
            kept["assignment"] = retrieved[0][1]
        found[site.layer, site.kind] = kept

    return before


def _factors(site: Site, given: dict[str, Any]) -> dict[str, Any]:
    """Factors of the maps that a call of a layer builds, from its arguments."""
    module, sensory = site.module, isinstance(site.module, Attention)
    x = given["query" if sensory else "x"]
    y = given["key"] if sensory else x if given["y"] is None else given["y"]
    if len(x) != 1:
        raise ValueError(f"call: expected one example, got a batch of {len(x)}")
    if given["attn_bias"] is not None:
        raise ValueError("attn_bias: a bias for every pair cannot be kept as factors of queries and keys")
    if given["cache"] is not None:
        raise ValueError("call: expected one of the whole text, got one that continues from a cache")
    wq, wk = (module.wq, module.wk) if sensory else module.selecting()
    rope = given["freqs_cos"], given["freqs_sin"]
    masks = (given[name] for name in ("attn_mask", "padding_mask", "is_causal"))
    sizes: dict[str, int] = {"batch": 1, "heads": module.n_heads, "n": x.shape[1], "m": y.shape[1]}
    pattern = mask_pattern(*masks, segments=given["segments"], window=module.window, **sizes)
    q, k = _by_head(wq(x), module.n_heads), _by_head(wk(y), module.n_kv_heads)
    if rope[0] is not None:
        q, k = (apply_rotary(z, *rope) for z in (q, k))
    q = module.attn_scale * q
    offsets = None
    if module.rel_pos_keys is not None:
        offsets = _kept(q @ module.rel_pos_keys.table(q).transpose(0, 1))
    activation = activation_name(getattr(module, "activation", "softmax"))
    kept: dict[str, Any] = {"site": site, "weights": ScoreFactors(_kept(q), _kept(k), activation, offsets)}
    kept["visible"] = pattern.once(("visible",), lambda: _visible_in(pattern))
    if sensory and module.wg is None and module.rel_pos_values is None:
        values = repeat_heads(_by_head(module.wv(given["value"]), module.n_kv_heads), module.n_heads)
        kept["sender_norms"] = _norms(site, values)
    if isinstance(module, RelationalAttention):
        u, w = (factors.transpose(1, 2) for factors in module.relation_factors(x, y))
        u = module.rel_scale * u
        kept["relations"] = ScoreFactors(_kept(u), _kept(w), activation_name(module.rel_activation))
        through = _kept(site.contributions(module.wr.transpose(1, 2)[None], range(site.n_heads))).transpose(0, 1)
        kept["relation_products"] = through @ through.transpose(1, 2)
        symbols = given["symbols"]
        if module.use_relative_positional_symbols:
            symbols = RelativeSymbols.from_dense(symbols) if isinstance(symbols, Tensor) else symbols
            library = module.wv(symbols.library).unflatten(-1, (module.n_kv_heads, -1))
            symbols = symbols.with_library(library)
        else:
            symbols = _by_head(module.wv(symbols), module.n_kv_heads)
            kept["sender_norms"] = _norms(site, repeat_heads(symbols, module.n_heads))
        bias = None if module.rel_pos_keys is None else module.rel_pos_keys.scores(q, y.shape[1], offset=0)
        kept["symbol_message"], _ = relational_cross_attention(q, k, symbols, scale=1.0, mask=pattern, bias=bias)
    if isinstance(module, DisentangledRelationalCrossAttention):
        u = module.attn_scale * _by_head(module.wq_rel(x), module.n_heads)
        w = _by_head(module.wk_rel(y), module.n_kv_heads)
        kept["relations"] = ScoreFactors(_kept(u), _kept(w), activation_name(module.rel_activation))
        kept["relation_of_head"] = True
    return kept


def _visible(mask: Tensor) -> Visible:
    """The senders that heads may attend, of their masks ``(H, N, M)``."""
    if len(mask) > 1 and not bool((mask == mask[:1]).all()):
        raise ValueError("attn_mask: the explorer shows layers whose heads may all attend the same senders")
    return Visible.of_mask(mask[0])


def _visible_in(pattern: MaskPattern) -> Visible:
    """The same of a pattern, which serves many layers."""
    mask = pattern.dense("cpu")
    if mask is None:
        return Visible.whole(pattern.n, pattern.m)
    return _visible(mask[0].expand(-1, pattern.n, pattern.m))


def _kept(x: Tensor) -> Tensor:
    """The only example, in float32 on the CPU."""
    return x[0].detach().float().cpu()


def _norms(site: Site, head_output: Tensor) -> Tensor:
    """Lengths of the contributions of ``(1, H, L, d_h)`` to the output of the layer, ``(H, L)``."""
    return _kept(site.contribution_norms(head_output))


def _recorded(maps: HeadMaps, kept: dict[str, Any], sequences: Mapping[str, Sequence[str]]) -> RecordedHeads:
    site: Site = kept.pop("site")
    if not isinstance(site.module, _FACTORED):
        kept |= _whole(maps)
    visible: Visible = kept.pop("visible", None) or _visible(maps.get("visible")[0])
    n, m = visible.receivers, visible.senders
    first = "encoder" in maps.layer
    for name in ("weights", "relations"):
        if name in kept:
            kept[name] = kept[name].normalised(visible)
    messages = {"relations": maps.relational_message, "symbols": maps.symbol_message}
    if "symbol_message" in kept:
        messages["symbols"] = kept.pop("symbol_message")
        messages["relations"] = maps.get("head_output").to(messages["symbols"]) - messages["symbols"]
    elif maps.symbol_values is not None and not maps.relative_symbols:
        kept["sender_norms"] = _norms(site, maps.symbol_values[:1])
    norms = {name: _norms(site, message) for name, message in messages.items() if message is not None}
    if maps.head_output is not None and site.contributes:
        norms["all"] = _norms(site, maps.head_output)
    return RecordedHeads(
        layer=maps.layer,
        kind=maps.kind,
        receivers=_sequence(sequences, n, first=first, what=f"receivers of {maps.layer}"),
        senders=_sequence(sequences, m, first=first or maps.layer.endswith(".cross"), what=f"senders of {maps.layer}"),
        visible=visible,
        message_norms=norms,
        mediators=[name for name in SWITCHED if site.tap(TAPS[name]) is not None],
        **kept,
    )


def _whole(maps: HeadMaps) -> dict[str, ScoreFactors]:
    """The maps of heads as they are, N x M numbers each."""
    if maps.examples != 1:
        raise ValueError(f"call: expected one example, got a batch of {maps.examples}")
    found = {}
    if maps.weights is not None:
        found["weights"] = ScoreFactors.of_maps(_kept(maps.weights))
    if maps.relations is not None:
        found["relations"] = ScoreFactors.of_maps(_kept(maps.relations).permute(2, 0, 1))
    return found


def _sequence(sequences: Mapping[str, Sequence[str]], length: int, *, first: bool, what: str) -> str:
    """Name of a sequence of that length, the first or the last in order."""
    names = [name for name, labels in sequences.items() if len(labels) == length]
    if not names:
        have = ", ".join(f"{name} {len(labels)}" for name, labels in sequences.items())
        raise ValueError(f"sequences: expected labels of the {length} {what}, got those of {have}")
    return names[0 if first else -1]
