"""Running notebooks without Jupyter: their cells in one namespace, what they print, and the figures that they show.

``python -m tests.support.notebooks FILE ...`` runs notebooks and writes the outputs into them.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def script(path: Path) -> str:
    """The code of a notebook as one file."""
    return (
        "\n\n".join("".join(cell["source"]) for cell in code_cells(json.loads(path.read_text(encoding="utf-8")))) + "\n"
    )


def run_cell(code: str, namespace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Outputs of a cell, as a notebook keeps them: what is printed, and the value of an expression that ends it."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        data = {"text/plain": [type(value).__name__ if isinstance(value, Figure) else repr(value)]}
        if isinstance(value, Figure):
            picture = io.BytesIO()
            value.savefig(picture, dpi=80, bbox_inches="tight")
            data["image/png"] = [base64.b64encode(picture.getvalue()).decode()]
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def run_notebook(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The notebook with new outputs, and the namespace that its cells leave.

    Raises:
        Exception: of a cell that fails.
    """
    notebook, namespace = json.loads(path.read_text(encoding="utf-8")), {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), start=1):
        cell["outputs"] = run_cell("".join(cell["source"]), namespace, f"{path.name}[{number}]")
        cell["execution_count"] = number
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = number
    return notebook, namespace


def main(names: list[str]) -> None:
    for name in names:
        notebook, _ = run_notebook(Path(name))
        Path(name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
