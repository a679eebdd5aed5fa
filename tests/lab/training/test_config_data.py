"""Configurations as data: what a file may hold, and what it says of what it may not."""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

import pytest

from dat.experiments.language.config import LanguageConfig
from dat.experiments.relational_games.config import RelationalGamesConfig
from dat.training import config_data
from dat.training.config_data import convert_text, every_key, in_words, parse_yaml, read_mapping, typed
from dat.training.config_io import build_parser, commented_yaml, option_parser, parse_config, parse_options, read_config
from tests.support.refusals import refusals, refused


@dataclass(frozen=True)
class Inner:
    size: int = 1
    rate: float = 0.5


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=lambda: Inner(size=7))
    spare: Inner | None = None
    name: str | None = None
    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[str, ...] = ()
    paths: tuple[str, ...] | str | None = None
    kind: Literal["a", "b"] = "a"
    on: bool = False


def read(tmp_path, text: str | bytes, kind=Outer):
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_config(kind, path)


def test_what_a_file_may_hold(tmp_path):
    found = read(tmp_path, "inner: {rate: 1}\nspare: {size: 3}\nname: 2026-11-22\npair: [1e-3, 2]\nmany: [x]\non: true")
    assert found == Outer(Inner(7, 1.0), Inner(3), "2026-11-22", (0.001, 2.0), ("x",), on=True)
    assert isinstance(found.inner.rate, float) and isinstance(found.pair[1], float)
    assert read(tmp_path, "spare: null\npaths: one").paths == "one"
    assert read(tmp_path, "paths: [one, two]").paths == ("one", "two")
    assert read(tmp_path, "\ufeffon: true").on  # a byte-order mark
    assert read(tmp_path, "a: &x {size: 2}\n".replace("a:", "inner:") + "spare: *x").spare == Inner(2)


@refusals(
    ("", "expected keys and values, got none"),
    ("{}", "expected keys and values, got none"),
    ("inner: 3", r"inner: expected a group of keys \(size, rate\), got 3"),
    ("inner: other.yaml", r"inner: expected a group of keys .*, got other\.yaml"),
    ("spare: 3", r"spare: expected a group of keys \(size, rate\) or null, got 3"),
    ("inner: {size: many}", r"inner\.size: expected an integer, got many"),
    *(
        (f"inner: {{size: '{text}'}}", rf"inner\.size: expected an integer, got '{text}'$")
        for text in ("1", "1e3", "true", "null", " 1", "")
    ),
    ("inner: {size: 1.5}", r"inner\.size: expected an integer, got 1\.5"),
    ("inner: {size: true}", r"inner\.size: expected an integer, got true"),
    ("inner: {rate: null}", r"inner\.rate: expected a number, got null"),
    ("name: 3", "name: expected a text or null, got 3"),
    ("pair: [1]", r"pair: expected a list of two numbers, got \[1\]"),
    ("many: [1]", r"many: expected a list of texts, got \[1\]"),
    ("many: one", r"many: expected a list of texts, got one; a list has brackets: \[one\]"),
    ("paths: 3", "paths: expected a list of texts or a text or null, got 3"),
    ("kind: c", "kind: expected one of 'a', 'b', got c"),
    ("'on': perhaps", "on: expected true or false, got perhaps"),
    ("size: 3", r"size: there is no such key; did you mean inner\.size or spare\.size\?"),
    ("inner: {sizes: 3}", r"inner\.sizes: there is no such key; did you mean inner\.size"),
    ("zebra: 3", "zebra: there is no such key; expected one of inner, spare, name"),
    ("inner: {class_path: os.system, init_args: {}}", r"inner\.class_path: there is no such key"),
    ("config: other.yaml", "config: there is no such key"),
    ("on: true\n'on': false", "the key on is there twice, the second time in line 2"),
    ("[1, 2", r"not YAML: .*line 1"),
    ("a: b: c", r"not YAML: mapping values are not allowed here \(line 1, column 5\)"),
    ("- 1", "expected a mapping, got list"),
    ("inner: !!python/object/apply:os.getcwd []", "expected plain values, got one of the type .*python.*line 1"),
    ("on: true\n? [1]\n: 2", "expected the name of a key in line 2"),
    ("name: a\0b", "not text"),
    (b"\xff\xfe\x00", "not UTF-8 text"),
    (b"\x89PNG\r\n", "not UTF-8 text"),
    ("name: \x1b[31m", "not YAML: .*special characters"),
    ('many: ["\\e[31m", 3]', r"many: expected a list of texts, got .*\\x1b\[31m"),
    ("inner: {size: " + "9" * 5000 + "}", "inner|number"),
    of="text",
)
def test_what_a_file_may_not_hold(tmp_path, text, error, message):
    with pytest.raises(error, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'c.yaml'}: ")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


DOUBLED = "\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 30))])


def test_a_group_begins_with_the_defaults_of_its_owner():
    """Those of the field, which may differ from those of the group's class."""
    default = LanguageConfig()
    values = typed(LanguageConfig, {"loop": {"steps": 3}, "optim": {"lr": 1}})
    made = config_data.build(LanguageConfig, values)
    assert made.loop == dataclasses.replace(default.loop, steps=3)
    assert made.optim == dataclasses.replace(default.optim, lr=1.0)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "'3'", "'3'"),
        (str, "[1", "[1"),
        (str | None, "3", "3"),
        (str | None, "", ""),
        (str | None, "null", None),
        (tuple[str, ...] | str | None, "[a, b]", ("a", "b")),
        (tuple[str, ...] | str | None, "a, b", "a, b"),
        (Literal["off", "null"], "off", "off"),
        (float | Literal["measured"] | None, "3", 3.0),
        (float | Literal["measured"] | None, "measured", "measured"),
        (bool, "True", True),
        (str | None, "off", "off"),
        (str | tuple[str, ...], "1:30", "1:30"),
        (dict[str, float] | None, "{a: 2e-3}", {"a": 0.002}),
        (Inner | None, "{rate: 1}", {"rate": 1.0}),
    ],
)
def test_texts_of_options(hint, text, value):
    assert convert_text(hint, text, "key") == value
    assert type(convert_text(hint, text, "key")) is type(value)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("--spare.size=3 --spare={rate:1} --inner={size:2}", Outer(Inner(2, 0.5), Inner(3, 1.0))),
        ("--spare={rate:1} --spare null --config c.yaml --on true", Outer(spare=Inner(9), on=True)),
        ("--config c.yaml --spare null --spare.rate 2 --name null", Outer(spare=Inner(1, 2.0))),
    ],
)
def test_what_is_later_overrides_what_is_before(words, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("spare: {size: 9}")
    words = [word.replace(":", ": ") for word in words.split()]
    assert parse_config(build_parser(Outer, prog="dat", description=""), Outer, words)[0] == made


REQUIRED = dataclasses.make_dataclass("Kind", [("out", str), ("size", int, 3)], frozen=True)


def words_of(kind, *words):
    return parse_config(build_parser(kind, prog="dat", description=""), kind, words)[0]


def test_a_key_without_a_default(tmp_path):
    assert "(a text; required)" in build_parser(REQUIRED, prog="dat", description="").format_help()
    assert read(tmp_path, "out: 100%", REQUIRED) == words_of(REQUIRED, "--out=100%") == REQUIRED("100%")


def parser_of_options():
    parser = option_parser(prog="dat", description="")
    parser.add_argument("--n", type=int | None, default=3, help="100%.")
    parser.add_argument("--kind", choices=("a", "b"))
    return parser


def test_options_that_are_no_keys():
    parser = parser_of_options()
    assert "100%. (an integer or null; default: 3)" in parser.format_help()
    assert vars(parse_options(parser, ["--n", "null", "--kind=b"])).items() >= {"n": None, "kind": "b"}.items()


test_what_is_refused = refused(
    (lambda path: read(path, " " * (config_data.LARGEST + 1)), "at most 262,144 bytes"),
    (lambda path: read(path, "many: " + "[" * 50 + "]" * 50), "at most 32 levels"),
    (lambda path: read(path, "many: " + "[" * 5000 + "]" * 5000), "at most 32 levels"),
    (lambda path: read(path, "many: &x [*x]"), "at most 32 levels"),
    (lambda path: read(path, DOUBLED), "at most 20,000 values"),
    (lambda path: read_mapping(path / "none.yaml"), FileNotFoundError, r"none\.yaml: no such file"),
    (read_mapping, "expected a YAML file, got a folder"),
    (lambda path: read(path, "optim: {lr: -1}", RelationalGamesConfig),
     r"c\.yaml: optim\.lr: expected a positive number, got -1\.0"),
    (lambda _: words_of(REQUIRED, "--size=3"), r"^expected a value for out, got none$"),
    (lambda _: parse_options(parser_of_options(), ["--kind", "c"]), r"^kind: expected one of 'a', 'b', got c$"),
    by=lambda call, *, tmp_path: call(tmp_path),
)  # fmt: skip


@refusals(
    *((bool, value, f"expected true or false, got {value}$") for value in ("on", "Off", "yes", "No")),
    (int, "1:30", r"expected an integer, got 1:30; write a number without a leading zero or a colon"),
    (float, "-1:30.5", r"expected a number, got -1:30\.5; write a number without"),
    (int, "010", r"expected an integer, got 010; write a number without a leading zero"),
    (int, "2024-01-01", "expected an integer, got 2024-01-01$"),
    (list[int], "[1, 010]", "expected a list of integers, got "),
    of="hint, value",
)
def test_what_yaml_1_1_makes_something_else_of_is_refused(tmp_path, hint, value, error, message):
    """In files and as options, with the key; where a text is expected it is that text."""
    with pytest.raises(error, match=f"^key: {message}"):
        convert_text(hint, value, "key")
    kind = dataclasses.make_dataclass("Kind", [("key", hint)], frozen=True)
    with pytest.raises(error, match=f"key: {message}"):
        read(tmp_path, f"key: {value}", kind)
    if not value.startswith("["):
        texts = dataclasses.make_dataclass("Texts", [("key", str)], frozen=True)
        assert read(tmp_path, f"key: {value}", texts).key == value


@pytest.mark.parametrize(
    "text", ["on", "010", "1:30", "1e3", ".5", "null", "~", "2024-01-01", "0x1", "<<", "- a", "#", ""]
)
def test_texts_are_written_so_that_they_are_read_as_texts(tmp_path, text):
    kind = dataclasses.make_dataclass("Kind", [("key", str), ("keys", list[str])], frozen=True)
    assert read(tmp_path, commented_yaml(kind(text, [text])), kind) == kind(text, [text])


def test_types_in_words():
    assert in_words(int | None) == "an integer or null"
    assert in_words(None | float) == "a number or null"
    assert in_words(tuple[int, ...]) == "a list of integers"
    assert in_words(tuple[Literal["a"], ...]) == "a list of values, each one of 'a'"
    assert set(every_key(Outer)) >= {"inner", "inner.size", "spare.rate", "on"}
    assert parse_yaml("{a: 1e-3, b: .5e2, c: 1e5}") == {"a": 1e-3, "b": 50.0, "c": 1e5}
