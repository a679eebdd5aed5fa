"""Notebooks as pages of the site: their text, their code, and what it printed and drew."""

import json

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def markdown_of(notebook: str, *, pictures: bool = False) -> str:
    """The Markdown of a notebook's JSON, without pictures unless asked."""
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text'])}```")
            elif pictures:
                parts.append(f"![What the code above draws](data:image/png;base64,{output['data']['image/png']})")
    return "\n\n".join(parts) + "\n"


class NotebookParser(MystParser):
    """Parser of the files that Jupyter writes."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        super().parse(markdown_of(inputstring, pictures=True), document)


def setup(app: Sphinx) -> None:
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
