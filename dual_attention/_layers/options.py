"""Options as configurations, as mappings and as arguments of a class: how each becomes the other, and their checks."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .._base.words import suggestion
from .inputs import check_boolean

Config = TypeVar("Config", bound="FieldsConfig")


@dataclass(frozen=True, kw_only=True)
class FieldsConfig:
    """Base of all configurations: it keeps copies of the mappings that it is given; its flags are True or False."""

    def __post_init__(self) -> None:
        for about in fields(self):
            value = getattr(self, about.name)
            if about.type == "bool" or (about.type == "bool | None" and value is not None):
                check_boolean(**{about.name: value})
            elif isinstance(value, Mapping):  # the caller's may change, this may not
                object.__setattr__(self, about.name, as_dicts(value))

    @classmethod
    def of(cls: type[Config], arguments: Mapping[str, Any], **more: Any) -> Config:
        """The configuration with those of the arguments that are its fields, and with ``more``."""
        return cls(**{about.name: arguments[about.name] for about in fields(cls) if about.name in arguments} | more)

    def arguments_for(self, build: Callable[..., Any]) -> dict[str, Any]:
        """Fields, and properties, that a class takes as arguments, in the order of its constructor."""
        return {name: getattr(self, name) for name in parameters_of(build) if hasattr(self, name)}


@dataclass(frozen=True, kw_only=True)
class OptionsConfig(FieldsConfig, Mapping[str, Any]):
    """Base of the options of a part: also the mapping of those that are not at their defaults, which is how they are
    handed on, and saved.
    """

    def __getitem__(self, name: str) -> Any:
        return {about.name: getattr(self, about.name) for about in self._given()}[name]

    def __iter__(self) -> Iterator[str]:
        return (about.name for about in self._given())

    def __len__(self) -> int:
        return len(self._given())

    def known_to(self, build: Callable[..., Any]) -> dict[str, Any]:
        """Those that a class takes."""
        return {name: value for name, value in self.items() if name in parameters_of(build)}

    def _given(self) -> list[Any]:
        return [about for about in fields(self) if getattr(self, about.name) != about.default]


def as_dicts(value: Any) -> Any:
    """A mapping, and those within, as new dicts, of which other code knows more; another value as it is."""
    return {key: as_dicts(part) for key, part in value.items()} if isinstance(value, Mapping) else value


@lru_cache
def parameters_of(build: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a class's constructor by name, in its order."""
    return inspect.signature(build).parameters


def arguments_of(build: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a class among those of the constructor around it, given as its ``locals()``."""
    return {name: given[name] for name in parameters_of(build) if name in given}


def options_dict(name: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of further arguments, empty for None; ``TypeError`` naming the argument, if they are no mapping."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"{name}: expected a mapping or None, got {options!r}")
    return dict(options or {})


def checked_options(
    name: str, options: Mapping[str, Any] | None, build: Callable[..., Any], *, taken: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Copy the further arguments of a class, after checking that it has parameters of their names.

    ``name`` is the argument that holds them; parameters ``taken`` are set elsewhere.
    """
    given = options_dict(name, options)
    known = [parameter for parameter in parameters_of(build) if parameter not in taken]
    for key in given:
        if key not in known:
            meant = suggestion(str(key), known) or f", which are {', '.join(known)}"
            raise ValueError(f"{name}: expected arguments of {build.__name__}, got {key!r}{meant}")
    return given


def check_complete(name: str, options: Mapping[str, Any], build: Callable[..., Any]) -> None:
    """Raise ``ValueError`` if arguments that a class needs are not among the options."""
    parameters = parameters_of(build).values()
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in options]
    if missing:
        raise ValueError(f"{name}: expected also {', '.join(missing)}, which {build.__name__} needs")


def check_types(config: FieldsConfig) -> None:
    """Raise ``TypeError`` for the first field whose value is of another type than its annotation."""
    hints = get_type_hints(type(config))
    for about in fields(config):
        value = getattr(config, about.name)
        if not _fits(value, hints[about.name]):
            raise TypeError(f"{about.name}: expected {_described(hints[about.name])}, got {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin is Mapping:  # the keys are checked where they are used
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(choice) for choice in get_args(hint)))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if get_origin(hint) is Mapping:
        return "a mapping of strings"
    return "None" if hint is type(None) else hint.__name__
