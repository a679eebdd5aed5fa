"""Generation for a page: the tokens of ``generate``, and the maps of each step."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from dat.explorer import streaming
from dat.explorer.session import Session
from dat.explorer.streaming import generated
from dual_attention.generation import generate
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import as_array, dat, transformer
from tests.lab.explorer.test_server import ask, works

PROMPT = "the cat"


def parts(session, **request):
    begin, *steps, end = generated(session, {"text": PROMPT, **request})
    return begin, steps, end


def rows_of(maps):
    return torch.from_numpy(as_array(maps["values"]).astype(np.float32) * as_array(maps["scales"])[:, None])


def test_tokens_and_maps_are_those_of_the_model(session):
    begin, steps, end = parts(session, tokens=6, seed=3, temperature=0.7, top_k=20)
    ids = torch.tensor([ByteTokenizer().encode(PROMPT)])
    expected = generate(session.model, ids, 6, temperature=0.7, top_k=20, seed=3)[0].tolist()
    assert end == {"text": ByteTokenizer().decode(expected), "ended": "as many tokens as asked for"}
    assert begin["labels"] == [*"the␣cat"] and begin["most"] == 6 == len(steps)
    tokens = torch.tensor([expected])
    with torch.no_grad(), capture(session.model) as maps:
        logits = session.model(tokens).logits[0]
    for number, step in enumerate(steps):
        last = len(PROMPT) + number - 1  # what chose the token after it
        probability = logits[last].softmax(-1)[expected[last + 1]]
        assert step["probability"] == pytest.approx(float(probability), rel=1e-3)
        best = logits[last, :257].softmax(-1).topk(8).values.tolist()
        assert [share for _, share in step["likeliest"]] == pytest.approx(best, rel=1e-3)
        for about, found in zip(begin["sites"], step["maps"], strict=True):
            heads = getattr(maps[about["layer"]], about["kind"])
            weights = rows_of(found["weights"])
            assert weights.shape == (about["weights"], last + 1) and found["first"] == 0
            right = heads.weights[0, :, last, : last + 1]
            assert float(((weights - right).abs() / right.amax(-1, keepdim=True)).max()) < 0.51 / 127 + 1e-4
            if about["kind"] == "relational":
                right = heads.relations[0, last, : last + 1].T
                error = (rows_of(found["relations"]) - right).abs() / right.abs().amax(-1, keepdim=True)
                assert right.shape[0] == about["relations"] and float(error.max()) < 0.51 / 127 + 1e-4


def drawing(*tokens):
    """What draws these tokens, whatever the model says."""

    def stream(_model, _idx, _most, *, logits_processors, **_):
        for token in tokens:
            logits_processors[0](None, torch.zeros(1, 257))
            yield torch.tensor([token])

    return stream


def test_labels_of_characters_in_several_tokens(session, monkeypatch):
    text = "猫né"
    monkeypatch.setattr(streaming, "generate_stream", drawing(*text.encode()))
    begin, steps, end = parts(session, tokens=9)
    labels = begin["labels"]
    for step in steps:
        labels[step["from"] :] = step["labels"]
    assert labels[7:] == ["猫¹⁄₃", "猫²⁄₃", "猫³⁄₃", "n", "é¹⁄₂", "é²⁄₂"] and end["text"] == PROMPT + text


def test_where_it_ends(session, monkeypatch):
    _, steps, end = parts(session, tokens=500)
    assert len(steps) == 64 - len(PROMPT) and end["ended"] == "the context is full"
    monkeypatch.setattr(streaming, "MOST_BYTES", 100)
    _, steps, _ = parts(session, tokens=5)
    assert [step["maps"] is None for step in steps] == [False, True, True, True, True]
    monkeypatch.setattr(streaming, "generate_stream", drawing(65, 256, 66))
    _, steps, end = parts(session, tokens=5)
    assert len(steps) == 1 and end == {"text": PROMPT + "A", "ended": "the model ended the text"}


def test_a_transformer_has_weights_only():
    begin, steps, _ = parts(Session(transformer(), ByteTokenizer(), "a model"), tokens=2)
    assert begin["sites"] == [{"layer": "blocks.0", "kind": "sensory", "weights": 2, "relations": 0}]
    assert set(steps[1]["maps"][0]) == {"first", "weights"}


def test_the_model_itself_is_left_alone(session):
    """Another text may be recorded between two tokens; neither sees the other."""
    before = session.packed("another text")
    stream = generated(session, {"text": PROMPT, "tokens": 4})
    alone = list(generated(session, {"text": PROMPT, "tokens": 4}))
    mixed = []
    for part in stream:
        mixed.append(part)
        assert session.packed("another text") == before
    assert mixed == alone
    twin = session.twin()
    for ours, theirs in zip(session.model.parameters(), twin.parameters(), strict=True):
        assert ours is theirs
    assert twin is not session.model


def test_answers_come_one_by_one_and_a_failure_is_the_last(serve, monkeypatch):
    server = serve()
    status, body, answer = ask(server, json.dumps({"text": PROMPT, "tokens": 3}), path="/generate")
    assert status == 200 and answer.getheader("Content-Type") == "application/x-ndjson; charset=utf-8"
    assert [sorted(json.loads(line)) for line in body.splitlines()][::4] == [
        ["labels", "most", "sites"],
        ["ended", "text"],
    ]
    monkeypatch.setattr(streaming.LastRows, "packed", lambda _: 1 / 0)
    _, body, _ = ask(server, json.dumps({"text": PROMPT, "tokens": 3}), path="/generate")
    assert "ZeroDivisionError" in json.loads(body.splitlines()[-1])["error"]
    assert works(server)


@pytest.mark.slow
def test_who_goes_away_ends_the_work(serve, monkeypatch):
    """The rest of a text is not generated for nobody."""
    steps, packed = [], streaming.LastRows.packed

    def slowly(rows):
        steps.append(time.monotonic())
        time.sleep(0.05)
        return packed(rows)

    monkeypatch.setattr(streaming.LastRows, "packed", slowly)
    server = serve(dat(context=512))
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    body = json.dumps({"text": PROMPT, "tokens": 500})
    connection.request("POST", "/generate", body, {"X-Explorer-Token": server.token})
    answer = connection.getresponse()
    assert answer.readline() and answer.readline()
    answer.close()
    connection.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not (steps and time.monotonic() - steps[-1] > 1.5):
        time.sleep(0.1)
    assert len(steps) < 400
    assert works(server)


def test_several_at_once(serve):
    server = serve()
    bodies = [json.dumps({"text": f"{number} cats", "tokens": 8, "seed": number}) for number in range(4)]
    alone = [ask(server, body, path="/generate")[1] for body in bodies]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda body: ask(server, body, path="/generate")[1], bodies))
    assert together == alone and len(set(alone)) == 4
    assert threading.active_count() < 100
