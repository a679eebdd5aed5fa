"""Configurations as data: a YAML file becomes plain values, and plain values become a frozen dataclass.

Nothing that a file names is opened, imported or run, and its size and depth are bounded, so that the configuration of a
stranger's run may be read.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from dual_attention._extras import require
from dual_attention._words import printable, suggestion

Config = TypeVar("Config")

LARGEST = 1 << 18
"""Most bytes of a file."""
DEEPEST = 32
"""Most levels of nesting."""
MOST_VALUES = 20_000
"""Most values of a file; one that an alias repeats counts each time."""

_PLAIN = {"null", "bool", "int", "float"}
_TEXTS = {"str", "timestamp", "value", "merge"}  # nothing here is a date or an instruction to merge
_YAML = "tag:yaml.org,2002:"
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}
_PLURALS = {int: "integers", float: "numbers", str: "texts"}
_COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}


def read_mapping(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file, if it is not UTF-8 text, not YAML, no mapping, too large, too deep, or has a key
            twice.
    """
    if path.is_dir():
        raise ValueError(f"{path}: expected a YAML file, got a folder")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with open(path, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"{path}: expected a configuration of at most {LARGEST:,} bytes, got more")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}: {error.reason})") from error
    if "\0" in text:
        raise ValueError(f"{path}: not text (a zero at byte {data.index(0)})")
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping, got {type(values).__name__}")
    return values


def parse_yaml(text: str) -> Any:
    """The plain value that a YAML text describes; an empty one is an empty mapping.

    Raises:
        ValueError: if it is not YAML, is too deep or too large, has a key twice, or names a type.
    """
    yaml = require("yaml", extra="train")
    loader = None
    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        return {} if node is None else _Plain(loader).value(node, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"not YAML: {error.problem or error.context}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ValueError(f"expected at most {DEEPEST} levels of nesting, got more") from error
    finally:
        if loader is not None:
            loader.dispose()


@lru_cache(maxsize=1)
def _loader() -> Any:
    """YAML's safe loader, for which ``1e-3`` is a number, too."""
    loader = type("Loader", (require("yaml", extra="train").SafeLoader,), {})
    number = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+$")
    loader.add_implicit_resolver(f"{_YAML}float", number, list("-+.0123456789"))
    return loader


class _Plain:
    """Nodes of YAML as plain values."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.left = loader, MOST_VALUES

    def value(self, node: Any, depth: int) -> Any:
        """The value of a node."""
        self.left -= 1
        if depth > DEEPEST:
            raise ValueError(f"expected at most {DEEPEST} levels of nesting, got more")
        if self.left < 0:
            raise ValueError(f"expected at most {MOST_VALUES:,} values, got more")
        tag = node.tag.removeprefix(_YAML)
        if node.id == "sequence" and tag == "seq":
            return [self.value(item, depth + 1) for item in node.value]
        if node.id == "mapping" and tag == "map":
            return self._mapping(node, depth)
        if node.id == "scalar" and tag in _PLAIN:
            return self._scalar(node)
        if node.id == "scalar" and tag in _TEXTS:
            return node.value
        raise ValueError(f"expected plain values, got one of the type {node.tag} in line {node.start_mark.line + 1}")

    def _scalar(self, node: Any) -> Any:
        try:
            return self.loader.construct_object(node)
        except ValueError as error:
            raise ValueError(f"not a number in line {node.start_mark.line + 1} ({error})") from error

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self.value(key_node, depth + 1)
            if isinstance(key, list | dict):
                raise ValueError(f"expected the name of a key in line {line}, got {_shown(key)}")
            key = key if isinstance(key, str) else str(key_node.value)
            if key in found:
                raise ValueError(f"the key {_shown(key)} is there twice, the second time in line {line}")
            found[key] = self.value(value_node, depth + 1)
        return found


def typed(kind: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``values`` of the keys of a dataclass, each of the type of its field; groups of keys as dicts.

    Raises:
        ValueError: naming the key, if it is unknown or its value has another type.
    """
    hints = types_of(kind)
    found = {}
    for name, value in values.items():  # in their order: the first key of a run names its experiment
        if name not in hints:
            raise ValueError(unknown_key(prefix + name, [prefix + key for key in every_key(kind)]))
        found[name] = _of_type(hints[name], value, prefix + name)
    return found


def build(kind: type[Config], values: Mapping[str, Any], default: Config | None = None) -> Config:
    """The dataclass ``kind`` from what :func:`typed` returns; keys that are missing have the values of ``default``."""
    own = {field.name: _default(field) for field in dataclasses.fields(typing.cast(Any, kind))}
    if default is not None:
        own = {name: getattr(default, name) for name in own}
    hints = types_of(kind)
    given = {}
    for name, value in values.items():
        group = group_of(hints[name])
        before = own[name] if dataclasses.is_dataclass(own[name]) else None
        given[name] = build(group, value, before) if group is not None and isinstance(value, dict) else value
    return kind(**given) if default is None else dataclasses.replace(typing.cast(Any, default), **given)


@lru_cache(maxsize=64)
def types_of(kind: type) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(typing.cast(Any, kind))}


def group_of(hint: Any) -> type | None:
    """The dataclass of a group of keys; None for a type of plain values."""
    found = [option for option in _options(hint) if dataclasses.is_dataclass(option)]
    return typing.cast(type, found[0]) if found else None


def every_key(kind: type, prefix: str = "") -> Iterator[str]:
    """All keys of a dataclass, dotted."""
    for name, hint in types_of(kind).items():
        group = group_of(hint)
        if group is not None:
            yield from every_key(group, f"{prefix}{name}.")
        yield prefix + name


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Message about an unknown key."""
    shown = printable(key)[:100]
    hint = suggestion(key, known, separator=".")
    if hint:
        return f"{shown}: there is no such key{hint}"
    parent = key.rpartition(".")[0]
    siblings = [name for name in known if name.rpartition(".")[0] == parent]
    return f"{shown}: there is no such key; expected one of {', '.join(siblings or known)}"


def in_words(hint: Any) -> str:
    """The values that a type allows."""
    options: Sequence[Any] = list(_options(hint))
    if len(options) > 1:
        return " or ".join(in_words(option) for option in sorted(options, key=lambda option: option is type(None)))
    option = options[0]
    if option in _KINDS:
        return _KINDS[option]
    if dataclasses.is_dataclass(option):
        return f"a group of keys ({', '.join(types_of(typing.cast(type, option)))})"
    arguments = typing.get_args(option)
    if typing.get_origin(option) is typing.Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if typing.get_origin(option) is dict:
        return f"a mapping of names to {_PLURALS[arguments[1]]}"
    if typing.get_origin(option) in (tuple, list) and arguments:
        item, *more = [argument for argument in arguments if argument is not Ellipsis]
        items = _PLURALS.get(item) or f"values, each {in_words(item)}"
        return f"a list of {_COUNTS.get(1 + len(more), 1 + len(more))} {items}" if more else f"a list of {items}"
    return getattr(option, "__name__", str(option))


def _options(hint: Any) -> tuple[Any, ...]:
    """The types of a union; of another type itself."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if union else (type(None) if hint is None else hint,)


def _of_type(hint: Any, value: Any, key: str) -> Any:
    """``value`` as the type has it; ``ValueError`` if it is of another."""
    for option in _options(hint):
        if dataclasses.is_dataclass(option) and isinstance(value, Mapping):
            return typed(typing.cast(type, option), value, f"{key}.")
        fits, found = _fitting(option, value)
        if fits:
            return found
    one = any(typing.get_origin(option) in (tuple, list) and _fitting(option, [value])[0] for option in _options(hint))
    raise ValueError(f"{key}: expected {in_words(hint)}, got {_shown(value)}{'; a list of one has brackets' * one}")


def _fitting(kind: Any, value: Any) -> tuple[bool, Any]:
    """Whether a value is of a type that is no union, and the value as that type has it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return value in [a for a in arguments if type(a) is type(value)], value
    if origin in (tuple, list):
        if not isinstance(value, list):
            return False, value
        if origin is tuple and Ellipsis not in arguments and len(value) != len(arguments):
            return False, value
        hints = [arguments[0]] * len(value) if origin is list or Ellipsis in arguments else arguments
        items = [_fitting(hint, item) for hint, item in zip(hints, value, strict=True)]
        return all(fits for fits, _ in items), origin(item for _, item in items)
    if origin is dict:
        return _fitting_mapping(arguments, value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return (True, float(value)) if abs(value) < 1 << 1000 else (False, value)
    number = kind in (int, float) and isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind) and not number, value


def _fitting_mapping(kinds: tuple[Any, ...], value: Any) -> tuple[bool, Any]:
    """Whether a value is a mapping of these kinds of keys and values, and that as they have it."""
    if not isinstance(value, Mapping):
        return False, value
    pairs = [(_fitting(kinds[0], key), _fitting(kinds[1], item)) for key, item in value.items()]
    return all(key[0] and item[0] for key, item in pairs), {key[1]: item[1] for key, item in pairs}


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _shown(value: Any) -> str:
    """A value of a file in a message: as YAML has it, safe to print, and short."""
    if isinstance(value, dict):
        return f"keys with values ({', '.join(printable(str(key))[:30] for key in list(value)[:4])})"
    words = {None: "null", True: "true", False: "false"}
    plain = words[value] if value is None or isinstance(value, bool) else None
    if plain is None:
        plain = repr(value) if isinstance(value, str) and (not value or value != value.strip()) else _text_of(value)
    shown = printable(plain).replace("\n", " ")
    return shown if len(shown) <= 100 else f"{shown[:97]}..."


def _text_of(value: Any) -> str:
    try:
        return f"{value:g}" if isinstance(value, float) and not math.isfinite(value) else str(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
