"""Markdown beside every page of the site, and llms.txt and llms-full.txt, which list and hold all of it."""

import importlib
import inspect
import json
import re
from pathlib import Path

from notebook_pages import markdown_of
from public_names import is_class_or_function, public_names
from sphinx.application import Sphinx

ADDRESS = re.compile(r"<(?:function |built-in method )?([\w.]+)[^<>]* at 0x\w+>")  # of a default, as Python shows it
ROLE = re.compile(r"\{py:\w+\}`~?")
SUMMARY = "Relational attention and the Dual Attention Transformer in PyTorch. Each page below is Markdown."


def reference_page(module: str) -> str:
    """The reference of a module: its docstring, and signature and docstring of each name."""
    parts = [f"# {module}", inspect.getdoc(importlib.import_module(module)) or ""]
    for name, value in public_names()[module].items():
        described = is_class_or_function(value)
        try:
            signature = ADDRESS.sub(r"\1", str(inspect.signature(value))) if described else ""
        except ValueError:
            signature = ""
        parts += [f"## `{name}{signature}`", (inspect.getdoc(value) or "") if described else f"`{value}`"]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the files, once the site has been built."""
    if error or app.builder.name != "html":
        return
    site, full, texts, lists = Path(app.outdir), [], {}, [f"# {app.config.project}", f"> {SUMMARY}"]
    pages = {page: section for section, pages in app.config.trees.items() for page in pages}
    ordered = [page for page in (app.config.root_doc, *pages) if page in app.env.found_docs]
    for page in ordered:
        source = Path(app.srcdir, app.env.doc2path(page))
        text = source.read_text(encoding="utf-8") if source.suffix != ".rst" else reference_page(source.stem)
        text = markdown_of(text) if source.suffix == ".ipynb" else ROLE.sub("`", text)
        (site / f"{page}.md").write_text(text, encoding="utf-8")
        texts[page] = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*|#]", r"\1", text)
        full.append(f"<!-- {page}.md -->\n\n{text}")
        section = pages.get(page, "")
        if section and f"## {section}" not in lists:
            lists.append(f"## {section}")
        lists.append(f"- [{app.env.titles[page].astext()}]({page}.md)")
    script = f"globalThis.SEARCH_TEXTS = {json.dumps(texts)};\n"  # of excerpts where a browser fetches none
    (site / "_static/search_texts.js").write_text(script, encoding="utf-8")
    (site / "llms.txt").write_text("\n".join(lists) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(full), encoding="utf-8")
    (site / "index.html").write_bytes((site / f"{app.config.root_doc}.html").read_bytes())
