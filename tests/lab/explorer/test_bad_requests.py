"""Whatever is wrong with what a page asks gets a message that says so, and the server lives on."""

import json

import pytest

from tests.lab.explorer.conftest import TEXT
from tests.lab.explorer.test_server import ask, works
from tests.lab.explorer.test_switches import HEAD

OTHER = "the dog sat on the log"
RIGHT = {
    "/card": {"layer": "blocks.1", "relation": 0},
    "/intervene": {"switches": [HEAD]},
    "/patch": {"other": OTHER},
}
"""What a request needs beside its text."""
WRONG = {
    "/card": [
        ({"text": "x" * 99}, 422, "text: 99 tokens, but the model reads at most 64"),
        ({"layer": "blocks.7"}, 422, "layer: expected one with relations (blocks.0, blocks.1), got 'blocks.7'"),
        ({"layer": 1}, 400, "The request needs a layer"),
        ({"relation": 4}, 422, "relation: expected a number from 0 to 3, got 4"),
    ],
    "/intervene": [
        ({"switches": []}, 422, "switches: expected at least one"),
        ({"switches": [{"layer": "blocks.0"}]}, 400, "A switch needs mediator, layer, kind, number"),
        ({"switches": [{**HEAD, "number": "1"}]}, 400, "A switch names"),
        ({"switches": [{**HEAD, "layer": ["blocks.0"]}]}, 400, "A switch names"),
        ({"switches": [{**HEAD, "number": 7}]}, 422, "heads: expected numbers from 0 to 1"),
        ({"switches": [{**HEAD, "layer": "blocks.9"}]}, 422, "layers: expected some of blocks.0, blocks.1"),
        ({"switches": [{**HEAD, "kind": "other"}]}, 422, "heads: expected the kinds"),
        ({"switches": [{**HEAD, "mediator": "selection"}]}, 422, "mediator: expected head, relation or symbol"),
        ({"change": "remove"}, 422, "change: expected one of zero, mean, scale"),
        ({"factor": 1e9}, 422, "factor: expected a number from -100.0 to 100.0"),
        ({"factor": True}, 422, "factor: expected a number"),
        ({"place": 99}, 422, "place: expected a number from 0 to 21"),
        ({"place": 1.5}, 422, "place: expected an integer"),
        ({"text": ""}, 422, "text: expected at least one character"),
        ({"text": None}, 400, "The request needs a text"),
    ],
    "/ablate": [
        ({"text": "x" * 99}, 422, "text: 99 tokens, but the model reads at most 64"),
        ({"text": ""}, 422, "text: expected at least one character"),
        ({"change": "remove"}, 422, "change: expected one of zero, mean, scale"),
        ({"draws": 99}, 422, "draws: expected a number from 0 to 20"),
    ],
    "/generate": [
        ({"text": ""}, 422, "text: expected at least one character"),
        ({"text": "x" * 64}, 422, "its 64 tokens fill the context of 64"),
        ({"text": "x" * 65}, 422, "65 tokens, but the model reads at most 64"),
        ({"tokens": 0}, 422, "tokens: expected a number from 1 to 512, got 0"),
        ({"tokens": 1e9}, 422, "tokens: expected a number from 1 to 512"),
        ({"tokens": "many"}, 422, "tokens: expected a number"),
        ({"temperature": -1}, 422, "temperature: expected a number from 0 to 100"),
        ({"seed": 0.5}, 422, "seed: expected an integer"),
        ({"top_k": -2}, 422, "top_k: expected a number"),
        ({"text": 3}, 400, "needs a text"),
    ],
    "/make-dictionary": [
        ({"text": "x"}, 422, "text: expected 2 to 200,000 tokens, got 1"),
        ({"text": "x" * 200_001}, 422, "got 200,001"),
        ({"text": "\ud800"}, 422, "text: expected UTF-8"),
        ({"pairs": 0}, 422, "pairs: expected a number from 1 to 50"),
        ({"text": None}, 400, "needs a text"),
    ],
    "/writes": [
        ({"by": "layer"}, 422, "by: expected one of head, relation, each"),
        ({"place": 22}, 422, "place: expected a number from 0 to 21"),
        ({"target": 257}, 422, "target: expected a number from 0 to 256"),
    ],
    "/patch": [
        ({"other": "the dog"}, 422, "The second text needs 22 tokens, as the first has; it has 7."),
        ({"other": TEXT}, 422, "The second text has the tokens of the first"),
        ({"by": "each"}, 422, "by: expected one of kind, head"),
        ({"answer": 5, "foil": 5}, 422, "need to be different"),
    ],
}


@pytest.mark.parametrize("path", WRONG)
def test_bad_requests_are_told_what_is_wrong(serve, path):
    server = serve()
    for changed, status, message in WRONG[path]:
        found, body, _ = ask(server, json.dumps({"text": TEXT, **RIGHT.get(path, {}), **changed}), path=path)
        assert found == status and message in json.loads(body)["error"], changed
        assert works(server)
