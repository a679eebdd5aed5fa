"""The Markdown of the repository, and a check that its Python runs and prints what it says.

In a Python block, whatever a statement prints stands in a comment at its end, or in comment lines right below:

    print(out.shape)  # torch.Size([2, 9, 64])
    print(layer)
    # Linear(...)

An expression shows its value, as in the interactive interpreter; only a call may do without (``model.eval()``). What
fails shows ``# ValueError: the message``. ``...`` stands for any text. Output without a comment fails, too. A comment
beside a statement that shows nothing is prose.
"""

import ast
import contextlib
import doctest
import io
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import notebooks

ROOT = Path(__file__).resolve().parents[2]
PLACES = (
    "*.md",
    "docs/*.md",
    "examples/README.md",
    "studies/README.md",
    "studies/*/README.md",
    "benchmarks/*.md",
    "benchmarks/results/README.md",
)
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for place in PLACES
    for path in sorted(ROOT.glob(place))
}
GALLERY = [f"docs/{n}.md" for n in ("attention-gallery", "composed-attention", "attention-at-work", "equal-arithmetic")]

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the file on which the text begins."""

    language: str
    text: str
    line: int


def blocks(markdown: str) -> list[Block]:
    return [Block(m[1], m[2], markdown.count("\n", 0, m.start(2)) + 1) for m in FENCE.finditer(markdown)]


def script(markdown: str) -> str:
    """The Python blocks of a page as one file, each on its own lines."""
    lines = [""] * markdown.count("\n")
    for block in blocks(markdown):
        if block.language == "python":
            text = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(text)] = text
    return "\n".join(lines) + "\n"


def commands(markdown: str) -> list[list[str]]:
    """Commands in the shell blocks of a page, split into words, without comments; of a pipe, each part."""
    found = []
    for block in blocks(markdown):
        if block.language in ("bash", "sh"):
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while "|" in words:
                    found.append(words[: words.index("|")])
                    words = words[words.index("|") + 1 :]
                found.append(words)
    return [words for words in found if words]


def prose(markdown: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", markdown, flags=re.MULTILINE | re.DOTALL)


def links(markdown: str) -> list[tuple[str, str]]:
    """Links of a page within the repository: the file, empty for the page itself, and the anchor, if any."""
    targets = (match.partition("#") for match in LINK.findall(prose(markdown)))
    return [(file, anchor) for file, _, anchor in targets]


def anchors(markdown: str) -> set[str]:
    """Names by which GitHub links to the headings of a page."""
    return {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", markdown, re.M)
    }


def documented_output(lines: list[str], statement: ast.stmt) -> str:
    """The comment at the end of a statement, and the comment lines right below it."""
    last = statement.end_lineno or statement.lineno
    rest = lines[last - 1].encode()[statement.end_col_offset or 0 :].decode().strip()
    found = [rest] if rest.startswith("#") else []
    for line in lines[last:]:
        if not line.startswith("#"):
            break
        found.append(line)
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in found)


def run(statement: ast.stmt, namespace: dict[str, Any], *, documented: bool, name: str) -> str:
    """Execute one statement; return what it printed, showed or raised."""
    shows = isinstance(statement, ast.Expr) and (documented or not isinstance(statement.value, ast.Call))
    module = ast.Interactive([statement]) if shows else ast.Module([statement], [])
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        try:
            exec(compile(module, name, "single" if shows else "exec"), namespace)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return stdout.getvalue()


def wrong_outputs(
    markdown: str, name: str = "README.md", *, after_block: Callable[[int, dict[str, Any]], None] | None = None
) -> Iterator[str]:
    """Differences between what the Python blocks print, run in order in one namespace, and what the page documents.

    Args:
        markdown: the page.
        name: of its file.
        after_block: called after each Python block with its number and the namespace.
    """
    namespace: dict[str, Any] = {"__name__": f"__{name}__"}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for number, block in enumerate(block for block in blocks(markdown) if block.language == "python"):
        lines = block.text.splitlines()
        for statement in ast.parse(block.text).body:
            want = documented_output(lines, statement)
            got = run(statement, namespace, documented=bool(want), name=name)
            if got and not doctest.OutputChecker().check_output(f"{want}\n", got, flags):
                where = block.line + statement.lineno - 1
                yield f"{name}, line {where}: {ast.unparse(statement)}\n  documented: {want}\n  printed: {got}"
        if after_block is not None:
            after_block(number, namespace)


def write_scripts(folder: Path) -> None:
    """Write the Python of each page and notebook as a file, for a type checker; the folder is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, page in PAGES.items():
        if "```python\n" in page:
            path = folder / f"{name.removesuffix('.md').replace('-', '_')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(script(page), encoding="utf-8")
    for notebook in ROOT.glob("examples/*.ipynb"):
        (folder / f"{notebook.stem}.py").write_text(notebooks.script(notebook), encoding="utf-8")


if __name__ == "__main__":
    write_scripts(Path(sys.argv[1]))
