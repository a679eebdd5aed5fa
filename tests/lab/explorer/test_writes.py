"""What parts write and what patching recovers, as answers of the server and as files."""

import json

import pytest
import torch

from dat.explorer.exporting import Exporter
from dat.explorer.patching import patched
from dat.explorer.session import Session
from dat.explorer.view_state import View
from dat.explorer.writes import written
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.interventions import Patch, Target, intervene
from tests.lab.explorer.conftest import TEXT, rows_of, transformer, vision
from tests.lab.explorer.test_server import ask

pytestmark = pytest.mark.sweep(6)

OTHER = "the dog sat on the log"
NAMES = ("layer", "kind", "mediator", "number")


def logits(session, text):
    with torch.no_grad():
        return session.model(session.tensor(session.tokens(text))).logits[0]


@pytest.mark.slow
@pytest.mark.parametrize(("by", "count"), [("head", 12), ("relation", 18), ("each", 28)])
def test_effects_add_up_to_the_logit_less_the_mean(session, by, count):
    wanted = logits(session, TEXT)[4]
    wanted = wanted - wanted.mean()
    found = written(session, {"text": TEXT, "place": 4, "by": by, "target": 100})
    assert len(found["parts"]) == len({tuple(part.values()) for part in found["parts"]}) == count
    assert found["target"]["token"] == "d" and found["target"]["logit"] == pytest.approx(float(wanted[100]), abs=1e-5)
    assert sum(found["effects"]) == pytest.approx(float(wanted[100]), abs=1e-4)
    assert [one["id"] for one in found["likeliest"][:12]] == wanted[:256].topk(12).indices.tolist()
    assert {one["token"] for one in found["likeliest"]} >= {"d", TEXT[5]}
    # A token that a part writes has that effect if it is the target.
    for place in (1, count - 1):
        token, value = found["writes"][place]["suppressed"][0]
        chosen = next((one for one in range(256) if written_label(session, one) == token), None)
        again = written(session, {"text": TEXT, "place": 4, "by": by, "target": chosen})
        assert again["effects"][place] == pytest.approx(value, abs=1e-5) and value < 0


def written_label(session, token):
    return written(session, {"text": "x", "target": token})["target"]["token"]


@pytest.mark.slow
def test_recovery_is_that_of_interventions(session):
    found = patched(session, {"text": TEXT, "other": OTHER, "place": 20, "answer": 100, "foil": 101})
    assert len(found["cells"]) == found["count"] == 12 and found["answer"] == {"id": 100, "token": "d"}
    with capture(session.model) as source:
        there = logits(session, OTHER)[20]
    here = logits(session, TEXT)[20]
    assert found["differences"] == pytest.approx([float(z[100] - z[101]) for z in (here, there)], abs=1e-5)
    for cell in found["cells"]:
        target = Target(
            cell["mediator"],
            layers=[cell["layer"]],
            heads=cell["kind"] if cell["mediator"] != "relation" and cell["kind"] else None,
        )
        with intervene(session.model, Patch(target), source=source):
            after = logits(session, TEXT)[20]
        change = float((after - here)[100] - (after - here)[101])
        assert cell["change"] == pytest.approx(change, abs=1e-5)
        gap = found["differences"][1] - found["differences"][0]
        assert cell["recovery"] == pytest.approx(change / gap, rel=1e-3, abs=1e-4)
    parts = patched(session, {"text": TEXT, "other": OTHER, "by": "head"})["cells"]
    assert len({tuple(cell[name] for name in NAMES) for cell in parts}) == len(parts) == 2 * (3 * 2 + 2 * 2 + 4 + 2)
    default = patched(session, {"text": TEXT, "other": OTHER})
    change = logits(session, OTHER)[-1].softmax(-1) - logits(session, TEXT)[-1].softmax(-1)
    assert (default["answer"]["id"], default["foil"]["id"]) == (int(change.argmax()), int(change.argmin()))
    assert default["differences"][1] > default["differences"][0]


@pytest.mark.slow
def test_nothing_is_recovered_before_the_texts_differ(session, tmp_path):
    """Rounding would seem to be: the predictions after the first tokens are the same."""
    found = patched(session, {"text": TEXT, "other": OTHER, "place": 3})
    assert [one["id"] for one in (found["answer"], found["foil"])] == logits(session, TEXT)[3].topk(2).indices.tolist()
    for given in ({}, {"answer": 100, "foil": 101}):
        found = patched(session, {"text": TEXT, "other": OTHER, "place": 3, "by": "head", **given})
        assert found["differences"][0] == found["differences"][1]
        assert {cell["recovery"] for cell in found["cells"]} == {None}
    Exporter(session, TEXT, View.of(f"page=patching&place=3&other={OTHER.replace(' ', '+')}")).write(tmp_path / "a.csv")
    assert {row["recovery"] for row in rows_of(tmp_path / "a.csv")} == {""}
    assert patched(session, {"text": TEXT, "other": OTHER, "place": 4})["cells"][0]["recovery"] is not None


def test_a_transformer_has_both():
    session = Session(transformer(), ByteTokenizer(), "a model")
    assert len(written(session, {"text": TEXT})["parts"]) == 6
    cells = patched(session, {"text": TEXT, "other": OTHER, "place": 18})["cells"]
    assert [tuple(cell[name] for name in NAMES) for cell in cells] == [
        ("blocks.0", "sensory", "selection", None),
        ("blocks.0", "sensory", "value", None),
        ("blocks.0", "", "head", None),
    ]
    assert cells[-1]["recovery"] == pytest.approx(1, abs=1e-3)  # of one layer, after a token that both texts have


def test_the_server_answers(serve):
    server = serve(text=TEXT)
    status, body, _ = ask(server, json.dumps({"text": TEXT, "by": "each"}), path="/writes")
    assert status == 200 and json.loads(body)["parts"][0]["what"] == "embedding"
    status, body, _ = ask(server, json.dumps({"text": TEXT, "other": OTHER}), path="/patch")
    begin, *layers = map(json.loads, body.splitlines())
    assert status == 200 and begin["others"][4] == "d" and len(layers) == 2
    assert not {"writes", "patch"} & {path.removeprefix("/") for path in serve(vision()).answers}


def test_files(session, tmp_path):
    for view, rows in (("page=writes&place=3&target=100&by=each", 28 * 25), ("page=patching&each=1", 32)):
        view = View.of(f"{view}&other=the+dog+sat+on+the+log" if "patching" in view else view)
        exporter = Exporter(session, TEXT, view)
        for ending in ("csv", "html"):
            exporter.write(tmp_path / f"a.{ending}")
        table = rows_of(tmp_path / "a.csv")
        assert len(table) == rows
        kept = json.loads(
            (tmp_path / "a.html").read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0]
        )
        assert set(kept["kept"]) == {view.page}
    values = [float(row["recovery"]) for row in table]
    assert values == sorted(values, key=lambda value: -abs(value))
