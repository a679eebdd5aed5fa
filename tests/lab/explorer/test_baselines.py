"""Models that relate objects otherwise than a DAT are shown, too, as far as they attend or compare."""

import pytest
import torch

from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from dat.explorer.ablations import ablated
from dat.explorer.exporting import Exporter
from dat.explorer.images import ImageSession
from dat.explorer.packing import LARGEST_ERROR, pack
from dat.explorer.view_state import View
from dual_attention.mechanisms import Cosine, Dot, GeneralAttention, MultiHead, recipes
from dual_attention.model_analysis.capture import capture
from studies._lib.heads import HeadsOfTokens
from tests.lab.explorer.conftest import rows_of
from tests.support.refusals import refused

pytest.importorskip("PIL.Image")

COSINE = {"relation": Cosine(learned=True, heads=2), "symbols": False}
HEADS = {
    "gated": lambda: MultiHead(GeneralAttention(Dot()), 128, 2, gate="identity"),
    "hadamard": lambda: recipes.hadamard_attention(128, 4),
    "cosine": lambda: recipes.relational_heads(128, 2, n_relations=2, **COSINE),
}
"""Heads of the toolbox, in a Transformer."""
ATTENDING = ("abstractor", "abstractor-symbol-stream", "predinet", "esbn", "gated")
COMPARING = ("corelnet", "corelnet-softmax")
BOTH = ("hadamard", "cosine")


def session_of(preset: str) -> ImageSession:
    model = build_games_model(PRESETS["transformer-128-h2" if preset in HEADS else preset], 2, seed=0)
    if preset in HEADS:
        torch.manual_seed(0)
        for block in model.encoder_blocks:
            block.self_attn = HeadsOfTokens(preset, HEADS[preset]())
            for weight in block.self_attn.parameters():  # as drawn they hardly change an answer
                weight.data.mul_(4)
    return ImageSession(model.eval(), preset)


def table(session, view, folder):
    file = folder / "view.csv"
    Exporter(session, session.default, View.of(view)).write(file)
    return rows_of(file)


@pytest.mark.parametrize("preset", [*ATTENDING, *COMPARING, *BOTH])
def test_maps_are_those_of_the_model(preset):
    session = session_of(preset)
    recording, shown = session.record(session.pixels("game occurs")[0])
    with torch.no_grad(), capture(session.model) as maps:
        session.model(shown.pixels[None] / 255.0)
    assert len(recording.heads) == len(maps.heads())
    for heads, expected in zip(recording.heads, maps.heads(), strict=True):
        n, seen = heads.visible.receivers, expected.get("visible")[0]
        assert (heads.weights is not None) == (preset not in COMPARING)
        assert (heads.relations is not None) == (preset in (*COMPARING, *BOTH))
        assert heads.n_heads == (0 if heads.weights is None else expected.weights.shape[1])
        if heads.weights is not None:
            found = heads.weights.values(0, n, heads.visible)
            torch.testing.assert_close(found, expected.weights[0] * seen, rtol=1e-4, atol=1e-6)
        if heads.relations is not None:
            found, wanted = heads.relations.values(0, n, heads.visible), expected.relations[0].permute(2, 0, 1) * seen
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert pack(recording).error <= LARGEST_ERROR


@pytest.mark.parametrize("preset", ["predinet", "gated", "corelnet", "hadamard"])
def test_every_part_that_a_page_shows_is_taken_away(preset):
    session = session_of(preset)
    recording, shown = session.record(session.pixels("game occurs")[0])
    parts = [
        {"mediator": mediator, "layer": heads.layer, "kind": heads.kind, "number": number}
        for heads in recording.heads
        for mediator in heads.mediators
        for number in range(heads.relations.maps if mediator == "relation" else heads.n_heads)
    ]
    found = ablated(session, {"pixels": shown.json["pixels"], "draws": 0})
    assert found["parts"] == parts and max(divergence for _, divergence in found["effects"]) > 1e-4


def test_patches_without_a_class_token():
    recording, shown = (session := session_of("esbn")).record(session.pixels("game same")[0])
    assert shown.first == 0 and recording.sequences == {
        "patches": [f"row {row} col {column}" for row in (1, 2, 3) for column in (1, 2, 3)]
    }


@pytest.mark.slow
def test_the_two_objects_of_predinet(tmp_path):
    """They are no patches: each has a map of its own, whichever patch is chosen."""
    session = session_of("predinet")
    with torch.no_grad(), capture(session.model) as maps:
        session.model(session.pixels("game same")[0][None] / 255.0)
    weights = maps.heads()[0].weights[0]
    rows = table(session, "page=vision&i=2", tmp_path)
    assert len(rows) == weights.numel() and {row["receiver"] for row in rows} == {"first object", "second object"}
    assert [float(row["value"]) for row in rows] == pytest.approx(weights.flatten().tolist(), abs=1e-6)
    pairs = table(session, "page=attention&head=5", tmp_path)
    assert [float(row["value"]) for row in pairs] == pytest.approx(weights[5].flatten().tolist(), abs=1e-6)
    Exporter(session, session.default, View.of("page=vision")).write(tmp_path / "view.png")
    assert (tmp_path / "view.png").stat().st_size > 10_000


test_pages_of_what_a_model_does_not_compute = refused(
    ("corelnet-softmax", "attention", "computes no attention; see its page relations"),
    ("esbn", "relations", "computes no relations; see its page attention"),
    by=lambda preset, page, *, tmp_path: table(session_of(preset), f"page={page}", tmp_path),
)


def test_what_a_model_computes(tmp_path):
    corelnet, esbn = session_of("corelnet-softmax"), session_of("esbn")
    compared = table(corelnet, "page=relations", tmp_path)
    assert len(compared) == 81 and table(corelnet, "page=relations&view=attended", tmp_path) == compared
    assert len(table(corelnet, "page=vision&maps=attention", tmp_path)) == 9
    assert len(table(esbn, "page=attention", tmp_path)) == 36
