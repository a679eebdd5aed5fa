"""``dat explore``: the exported page, the server of a process, and bad input in one line."""

import io
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from dat.explorer.command import run_app, waiting
from tests.lab.cli.commands import dat, fails, games, printed
from tests.support.questions import write_official

pytestmark = pytest.mark.usefixtures("here")


def page(name="page.html"):
    """The data of an exported page."""
    return data_of(Path(name).read_text(encoding="utf-8"))


def data_of(html):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_page_is_exported(run, capsys, monkeypatch):
    assert dat("explore", str(run), "--text", "1 ünd 2", "--export", "page.html") == 0
    assert re.fullmatch(r"page\.html \(\d+ KiB\)\n", re.sub(r"\.\d", "", capsys.readouterr().out))
    html = Path("page.html").read_text(encoding="utf-8")
    data = data_of(html)
    assert data["server"] is None
    assert data["recording"]["sequences"]["tokens"] == ["1", "␣", "ü¹⁄₂", "ü²⁄₂", "n", "d", "␣", "2"]
    assert data["recording"]["facts"][""] == "DualAttnTransformerLM"
    assert "connect-src &#x27;none&#x27;" in html or "connect-src 'none'" in html
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1 and 2\n")))
    written = ["--text", "-", "--export", "page.html", "--bits", "16"]
    assert "export: page.html is there already, and is not overwritten" in fails(capsys, "explore", str(run), *written)
    written[3] = "other.html"
    assert dat("explore", str(run), *written) == 0
    data = page("other.html")
    assert len(data["recording"]["sequences"]["tokens"]) == len("1 and 2")
    assert {heads["weights"]["bits"] for heads in data["recording"]["heads"]} == {16}


@pytest.mark.slow
def test_what_matters_over_a_corpus(run, capsys, tmp_path):
    """Measured before the page opens, with an estimate; a second time nothing is."""
    (tmp_path / "texts.txt").write_text("1 and 2\n3 and 4\n", encoding="utf-8")
    words = ["explore", str(run), "--corpus", str(tmp_path / "texts.txt"), "--layers", "0", "--text", "1 and 2"]
    assert dat(*words, "--export", "page.html") == 0
    told = " ".join(capsys.readouterr().err.split())
    assert re.search(r"corpus: 2 texts, 2 to be measured: \d+ forward passes each, about \d", told), told
    data = page()
    assert data["state"] == "page=effects&corpus=1" and data["kept"]["corpus"]["texts"] == 2
    assert dat(*words, "--view", "page=effects&corpus=1", "--export", "effects.csv") == 0
    assert "2 texts, 0 to be measured" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "texts.txt").write_text("", encoding="utf-8")
    assert "got none in texts.txt:1" in fails(capsys, *words, "--export", "other.html")
    assert "later: a page starts it over a corpus" in fails(capsys, *words, "--later", "--export", "other.html")
    assert "results: they are of a corpus; give --corpus, too" in fails(
        capsys, "explore", run, "--results", "x", "--export", "other.html"
    )


def test_a_folder_of_the_hub(hub_folder):
    assert dat("explore", str(hub_folder), "--text", "1 and 2", "--export", "page.html") == 0


def test_runs_of_baselines():
    """A run before DATs, whose page has relations and no attention."""
    words = [*games(16), "--preset=corelnet", "--output.name=run", "--output.progress=false"]
    assert dat("train", "relational-games", *words) == 0
    assert dat("explore", "runs/run", "--export", "page.html") == 0
    data = page()
    (heads,) = data["recording"]["heads"]
    assert heads["weights"] is None and heads["relations"]["queries"]["values"]["shape"] == [1, 9, 9]
    assert data["state"] == "page=vision" and data["recording"]["facts"][""] == "VisionCoRelNet"


@pytest.mark.slow
def test_runs_of_mathematics(tmp_path, capsys):
    write_official(tmp_path / "data")
    sizes = ["--data.n_train=9", "--data.n_val=3", "--data.n_test=3", "--data.n_answered=3", "--loop.epochs=1"]
    words = ["--data.official_folder=data", "--output.name=run", "--output.progress=false", *sizes]
    assert dat("train", "mathematics", *words) == 0
    assert dat("explore", "runs/run", "--text", "What is 2 + 3?", "--export", "page.html") == 0
    recording = page()["recording"]
    assert "".join(recording["sequences"]["question"]) == "What␣is␣2␣+␣3?⟨end⟩" and "answer" in recording["facts"]
    assert "this model reads texts; give --text" in fails(capsys, "explore", "runs/run", "--image", "x.png")
    assert "this is no language model" in fails(capsys, "explore", "runs/run", "--dictionary", "x")


@pytest.mark.slow
def test_views_are_exported(run, capsys):
    address = "http://127.0.0.1:1234/?token=x#page=attention&layer=1&i=3"
    for name, view in (("a.csv", address), ("a.svg", "relations"), ("b.csv", "model"), ("a.html", "page=dictionary")):
        text = "1 and 2 and 3 and 4"
        assert printed(capsys, "explore", run, "--text", text, "--view", view, "--export", name).startswith(f"{name} (")
    assert len(Path("a.csv").read_text(encoding="utf-8").splitlines()) == 1 + 19 * 20 // 2
    assert "configuration,d_model,16," in Path("b.csv").read_text(encoding="utf-8").splitlines()
    assert page("a.html")["kept"]["dictionary"]["tokens"] == 19


def test_chosen_layers(run):
    assert dat("explore", str(run), "--text", "1 and 2", "--layers", "1", "--export", "page.html") == 0
    assert {heads["layer"] for heads in page()["recording"]["heads"]} == {"blocks.1"}


def test_a_dictionary_of_a_file(run):
    import torch

    from dat.checkpoints import open_checkpoint
    from dual_attention.model_analysis.dictionaries import build_dictionary

    document = torch.tensor(list(b"1 and 2 and 3 and 4"))
    build_dictionary(open_checkpoint(run).model, [document]).save("relations.jsonl")
    view = ("--text", "1 and 2", "--view", "dictionary", "--export", "page.html")
    assert dat("explore", str(run), "--dictionary", ".", *view) == 0
    kept = page()["kept"]["dictionary"]
    assert kept["source"] == "relations.jsonl" and kept["note"] == "" and kept["entries"]


def test_a_run_that_is_being_trained(run, tmp_path, capsys, monkeypatch):
    """Its latest checkpoint is shown, and said to be that; before there is one, that is said."""
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    for name in ("result.json", "model.safetensors"):
        (unfinished / name).unlink()
    assert dat("explore", str(unfinished), "--text", "1 and 2", "--export", "page.html") == 0
    assert page()["recording"]["facts"]["state"] == "unfinished, weights of step 20"
    # The checkpoint that was the latest makes way for a later one while it is opened.
    from dat.explorer import opening

    calls, open_checkpoint = [], opening.open_checkpoint

    def late(name):
        calls.append(name)
        if len(calls) == 1:
            raise FileNotFoundError("step-10/model.safetensors")
        return open_checkpoint(name)

    monkeypatch.setattr(opening, "open_checkpoint", late)
    assert dat("explore", str(unfinished), "--text", "1 and 2", "--export", "later.html") == 0 and len(calls) == 2
    for folder in unfinished.iterdir():
        if folder.is_dir() and any(folder.rglob("model.safetensors")):
            shutil.rmtree(folder)
    assert "the run has no weights yet" in fails(capsys, "explore", str(unfinished))


def test_the_default_text_fits(run):
    """A context of 24 bytes holds the beginning of it."""
    assert dat("explore", str(run), "--export", "page.html") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--export", "page.txt"], r"ends in \.html, \.csv, .* got 'page\.txt'"),
        (["RUN", "--view", "page=none"], "view: expected a page of relations"),
        (["RUN", "--layers", "7"], "layers: expected some of blocks.0, blocks.1"),
        (["RUN", "--layers", "0,,1"], "layers: expected numbers or names such as 0,5, got '0,,1'"),
        (["RUN", "--image", "x.png"], "image: this model reads texts; give --text"),
        (["RUN", "--text", "x", "--image", "x.png"], "image: give a text or an image, not both"),
        (["RUN", "--share", "--host", "localhost"], "share: .*give --host or --share, not both"),
        (["RUN", "--share", "--export", "a.html"], "export: a file needs no server"),
        (["RUN", "--dictionary", "none"], "dictionary: there is no file or folder none"),
        (["none"], "none: no such folder, and no name on the Hugging Face hub"),
        (["RUN", "--text", ""], "text: expected at least one character, got an empty text"),
        (["RUN", "--text", "x" * 25], "text: 25 tokens, but the model reads at most 24 at a time"),
        (["RUN", "--export", ""], "export: expected the name of a file, got ''"),
        (["RUN", "--export", "."], r"export: expected the name of a file, got '\.'"),
        (["RUN", "--export", "none/page.html"], "export: there is no folder none"),
        (["RUN", "--bits", "4"], "bits: expected 8, 16 or 32, got 4"),
        (["RUN", "--port", "70000"], "port: expected a number from 0 to 65535, got 70000"),
        (["RUN", "--port", "high"], "port: expected an integer"),
        (["RUN", "--host", "256.1.1.1", "--text", "x"], "cannot listen on port 0 of 256.1.1.1"),
        (["RUN", "--tokenizer", "nonsense"], "tokenizer: expected bytes, gpt2"),
    ],
)
def test_bad_input(run, capsys, arguments, message):
    assert re.search(message, fails(capsys, "explore", *[run if word == "RUN" else word for word in arguments]))


def test_a_run_that_reads_no_text(tmp_path, capsys, monkeypatch):
    import torch

    from dat.checkpoints import Checkpoint

    found = Checkpoint("games", "relational games run", None, torch.nn.Linear(1, 1), (), torch.float32)
    monkeypatch.setattr("dat.explorer.opening.open_checkpoint", lambda *_: found)
    assert "games: a Linear; expected a model of texts, an image classifier" in fails(capsys, "explore", "games")


def test_the_apps_of_the_published_package(run, capsys):
    from dual_attention.model_analysis import lm_inference_app, lm_visualization_app

    assert lm_inference_app.run_app is lm_visualization_app.run_app is run_app
    assert run_app("app", [str(run), "--text", "1 and 2", "--export", "page.html"]) == 0
    capsys.readouterr()
    assert run_app("app", ["none"]) == 2
    assert capsys.readouterr().err.startswith("app: error: none: no such folder")


def test_sharing_is_asked_for_and_warned_of(run, capsys, monkeypatch):
    servers = []
    serving = "dat.explorer.server.ExplorerServer.serve_forever"
    monkeypatch.setattr(serving, lambda server: servers.append(server))
    assert dat("explore", str(run), "--text", "1 and 2", "--share", "--view", "attention") == 0
    out, err = capsys.readouterr()
    assert re.search(rf"http://{re.escape(socket.gethostname())}:\d+/\?token=\S+#page=attention", out)
    assert servers[0].host == "0.0.0.0" and not servers[0].is_local
    assert err.startswith("dat: other machines can reach this server") and "not encrypted" in err


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_a_warning_where_others_reach_the_server(run, capsys, monkeypatch, host, warned):
    monkeypatch.setattr("dat.explorer.server.ExplorerServer.serve_forever", lambda _: None)
    assert dat("explore", str(run), "--text", "1 and 2", "--host", host) == 0
    out, err = capsys.readouterr()
    assert f"http://{host}:" in out
    assert err.startswith("dat: other machines can reach this server") == warned


@contextmanager
def serving(run):
    """The address that ``dat explore`` prints; it gets Ctrl-C at the end, and has to leave quietly."""
    program = [sys.executable, "-m", "dat", "explore", str(run), "--text", "1 and 2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A shell has its background processes, and theirs, ignore Ctrl-C.
    with subprocess.Popen(program, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", process.stdout.readline())
            assert address is not None
            yield address[0]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()
        assert (process.returncode, err) == (0, "")


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(run):
    """Also while it computes."""
    with serving(run) as address:
        page, _, token = address.partition("?token=")
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert len(data_of(answer.read().decode())["recording"]["sequences"]["tokens"]) == 7
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(page, timeout=30)
        body = json.dumps({"text": "1 and 2, " * 20_000}).encode()
        asked = urllib.request.Request(f"{page}make-dictionary", body, {"X-Explorer-Token": token})
        answers = [urllib.request.urlopen(asked, timeout=30) for _ in range(4)]
        assert all("done" in json.loads(answer.readline()) for answer in answers)
    for answer in answers:
        answer.close()


def test_a_terminal_is_told_that_the_model_reads(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown, plain = Terminal(), io.StringIO()
    for stream in (shown, plain):
        monkeypatch.setattr(sys, "stderr", stream)
        with waiting("reading the text"):
            pass
    assert "reading the text" in shown.getvalue() and not plain.getvalue()
