"""Configurations as command lines, as YAML files, and as YAML text with a comment on every key."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dual_attention._extras import require
from dual_attention._words import printable, shortened, suggestion

from .config_data import build, group_of, in_words, read_mapping, typed, types_of, unknown_key

Config = TypeVar("Config")


def option_parser(*, prog: str, description: str) -> Any:
    """An empty jsonargparse parser that raises instead of ending the process; docstrings of fields become help."""
    jsonargparse = require("jsonargparse", extra="train")
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    return jsonargparse.ArgumentParser(prog=prog, description=description, exit_on_error=False, allow_abbrev=False)


def build_parser(kind: type, *, prog: str, description: str) -> Any:
    """A jsonargparse parser with one option for each key of the dataclass ``kind``, and ``--config FILE``.

    The help of a key is the docstring below its field.
    """
    parser = option_parser(prog=prog, description=description)
    parser.add_argument("--config", action="config", help="YAML file of settings; options after it override them.")
    parser.add_class_arguments(kind, None)
    return parser


def parse_config(parser: Any, kind: type[Config], arguments: Sequence[str]) -> tuple[Config, Any]:
    """Parse ``arguments`` into a ``kind``; also returns the namespace, for options that are not among its keys."""
    for path in given_files(arguments):
        if not _typed_file(kind, Path(path)):
            raise ValueError(f"{path}: expected keys and values, got none")
    namespace = parse_options(parser, arguments, typing.cast(Any, kind))
    names = [field.name for field in dataclasses.fields(typing.cast(Any, kind))]
    return kind(**{name: namespace[name] for name in names}), namespace


def given_files(arguments: Sequence[str]) -> Iterator[str]:
    """The files of ``--config FILE`` and ``--config=FILE``."""
    for word, following in itertools.zip_longest(arguments, arguments[1:]):
        option, equals, value = word.partition("=")
        if option == "--config" and (equals or following is not None):
            yield value if equals else typing.cast(str, following)


def parse_options(parser: Any, arguments: Sequence[str], kind: type | None = None) -> Any:
    """Parse ``arguments``, groups of keys into dataclass instances; ``ValueError`` in one line if one is wrong.

    Args:
        kind: the dataclass whose keys are options of the parser, if there is one.
    """
    jsonargparse = require("jsonargparse", extra="train")
    for word in arguments:
        if "\0" in word:
            raise ValueError(f"expected options without zero bytes, got {printable(word)[:100]}")
    try:
        return parser.instantiate(parser.parse_args(list(arguments)))
    except jsonargparse.ArgumentError as error:
        raise ValueError(in_plain_words(str(error), options_of(parser, kind))) from error


def options_of(parser: Any, kind: type | None = None) -> dict[str, Any]:
    """The type of every option of a parser, by its name without the dashes; None where it has none."""
    found = {
        text.removeprefix("--"): getattr(action, "_typehint", None) or action.type
        for action in parser._actions
        for text in action.option_strings or [action.dest]
        if (text.startswith("--") or not action.option_strings) and not text.endswith(".help")
    }
    return found if kind is None else found | dict(_keys_with_types(kind))


def _keys_with_types(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, hint in types_of(kind).items():
        yield prefix + name, hint
        group = group_of(hint)
        if group is not None:
            yield from _keys_with_types(group, f"{prefix}{name}.")


_OF_KEY = re.compile(r"""(?:Parser key|argument) ["']?(?:--)?([\w.]+)["']?(?: element \d+)?:\s*(.*)""", re.DOTALL)
_VALUE = re.compile(r"(?:Given value|Got value|Unable to load config):?\s*(.*?)(?:\n\s*-.*)?", re.DOTALL)
_GROUP = re.compile(r"Group '([^']+)' does not accept option '([^']+)'")
_OPTION = re.compile(r"Option '([^']+)' is not accepted")
_NESTED = re.compile(r"NestedArg\(key='([^']+)', val='?(.*?)'?\)\s*$", re.DOTALL)
_REQUIRED = re.compile(r"the following arguments are required: (.*)", re.DOTALL)
_UNRECOGNIZED = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)


def in_plain_words(message: str, options: Mapping[str, Any]) -> str:
    """An error of jsonargparse in one line and the words of this package; as it is where it says something else.

    Args:
        options: the type of each option, by its name.
    """
    text = message.strip()
    about_key = _OF_KEY.match(text)
    if about_key and (found := _NESTED.search(text)):  # a key of a group that may be null
        key = f"{about_key[1]}.{found[1]}"
        return _wrong_value(key, options[key], found[2]) if key in options else unknown_key(key, list(options))
    if found := _GROUP.search(text):
        return unknown_key(".".join(found.groups()), list(options))
    if found := _OPTION.search(text):
        return unknown_key(found[1], list(options))
    if found := _UNRECOGNIZED.search(text):
        return _unrecognized(found[1], options)
    if found := _REQUIRED.search(text):
        return f"expected also {found[1]}; --help says what it is"
    if about_key and "expected one argument" in about_key[2]:
        hint = options.get(about_key[1])
        return f"{about_key[1]}: expected {in_words(hint) if hint else 'a value'}, got nothing"
    if about_key and options.get(about_key[1]) is not None:
        values = list(_VALUE.finditer(about_key[2]))
        if values:
            return _wrong_value(about_key[1], options[about_key[1]], about_key[2][values[-1].start(1) :])
    return " ".join(text.split())


def _wrong_value(key: str, hint: Any, value: str) -> str:
    value = re.sub(r'^"(.*)"$', r"\1", value.strip(), flags=re.DOTALL)
    return f"{key}: expected {in_words(hint)}, got {'null' if value == 'None' else shortened(value)}"


def _unrecognized(words: str, options: Mapping[str, Any]) -> str:
    """Message about words of a command line that nothing takes."""
    first = words.split()[0] if words.split() else words
    name = first.partition("=")[0]
    if not name.startswith("-"):
        return f"expected no further word, got {shortened(words)}"
    hint = suggestion(name.lstrip("-"), options, separator=".")
    return f"there is no option {printable(name)}{hint.replace('mean ', 'mean --').replace(' or ', ' or --')}" + (
        "" if hint else "; --help lists them"
    )


def as_options(settings: Any, group: str = "") -> list[str]:
    """One option for each setting of a dataclass instance, the ``group`` of keys: ``--GROUP.NAME=VALUE``; those of
    groups in it likewise."""
    options: list[str] = []
    for name, setting in vars(settings).items():
        key = f"{group}.{name}".lstrip(".")
        if dataclasses.is_dataclass(setting):
            options.extend(as_options(setting, key))
        else:
            options.append(f"--{key}={setting if isinstance(setting, str) else json.dumps(setting)}")
    return options


def expand(arguments: Sequence[str], option: str, meaning: Callable[[str], list[str]]) -> list[str]:
    """``arguments`` with every ``option NAME`` replaced by the options that the name stands for.

    So these override what is written before it and are overridden by what is written after it.
    """
    expanded: list[str] = []
    words = iter(arguments)
    for word in words:
        before, equals, value = word.partition("=")
        name = (value if equals else next(words, "")) if before == option else None
        expanded += [word] if name is None else meaning(name)
    return expanded


def check_only_resume(resume: str | None, arguments: Sequence[str]) -> None:
    """Raise ``ValueError`` if ``--resume RUN`` is given beside other options."""
    if resume is not None and len(arguments) != (1 if "=" in arguments[0] else 2):
        raise ValueError(f"--resume RUN stands alone, its settings are in the folder; got {' '.join(arguments)}")


def read_config(kind: type[Config], path: Path) -> Config:
    """Read a YAML file into a ``kind``; keys that are missing take their defaults, wrong ones raise ``ValueError``.

    The file is data: see :mod:`.config_data`.
    """
    values = _typed_file(kind, path)
    try:
        return build(kind, values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _typed_file(kind: type, path: Path) -> dict[str, Any]:
    """The keys and values of a file, checked by name and type."""
    values = read_mapping(path)
    try:
        return typed(kind, without_gone(kind, values))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


LAST_WITH_GONE = "b6024f0"
"""Commit that reads all keys that are gone since."""


def without_gone(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` without the keys that ``kind`` once had, its ``gone``, which hold what changed nothing.

    Raises:
        ValueError: naming such a key that holds something else, and the commit that reads it.
    """
    gone: Mapping[str, Any] = getattr(kind, "gone", {})
    for name in (name for name in gone if values.get(name, gone[name]) != gone[name]):
        got = shortened(str(values[name]))
        raise ValueError(f"{name}: expected none, got {got}; this key is gone, commit {LAST_WITH_GONE} reads it")
    return {name: value for name, value in values.items() if name not in gone}


def field_help(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, its own or inherited, by the name of the field."""
    parse = require("docstring_parser", extra="train").parse_from_object
    owners = [owner for owner in reversed(kind.__mro__) if dataclasses.is_dataclass(owner)]
    items = [item for owner in owners for item in parse(owner).params]
    return {item.arg_name: " ".join((item.description or "").split()) for item in items}


def commented_yaml(config: Any, indent: int = 0) -> str:
    """The dataclass instance ``config`` as YAML, every key under a comment that explains it."""
    yaml = require("yaml", extra="train")
    pad = "  " * indent
    helps = field_help(type(config))
    lines = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        lines.extend(f"{pad}# {line}" for line in textwrap.wrap(helps[field.name], 116 - len(pad)))
        if dataclasses.is_dataclass(value):
            lines.append(f"{pad}{field.name}:")
            lines.append(commented_yaml(value, indent + 1).rstrip("\n"))
        else:
            plain = list(value) if isinstance(value, tuple) else value
            flow = isinstance(plain, list | dict)
            text = yaml.safe_dump(plain, default_flow_style=flow, width=10_000).removesuffix("...\n").strip()
            lines.append(f"{pad}{field.name}: {text}")
    return "\n".join(lines) + "\n"
