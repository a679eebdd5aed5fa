"""The server answers its own page, whatever it is sent, and nobody else."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from dat.explorer import packing
from dat.explorer import session as session_module
from dat.explorer.html import page_html
from dat.explorer.recording import record
from dat.explorer.requests import TEXT_BYTES, Answer
from dat.explorer.server import ExplorerServer
from dat.explorer.session import Session
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.lab.explorer.conftest import as_array, dat, of_checkpoint


def ask(server, body=None, *, method="POST", path="/record", headers=None, **changed):
    """Status and answer of a request, as the page makes it but for what is changed."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    headers = {"X-Explorer-Token": server.token, **(headers or {}), **changed}
    try:
        connection.request(method, path, body, {name: value for name, value in headers.items() if value is not None})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer
    finally:
        connection.close()


def text(value):
    return json.dumps({"text": value})


def works(server):
    return ask(server, text("still here"))[0] == 200


def test_a_text_is_recorded(serve):
    server = serve()
    status, body, answer = ask(server, text("naïve"))
    assert status == 200 and answer.getheader("Content-Type") == "application/json; charset=utf-8"
    recording = json.loads(body)["recording"]
    assert recording["sequences"]["tokens"] == ["n", "a", "ï¹⁄₂", "ï²⁄₂", "v", "e"]
    assert recording == server.session.packed("naïve")


def test_the_page(serve):
    server = serve()
    address = urlsplit(server.address)
    assert address.hostname == "127.0.0.1" and len(address.query) > 30
    status, body, answer = ask(server, method="GET", path=f"/?{address.query}")
    assert status == 200 and "<title>a model</title>" in body
    assert answer.getheader("Cache-Control") == "no-store" and answer.getheader("X-Frame-Options") == "DENY"


@pytest.mark.parametrize(
    ("body", "changed", "status", "message"),
    [
        (text(""), {}, 422, "text: expected at least one character"),
        (text("x" * 65), {}, 422, "text: 65 tokens, but the model reads at most 64"),
        (text("\ud800"), {}, 422, "surrogate"),
        (text(3), {}, 400, "needs a text"),
        ("[" * 100_000, {}, 400, "no JSON"),
        ("nonsense", {}, 400, "no JSON"),
        (b"\xff\xfe", {}, 400, "no JSON"),
        (text("x" * TEXT_BYTES), {}, 413, "at most 1,048,576 bytes"),
        (text("x"), {"Content-Length": "-1"}, 411, "needs a length"),
        (text("x"), {"path": "/other"}, 404, "no such page"),
        (text("x"), {"X-Explorer-Token": "wrong"}, 403, "Open the address"),
        (text("x"), {"X-Explorer-Token": None}, 403, "Open the address"),
        (text("x"), {"Host": "evil.example"}, 403, "answers only under"),
        (text("x"), {"Host": "127.0.0.1.evil.example:80"}, 403, "answers only under"),
        *[
            (text("x"), {"Host": host}, 403, "answers only under")
            for host in ("evil.com\\@127.0.0.1", "a@127.0.0.1", "localhost:999999")
        ],
        *[(text("x"), {"Sec-Fetch-Site": site}, 403, "answers only under") for site in ("cross-site", "same-site")],
        (text("x"), {"Host": "["}, 400, "no valid address"),
        (text("x"), {"path": "http://[", "Host": "localhost"}, 400, "no valid address"),
    ],
)
def test_bad_requests_get_a_message_and_the_server_lives_on(serve, body, changed, status, message):
    server = serve()
    path = changed.get("path", "/record")
    headers = {name: value for name, value in changed.items() if name != "path"}
    found, answer, _ = ask(server, body, path=path, headers=headers)
    assert found == status
    assert message in json.loads(answer)["error"]
    assert works(server)


def test_a_text_of_which_the_tokenizer_knows_nothing(serve, monkeypatch):
    server = serve()
    monkeypatch.setattr(ByteTokenizer, "encode", lambda *_: [])
    status, body, _ = ask(server, text("x"))
    assert status == 422 and "text: expected one of which the tokenizer knows something" in json.loads(body)["error"]


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=", "/favicon.ico", "/../../etc/passwd", "/?token=%ff"])
def test_no_page_without_the_token(serve, path):
    server = serve()
    status, body, _ = ask(server, method="GET", path=path)
    assert status in (403, 404) and server.token not in body
    assert works(server)


def test_a_browser_that_goes_away(serve):
    server = serve()
    for sent in (b"", b"POST /record HTTP/1.1\r\nContent-Le", b"\x00\xff\r\n\r\n"):
        with socket.create_connection(server.server_address) as connection:
            connection.sendall(sent)
    assert works(server)


@pytest.mark.slow
def test_a_request_that_does_not_end_is_given_up(serve, monkeypatch):
    """Whether it sends nothing, or a byte now and then; with a token it is told."""
    monkeypatch.setattr("dat.explorer.server.SECONDS", 0.5)
    server = serve()
    head = f"POST /record HTTP/1.1\r\nHost: localhost\r\nX-Explorer-Token: {server.token}\r\nContent-Length: 9\r\n\r\n"
    for sent, answer in ((b"POST /rec", b""), (head.encode(), b"HTTP/1.1 408 ")):
        with socket.create_connection(server.server_address, timeout=30) as connection:
            connection.sendall(sent)
            for _ in range(4):
                time.sleep(0.1)
                connection.sendall(b"x")
            assert connection.recv(13) == answer
    assert works(server)


def test_many_connections_make_room(serve, monkeypatch):
    monkeypatch.setattr("dat.explorer.server.MOST_CONNECTIONS", 4)
    server = serve()
    with ExitStack() as stack:
        waiting = [stack.enter_context(socket.create_connection(server.server_address, timeout=30)) for _ in range(9)]
        assert works(server)
        assert [connection.recv(1) for connection in waiting[:5]] == [b""] * 5
        waiting[-1].settimeout(0.05)
        with pytest.raises(TimeoutError):
            waiting[-1].recv(1)


def test_closing_waits_for_what_is_computed(serve):
    server, before = serve(), set(threading.enumerate())
    computing, ended = threading.Event(), threading.Event()

    def parts():
        try:
            while True:
                yield {"computing": computing.set()}
        finally:
            ended.set()

    server.answers["/parts"] = Answer(lambda _: parts())
    with ThreadPoolExecutor(1) as pool, socket.create_connection(server.server_address, timeout=30) as idle:
        asked = pool.submit(ask, server, "{}", path="/parts")
        assert computing.wait(30)
        server.shutdown()
        server.server_close()
        assert ended.is_set() and idle.recv(1) == b""
        assert asked.exception() is None or isinstance(asked.exception(), OSError | http.client.HTTPException)
    assert set(threading.enumerate()) <= before


def test_a_failure_within_one_text(serve, monkeypatch):
    server = serve()
    monkeypatch.setattr(Session, "packed", lambda *_: 1 / 0)
    status, body, _ = ask(server, text("x"))
    assert status == 500 and "ZeroDivisionError" in body
    monkeypatch.undo()
    assert works(server)


def test_a_port_in_use(serve):
    port = serve().server_address[1]
    with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use, .*--port"):
        ExplorerServer(Session(dat(), ByteTokenizer(), "x"), "x", port=port)


def test_a_bad_first_text_opens_no_server():
    with pytest.raises(ValueError, match="text: expected at least one character"):
        ExplorerServer(Session(dat(), ByteTokenizer(), "x"), "")


def test_who_is_local(serve):
    assert serve().is_local and serve(host="localhost").is_local
    assert not serve(host="0.0.0.0").is_local


@pytest.mark.slow
def test_requests_at_the_same_time_and_two_models(serve):
    """Every answer is that of its own model and text, and no hook stays on a model."""
    servers = [serve(dat(seed)) for seed in (0, 1)]
    texts = [f"text number {number}" for number in range(6)]
    expected = {(server, words): server.session.packed(words) for server in servers for words in texts}
    with ThreadPoolExecutor(12) as pool:
        answers = {key: pool.submit(ask, key[0], text(key[1])) for key in expected}
    for key, answer in answers.items():
        assert json.loads(answer.result()[1])["recording"] == expected[key]
    assert expected[servers[0], texts[0]] != expected[servers[1], texts[0]]
    for server in servers:
        modules = list(server.session.model.modules())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


@pytest.mark.slow
def test_facts_of_the_model_while_texts_are_recorded(serve):
    model = dat()
    server = serve(session=of_checkpoint(model))
    expected = server.session.packed("some text")
    with ThreadPoolExecutor(4) as pool:
        facts = pool.submit(ask, server, "{}", path="/model")
        texts = [pool.submit(ask, server, text("some text")) for _ in range(6)]
    assert all(json.loads(answer.result()[1])["recording"] == expected for answer in texts)
    found = json.loads(facts.result()[1])
    assert sum(count for _, count, _ in found["parts"]) == sum(parameter.numel() for parameter in model.parameters())
    assert ask(serve(), "{}", path="/model")[0] == 404


def test_the_first_page_of_many_relations_is_small(serve, monkeypatch):
    """It has an outline; maps come one by one, and the text is recorded once."""
    model, words = dat(context=256, ra_kwargs={"n_relations": 32, "rel_proj_dim": 16}), "the cat sat " * 20
    session = Session(model, ByteTokenizer(), "a model")
    whole = session.packed(words)
    monkeypatch.setattr(packing, "WHOLE", 1 << 16)
    recorded = []
    monkeypatch.setattr(session_module, "record", lambda *given, **about: recorded.append(1) or record(*given, **about))
    server = serve(session=session, text=words)
    _, page, _ = ask(server, method="GET", path=f"/?token={server.token}")
    plain = len(page_html({**server.recording, "heads": []}))
    assert len(page) - plain < 0.15 * len(json.dumps(whole["heads"]))  # grows with heads, not with relations
    numbers, parts = [5, 0], whole["heads"][1]["relations"]
    query = {"text": words, "heads": 1, "name": "relations", "numbers": numbers}
    answers = json.loads(ask(server, json.dumps(query), path="/maps")[1])["maps"]
    for number, found in zip(numbers, answers, strict=True):
        for name in ("queries", "keys"):
            expected = as_array(parts[name]["values"])
            assert (as_array(found[name]["values"])[0] == expected[number * len(expected) // 32]).all()
    assert len(recorded) == 1
    assert "maps" in ask(server, json.dumps({**query, "text": "another text"}), path="/maps")[1]  # of another page
    assert json.loads(ask(server, json.dumps(query), path="/maps")[1])["maps"] == answers
    for wrong in ({"numbers": [32]}, {"heads": 9}, {"heads": None}, {"name": "keys"}, {"numbers": 3}):
        assert ask(server, json.dumps({**query, **wrong}), path="/maps")[0] == 400
    chosen = session.packed(words, ["1"])
    held = [one["layer"] for one in chosen["heads"] if "values" in one["weights"]["queries"]]
    assert held == ["blocks.1"] * 2 and chosen["facts"]["maps"] == "of blocks.1 only"
    assert chosen["heads"][3] == whole["heads"][3]
