"""Page of the relations between the patches of an image, from whichever patch a reader chooses.

Shapes: C channels, N patches, R relations.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from torch import Tensor

from ..._base.extras import require
from .matrix_page import pack_matrix
from .page import Page, make_page
from .patches import check_patches, pixels_of

_BODY = """<p class="note">Choose a patch of the image, with the mouse or the arrow keys: the maps show its relations to
all patches. Orange is positive, blue negative, each map on its own scale over all pairs.</p>
<div class="views"><figure><canvas id="image" tabindex="0" role="img" aria-label="image; arrow keys move the patch">
</canvas><figcaption id="where"></figcaption></figure><div id="maps"></div></div>"""


def patch_page(
    image: Tensor, relations: Tensor, grid: tuple[int, int], *, titles: Sequence[str] | None = None, title: str = ""
) -> Page:
    """A page of an image, and of the relations from a patch that its reader chooses to all others.

    Args:
        image, relations, grid, titles: as :func:`.patches.draw_patch_relations`.
        title: of the page.

    >>> type(patch_page(torch.rand(1, 16, 16), torch.randn(16, 16, 3), grid=(4, 4))).__name__
    'Page'
    """
    names = check_patches(image, relations, grid, titles)
    values = relations.detach().float().cpu()
    data = {
        "grid": list(grid),
        "image": _png(pixels_of(image)),
        "maps": [pack_matrix(name, values[..., number]) for number, name in enumerate(names)],
    }
    return make_page(title, _BODY, data=data, script="patches.js", height=460)


def _png(pixels: Tensor) -> str:
    file = io.BytesIO()
    require("matplotlib.image", extra="train").imsave(file, pixels.numpy(), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
