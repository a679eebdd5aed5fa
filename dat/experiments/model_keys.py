"""Keys of a model that experiments share: those of its blocks, from the library, and those of relations and symbols."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from dual_attention._base.words import counted, listed
from dual_attention.configs import (
    AttentionConfig,
    DepthConfig,
    LibraryConfig,
    PatchesConfig,
    RelationalConfig,
    RelationsConfig,
    RelationScore,
    SymbolConfig,
    SymbolRetrieval,
)
from dual_attention.dual_attention import RELATIONAL_HEADS
from dual_attention.functional.activations import ACTIVATIONS

from ..training.config_data import PartName, defaults_of
from ..training.configs import WIDEST, check, check_inside, check_integers, check_positive_numbers

ActivationName = Literal["relu", "gelu", "silu", "swiglu"]

Keys = TypeVar("Keys", bound="ModelKeys")

LONGEST = 1 << 24
"""Tokens that a language model sees, and tokens of its vocabulary."""


@dataclass(frozen=True, kw_only=True)
class NamedConfig:
    """A model with a name."""

    name: str
    """Name of the model in results and plots; a preset's name stands for its keys alone."""

    @property
    def folder_name(self) -> str:
        """The name as a part of that of a run folder."""
        return re.sub(r"[()\[\],: ]+", "-", self.name).strip("-")


@dataclass(frozen=True, kw_only=True)
class ModelKeys(LibraryConfig, RelationsConfig, DepthConfig, NamedConfig):
    """A Dual Attention Transformer, or a Transformer when it has no relational heads."""

    n_layers: int = 2
    n_heads_sa: int = 0
    """Sensory (self-attention) heads in each layer."""
    n_heads_ra: int = 2
    """Relational heads in each layer; 0 makes a standard Transformer, and the keys about relations and symbols idle."""
    heads: PartName | None = None
    """Heads of your own in place of a Transformer's self-attention, or a score or an alignment for them; null for
    self-attention."""
    rel_score: RelationScore | PartName = "dot"  # pyright: ignore[reportIncompatibleVariableOverride]
    activation: ActivationName = "gelu"
    bias: bool = False
    rca_activation: str = "softmax"
    """Activation of the scores of relational cross-attention, which are its relations, in place of rel_activation."""
    symbols: SymbolRetrieval | PartName
    n_symbols: int = 32
    """Symbols in the library; on texts also the largest relative position, beyond which all share a symbol."""
    symbol_heads: int = 4
    """Heads of symbolic attention."""
    sinusoidal_symbols: bool = False
    """Fixed sinusoids in place of learned symbols, by position or by relative position; the latter are not clipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inside("model.name", self.name, "output.folder")  # run folders have it in their names
        check_integers(self, "model", "n_layers", most=1000)
        sizes = ("d_model", "n_kv_heads", "dff", "n_relations", "rel_proj_dim", "n_symbols", "symbol_heads")
        check_integers(self, "model", *sizes, most=WIDEST)
        check(0 <= self.dropout_rate < 1, "model.dropout_rate", "a number in [0, 1)", self.dropout_rate)
        check_positive_numbers(self, "model", "rel_init_size")
        for key, name in self.parts.items():
            self._check_part(key, name)
        self.check_heads()

    def _check_part(self, key: str, name: str) -> None:
        """Raise ``ValueError`` unless a part of the user's own has a place, and other keys ask nothing of it."""
        expected: dict[str, Any] = {"architecture": "dat"}
        if key == "model.heads":
            expected |= {"n_heads_ra": 0, "n_heads_ra_dec": 0, "n_kv_heads": None, "output_gate": "none"}
        if key == "model.rel_score":
            expected |= {"ra_type": "relational_attention", "rel_init_size": None}
        for other, value in expected.items():
            got, wanted = getattr(self, other, value), "null" if value is None else value
            check(got == value, f"model.{other}", f"{wanted} with {key}={name}", got)
        for positions, others in (("pos_enc_type", "pos_emb or none"), ("pos_enc", "learned or none")):
            rotary = getattr(self, positions, "none")
            expected_here = f"{others} with {key}={name}, which knows no rotary positions"
            check(rotary != "RoPE" or key == "model.symbols", f"model.{positions}", expected_here, rotary)

    @property
    def parts(self) -> dict[str, str]:
        """The classes of the user's own that keys name, by these keys."""
        named = {f"model.{name}": getattr(self, name) for name in ("heads", "rel_score", "symbols")}
        return {key: value for key, value in named.items() if PartName.fits(value)}

    def check_heads(self) -> None:
        """Raise ``ValueError`` unless there are heads and the width is a multiple of them."""
        check_integers(self, "model", "n_heads_sa", "n_heads_ra", least=0, most=WIDEST)
        heads = self.n_heads_sa + self.n_heads_ra
        check(heads >= 1, "model.n_heads_sa + model.n_heads_ra", "at least 1", heads)
        check(self.d_model % heads == 0, "model.d_model", f"a multiple of the {heads} heads", self.d_model)
        if self.relational:
            self.check_groups(self.n_heads_sa, self.n_heads_ra)
            self._check_relations(self.d_model // heads * self.n_heads_ra)

    def check_groups(self, *heads: int) -> None:
        """Raise ``ValueError`` unless each of these numbers of heads is a multiple of ``n_kv_heads``."""
        groups = self.n_kv_heads
        if groups is not None:
            expected = f"null or a divisor of {' and '.join(str(n) for n in heads if n)}, the heads of each kind"
            check(not any(n % groups for n in heads), "model.n_kv_heads", expected, groups)

    def _check_relations(self, width: int) -> None:
        """The same of relations and symbols; ``width`` is that of all relational heads of a layer."""
        if self.sinusoidal_symbols:
            known = ("positional_symbols", "position_relative")
            check(self.symbols in known, "model.symbols", f"{listed(known)} with sinusoidal_symbols", self.symbols)
        if self.symbols in ("symbolic_attention", "rel_sym_attn"):
            fits, expected = self.d_model % self.symbol_heads == 0, f"a divisor of model.d_model={self.d_model}"
            check(fits, "model.symbol_heads", expected, self.symbol_heads)
        elif not self.trainable_symbols:  # where this is not the default, it was asked for
            fits, expected = not type(self).trainable_symbols, f"true with model.symbols {self.symbols}"
            check(fits, "model.trainable_symbols", expected, False)
        for name in ("rel_activation", "rca_activation"):
            value = getattr(self, name)
            check(value in ACTIVATIONS, f"model.{name}", f"one of {', '.join(ACTIVATIONS)}", value)
        if self.ra_type == "relational_attention":
            fits = not width or self.rel_proj_dim is not None or (self.n_relations or 1) <= width
            expected = f"at most {width}, the width of all relational heads, unless model.rel_proj_dim is given"
            check(fits, "model.n_relations", expected, self.n_relations)

    @property
    def relational(self) -> bool:
        """Whether this is a DAT with relational heads."""
        return self.n_heads_ra > 0

    @property
    def kind(self) -> str:
        """Name of the architecture."""
        return "DAT" if self.relational else "Transformer"

    def told_apart(self, other: ModelKeys) -> str:
        """A name of what this model is, and of the keys in which it differs from another one."""
        sizes = {"n_layers": counted(self.n_layers, "layer"), "d_model": f"width {self.d_model}"}
        told = sizes if self.kind in ("DAT", "Transformer") else {}
        values = {about.name: getattr(self, about.name) for about in fields(self) if about.name not in ("name", *told)}
        values = {name: Path(value).name if PartName.fits(value) else value for name, value in values.items()}
        changed = [
            f"{name} {value if isinstance(value, str) else json.dumps(value, default=lambda group: 'changed')}"
            for name, value in values.items()
            if value != getattr(other, name)  # the name of a part's file stands for the part
        ]
        return f"{self.kind} ({listed([*told.values(), *changed], most=5)})"

    def at_width(self: Keys, d_model: int) -> Keys:
        """The same model at another width, with as many heads and relations; other widths that are given go with it.

        Raises:
            ValueError: if a width would be no integer.
        """
        given = {name: width for name in ("dff", "rel_proj_dim") if (width := getattr(self, name)) is not None}
        for name, width in given.items():
            fits = width * d_model % self.d_model == 0
            check(fits, f"model.{name}", f"an integer that times {d_model}/{self.d_model} is one, too", width)
            given[name] = width * d_model // self.d_model
        return replace(self, d_model=d_model, **given)

    # The keys as the arguments of the library's classes, which have other names or groups.

    @property
    def n_heads(self) -> int:
        """Heads of a Transformer."""
        return self.n_heads_sa

    @property
    def sa_kwargs(self) -> AttentionConfig:
        """Options of the sensory heads of a DAT."""
        return AttentionConfig.of(vars(self))

    @property
    def ra_kwargs(self) -> dict[str, Any]:
        """Options of the relational heads: those that their kind has."""
        if self.ra_type != "relational_attention":
            for name, kept in (("rel_score", "dot"), ("rel_init_size", None)):
                value, expected = getattr(self, name), f"{kept or 'null'} with ra_type {self.ra_type}"
                check(value == kept, f"model.{name}", expected, value)
        elif self.rel_score == "squared_distance":
            wanted = "one that tells negative relations apart, with squared distances"
            check(self.rel_activation != "relu", "model.rel_activation", wanted, self.rel_activation)
        relative = self.symbol_retrieval.startswith("position_relative")
        score = "dot" if "model.rel_score" in self.parts else self.rel_score
        given = {**vars(self), "rel_score": score, "use_relative_positional_symbols": relative}
        options = RelationalConfig.of(given)
        own = {"activation": self.rca_activation} if self.ra_type == "rca" else {}
        return options.known_to(RELATIONAL_HEADS[self.ra_type]) | own

    @property
    def symbol_retrieval(self) -> SymbolRetrieval:
        """The symbol mechanism; if the user's own takes its place, the smallest one."""
        return "positional_symbols" if "model.symbols" in self.parts else self.symbols  # pyright: ignore[reportReturnType]

    def symbol_config(self, n_tokens: int, farthest: int | tuple[int, int]) -> SymbolConfig:
        """Options of the symbol mechanism for ``n_tokens`` positions and relative positions up to ``farthest``."""
        fixed = self.sinusoidal_symbols
        if self.symbol_retrieval == "positional_symbols":
            return SymbolConfig(symbol_dim=self.d_model, max_length=n_tokens, sinusoidal=fixed)
        if self.symbols.startswith("position_relative"):
            reach = None if fixed else farthest
            return SymbolConfig(symbol_dim=self.d_model, max_rel_pos=reach, sinusoidal=fixed)
        return SymbolConfig.of(vars(self), n_heads=self.symbol_heads)


@dataclass(frozen=True, kw_only=True)
class VisionModelKeys(PatchesConfig, ModelKeys):
    """A Dual Attention Transformer over image patches, or a Transformer when it has no relational heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(min(self.patch_size) >= 1, "model.patch_size", "integers of at least 1", list(self.patch_size))

    @property
    def has_class_token(self) -> bool:
        """Whether a class token stands before the patches."""
        return True

    def symbols_of(self, image_shape: Sequence[int]) -> SymbolConfig:
        """Options of the symbol mechanism for the patches of an image, and for a class token."""
        columns, rows = (side // patch for side, patch in zip(image_shape[1:], self.patch_size, strict=True))
        n_tokens = rows * columns + self.has_class_token
        in_grid = self.symbols == "position_relative_2d"
        return self.symbol_config(n_tokens, (rows - 1, columns - 1) if in_grid else n_tokens)


def named_by_keys(config: Any, presets: Mapping[str, Any]) -> Any:
    """The configuration of a run; a model with the name of a preset, but other keys, has a name that says what it is.

    So results of ``--preset DAT-tiny --model.n_layers 1`` are not taken for those of DAT-tiny.
    """
    model = getattr(config, "model", None)
    if not isinstance(model, ModelKeys):
        return config
    known = [keys for keys in (defaults_of(type(config))["model"], *presets.values()) if isinstance(keys, ModelKeys)]
    namesakes = [keys for keys in known if keys.name == model.name]
    if not namesakes or model in namesakes:
        return config
    name = min((model.told_apart(keys) for keys in namesakes), key=len)
    return replace(config, model=replace(model, name=name))
