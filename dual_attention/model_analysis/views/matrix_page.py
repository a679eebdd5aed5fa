"""Pages of matrices over pairs: relations and attention, as thumbnails, as a matrix, and as lines between tokens."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .matrices import largest_of
from .page import Page, make_page

_STEPS = 32767  # of a value of 16 bits

_BODY = """<p class="note">Choose a matrix; then point at a token on the left, or go there with the tab key, to see
which senders it is compared with. Orange is positive, blue negative; the widest line is the end of the matrix's scale.
Pairs that may not be attended are left out.</p>
<div id="thumbs" role="listbox" aria-label="matrices"></div>
<h2 id="name"></h2>
<div class="views">
<figure><canvas id="matrix"></canvas><figcaption id="value">&nbsp;</figcaption></figure>
<div id="lines"><div id="left"></div><svg id="arcs" aria-hidden="true"></svg><div id="right"></div></div>
<table><caption>Largest values</caption><thead><tr><th>receiver</th><th>sender</th><th>value</th></tr></thead>
<tbody id="largest"></tbody></table>
</div>"""


def matrix_page(
    matrices: Mapping[str, Tensor],
    receivers: Sequence[str],
    senders: Sequence[str] | None = None,
    *,
    visible: Tensor | None = None,
    title: str = "",
) -> Page:
    """A page of several matrices over the same pairs, for instance all relations and all heads of a layer.

    A reader chooses one among thumbnails, reads values off it, and sees a token's senders as lines. Values are kept in
    16 bits, each matrix on its own scale.

    Args:
        matrices: ``(N, M)`` by name.
        receivers, senders: labels; ``senders`` by default the receivers.
        visible: boolean ``(N, M)``, pairs that may be attended; by default all.
        title: of the page.

    >>> type(matrix_page({"relation 0": torch.randn(3, 3)}, ["the", "cat", "sat"])).__name__
    'Page'
    """
    columns = list(receivers if senders is None else senders)
    size = len(receivers), len(columns)
    if not matrices:
        raise ValueError("matrices: expected at least one, got none")
    for name, values in matrices.items():
        if tuple(values.shape) != size:
            raise ValueError(f"matrices: expected shape {size} of {name!r}, got {tuple(values.shape)}")
    if visible is None:
        visible = torch.ones(size, dtype=torch.bool)
    elif tuple(visible.shape) != size:
        raise ValueError(f"visible: expected shape {size}, got {tuple(visible.shape)}")
    visible = visible.cpu()
    data = {
        "receivers": list(receivers),
        "senders": columns,
        "visible": _packed(visible.to(torch.int16)),
        "matrices": [pack_matrix(name, values.detach().float().cpu(), visible) for name, values in matrices.items()],
    }
    return make_page(title, _BODY, data=data, script="matrices.js", height=760)


def pack_matrix(name: str, values: Tensor, visible: Tensor | None = None) -> dict[str, Any]:
    """A matrix for a script: its name, the end of its scale, and its values; float32 and on the CPU."""
    if visible is not None:
        values = values.masked_fill(~visible, 0.0)
    if not values.isfinite().all():
        raise ValueError(f"matrices: expected finite values in {name!r}, got some that are not")
    top = largest_of(values, visible)
    return {"name": name, "top": top, "values": _packed((values / top * _STEPS).round().to(torch.int16))}


def _packed(values: Tensor) -> str:
    """Integers of 16 bits, little-endian, in base 64."""
    return base64.b64encode(values.contiguous().numpy().astype("<i2").tobytes()).decode("ascii")
