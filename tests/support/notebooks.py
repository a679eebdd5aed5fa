"""Run notebooks without Jupyter, cell by cell in one namespace, and keep what they print and draw.

``python -m tests.support.notebooks FILE ...`` runs notebooks and writes the outputs into them.
"""

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source_of(cell: dict[str, Any]) -> str:
    """The Python of a cell, without the lines that are Jupyter's own."""
    return "".join("\n" if line.startswith("%") else line for line in cell["source"])


def script(path: Path) -> str:
    """The code of a notebook as one file."""
    return "\n\n".join(map(source_of, code_cells(json.loads(path.read_text(encoding="utf-8"))))) + "\n"


def run_cell(code: str, namespace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Outputs of a cell, as a notebook keeps them: what is printed, and the figure of an expression that ends it."""
    tree = ast.parse(code)
    last, value = tree.body[-1], None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(tree.body[:-1], []), name, "exec"), namespace)
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        else:
            exec(compile(tree, name, "exec"), namespace)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, dpi=80, bbox_inches="tight")
        data = {"text/plain": ["<Figure>"], "image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    elif value is not None:
        raise TypeError(f"{name}: expected a last line that prints or draws, got a {type(value).__name__}")
    return outputs


def run_notebook(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The notebook with new outputs, and the namespace that its cells leave.

    Raises:
        Exception: of a cell that fails.
    """
    notebook, namespace = json.loads(path.read_text(encoding="utf-8")), {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), start=1):
        cell["outputs"] = run_cell(source_of(cell), namespace, f"{path.name}[{number}]")
        cell["execution_count"] = number
    return notebook, namespace


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        written, _ = run_notebook(file)
        file.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
