"""Views written without a browser: the numbers of the model, pictures, and pages that show the view at once."""

import csv
import io
import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest
import torch

from dat.explorer.dictionaries import made_dictionary
from dat.explorer.exporting import Exporter, switch_of
from dat.explorer.figures import Seen
from dat.explorer.html import recording_page
from dat.explorer.images import ImageSession
from dat.explorer.memory import recording_bytes
from dat.explorer.session import Session
from dat.explorer.streaming import generated
from dat.explorer.switches import switch_effects
from dat.explorer.view_state import View
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import read_relations
from dual_attention.model_analysis.sites import find_sites
from tests.lab.explorer.conftest import TEXT, dat, rows_of, saved, transformer, vision
from tests.support.refusals import refused


@pytest.fixture(scope="module")
def maps(session):
    with torch.no_grad(), capture(session.model) as found:
        session.model(session.tensor(ByteTokenizer().encode(TEXT)))
    return found


def table(session, view, path, source=TEXT):
    Exporter(session, source, View.of(view)).write(path / "file.csv")
    return rows_of(path / "file.csv")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("relations", lambda m: m["blocks.0"].relational.relations[0, ..., 0]),
        ("page=relations&layer=1&relation=2", lambda m: m["blocks.1"].relational.relations[0, ..., 2]),
        (
            "http://127.0.0.1:1/?token=x#layer=blocks.1&relation=2&head=1&view=attended&theme=dark&i=3",
            lambda m: m["blocks.1"].relational.relations[0, ..., 2] * m["blocks.1"].relational.weights[0, 1],
        ),
        ("page=attention&layer=1&head=1", lambda m: m["blocks.1"].sensory.weights[0, 1]),
    ],
)
def test_numbers_of_maps(session, maps, tmp_path, view, expected):
    rows = table(session, view, tmp_path)
    values = expected(maps)
    assert len(rows) == 22 * 23 // 2 and rows[5]["receiver_token"] == "e"
    for row in rows:
        assert float(row["value"]) == pytest.approx(float(values[int(row["receiver"]), int(row["sender"])]), abs=1e-4)


@pytest.mark.parametrize(
    ("view", "same"),
    [
        ("page=relations&layer=0&kind=sensory&relation=1", "layer=0&relation=1"),
        ("page=relations&relation=1&view=attention", "relation=1"),
        ("page=attention&layer=1&kind=relational&view=attended", "page=attention&layer=1&kind=relational"),
        ("page=symbols&layer=1&kind=sensory", "page=symbols&layer=1"),
    ],
)
def test_what_an_address_keeps_of_the_page_before_counts_for_nothing(session, tmp_path, view, same):
    assert table(session, view, tmp_path) == table(session, same, tmp_path)


def test_contributions(session, maps, tmp_path):
    """Of a sender, and of a relation."""
    rows = table(session, "page=attention&layer=0&kind=sensory&head=1&view=contribution", tmp_path)
    first = float(maps["blocks.0"].sensory.contribution[0, 1, 0].norm())  # which attends itself only
    assert float(rows[0]["value"]) == pytest.approx(first, rel=1e-4)
    rows = table(session, "relation=1&view=contribution", tmp_path)
    expected = read_relations(session.model, maps["blocks.0"].relational).contribution[0, ..., 1]
    for row in rows:
        at = int(row["receiver"]), int(row["sender"])
        assert float(row["value"]) == pytest.approx(float(expected[at]), rel=1e-3, abs=1e-6)


def test_other_pages(session, maps, tmp_path):
    rows = table(session, "page=symbols&layer=0&part=1", tmp_path)
    assert len(rows) == 22 * 12
    assignment = maps["blocks.0"].relational.assignment[0, 1]
    assert int(rows[12]["symbol"]) == int(assignment[1].argmax())
    found = switch_effects(
        session,
        {"text": TEXT, "switches": [{"mediator": "relation", "layer": "blocks.0", "kind": "relational", "number": 2}]},
    )
    rows = table(session, "page=interventions&off=r0.2", tmp_path)
    assert [float(row["loss_switched"]) for row in rows] == pytest.approx(found["losses"]["after"])
    _, *steps, _ = generated(session, {"text": TEXT, "tokens": 3, "seed": 1})
    rows = table(session, "page=generate&tokens=3&seed=1&map=2", tmp_path)
    assert len(rows) == 22 + 23 + 24
    assert float(rows[0]["probability"]) == steps[0]["probability"]
    weights = maps["blocks.0"].sensory.weights[0, 0, -1]  # map 2 is the first relation of the relational heads
    relation = maps["blocks.0"].relational.relations[0, -1, :, 0]
    shown = torch.tensor([float(row["value"]) for row in rows[:22]])
    assert float((shown - relation).abs().max() / relation.abs().max()) < 0.51 / 127
    assert not torch.allclose(shown, weights, atol=1e-2)
    *_, last = made_dictionary(session, {"text": TEXT * 20})
    named = replace(session, dictionary=last["dictionary"])
    rows = table(named, "page=dictionary&layer=1&relation=1&end=low", tmp_path)
    assert {row["kind"] for row in rows} == {"pair", "like it"} and rows[0]["rank"] == "1"


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    "view",
    [
        "relations",
        "page=attention",
        "page=generate&tokens=3",
    ],
)
def test_pictures(session, tmp_path, view):
    exporter = Exporter(session, TEXT, View.of(view))
    exporter.write(tmp_path / "a.png")
    exporter.write(tmp_path / "a.SVG")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(ElementTree.parse(tmp_path / "a.SVG").iter())) > 30


def test_images(tmp_path):
    session = ImageSession(vision(), "a model")
    rows = table(session, "page=vision&i=3&layer=1", tmp_path, source="game same")
    with torch.no_grad(), capture(session.model) as maps:
        session.model(session.pixels("game same")[0][None] / 255.0)
    expected = maps["blocks.1"].relational.relations[0, 3, 1:].T.flatten()
    assert [float(row["value"]) for row in rows] == pytest.approx(expected.tolist(), abs=1e-4)
    assert rows[0]["receiver"] == "row 1 col 3"
    Exporter(session, "game same", View.of("page=vision&i=3&maps=attention")).write(tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_a_code_names_the_layer_that_is_switched(session):
    recording = session.record(TEXT)
    for layer in (0, 1):
        name = f"blocks.{layer}"
        assert switch_of(f"r{layer}.3", recording) == ("relation", name, "relational", 3)
        assert switch_of(f"sa{layer}.0", recording) == ("head", name, "sensory", 0)
        assert switch_of(f"ra{name}.1", recording) == ("head", name, "relational", 1)
        assert switch_of(f"s{layer}.1", recording) == ("symbol", name, "relational", 1)


def test_a_table_says_what_was_switched(session, tmp_path):
    rows = table(session, "page=interventions&off=r1.3_sa0.1&change=mean", tmp_path)
    said = "relation 3 of blocks.1, sensory head 1 of blocks.0: mean over the text"
    assert {row["switched"] for row in rows} == {said}
    switches = [
        {"mediator": "relation", "layer": "blocks.1", "kind": "relational", "number": 3},
        {"mediator": "head", "layer": "blocks.0", "kind": "sensory", "number": 1},
    ]
    found = switch_effects(session, {"text": TEXT, "switches": switches, "change": "mean"})
    assert [float(row["loss_switched"]) for row in rows] == pytest.approx(found["losses"]["after"])
    only = Session(session.model, ByteTokenizer(), "", layers=[1])
    for view in ("page=interventions&off=r1.3", "off=r1.3"):  # of no page, switches are of the one that shows them
        assert {row["switched"] for row in table(only, view, tmp_path)} == {"relation 3 of blocks.1: zero"}
    assert View.of("#off=r1.3").page == "relations"  # of an address, whose page is left out where it is the first


NUMBERS = ("-1.5e-3", "+2", "-.5")
SIGNS = ("=", "+", "-", "@")


@pytest.mark.parametrize(
    "text", [*NUMBERS, *SIGNS, "=1", "+a", "-1e", "@x", "\t=1", "\n=1", "＝1", "--", "'=1", "a=1", ""]
)
def test_a_text_that_a_spreadsheet_would_compute_follows_an_apostrophe(text):
    [_, *rows] = csv.reader(io.StringIO(Seen("", ["text", "number"], [[text, 1.0]]).csv, newline=""))
    computed = text not in (*NUMBERS, *SIGNS, "a=1", "")
    assert rows == [["'" * computed + text, "1"]]


@pytest.mark.parametrize(
    ("view", "kept"),
    [
        ("page=relations&i=3", set()),
        ("page=effects&draws=0", {"effects"}),
        ("page=interventions&off=sa0.0", {"interventions"}),
        ("page=generate&tokens=2", {"generation"}),
        ("page=dictionary", {"dictionary"}),
    ],
)
def test_pages_hold_what_the_view_needs(session, tmp_path, view, kept):
    Exporter(session, TEXT, View.of(view)).write(tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])
    assert set(data["kept"]) == kept and data["server"] is None
    assert View.of(data["state"]) == View.of(view)


@pytest.mark.slow
@pytest.mark.parametrize(
    "view",
    [
        "page=relations&layer=1&relation=1&head=1&view=attended",
        "page=relations&layer=1&kind=sensory&relation=1&head=1&view=attended",
        "page=attention&layer=1&kind=relational&head=1&view=contribution",
        "page=vision&i=3&head=1&view=attended",
        "page=writes&place=3&by=each",
        "page=patching&other=the+dog+sat+on+the+logthe+cat+lay+on+the+mat",
        "page=vision&i=3&maps=attention",
        "page=vision&i=3&view=attention",
        "page=symbols&layer=1&part=1",
        "page=effects&draws=2&measure=loss",
        "page=interventions&off=r1.2_sa0.1",
        "page=dictionary&layer=1&relation=1&end=low",
        "page=generate&tokens=5&step=2&map=1",
        "page=card&layer=1&relation=2",
    ],
)
def test_a_browser_shows_the_same(visit, session, tmp_path, view):
    """The numbers of a view are those of its page."""
    images = "vision" in view
    opened, source = (ImageSession(vision(), "a model"), "game same") if images else (session, TEXT * 2)
    exporter = Exporter(opened, source, View.of(view))
    exporter.write(tmp_path / "page.html")
    page = visit().open((tmp_path / "page.html").as_uri())
    assert page.get_attribute(f"#tab-{exporter.view.page}", "aria-selected") == "true"
    with open(saved(page, "csv"), encoding="utf-8", newline="") as file:
        headings, *theirs = csv.reader(file)
    theirs = [row for row in theirs if row[2] not in ("name", "note")]  # which somebody wrote in the page
    ours = [*csv.reader(io.StringIO(exporter.seen.csv, newline=""))][1:]
    if images:  # of which the page shows all layers and kinds
        theirs = [row for row in theirs if row[0] in {name for name, *_ in ours}]
    assert headings == list(exporter.seen.headings) and len(theirs) == len(ours) > 1
    if exporter.view.page not in ("relations", "attention", "vision", "symbols"):
        assert theirs == ours
    for mine, other in zip(ours, theirs, strict=True):  # maps are computed in the page, from rounded factors
        for cell, written in zip(mine, other, strict=True):
            assert cell == written or float(cell) == pytest.approx(float(written), rel=1e-3, abs=1e-5)


WRONG = {
    "page=nothing": "view: expected a page of relations, .* got 'nothing'",
    "relatons=3": "view: there is no 'relatons' in a view; did you mean relation",
    "heads=3": "view: expected layer and kind in place of heads, as in layer=1&kind=sensory",
    "head=x": "view: expected a number as head, got 'x'",
    "relation=-1": "view: expected a number of 0 or more as relation",
    "factor=nan": "view: expected a number from -100 to 100 as factor, got 'nan'",
    "layer=2": "view: expected a layer of 0, 1, got '2'",
    "layer=0&kind=other": "view: expected kind sensory or relational, got 'other'",
    "relation=4": "view: expected relation from 0 to 3, got 4",
    "page=attention&head=2": "view: expected head from 0 to 1, got 2",
    "view=other": "view: expected raw, attended, contribution or attention, got 'other'",
    "page=symbols&layer=3": "view: expected a layer of 0, 1, got '3'",
    "page=symbols&part=2": "view: expected part from 0 to 1, got 2",
    "page=interventions": "switches: expected at least one",
    "page=interventions&off=h0.1": r"such as r1.3_sa0.1, each rL.N \(relation N of layer L\), .*; got 'h0.1'",
    "page=interventions&off=r2.0": "view: expected a layer of 0, 1, got '2'",
    "page=interventions&off=r1.4": "view: expected relation of blocks.1 from 0 to 3, got 4",
    "page=interventions&off=ra1.2": "view: expected head of blocks.1 from 0 to 1, got 2",
    "page=generate&tokens=3&map=99": "view: expected map from 0 to 15, got 99",
    "page=model": "checkpoint: this model was not opened from one",
    "page=vision": "page vision is of images",
    "page=patching": "page patching needs a second text, as in page=patching&other=TEXT",
}
REFUSED = [
    *((dat, view, "a.csv", message) for view, message in WRONG.items()),
    (dat, "relations", "a.txt", r"ends in \.html, \.csv, \.png, \.svg, \.pdf, got 'a\.txt'"),
    *((dat, page, "a.png", f"the page {page} has no picture") for page in ("card", "dictionary", "effects", "model")),
    (transformer, "relations", "a.csv", "computes no relations; see its page attention"),
    (transformer, "symbols", "a.csv", "assigns no symbols from a library"),
    (transformer, "card", "a.csv", "this model computes no relations"),
    (vision, "page=vision&i=0", "a.png", "a picture is of a patch"),
    (vision, "generate", "a.csv", "page generate is of language models"),
]


@pytest.mark.parametrize(("model", "view", "name", "message"), REFUSED)
def test_refusals(tmp_path, model, view, name, message):
    own = ImageSession(vision(), "a model") if model is vision else Session(model(), ByteTokenizer(), "a model")
    with pytest.raises(ValueError, match=message):
        Exporter(own, "game same" if model is vision else TEXT, View.of(view)).write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(session):
    page = recording_page(session.record("<b>&amp;"))
    frame = page._repr_html_()
    assert unescape(re.search(r'srcdoc="(.*?)" style', frame, re.DOTALL)[1]) == page
    assert 'sandbox="allow-scripts"' in frame


def test_a_transformer_has_attention(tmp_path):
    assert len(table(Session(transformer(), ByteTokenizer(), "a baseline"), "attention", tmp_path)) == 22 * 23 // 2


def test_chosen_layers_only(session):
    some = Session(session.model, session.tokenizer, "a model", layers=[1])
    assert [heads.layer for heads in some.record(TEXT).heads] == ["blocks.1"] * 2
    *_, step, _ = generated(some, {"text": TEXT, "tokens": 1})
    assert len(step["maps"]) == 2


def record_in(free, session, monkeypatch):
    monkeypatch.setattr("dat.explorer.memory.free_bytes", lambda: free)
    return session.record(TEXT)


test_texts_that_memory_does_not_hold = refused(
    (1000, r"text: to record 22 tokens in 2 layers takes about .* of memory, and 1000 B are free; .*--layers"),
    by=lambda free, *, session, monkeypatch: record_in(free, session, monkeypatch),
)


def test_memory_of_a_recording(session, monkeypatch):
    assert record_in(None, session, monkeypatch).heads
    sites = find_sites(session.model)
    assert recording_bytes(sites, 44) > 2 * recording_bytes(sites, 22)
    assert recording_bytes(sites[:2], 22) < recording_bytes(sites, 22)
