"""Pages for screens: HTML that holds all it needs and asks nothing of the network."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from pathlib import Path
from typing import Any

from ..._base.colours import colour_stops
from ..._base.files import json_text, write_atomically

_FOLDER = Path(__file__).parent / "static"
# The browser itself refuses to load anything for the page, or to run another script, whatever is in the data.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


class Page(str):
    """A page of HTML as text; in a notebook it shows itself, in a frame of its own.

    Attributes:
        height: of that frame, in pixels.

    >>> page = matrix_page({"relation 0": torch.randn(3, 3)}, ["the", "cat", "sat"])
    >>> isinstance(page, Page), "cat" in page
    (True, True)
    """

    height: int = 640

    def save(self, path: str | Path) -> None:
        """Write a file, which any browser opens."""
        write_atomically(Path(path), self)

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:1px solid #ddd"
        return f'<iframe srcdoc="{escape(str(self))}" style="{style}" sandbox="allow-scripts"></iframe>'


def make_page(title: str, body: str, *, data: Any = None, script: str | None = None, height: int = 640) -> Page:
    """A page with the style that all share.

    Args:
        title: plain text.
        body: HTML; what is plain text in it is escaped already.
        data: JSON for the script.
        script: name of a script in the folder ``static``; it runs after ``common.js``, which reads ``data``.
        height: of the frame in a notebook, in pixels.
    """
    stops = json_text(colour_stops()["light"]["diverging"])
    code = "" if script is None else f"\n{_static('common.js')}const STOPS = {stops};\n{_static(script)}"
    policy = f"{_POLICY}; script-src {hash_source(code)}"
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_static('page.css')}</style>\n</head>\n<body>",
        f"<h1>{escape(title)}</h1>" if title else "",
        body,
    ]
    if code:
        parts.append(f'<script type="application/json" id="data">{json_in_html(data)}</script>')
        parts.append(f"<script>{code}</script>")
    page = Page("\n".join([*parts, "</body>\n</html>\n"]))
    page.height = height
    return page


def hash_source(text: str) -> str:
    """The source of a Content-Security-Policy that lets in this script or style, by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def json_in_html(value: Any) -> str:
    """JSON in which nothing can end the element that it stands in, or begin a comment."""
    return json_text(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _static(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
