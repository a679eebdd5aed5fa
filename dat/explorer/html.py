"""The page of the explorer: one HTML file with everything in it, which asks nothing of any other place.

The parts are the files of the folder ``page``; its scripts are ES modules, which are joined here into one script. A
Content-Security-Policy lets only this script and this style in, by their hashes, and no request out; a page of a server
may ask its own server.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dual_attention._base.files import json_text, write_atomically

from .citation import BIBTEX
from .packing import Bits, pack
from .recording import Recording

_FOLDER = Path(__file__).parent / "page"

_IMPORT = re.compile(r'^import (?:{ .+ }|(\w+)) from "(.+?)"(?: with { type: "json" })?;\n', re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n|(^ *)?/\*\*[^*]*(\*(?!/)[^*]*)*\*/(?(1)\n| ?)", re.MULTILINE)


class Page(str):
    """A page of HTML as text; in a notebook it shows itself, in a frame of its own."""

    def save(self, path: str | Path) -> None:
        """Write a file, which any browser opens; ``ValueError`` if its name has another ending than .html."""
        if Path(path).suffix not in (".html", ".htm"):
            raise ValueError(f"path: expected a name that ends in .html, got {str(path)!r}")
        write_atomically(Path(path), self)

    def __repr__(self) -> str:
        return f"<page of {len(self):,} characters; .save(PATH) writes it>"

    def _repr_html_(self) -> str:
        style = "width:100%;height:860px;border:1px solid #ddd"
        return f'<iframe srcdoc="{html.escape(str(self))}" style="{style}" sandbox="allow-scripts"></iframe>'


def page_html(
    recording: Mapping[str, Any],
    server: Mapping[str, Any] | None = None,
    *,
    kept: Mapping[str, Any] | None = None,
    view: str = "",
    command: str = "",
    caption: str = "",
) -> Page:
    """The page of a packed recording.

    Args:
        recording: :attr:`~dat.explorer.packing.Packed.json`.
        server: for a page that a server answers: its ``token``, and what else the session offers.
        kept: answers of a session that a page without a server shows, by name of the page.
        view: what is shown at first, as the fragment of an address has it.
        command: the command that opens the model, for those who have the page as a file.
        caption: a sentence or two below the title.
    """
    script = "\n".join(['(() => {\n"use strict";', *join_modules(_FOLDER / "main.js").values(), "})();"])
    style = _part("style.css")
    policy = {
        "default-src": "'none'",
        "script-src": _hash_source(script),
        "style-src": _hash_source(style),
        "img-src": "data:",
        "connect-src": "'self'" if server else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    citation = {"bibtex": BIBTEX, "command": command}
    data = {"recording": recording, "server": server, "kept": kept or {}, "state": view, "citation": citation}
    parts = {
        "policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "title": html.escape(str(recording["title"])),
        "caption": f'\n  <p id="caption">{html.escape(caption)}</p>' if caption else "",
        "style": style,
        # In which nothing can end the element that it stands in, or begin a comment.
        "data": json_text(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        "script": script,
    }
    head, *rest = _part("page.html").split("{{")
    return Page(head + "".join(parts[name] + text for name, _, text in (part.partition("}}") for part in rest)))


def recording_page(recording: Recording, bits: Bits | None = None) -> Page:
    """The page of a recording: a text that a notebook shows, and whose ``save`` writes a file for any browser.

    Args:
        bits: of the numbers in it, see :func:`~dat.explorer.packing.pack`.
    """
    return page_html(pack(recording, bits).json)


def join_modules(path: Path, parts: dict[Path, str] | None = None) -> dict[Path, str]:
    """A module of the page after those that it imports, as parts of one script, without comments.

    In that script their names stand side by side, so those of two modules must differ. A file of JSON becomes a
    constant.

    Args:
        path: of the module.
        parts: modules that stand before it already, by their path.
    """
    parts, text = {} if parts is None else parts, path.read_text(encoding="utf-8")
    for constant, source in _IMPORT.findall(text):
        other = (path.parent / source).resolve()
        if constant:
            parts[other] = f"const {constant} = {json_text(json.loads(other.read_text(encoding='utf-8')))};"
        elif other not in parts:
            join_modules(other, parts)
    code = re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)
    parts[path] = _COMMENT.sub("", code).strip()
    return parts


def _hash_source(text: str) -> str:
    """The source of a Content-Security-Policy that lets in this script or style, by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
