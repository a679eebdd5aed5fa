"""Measures of captures: the pure measures of what was captured, and readings that add up to messages."""

import pytest
import torch

from dual_attention.model_analysis.capture import capture
from dual_attention.model_analysis.measures import (
    measure_layers,
    message_share,
    read_relations,
    relation_asymmetry,
    relation_rank,
    written_by,
)
from tests.library.model_analysis.models import FAMILIES, call
from tests.support.refusals import refused

NAMES = [name for name in FAMILIES if "transformer" not in name and "rca" not in name]


@pytest.mark.parametrize("name", NAMES)
def test_every_family_is_measured(name):
    model = FAMILIES[name]()
    with capture(model, heads="relational") as maps, torch.no_grad():
        call(name, model)()
    found = measure_layers(maps)
    assert [one.layer for one in found] == list(maps.layers)
    for one, heads in zip(found, maps.heads("relational"), strict=True):
        n, m = heads.relations.shape[1:3]
        visible = heads.visible.any(1).expand(len(heads.relations), n, m)
        real = visible.any(1)[:, m - n :] if n <= m else torch.ones(len(visible), n, dtype=torch.bool)
        share = message_share(heads.relational_message, heads.symbol_message).transpose(1, 2)[real]
        assert one.share == pytest.approx(share.nanmean(0).tolist())
        assert one.rank == pytest.approx(float(relation_rank(heads.relations, visible & real[..., None])))
        assert 1 - 1e-9 <= one.scaled_rank <= heads.relations.shape[3] + 1e-9
        if heads.relations.shape[1] == heads.relations.shape[2]:
            pairs = real[:, None] & real[..., None]
            assert one.asymmetry == pytest.approx(relation_asymmetry(heads.relations, pairs).tolist())
        else:
            assert one.asymmetry is None


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_measure(side: str):
    model = FAMILIES["language grouped"]()
    tokens, padding = torch.randint(1, 11, (3, 7)), torch.zeros(3, 5, dtype=torch.long)
    padded = torch.cat([padding, tokens] if side == "left" else [tokens, padding], 1)
    measured = []
    for ids, mask in ((tokens, None), (padded, padded > 0)):
        with capture(model, heads="relational") as maps, torch.no_grad():
            model(ids, padding_mask=mask)
        measured.append(measure_layers(maps))
    for one, other in zip(*measured, strict=True):
        for name in ("share", "rank", "scaled_rank", "asymmetry"):
            assert getattr(other, name) == pytest.approx(getattr(one, name)), name


def test_contributions_add_up_to_what_relations_write():
    """With one sender visible and one relation, the contribution is the norm of the heads' relational messages."""
    name = "language grouped"
    model = FAMILIES[name]()
    with capture(model, layers=1, heads="relational") as maps, torch.no_grad():
        model(torch.tensor([[3, 1, 4]]))
    heads = maps["blocks.1"].relational
    readings = read_relations(model, heads)
    torch.testing.assert_close(readings.raw[0, 1, 0], heads.relations[0, 1, 0])
    assert readings.raw[0, 0, 1].eq(0).all() and not readings.visible[0, 0, 1]
    torch.testing.assert_close(readings.attended[0, 2, 1], heads.relations[0, 2, 1] * heads.weights[0, :, 2, 1].mean())
    written = written_by(model, 1)
    # The first receiver sees only itself, so its message is the sum over relations of what they write.
    wanted = torch.einsum("h,r,hrd->d", heads.weights[0, :, 0, 0], heads.relations[0, 0, 0], written)
    messages = heads.relational_message[0, :, 0]
    module = model.layers.blocks[1].dual_attn.relational_attention
    torch.testing.assert_close(module.wo.weight @ messages.flatten(), wanted[-module.wo.weight.shape[0] :])
    single = torch.einsum("h,hrd->rd", heads.weights[0, :, 2, 1], written) * heads.relations[0, 2, 1, :, None]
    torch.testing.assert_close(readings.contribution[0, 2, 1], single.norm(dim=-1))


def captured(*quantities, **heads):
    """A model and what it computed on three tokens."""
    model = FAMILIES["language symbolic_attention"]()
    with capture(model, *quantities, **heads) as maps:
        model(torch.tensor([[3, 1, 4]]))
    return maps


def read(maps):
    return read_relations(FAMILIES["language symbolic_attention"](), maps["blocks.0"].relational)


test_bad_input = refused(
    (lambda: measure_layers(captured("weights")), "maps: expected a layer with relations"),
    (lambda: measure_layers(captured(["relations", "visible"])), r"quantity: blocks\.0 kept of its relational heads"),
    (lambda: read(captured(["relations", "visible"])), "got 'weights'"),
    (lambda: read(captured(heads={"relational": [0]})), r"heads: expected all 2 relational heads, got \(0,\)"),
    (lambda: written_by(FAMILIES["language rca"](), 0), "with RelationalAttention, got RelationalCrossAtten"),
)
