"""Configurations as data: a YAML file becomes plain values, and plain values become a frozen dataclass.

Nothing that a file names is opened, imported or run, and its size and depth are bounded, so that the configuration of a
stranger's run may be read.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from dual_attention._base.extras import require
from dual_attention._base.words import printable, shortened, suggestion

from .._own_code import FILE, MODULE

Config = TypeVar("Config")


class PartName(str):
    """Type of a key of a configuration that names a class, ``FILE.py:CLASS`` or ``MODULE:CLASS``."""

    @staticmethod
    def fits(value: object) -> bool:
        """Whether a value names one."""
        return isinstance(value, str) and bool(FILE.fullmatch(value) or MODULE.fullmatch(value))


LARGEST = 1 << 18
"""Most bytes of a file."""
DEEPEST = 32
"""Most levels of nesting."""
MOST_VALUES = 20_000
"""Most values of a file; one that an alias repeats counts each time."""

_YAML = "tag:yaml.org,2002:"
_SPELLINGS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": ("[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
        r"|[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+",
        "-+.0123456789",
    ),
}
"""Texts of switches and numbers, and the characters that they begin with."""
_ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-9_]+)+(\.[0-9_]*)?)")
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}
_KINDS[PartName] = "FILE.py:CLASS"
_PLURALS = {int: "integers", float: "numbers", str: "texts"}
_COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}
_UNFIT: Any = object()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors about what it holds."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}: {error.reason})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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
    with naming(path):
        if len(data) > LARGEST:
            raise ValueError(f"expected a configuration of at most {LARGEST:,} bytes, got more")
        text = data.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError(f"not text (a zero at byte {data.index(0)})")
        values = parse_yaml(text)
        if not isinstance(values, dict):
            raise ValueError(f"expected a mapping, got {type(values).__name__}")
        return values


def parse_yaml(text: str) -> Any:
    """The plain value that a YAML text describes; an empty one is an empty mapping.

    Raises:
        ValueError: if it is not YAML, is too deep or too large, has a key twice, or names a type.
    """
    yaml = require("yaml", extra="train")
    try:
        node = yaml.compose(text, _loader())
        return {} if node is None else _Plain(yaml.constructor.SafeConstructor()).value(node, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"not YAML: {error.problem or error.context}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ValueError(f"expected at most {DEEPEST} levels of nesting, got more") from error


@lru_cache(maxsize=1)
def _loader() -> Any:
    """YAML's safe loader, which reads switches and numbers as most people do.

    To it ``1e-3`` is a number, too. ``on``, ``off``, ``yes``, ``no``, ``1:30`` and ``010`` are texts, of which YAML 1.1
    makes true, false, 90 and 8.
    """
    safe = require("yaml", extra="train").SafeLoader
    kept = {
        first: [(tag, pattern) for tag, pattern in found if tag.removeprefix(_YAML) not in _SPELLINGS]
        for first, found in safe.yaml_implicit_resolvers.items()
    }
    loader = type("Loader", (safe,), {"yaml_implicit_resolvers": kept})
    for kind, (spelling, first) in _SPELLINGS.items():
        loader.add_implicit_resolver(_YAML + kind, re.compile(f"(?:{spelling})$"), list(first))
    return loader


def one_line_yaml(value: Any) -> str:
    """A value as YAML, which :func:`parse_yaml` reads to the same: it quotes texts that are numbers to either."""
    yaml = require("yaml", extra="train")
    dumper = type("Dumper", (yaml.SafeDumper,), {})
    spelling, first = _SPELLINGS["float"]
    dumper.add_implicit_resolver(f"{_YAML}float", re.compile(f"(?:{spelling})$"), list(first))
    text = yaml.dump(value, Dumper=dumper, default_flow_style=isinstance(value, list | dict), width=10_000)
    return text.removesuffix("...\n").strip()


class _Plain:
    """Nodes of YAML as plain values."""

    def __init__(self, constructor: Any) -> None:
        self.constructor, self.left = constructor, MOST_VALUES

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
        if node.id == "scalar" and tag in ("null", "bool", "int", "float"):
            return self._scalar(node)
        if node.id == "scalar" and tag in ("str", "timestamp", "value", "merge"):  # here, neither dates nor merging
            return node.value
        raise ValueError(f"expected plain values, got one of the type {node.tag} in line {node.start_mark.line + 1}")

    def _scalar(self, node: Any) -> Any:
        try:
            return self.constructor.construct_object(node)
        except (KeyError, ValueError) as error:
            raise ValueError(f"not a number or switch in line {node.start_mark.line + 1} ({error})") from error

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key, str):
                raise ValueError(f"expected the name of a key in line {line}, got a {key_node.id}")
            if key in found:
                raise ValueError(f"the key {_shown(key)} is there twice, the second time in line {line}")
            found[key] = self.value(value_node, depth + 1)
        return found


LAST_WITH_GONE = {"lrs": "b6024f0", "match": "b6024f0", "match_to": "b6024f0", "toolbox": "b6024f0", "heads": "327a0b1"}
LAST_WITH_GONE |= dict.fromkeys(("canvas", "front_end", "slots", "slot_abstractor", "ocra", "from_hub"), "7a05d7fd")
"""Commits that read the keys that are gone since."""


def without_gone(kind: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``values`` without the keys that ``kind`` once had, its ``gone``, which hold what changed nothing.

    A key that is there again, with other values, is kept if its value is one of these.

    Raises:
        ValueError: naming such a key that holds something else, and the commit that reads it.
    """
    hints, once = types_of(kind), getattr(kind, "gone", {})
    back = {name for name in once if name in hints and _fitting(hints[name], values.get(name), name) is not _UNFIT}
    gone: Mapping[str, Any] = {name: value for name, value in once.items() if name not in back}
    for name in (name for name in gone if values.get(name, gone[name]) != gone[name]):
        got = shortened(str(values[name]))
        raise ValueError(
            f"{prefix}{name}: expected none, got {got}; this key is gone, commit {LAST_WITH_GONE[name]} reads it"
        )
    return {name: value for name, value in values.items() if name not in gone}


def typed(kind: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``values`` of the keys of a dataclass, each of the type of its field; groups of keys as dicts.

    Raises:
        ValueError: naming the key, if it is unknown or its value has another type.
    """
    hints = types_of(kind)
    found = {}
    for name, value in without_gone(kind, values, prefix).items():  # in order: a run's first names its experiment
        if name not in hints:
            raise ValueError(unknown_key(prefix + name, [prefix + key for key in every_key(kind)]))
        found[name] = convert(hints[name], value, prefix + name)
    return found


def convert(hint: Any, value: Any, key: str) -> Any:
    """A plain value as a type has it; ``ValueError`` naming the key if it is of another."""
    found = _fitting(hint, value, key)
    if found is not _UNFIT:
        return found
    lists = [option for option in _options(hint) if typing.get_origin(option) in (tuple, list)]
    fits = any(_fitting(option, [value], key) is not _UNFIT for option in lists)
    advice = f"; a list has brackets: [{_shown(value)}]" if fits else ""
    if isinstance(value, str) and _ODD_NUMBER.fullmatch(value):
        advice = "; write a number without a leading zero or a colon"
    choices = [
        str(a) for option in _options(hint) if typing.get_origin(option) is typing.Literal for a in option.__args__
    ]
    if isinstance(value, str):
        advice = advice or suggestion(value, choices)
    raise ValueError(f"{key}: expected {in_words(hint)}, got {_shown(value)}{advice}")


def convert_text(hint: Any, text: str, key: str) -> Any:
    """The value of an option: the YAML that its text is, or the text itself where the type has texts."""
    if not text.strip() or all(map(_is_of_texts, _options(hint))):
        return convert(hint, text, key)
    try:
        value = parse_yaml(text)
    except ValueError:
        value = text
    as_text = _fitting(hint, text, key)
    if isinstance(value, str) or (as_text is not _UNFIT and _fitting(hint, value, key) is _UNFIT):
        value = text  # with its quotes
    return convert(hint, value, key)


def nested(key: str, value: Any) -> dict[str, Any]:
    """A value in groups of keys, as its dotted key says."""
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def merge(kind: type, into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put what :func:`typed` returns into earlier values; groups of keys are merged, too."""
    hints = types_of(kind)
    for name, value in values.items():
        group, before = group_of(hints[name]), into.get(name)
        if group is not None and isinstance(value, dict) and isinstance(before, dict):
            merge(group, before, value)
        else:
            into[name] = value


def build(kind: type[Config], values: Mapping[str, Any], default: Config | None = None) -> Config:
    """The dataclass ``kind`` from what :func:`typed` returns; keys that are missing have the values of ``default``.

    Raises:
        ValueError: naming keys that are missing and have no default.
    """
    own, hints = defaults_of(kind, default), types_of(kind)
    given = {}
    for name, value in values.items():
        group = group_of(hints[name])
        before = own[name] if dataclasses.is_dataclass(own[name]) else None
        given[name] = build(group, value, before) if group is not None and isinstance(value, dict) else value
    missing = [name for name, value in own.items() if value is dataclasses.MISSING and name not in given]
    if missing:
        raise ValueError(f"expected a value for {' and '.join(missing)}, got none")
    return kind(**given) if default is None else dataclasses.replace(typing.cast(Any, default), **given)


def differing(older: Any, newer: Any, key: str = "", *, free: Collection[str] = ()) -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys, and both values, in which two configurations differ; those of a group one by one.

    Args:
        key: of the two, if they are groups or values themselves.
        free: keys, of groups or values, that are not compared.
    """
    if dataclasses.is_dataclass(newer) and type(older) is type(newer):
        for about in dataclasses.fields(newer):
            name = f"{key}.{about.name}".lstrip(".")
            if name not in free:
                yield from differing(getattr(older, about.name), getattr(newer, about.name), name, free=free)
    elif older != newer:
        yield key, older, newer


def defaults_of(kind: type, instance: Any = None) -> dict[str, Any]:
    """The default of each field of a dataclass, or its value in an instance; ``MISSING`` where there is none."""
    fields = dataclasses.fields(typing.cast(Any, kind))
    if instance is not None:
        return {field.name: getattr(instance, field.name) for field in fields}
    return {f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in fields}


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


def unknown_key(key: str, known: Sequence[str], noun: str = "key") -> str:
    """Message about an unknown key."""
    hint = suggestion(key, known, separator=".")
    parent = key.rpartition(".")[0]
    siblings = [name for name in known if name.rpartition(".")[0] == parent]
    hint = hint or f"; expected one of {', '.join(siblings or known)}"
    return f"{printable(key)[:100]}: there is no such {noun}{hint}"


def in_words(hint: Any) -> str:
    """The values that a type allows."""
    options = _options(hint)
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
        return f"a mapping of names to {_PLURALS.get(arguments[1], 'values')}"
    if typing.get_origin(option) in (tuple, list) and arguments:
        item, *more = [argument for argument in arguments if argument is not Ellipsis]
        items = _PLURALS.get(item) or f"values, each {in_words(item)}"
        return f"a list of {_COUNTS.get(1 + len(more), 1 + len(more))} {items}" if more else f"a list of {items}"
    return getattr(option, "__name__", str(option))


def _options(hint: Any) -> Sequence[Any]:
    """The types of a union; of another type itself. Functions are left out, which no file has."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    known = typing.get_args(hint) if union else [type(None) if hint is None else hint]
    return [option for option in known if typing.get_origin(option) is not Callable]


def _fitting(hint: Any, value: Any, key: str) -> Any:
    """``value`` as the type has it; ``_UNFIT`` if it is of another.

    Raises:
        ValueError: if it is a group of keys, one of which is wrong.
    """
    options = _options(hint)
    if len(options) > 1:
        return next((found for option in options if (found := _fitting(option, value, key)) is not _UNFIT), _UNFIT)
    kind = options[0]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return typed(typing.cast(type, kind), value, f"{key}.") if isinstance(value, Mapping) else _UNFIT
    if origin is typing.Literal:
        return value if value in [a for a in arguments if type(a) is type(value)] else _UNFIT
    if origin in (tuple, list):
        return _fitting_items(origin, arguments, value, key)
    if origin is dict:
        if not isinstance(value, Mapping):
            return _UNFIT
        names = _fitting_items(list, arguments[:1], [*value], key)
        items = _fitting_items(list, arguments[1:], [*value.values()], key)
        return _UNFIT if _UNFIT in (names, items) else dict(zip(names, items, strict=True))
    if kind is PartName:
        return value if PartName.fits(value) else _UNFIT
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 1 << 1000 else _UNFIT
    fits = isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    return value if fits else _UNFIT


def _fitting_items(origin: Any, arguments: tuple[Any, ...], value: Any, key: str) -> Any:
    many = origin is list or Ellipsis in arguments
    if not isinstance(value, list) or not (many or len(value) == len(arguments)):
        return _UNFIT
    hints = [arguments[0]] * len(value) if many else arguments
    found = [_fitting(hint, item, key) for hint, item in zip(hints, value, strict=True)]
    return _UNFIT if _UNFIT in found else origin(found)


def _is_of_texts(hint: Any) -> bool:
    return hint in (str, PartName) or (
        typing.get_origin(hint) is typing.Literal and all(isinstance(a, str) for a in hint.__args__)
    )


def _shown(value: Any) -> str:
    """A value of a file in a message: as YAML has it, safe to print, and short."""
    if isinstance(value, dict):
        return f"keys with values ({', '.join(printable(str(key))[:30] for key in list(value)[:4])})"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    other = ("null|", *(spelling for spelling, _ in _SPELLINGS.values()))
    quoted = isinstance(value, str) and (value != value.strip() or any(re.fullmatch(x, value) for x in other))
    try:
        return shortened(repr(value) if quoted else str(value))
    except ValueError:
        return "an integer of thousands of digits"
