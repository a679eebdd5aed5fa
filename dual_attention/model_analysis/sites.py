"""Sites: the attention layers of a model with their names, and the choice of some of them, their heads and relations.

A layer is named by its stack and its number: ``blocks.0`` in a model with one stack of blocks (language models,
encoders, image classifiers), ``encoder.0``, ``decoder.0`` and ``decoder.0.cross`` in one with several; in others by its
path. Its sensory and its relational heads are two sites, numbered from 0 each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from .._layers.taps import Tap, Taps
from ..dual_attention import DualAttention
from ..generation import evaluating

Kind = Literal["sensory", "relational"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LayerChoice = str | int | Sequence[str | int] | None
HeadChoice = str | int | Sequence[int] | Mapping[str, int | Sequence[int] | None] | None
RelationChoice = int | Sequence[int] | None

_BLOCKS = re.compile(r"(?:^|\.)(?:(\w+)_)?blocks\.(\d+(?:\.\d+)*)(?!\w)")
_WRAPPERS = ("layers", "model", "module", "_orig_mod", "backbone")


@dataclass(frozen=True)
class Site:
    """Heads of one kind in one layer.

    Attributes:
        layer: name of the layer.
        kind: of the heads.
        path: of their module in the model.
        module: :class:`~dual_attention.attention.Attention`, a kind of relational heads, heads of the toolbox, or a
            baseline's comparison of objects.
        first_feature: feature of the layer's output at which that of these heads begins.
        width: of the layer's output; 0 if that is no sum over heads.
    """

    layer: str
    kind: Kind
    path: str
    module: Any
    first_feature: int
    width: int

    @property
    def n_heads(self) -> int:
        """H; 1 where there is no more than one map."""
        return getattr(self.module, "n_heads", 1)

    @property
    def n_relations(self) -> int:
        """R: of disentangled RCA one for each head; 0 for heads without relations."""
        return 0 if self.tap("relations") is None else getattr(self.module, "n_relations", self.n_heads)

    @property
    def has_relative_symbols(self) -> bool:
        """Whether symbols belong to pairs, as rows of a library."""
        return bool(getattr(self.module, "use_relative_positional_symbols", False))

    def tap(self, name: str) -> Tap | None:
        """The tap of that name; None if these heads do not compute such a thing."""
        found = self.module.taps._modules.get(name)
        return found if isinstance(found, Tap) else None

    def tap_of(self, quantity: str) -> Tap | None:
        """The tap at which a quantity of a capture is found; None if these heads do not compute it."""
        if quantity == "contribution" and not self.contributes:
            return None
        return self.tap({"contribution": "head_output", "assignment": "symbols"}.get(quantity, quantity))

    @property
    def contributes(self) -> bool:
        """Whether the output of the layer is a sum over heads."""
        return _contributes(self.module)

    def contributions(self, head_output: Tensor, heads: Sequence[int]) -> Tensor:
        """Contribution of some heads to the output of the layer, ``(B, len(heads), N, width)``, without biases.

        An adapter in the place of the output projection is asked in evaluation mode, without its dropout.

        Args:
            head_output: input of the output projection by head, ``(B, H, N, d_h)``.
        """
        wo, d_h = self.module.wo, head_output.shape[-1]
        if wo is None:  # heads are only concatenated
            found = head_output.new_zeros(head_output.shape[0], len(heads), head_output.shape[2], self.width)
            for place, head in enumerate(heads):
                found[:, place, :, head * d_h : (head + 1) * d_h] = head_output[:, head]
        elif type(wo) is nn.Linear:
            columns = wo.weight.unflatten(1, (-1, d_h))[:, list(heads)]
            found = torch.einsum("bhnd,ohd->bhno", head_output[:, list(heads)], columns)
        else:  # an adapter, say: what it computes counts
            alone = head_output.new_zeros(len(heads), *head_output.shape)
            for place, head in enumerate(heads):
                alone[place, :, head] = head_output[:, head]
            alone = alone.permute(1, 0, 3, 2, 4).flatten(3)
            with evaluating(wo):
                found = wo(alone) - wo(torch.zeros_like(alone))
        return self._among_features(found)

    def output_bias(self, like: Tensor) -> Tensor | None:
        """Output of the layer where heads bring nothing, ``(width,)``; None if its projection has no bias.

        Args:
            like: a tensor of the dtype and device that an adapter takes.
        """
        wo = self.module.wo
        if wo is None or (type(wo) is nn.Linear and wo.bias is None):
            return None
        if type(wo) is nn.Linear:
            return self._among_features(wo.bias)
        with evaluating(wo):
            return self._among_features(wo(like.new_zeros(1, self.n_heads * self.module.head_dim))[0])

    def _among_features(self, x: Tensor) -> Tensor:
        """Output of these heads as part of that of the layer, ``(..., width)``."""
        return nn.functional.pad(x, (self.first_feature, self.width - self.first_feature - x.shape[-1]))

    def contribution_norms(self, head_output: Tensor) -> Tensor:
        """Lengths of the contributions of all heads, ``(B, H, N)``, without the contributions.

        Args:
            head_output: as of :meth:`contributions`.
        """
        wo, d_h = self.module.wo, head_output.shape[-1]
        if wo is None:
            return head_output.norm(dim=-1)
        if type(wo) is not nn.Linear:
            return self.contributions(head_output, range(self.n_heads)).norm(dim=-1)
        columns = wo.weight.unflatten(1, (-1, d_h)).transpose(0, 1)  # by head
        if d_h < len(wo.weight):  # |W x| = |R x| with W = Q R
            columns = torch.linalg.qr(columns.float(), mode="r").R.to(columns.dtype)
        return (head_output @ columns.transpose(1, 2)).norm(dim=-1)


def find_sites(model: nn.Module) -> list[Site]:
    """All attention heads of a model, in the order of its modules; ``ValueError`` if it has none of this library."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a module, got {type(model).__name__}")
    found = {path: module for path, module in model.named_modules() if _is_heads(module)}
    if not found:
        raise ValueError(f"model: expected one with attention layers of this library, got {type(model).__name__}")
    names = _layer_names(model, list(found))
    return [_site(model, path, module, names[path]) for path, module in found.items()]


def find_retrievers(model: nn.Module) -> list[Any]:
    """The modules of a model that assign symbols by attention."""
    return [module for module in model.modules() if "assignment" in _taps_of(module)]


def is_tap(module: nn.Module) -> bool:
    """Whether a module is a tap, or the taps of a layer, which compute nothing."""
    return isinstance(module, Tap | Taps)


def place_of(path: str) -> str:
    """Path of the module that a layer calls as its heads; heads of your own are its ``part``."""
    return path.removesuffix(".part")


def _taps_of(module: nn.Module) -> Mapping[str, Any]:
    taps = module._modules.get("taps")
    return taps._modules if isinstance(taps, Taps) else {}


def _is_heads(module: nn.Module) -> bool:
    return bool(_taps_of(module).keys() & {"head_output", "weights", "relations"})


def _contributes(module: nn.Module) -> bool:
    return hasattr(module, "wo") and "head_output" in _taps_of(module)


def _kind_of(module: nn.Module) -> Kind:
    return "relational" if _taps_of(module).keys() & {"relations", "symbol_message"} else "sensory"


def _width_of(module: Any) -> int:
    """Features that heads write into."""
    return getattr(module.wo, "out_features", module.n_heads * module.head_dim)


def _site(model: nn.Module, path: str, module: Any, layer: str) -> Site:
    width, first = _width_of(module) if _contributes(module) else 0, 0
    place = place_of(path)
    parent = model.get_submodule(place.rpartition(".")[0])
    if isinstance(parent, DualAttention):
        sensory = parent.self_attention
        if sensory is not None and model.get_submodule(place) is not sensory and not parent._adds:
            first = _width_of(sensory)
        width = parent.d_model
    return Site(layer, _kind_of(module), path, module, first, width)


def _layer_names(model: nn.Module, paths: list[str]) -> dict[str, str]:
    """Name of the layer of each module by its path; two modules share one only if they are its two kinds of head."""
    places = {path: _place(path) for path in paths}
    stacks = {place[0] for place in places.values() if place is not None}
    names: dict[str, str] = {}
    for path, place in places.items():
        if place is None:
            parent = place_of(path).rpartition(".")[0]
            within = isinstance(model.get_submodule(parent), DualAttention)
            names[path] = (parent if within else path) or "attention"
        else:
            stack, rest = place
            names[path] = f"{'blocks' if len(stacks) == 1 else stack}.{rest}"
    taken: set[tuple[str, Kind]] = set()
    for path, name in list(names.items()):
        key = name, _kind_of(model.get_submodule(path))
        if key in taken:
            names[path] = path
        taken.add(key)
    return names


def _place(path: str) -> tuple[str, str] | None:
    """Name of the stack and place within it, such as ``("decoder", "0.cross")``; None for a module in no stack."""
    match = _BLOCKS.search(path)
    if match is None:
        return None
    before = [name for name in path[: match.start()].split(".") if name not in ("", *_WRAPPERS)]
    cross = ".cross" if path.endswith(".cross_attn") else ""
    return match[1] or (before[-1] if before else "blocks"), match[2] + cross


@dataclass(frozen=True)
class ChosenSite:
    """A site with the heads and relations chosen of it, by number."""

    site: Site
    heads: tuple[int, ...]
    relations: tuple[int, ...]


def choose_sites(
    model: nn.Module, layers: LayerChoice = None, heads: HeadChoice = None, relations: RelationChoice = None
) -> list[ChosenSite]:
    """Sites of a model with some of its layers, heads and relations.

    Args:
        layers: names, beginnings of names (``"decoder"``), or numbers in a model with one stack; None for all.
        heads: numbers, which both kinds of head must have; a kind of head; or a mapping from kinds to numbers, or to
            None for all of them. Kinds that are not named are left out. None for all heads.
        relations: numbers; None for all.
    """
    sites = _in_layers(find_sites(model), layers)
    by_kind = _by_kind(heads)
    for kind in by_kind:
        if isinstance(heads, Mapping | str) and not any(site.kind == kind for site in sites):
            raise ValueError(f"heads: expected kinds that the chosen layers have, got {kind!r}, which they do not")
    chosen = [
        ChosenSite(
            site,
            _numbers("heads", by_kind[site.kind], site.n_heads, f"the {site.kind} heads of {site.layer}"),
            _relations_of(site, relations),
        )
        for site in sites
        if site.kind in by_kind
    ]
    if relations is not None and not any(choice.site.n_relations for choice in chosen):
        raise ValueError("relations: the chosen layers and heads have no relations; expected None")
    return chosen


def _relations_of(site: Site, relations: RelationChoice) -> tuple[int, ...]:
    n = site.n_relations
    return _numbers("relations", relations, n, f"the relations of {site.layer}") if n else ()


def _in_layers(sites: list[Site], layers: LayerChoice) -> list[Site]:
    if layers is None:
        return sites
    known = list(dict.fromkeys(site.layer for site in sites))
    chosen: set[str] = set()
    for layer in [layers] if isinstance(layers, str | int) else _listed("layers", layers):
        if isinstance(layer, bool) or not isinstance(layer, str | int):
            raise TypeError(f"layers: expected names or numbers, got {layer!r}")
        name = f"blocks.{layer}" if isinstance(layer, int) else layer
        found = [name] if name in known else [other for other in known if other.startswith(f"{name}.")]
        if not found:
            raise ValueError(f"layers: expected some of {', '.join(known)}, got {layer!r}")
        chosen.update(found)
    if not chosen:
        raise ValueError("layers: expected at least one, got none")
    return [site for site in sites if site.layer in chosen]


def _by_kind(heads: HeadChoice) -> dict[str, Any]:
    if isinstance(heads, str):
        heads = {heads: None}
    if not isinstance(heads, Mapping):
        return dict.fromkeys(KINDS, heads)
    for kind in heads:
        if kind not in KINDS:
            raise ValueError(f"heads: expected the kinds {' and '.join(map(repr, KINDS))}, got {kind!r}")
    if not heads:
        raise ValueError("heads: expected at least one kind, got none")
    return dict(heads)


def _numbers(name: str, choice: int | Iterable[int] | None, n: int, whose: str) -> tuple[int, ...]:
    """Numbers below ``n``; ``whose`` tells, in an error, what they count."""
    if choice is None:
        return tuple(range(n))
    listed = [choice] if isinstance(choice, int) else _listed(name, choice)
    for number in listed:
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name}: expected numbers, got {number!r}")
        if not 0 <= number < n:
            raise ValueError(f"{name}: expected numbers from 0 to {n - 1}, {whose}, got {number}")
    if not listed:
        raise ValueError(f"{name}: expected at least one of {whose}, got none")
    return tuple(dict.fromkeys(listed))


def _listed(name: str, choice: Any) -> list[Any]:
    if isinstance(choice, str) or not isinstance(choice, Iterable):
        raise TypeError(f"{name}: expected a number or several, got {choice!r}")
    return list(choice)
