"""Configurations as command lines, as YAML files, and as YAML text with a comment on every key."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from .._extras import require

Config = TypeVar("Config")


def option_parser(*, prog: str, description: str) -> Any:
    """An empty jsonargparse parser that raises instead of ending the process; docstrings of fields become help."""
    jsonargparse = require("jsonargparse", extra="train")
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    return jsonargparse.ArgumentParser(prog=prog, description=description, exit_on_error=False)


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
    namespace = parse_options(parser, arguments)
    names = [field.name for field in dataclasses.fields(typing.cast(Any, kind))]
    return kind(**{name: namespace[name] for name in names}), namespace


def parse_options(parser: Any, arguments: Sequence[str]) -> Any:
    """Parse ``arguments``, groups of keys into dataclass instances; ``ValueError`` in one line if one is wrong."""
    jsonargparse = require("jsonargparse", extra="train")
    try:
        return parser.instantiate(parser.parse_args(list(arguments)))
    except jsonargparse.ArgumentError as error:
        raise ValueError(_in_plain_words(" ".join(str(error).split()))) from error


_WRONG_TYPE = re.compile(
    r"""Parser key "([^"]+)": Expected a (?:<class '(\w+)'>|typing\.Literal\[(.*)\])\. Got value: (.*)"""
)


def _in_plain_words(message: str) -> str:
    """Message of jsonargparse about a value of one plain type, without the names of types; others unchanged."""
    if found := _WRONG_TYPE.fullmatch(message):
        key, kind, choices, value = found.groups()
        kinds = {"int": "an integer", "float": "a number", "str": "a text", "bool": "true or false"}
        expected = f"one of {choices}" if choices else kinds.get(kind, kind)
        return f"{key}: expected {expected}, got {value}"
    return message


def as_options(key: str, settings: dict[str, Any]) -> list[str]:
    """One option for each setting, ``KEY.NAME=VALUE``, those of a group as ``KEY.GROUP.NAME=VALUE``."""
    options: list[str] = []
    for name, setting in settings.items():
        if isinstance(setting, dict):
            options.extend(as_options(f"{key}.{name}", setting))
        else:
            options.append(f"{key}.{name}={setting if isinstance(setting, str) else json.dumps(setting)}")
    return options


def check_only_resume(resume: str | None, arguments: Sequence[str]) -> None:
    """Raise ``ValueError`` if ``--resume RUN`` is given beside other options."""
    if resume is not None and len(arguments) != (1 if "=" in arguments[0] else 2):
        raise ValueError(f"--resume RUN stands alone, its settings are in the folder; got {' '.join(arguments)}")


def read_config(kind: type[Config], path: Path) -> Config:
    """Read a YAML file into a ``kind``; keys that are missing take their defaults, wrong ones raise ``ValueError``."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    parser = build_parser(kind, prog=str(path), description="")
    return parse_config(parser, kind, ["--config", str(path)])[0]


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
            flow = isinstance(plain, list)
            text = yaml.safe_dump(plain, default_flow_style=flow, width=10_000).removesuffix("...\n").strip()
            lines.append(f"{pad}{field.name}: {text}")
    return "\n".join(lines) + "\n"
