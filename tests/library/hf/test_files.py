"""Where files come from: a folder, a hub that answers (a small one on this machine), and one that cannot be reached."""

import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dual_attention._base.checksums import checksums_of, write_checksums
from dual_attention.checkpoints.files import CheckpointFiles
from dual_attention.hf import DualAttnTransformerLM_HFHub, convert_checkpoint, load_language_model, load_model
from tests.library.hf.test_hub import GOLDEN, assert_published_logits

REPOSITORY = "someone/model"
COMMIT = "a" * 40


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the environment did not say that there is no network; whoever waits to try again fails."""

    def sleep(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s to try again")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", sleep)


@pytest.fixture
def hub(online: None) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub with one repository, and the requests that it has had."""
    requests: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.command} {self.path}")
            repository, _, name = self.path.lstrip("/").partition("/resolve/main/")
            path = GOLDEN / "dat" / name
            if repository != REPOSITORY or not path.is_file():
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound" if repository == REPOSITORY else "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = path.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def nowhere() -> str:
    """An address at which nothing answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_a_model_is_fetched_and_kept(hub, tmp_path: Path):
    address, requests = hub
    model = load_language_model(REPOSITORY, endpoint=address, cache_dir=tmp_path).model
    assert_published_logits(model, "dat")
    assert sum(request.startswith("GET") for request in requests) == 2  # config.json and model.safetensors
    # The hub has gone: what was fetched is there, at once.
    again = load_language_model(REPOSITORY, endpoint=nowhere(), cache_dir=tmp_path).model
    assert_published_logits(again, "dat")


def test_a_checkpoint_that_another_one_names_is_fetched_like_it(hub, tmp_path: Path):
    """As an adapter's model is: from the same hub and into the same cache, but at a revision of its own."""
    address, requests = hub
    download = {"endpoint": address, "cache_dir": tmp_path, "revision": "other", "subfolder": "x", "local_dir": "y"}
    base = CheckpointFiles("someone/adapter", **download).beside(REPOSITORY, None)
    found = base.find("config.json")
    assert requests and found is not None and found.is_relative_to(tmp_path)


def test_what_a_hub_has_not(hub, tmp_path: Path):
    address, _ = hub
    files = CheckpointFiles(REPOSITORY, endpoint=address, cache_dir=tmp_path)
    assert files.find("other.bin") is None and files.find("other.bin", needed=False) is None
    with pytest.raises(FileNotFoundError, match="no such folder, nor a checkpoint on the hub, or it needs a token"):
        load_language_model("someone/else", endpoint=address, cache_dir=tmp_path)


def test_a_hub_that_cannot_be_reached_is_asked_once(online: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import huggingface_hub

    asked = []
    ask = huggingface_hub.get_hf_file_metadata
    monkeypatch.setattr(
        huggingface_hub, "get_hf_file_metadata", lambda *args, **kwargs: (asked.append(kwargs), ask(*args, **kwargs))
    )
    files = CheckpointFiles(REPOSITORY, endpoint=nowhere(), cache_dir=tmp_path)
    message = r"someone/model: there is no such folder here, no copy of its .*the hub cannot be reached \(.+\)$"
    for name in ("config.json", "model.safetensors"):
        assert files.find(name, needed=False) is None
        with pytest.raises(OSError, match=message):
            files.find(name)
    assert len(asked) == 1 and asked[0]["timeout"] == 5.0
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 3)
    with pytest.raises(OSError, match=message):
        CheckpointFiles(REPOSITORY, endpoint=nowhere(), cache_dir=tmp_path).find("config.json")
    assert asked[1]["timeout"] == 3


def test_what_must_be_fetched_anew_is_not_taken_from_the_cache(hub, tmp_path: Path):
    address, _ = hub
    assert CheckpointFiles(REPOSITORY, endpoint=address, cache_dir=tmp_path).find("config.json") is not None
    gone = CheckpointFiles(REPOSITORY, endpoint=nowhere(), cache_dir=tmp_path, force_download=True)
    with pytest.raises(OSError, match="the hub cannot be reached"):
        gone.find("config.json")


def test_a_connection_that_breaks_while_a_file_is_fetched(hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Broken(Exception):
        """As those of a network client, which are no OSError."""

    def fetch(*args: object, **kwargs: object) -> str:
        raise Broken("the peer closed the connection")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    with pytest.raises(OSError, match=r"the hub did not give config\.json \(the peer closed the connection\)"):
        CheckpointFiles(REPOSITORY, endpoint=hub[0], cache_dir=tmp_path).config()


def test_no_name_on_any_hub(online: None):
    with pytest.raises(FileNotFoundError, match="no such folder or name on the hub"):
        CheckpointFiles("a b/c", endpoint=nowhere()).find("config.json")


def test_an_index_that_is_none(tmp_path: Path):
    shutil.copy(GOLDEN / "dat" / "config.json", tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ValueError, match=r"index\.json: is no index of files of weights"):
        load_language_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "one.safetensors"}}')
    with pytest.raises(FileNotFoundError, match="names 1 files, only 0 are there"):
        load_language_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_checksums_that_a_folder_has_are_compared(name: str, tmp_path: Path):
    """As those of a run are."""
    run = shutil.copytree(GOLDEN / "dat", tmp_path / "run")
    write_checksums(run, checksums_of(run))
    assert_published_logits(load_language_model(run).model, "dat")
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    for load in (
        load_model,
        load_language_model,
        DualAttnTransformerLM_HFHub.from_pretrained,
        lambda folder: convert_checkpoint(folder, tmp_path / "converted", "hub"),
    ):
        with pytest.raises(ValueError, match=rf"{name}: damaged or changed since it was written"):
            load(run)
    assert not (tmp_path / "converted").exists()
    (run / name).unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json|weights"):
        load_model(run)
