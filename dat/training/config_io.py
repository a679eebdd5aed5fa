"""Configurations as command lines, as YAML files, and as YAML text with a comment on every key."""

import argparse
import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from dual_attention._base.words import printable, shortened

from .config_data import (
    build,
    convert_text,
    defaults_of,
    group_of,
    in_words,
    merge,
    naming,
    nested,
    one_line_yaml,
    read_mapping,
    typed,
    types_of,
    unknown_key,
)

AUTO = "auto"
"""Value of --resume that names no run."""
Config = TypeVar("Config")


class _Typed(argparse.Action):
    """Reads its text as an action, since what it raises then leaves argparse as it is."""

    def __init__(self, *, read: Callable[[str], Any], settings: bool = False, **how: Any) -> None:
        super().__init__(**how)
        self.read, self.settings = read, settings

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        found = self.read(values)
        if self.settings:
            namespace.settings.append(found)
        setattr(namespace, self.dest, values if self.settings else found)


class OptionParser(argparse.ArgumentParser):
    """argparse's parser, whose options have types as keys of configurations do, and whose errors are exceptions."""

    def __init__(self, **how: Any) -> None:
        self.options: dict[str, Any] = {}  # the type of each; None for those that argparse reads
        super().__init__(**how, allow_abbrev=False, exit_on_error=False)

    def error(self, message: str) -> NoReturn:
        """Raise the error that argparse raises for one option."""
        raise argparse.ArgumentError(None, message)

    def add_argument(self, *names: str, **how: Any) -> argparse.Action:
        """Add an option. Its ``type`` is one that a key may have, or a function of the text."""
        hint = Literal[tuple(how.pop("choices"))] if "choices" in how else how.get("type")
        ours = hint is not None and not inspect.isfunction(hint) and "action" not in how
        self.options |= dict.fromkeys(names, hint if ours else str if {"type", "action"}.isdisjoint(how) else None)
        about = how.pop("help", "")
        if ours:
            key, default = names[0].lstrip("-"), how.get("default")
            more = "; required" if how.get("required") else f"; default: {_as_text(default)}" if default else ""
            how |= {"type": None, "action": _Typed, "read": lambda text: convert_text(hint, text, key)}
            about += f" ({in_words(hint)}{more})"
        return super().add_argument(*names, help=about.replace("%", "%%"), **how)

    def add_settings(self, name: str, read: Callable[[str], Any], hint: Any = str, **how: Any) -> None:
        """Add an option whose text stands for values of keys, by their names; they override what is before it.

        Args:
            hint: the type of the text.
        """
        self.add_argument(name, action=_Typed, read=read, settings=True, **how)
        self.options[name] = hint

    def add_keys(self, hint: Any, title: str, prefix: str = "", default: Any = None) -> None:
        """Add an option for each key of a dataclass, and of groups of keys in it."""
        kind = typing.cast(type, group_of(hint))
        section, helps = self.add_argument_group(title.rstrip(".")), field_help(kind)

        def add(key: str, hint: Any, about: str, metavar: str) -> None:
            self.options[f"--{key}"] = hint
            how = {"settings": True, "default": argparse.SUPPRESS, "metavar": metavar, "help": about.replace("%", "%%")}
            read = lambda text: nested(key, convert_text(hint, text, key))  # noqa: E731
            section.add_argument(f"--{key}", action=_Typed, read=read, **how)

        if prefix:
            several = f"{title} (default: null)" if default is None else "Several of these keys in one."
            add(prefix[:-1], hint, several, "{KEY: VALUE, ...}")
        for (name, of_key), value in zip(types_of(kind).items(), defaults_of(kind, default).values(), strict=True):
            key, about = prefix + name, helps.get(name, "")
            if group_of(of_key) is not None:
                self.add_keys(of_key, about or name, f"{key}.", value if dataclasses.is_dataclass(value) else None)
            else:
                more = "required" if value is dataclasses.MISSING else f"default: {_as_text(value)}"
                add(key, of_key, f"{about} ({in_words(of_key)}; {more})", name.upper())


def option_parser(*, prog: str, description: str) -> OptionParser:
    """An empty parser."""
    return OptionParser(prog=prog, description=description)


def build_parser(kind: type, *, prog: str, description: str) -> OptionParser:
    """A parser with one option for each key of the dataclass ``kind``, and ``--config FILE``.

    The help of a key is the docstring below its field.
    """
    parser = OptionParser(prog=prog, description=description, usage="%(prog)s [--KEY VALUE ...]")

    read = lambda path: _typed_file(kind, Path(path))  # noqa: E731
    parser.add_settings("--config", read, metavar="FILE", help="YAML file of settings; options after it override them.")
    parser.add_argument("--print_config", action="store_true", help="Print all settings as a YAML file, and stop.")
    about = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    made = about.startswith(f"{kind.__name__}(")  # by the decorator, of a class without a docstring
    parser.add_keys(kind, kind.__name__ if made else about)
    return parser


def parse_config(
    parser: Any, kind: type[Config], arguments: Sequence[str], finish: Callable[[Config], Config] | None = None
) -> tuple[Config, Any]:
    """Parse ``arguments`` into a ``kind``; also returns the namespace, for options that are not among its keys.

    ``finish`` has the last word on it.
    """
    options = parse_options(parser, arguments)
    settings: dict[str, Any] = {}
    for found in options.settings:
        merge(kind, settings, found)
    config = build(kind, settings)
    if finish is not None:
        config = finish(config)
    if options.print_config:
        check_only_resume(getattr(options, "resume", None), arguments)
        print(commented_yaml(config), end="")
        parser.exit()
    return config, options


def parse_options(parser: OptionParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse ``arguments``; ``ValueError`` in one line if one is wrong."""
    for word in arguments:
        if "\0" in word:
            raise ValueError(f"expected options without zero bytes, got {printable(word)[:100]}")
    try:
        options, rest = parser.parse_known_args(list(arguments), argparse.Namespace(settings=[]))
    except argparse.ArgumentError as error:
        name, hint = error.argument_name, parser.options.get(error.argument_name or "")
        if hint is not None:
            raise ValueError(f"{str(name).lstrip('-')}: expected {in_words(hint)}, got nothing") from error
        raise ValueError(str(error) if name else f"{error}; --help says what they are") from error
    if rest and rest[0].startswith("-"):
        known = [name for name in parser.options if name.startswith("--")]
        raise ValueError(unknown_key(rest[0].partition("=")[0], known, noun="option"))
    if rest:
        raise ValueError(f"expected no further word, got {shortened(' '.join(rest))}")
    return options


def _as_text(setting: Any) -> str:
    return setting if isinstance(setting, str) else json.dumps(setting)


def check_only_resume(resume: str | None, arguments: Sequence[str]) -> None:
    """Raise ``ValueError`` if ``--resume RUN`` is given beside other options."""
    if resume not in (None, AUTO) and len(arguments) != (1 if f"--resume={resume}" in arguments else 2):
        raise ValueError(
            f"--resume RUN stands alone, its settings are in the folder; got {' '.join(arguments)}. To train longer, "
            "begin a new run with --loop.continue_from RUN"
        )


def read_config(kind: type[Config], path: Path) -> Config:
    """Read a YAML file into a ``kind``; keys that are missing take their defaults, wrong ones raise ``ValueError``.

    The file is data: see :mod:`.config_data`.
    """
    values = _typed_file(kind, path)
    with naming(path):
        return build(kind, values)


def _typed_file(kind: type, path: Path) -> dict[str, Any]:
    """The keys and values of a file, checked by name and type."""
    values = read_mapping(path)
    with naming(path):
        if not values:
            raise ValueError("expected keys and values, got none")
        return typed(kind, values)


@lru_cache(maxsize=64)
def field_help(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, its own or inherited, by the name of the field."""
    found = {}
    for owner in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        try:
            (made,) = ast.parse(textwrap.dedent(inspect.getsource(typing.cast(type, owner)))).body
        except (OSError, TypeError):  # made where no file has its source
            continue
        for field, text in itertools.pairwise(getattr(made, "body", ())):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(about))):
                    found[name] = " ".join(about.split())
    return found


def commented_yaml(config: Any, indent: int = 0) -> str:
    """The dataclass instance ``config`` as YAML, every key under a comment that explains it."""
    pad = "  " * indent
    helps = field_help(type(config))
    lines = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        lines.extend(f"{pad}# {line}" for line in textwrap.wrap(helps.get(field.name, ""), 116 - len(pad)))
        if dataclasses.is_dataclass(value):
            lines.append(f"{pad}{field.name}:")
            lines.append(commented_yaml(value, indent + 1).rstrip("\n"))
        else:
            plain = list(value) if isinstance(value, tuple) else value
            lines.append(f"{pad}{field.name}: {one_line_yaml(plain)}")
    return "\n".join(lines) + "\n"
