"""Figures: what is in them is what was given, and nobody's pyplot hears of them."""

from __future__ import annotations

import io
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from dual_attention._base.colours import colour_of
from dual_attention.model_analysis.views import (
    draw_arcs,
    draw_attention,
    draw_importance,
    draw_matrices,
    draw_patch_relations,
    draw_symbol_assignment,
    draw_symbol_usage,
    importance_grid,
    symbol_usage,
)

WORDS = ["the", "$x_1", "cat", "猫", "␣"]


@pytest.fixture(autouse=True)
def no_pyplot():
    plt.close("all")
    yield
    assert plt.get_fignums() == []


def pictures(figure):
    """Arrays of the images in a figure; it is drawn, too."""
    figure.savefig(io.BytesIO(), format="png")
    return [image.get_array() for axis in figure.axes for image in axis.get_images()]


def texts(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def test_matrices_hold_the_values():
    values, visible = torch.randn(5, 5, 3), torch.ones(5, 5, dtype=torch.bool).tril()
    figure = draw_matrices(values, WORDS, titles=["a", "b", "c"], visible=visible, title="all", columns=2)
    drawn = pictures(figure)
    for number in range(3):
        np.testing.assert_allclose(drawn[number].filled(np.nan)[visible], values[..., number][visible])
        assert np.isnan(drawn[number].filled(np.nan)[~visible]).all()
        top = float(values[..., number][visible].abs().max())
        bar = figure.axes[number].get_images()[0].colorbar.ax
        assert [tick.get_text() for tick in bar.get_yticklabels()] == [f"{-top:.2g}", "0", f"{top:.2g}"]
    assert "U+732B" in texts(figure) and "$x_1" in texts(figure)
    assert "receiver" in texts(figure) and "sender" in texts(figure)


def test_one_matrix_and_attention():
    assert len(pictures(draw_matrices(torch.randn(5, 2), WORDS, ["a", "b"]))) == 1
    weights = torch.rand(4, 5, 5)
    drawn = pictures(draw_attention(weights, WORDS))
    assert len(drawn) == 4
    np.testing.assert_allclose(drawn[3], weights[3])
    long = [str(n) for n in range(200)]
    axis = draw_matrices(torch.randn(200, 200), long).axes[0]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == long[::5]
    assert pictures(draw_matrices(torch.zeros(5, 5), WORDS))


@pytest.mark.parametrize(
    "figure",
    [
        draw_matrices(torch.randn(5, 5, 3), WORDS),
        draw_attention(torch.rand(4, 5, 5), WORDS),
        draw_patch_relations(torch.rand(3, 4, 6), torch.randn(6, 6, 2), 1, (2, 3)),
        draw_importance(torch.randn(2, 2)),
        draw_symbol_assignment(torch.rand(2, 5, 30), WORDS),
    ],
)
def test_orange_is_positive_blue_negative_and_a_bar_says_how_much(figure):
    heats = [image for axis in figure.axes for image in axis.get_images() if image.get_array().ndim == 2]
    assert heats and all(image.colorbar is not None for image in heats)
    for image in heats:
        low, high = (image.cmap(image.norm(end)) for end in image.get_clim())
        if image.get_clim()[0] < 0:
            assert high[0] > high[2] and low[2] > low[0]
            assert list(low[:3]) == pytest.approx(
                [int(colour_of(-1)[at : at + 2], 16) / 255 for at in (1, 3, 5)], abs=0.01
            )
        else:
            assert image.get_clim()[0] == 0


def test_arcs_go_from_receivers_to_senders():
    values = torch.zeros(5, 5)
    values[3, 0], values[4, 1], values[2, 2] = 2.0, -4.0, 9.0
    figure = draw_arcs(values, WORDS, most=2, title="r")
    figure.canvas.draw()
    (axis,) = figure.axes
    small, large = axis.patches  # the largest is drawn last, on top
    centres = [text.get_position()[0] for text in axis.texts[:5]]
    for arc, (i, j) in ((small, (3, 0)), (large, (4, 1))):
        assert sorted([arc.center[0] - arc.width / 2, arc.center[0] + arc.width / 2]) == pytest.approx(
            sorted([centres[i], centres[j]])
        )
    assert large.get_linewidth() > small.get_linewidth()
    assert large.get_edgecolor()[2] > large.get_edgecolor()[0] and small.get_edgecolor()[0] > small.get_edgecolor()[2]
    assert "widest ±4" in texts(figure)
    assert len(draw_arcs(values, WORDS, receiver=3).axes[0].patches) == 4
    assert "widest 4" in texts(draw_arcs(values.abs(), WORDS, title="r"))
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    assert len(draw_arcs(values, WORDS, visible=visible).axes[0].patches) == 10


def test_usage_is_the_mean_and_its_perplexity():
    assignment = torch.rand(2, 3, 4, 6).softmax(-1)
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    usage, number = symbol_usage(assignment, mask)
    real = torch.cat([assignment[0], assignment[1, :, :1]], 1).double()
    torch.testing.assert_close(usage, real.mean(1))
    assert number[0].item() == pytest.approx(math.exp(-sum(u * math.log(u) for u in usage[0].tolist())))
    one = torch.zeros(1, 1, 4, 6)
    one[..., 2] = 1.0
    assert symbol_usage(one)[1].item() == 1.0
    figure = draw_symbol_usage(assignment, mask)
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    assert heights == pytest.approx(usage[1].sort(descending=True).values.tolist())
    assert pictures(figure) == [] and "head 2" in texts(figure)


def test_symbols_of_tokens():
    assignment = torch.rand(2, 5, 30)
    used = assignment.amax((0, 1)).topk(4).indices.sort().values
    drawn = pictures(draw_symbol_assignment(assignment, WORDS, most=4))
    np.testing.assert_allclose(drawn[1], assignment[1][:, used])


def test_patches():
    relations, image = torch.randn(6, 6, 2), torch.randint(0, 256, (3, 4, 6), dtype=torch.uint8)
    figure = draw_patch_relations(image, relations, 4, (2, 3), titles=["a", "$b"], title="t")
    pixels, first, second = pictures(figure)
    np.testing.assert_allclose(pixels, image.permute(1, 2, 0) / 255.0, rtol=1e-6)
    np.testing.assert_allclose(first, relations[4, :, 0].view(2, 3))
    np.testing.assert_allclose(second, relations[4, :, 1].view(2, 3))
    heat = figure.axes[1].get_images()[0]
    assert heat.get_clim()[1] == pytest.approx(relations[4, [0, 1, 2, 3, 5], 0].abs().max().item())
    frame = figure.axes[1].patches[0]
    assert (frame.get_x(), frame.get_y()) == (0.5, 0.5)
    assert len(pictures(draw_patch_relations(torch.rand(1, 4, 6), relations[..., :1], 0, (2, 3)))) == 2


@pytest.mark.parametrize(
    "draw",
    [
        lambda title: draw_matrices(torch.randn(5, 5), WORDS, title=title),
        lambda title: draw_patch_relations(torch.rand(1, 4, 6), torch.randn(6, 6, 1), 0, (2, 3), title=title),
        lambda title: draw_symbol_usage(torch.rand(1, 1, 4, 6).softmax(-1), title=title),
    ],
    ids=["matrices", "patches", "usage"],
)
def test_titles_are_no_mathematics(draw):
    figure = draw(title := r"a $\frac$ b")
    assert pictures(figure) is not None and title in texts(figure)


def test_importance():
    grid = importance_grid({("a", 0): 0.5, ("a", 1): -0.1, ("b", 0): 0.01}, ["a", "b"])
    assert grid[1, 1].isnan() and grid[0, 1] == pytest.approx(-0.1)
    figure = draw_importance(grid, torch.full((2, 2), 0.2), rows=["a", "b"], title="t", unit="nats")
    drawn = pictures(figure)[0].filled(np.nan)
    np.testing.assert_allclose(drawn, grid)
    written = texts(figure)
    assert "0.5\n±0.2" in written and "(-0.1)\n±0.2" in written and "(0.01)" in written and "nats" in written
    assert "nan" not in written
    with pytest.raises(ValueError, match="layers: expected those of all effects, b among them"):
        importance_grid({("b", 0): 1.0}, ["a"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw_matrices(torch.zeros(4, 5), WORDS), r"values: expected shape \(5, 5, matrices\)"),
        (lambda: draw_matrices(torch.zeros(5, 5, 2), WORDS, titles=["a"]), "titles: expected 2, got 1"),
        (lambda: draw_matrices(torch.zeros(5, 5), WORDS, visible=torch.ones(4, 5).bool()), "visible: expected shape"),
        (lambda: draw_attention(torch.zeros(5, 5), WORDS), r"weights: expected shape \(H, N, M\), got \(5, 5\)"),
        (lambda: draw_arcs(torch.zeros(4, 4), WORDS), r"values: expected shape \(5, 5\) beside 5 labels"),
        (lambda: draw_arcs(torch.zeros(5, 5), WORDS, receiver=5), "receiver: expected 0 to 4, got 5"),
        (lambda: symbol_usage(torch.zeros(2, 3, 4)), r"assignment: expected shape \(B, S, L, K\)"),
        (lambda: symbol_usage(torch.zeros(1, 1, 2, 3), torch.zeros(1, 2).bool()), "with a real token"),
        (lambda: draw_symbol_assignment(torch.zeros(1, 4, 3), WORDS), r"assignment: expected shape \(S, 5, K\)"),
        (lambda: draw_patch_relations(torch.zeros(3, 4, 4), torch.zeros(5, 5, 1), 0, (2, 2)), "class token"),
        (lambda: draw_patch_relations(torch.zeros(4, 4), torch.zeros(4, 4, 1), 0, (2, 2)), "image: expected shape"),
        (lambda: draw_patch_relations(torch.zeros(3, 4, 4), torch.zeros(4, 4, 1), 4, (2, 2)), "patch: expected 0 to 3"),
        (lambda: draw_importance(torch.zeros(3)), r"values: expected shape \(layers, columns\), got \(3,\)"),
        (lambda: draw_importance(torch.zeros(2, 2), torch.zeros(2, 3)), "half_widths: expected shape"),
        (lambda: draw_importance(torch.zeros(2, 2), columns=["a"]), "columns: expected 2, got 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_matrices_by_name_are_for_pages():
    with pytest.raises(TypeError, match=r"values: expected a tensor .*, got dict; matrix_page takes them by name"):
        draw_matrices({"a": torch.zeros(5, 5)}, WORDS)
