"""Object sets: how many, which colours, how often, and what makes one object unlike another."""

import pytest
import torch

from dat.data.relational_games import OBJECT_SETS
from dat.data.relational_games.objects import object_set


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masks_of(name: str) -> set[tuple[bool, ...]]:
    lit = object_set(name).sprites.amax(1) > 0
    return {tuple(mask) for mask in lit[:, ::3, ::3].flatten(1).tolist()}


def colours_of(name: str) -> set[tuple[int, ...]]:
    pixels = object_set(name).sprites.permute(0, 2, 3, 1).reshape(-1, 3)
    return {tuple(colour) for colour in pixels.unique(dim=0).tolist()} - {(0, 0, 0)}


@pytest.mark.parametrize(
    ("name", "looks", "squares", "objects"), [("pentominoes", 37, 5, 37 * 25), ("hexominoes", 48, 6, 48 * 25)]
)
def test_distinct_polyominoes(name, looks, squares, objects):
    masks = masks_of(name)
    assert len(masks) == looks
    assert {sum(mask) for mask in masks} == {squares}
    assert len(object_set(name)) == objects
    assert len(object_set(name).sprites.unique(dim=0)) == objects


def test_pentominoes_are_connected_and_closed_under_rotation_and_mirroring():
    masks = masks_of("pentominoes")
    for flat in masks:
        square = torch.tensor(flat).view(3, 3)
        assert tuple(torch.rot90(square).flatten().tolist()) in masks
        assert tuple(square.flip(0).flatten().tolist()) in masks
        filled = {(r, c) for r in range(3) for c in range(3) if square[r, c]}
        reached = {min(filled)}
        for _ in filled:
            reached |= {(r, c) for r, c in filled for s, t in reached if abs(r - s) + abs(c - t) == 1}
        assert reached == filled


def test_stripes_are_full_squares_of_three_vertical_bands():
    sprites = object_set("stripes").sprites
    assert len(sprites.unique(dim=0)) == 25 * 25
    assert (sprites.amax(1) > 0).all()
    assert (sprites == sprites[:, :, :1]).all()
    assert (sprites[..., :3] == sprites[..., 6:]).all()
    assert (sprites == sprites[..., ::3].repeat_interleave(3, -1)).all()
    assert (sprites[..., 0] == sprites[..., 4]).flatten(1).all(1).sum() == 25


@pytest.mark.parametrize(
    ("name", "levels", "removed"),
    [
        ("pentominoes", {0, 128, 255}, {(0, 0, 0), (255, 255, 255)}),
        ("hexominoes", {64, 144, 192}, {(64, 64, 64), (192, 192, 192)}),
        ("stripes", {64, 144, 192}, {(64, 64, 64), (192, 192, 192)}),
    ],
)
def test_colours(name, levels, removed):
    colours = colours_of(name)
    assert len(colours) == 25
    assert {level for colour in colours for level in colour} == levels
    assert not colours & removed


def test_sprites_are_blocks_of_three_pixels_in_one_colour():
    for name in OBJECT_SETS:
        sprites = object_set(name).sprites
        assert sprites.shape[1:] == (3, 9, 9) and sprites.dtype == torch.uint8
        assert (sprites == sprites[..., ::3, ::3].repeat_interleave(3, -1).repeat_interleave(3, -2)).all()


def test_looks_are_drawn_through_base_rotation_and_mirroring():
    """The plus is one base of eight with one look; the eight looks of the P share their eighth."""
    objects = object_set("pentominoes")
    drawn = objects.draw(64_000, generator())
    lit = (objects.sprites.amax(1) > 0)[:, ::3, ::3].flatten(1)[drawn]
    plus = torch.tensor([False, True, False, True, True, True, False, True, False])
    p = torch.tensor([True, True, False, True, True, False, True, False, False])
    assert (lit == plus).all(1).float().mean() == pytest.approx(1 / 8, abs=0.006)
    assert (lit == p).all(1).float().mean() == pytest.approx(1 / 64, abs=0.002)
    assert torch.bincount(drawn % 25).float().div(64_000).sub(1 / 25).abs().max() < 0.004


@pytest.mark.parametrize("name", ["pentominoes", "hexominoes"])
def test_diff_keeps_the_colour_the_look_or_neither_equally_often(name):
    objects = object_set(name)
    first = objects.draw(60_000, generator())
    second = objects.diff(first, generator(1))
    same_look, same_colour = first // 25 == second // 25, first % 25 == second % 25
    assert not (same_look & same_colour).any()
    for kept in (same_look, same_colour, ~same_look & ~same_colour):
        assert kept.float().mean() == pytest.approx(1 / 3, abs=0.008)


def test_changed_looks_follow_the_draw_distribution():
    """A look unlike the F at hand is the plus with probability (1/8) / (63/64)."""
    objects = object_set("pentominoes")
    looks = objects.draw(20_000, generator()) // 25
    counts = torch.bincount(looks)
    plus, rare = int(counts.argmax()), int(counts.argmin())
    first = torch.full((40_000,), rare * 25)
    everywhere = torch.ones(40_000, dtype=torch.bool)
    changed = objects.change(first, look=everywhere, colour=~everywhere, generator=generator()) // 25
    frequency = torch.bincount(changed, minlength=37) / 40_000
    assert frequency[rare] == 0
    assert frequency[plus] == pytest.approx(8 / 63, abs=0.007)
    assert (frequency > 0).sum() == 36


def test_diff_of_stripes_is_any_other_object():
    objects = object_set("stripes")
    first = torch.full((60_000,), 7)
    second = objects.diff(first, generator())
    counts = torch.bincount(second, minlength=625)
    assert counts[7] == 0
    assert (counts > 0).sum() == 624


@pytest.mark.parametrize("name", OBJECT_SETS)
@pytest.mark.parametrize("method", ["distinct", "draw_outside"])
def test_new_objects_stay_outside_the_pool(name, method):
    objects = object_set(name)
    pool = objects.draw(20_000, generator())[:, None]
    for seed in range(1, 4):
        new = getattr(objects, method)(pool, generator(seed))
        assert not (new[:, None] == pool).any()
        pool = torch.cat((pool, new[:, None]), 1)


def test_distinct_is_a_near_miss_of_some_object_of_the_pool():
    objects = object_set("hexominoes")
    pool = objects.draw(40_000, generator()).view(-1, 2)
    new = objects.distinct(pool, generator(1))[:, None]
    near = (new // 25 == pool // 25) | (new % 25 == pool % 25)
    assert near.any(1).float().mean() > 2 / 3 - 0.01
    assert near[:, 0].float().mean() == pytest.approx(float(near[:, 1].float().mean()), abs=0.02)


def test_unknown_object_set():
    with pytest.raises(ValueError, match="expected one of pentominoes, hexominoes, stripes, got 'tetrominoes'"):
        object_set("tetrominoes")
