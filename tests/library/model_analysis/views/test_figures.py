"""Figures: what is in them is what was given, and nobody's pyplot hears of them."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from dual_attention._base.colours import colour_stops
from dual_attention.model_analysis.views import draw_matrices, draw_patch_relations
from tests.support.refusals import refused

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


def test_one_matrix():
    assert len(pictures(draw_matrices(torch.randn(5, 2), WORDS, ["a", "b"]))) == 1
    long = [str(n) for n in range(200)]
    axis = draw_matrices(torch.randn(200, 200), long).axes[0]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == long[::5]
    assert pictures(draw_matrices(torch.zeros(5, 5), WORDS))


@pytest.mark.parametrize(
    ("figure", "signed"),
    [
        (draw_matrices(torch.randn(5, 5, 3), WORDS), True),
        (draw_matrices(torch.rand(5, 5), WORDS, signed=False), False),
        (draw_patch_relations(torch.rand(3, 4, 6), torch.randn(6, 6, 2), 1, (2, 3)), True),
    ],
)
def test_orange_is_positive_blue_negative_and_a_bar_says_how_much(figure, signed):
    heats = [image for axis in figure.axes for image in axis.get_images() if image.get_array().ndim == 2]
    assert heats and all(image.colorbar is not None for image in heats)
    stops = colour_stops()["light"]["diverging" if signed else "rising"]
    for image in heats:
        low, high = image.get_clim()
        assert low == (-high if signed else 0)
        for end, stop in ((low, stops[0]), (high, stops[-1])):
            expected = [int(stop[at : at + 2], 16) / 255 for at in (1, 3, 5)]
            assert list(image.cmap(image.norm(end))[:3]) == pytest.approx(expected, abs=0.01)


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
    ],
    ids=["matrices", "patches"],
)
def test_titles_are_no_mathematics(draw):
    figure = draw(title := r"a $\frac$ b")
    assert pictures(figure) is not None and title in texts(figure)


ZEROS = torch.zeros(5, 5, 2)
PATCHES, IMAGE = torch.zeros(4, 4, 2), torch.zeros(3, 4, 4)

test_refusals = refused(
    (lambda: draw_matrices({"a": ZEROS}, WORDS), TypeError, r"values: expected a tensor \(N, M, matrices\), got dict"),
    (lambda: draw_matrices(ZEROS[1:], WORDS), r"values: expected shape \(5, 5, matrices\), got"),
    (lambda: draw_matrices(ZEROS, WORDS, titles=["a"]), "titles: expected 2, got 1"),
    (lambda: draw_matrices(ZEROS, WORDS, visible=torch.ones(4, 5)), r"visible: expected shape \(5, 5\)"),
    (lambda: draw_patch_relations(IMAGE, ZEROS, 0, (2, 2)), r"relations: expected \(4, 4, R\), no class"),
    (lambda: draw_patch_relations(IMAGE, PATCHES, None, (2, 2)), r"relations: expected \(1, 4, R\)"),
    (lambda: draw_patch_relations(IMAGE[0], PATCHES, 0, (2, 2)), "image: expected shape"),
    (lambda: draw_patch_relations(IMAGE, PATCHES, 4, (2, 2)), "patch: expected 0 to 3, got 4"),
    (lambda: draw_patch_relations(IMAGE, PATCHES, 0, (2, 2), titles=["a"]), "titles: expected 2, got 1"),
)
