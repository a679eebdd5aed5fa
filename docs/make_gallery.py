"""Draw the pictures of the documents.

    python docs/make_gallery.py                 into docs/images
    python docs/make_gallery.py --out FOLDER

The pictures of the attention gallery show what its pages compute: the script runs their code, and draws the variables
that a block leaves in the picture below it. tests/test_gallery.py does the same, and compares what the code prints with
what the page says. The drawings that explain the library (drawings.py) need no page.
"""

import argparse
import re
from pathlib import Path
from typing import Any, NamedTuple

import drawings
import equal_arithmetic
import gallery_at_work
import gallery_pictures
import torch

DOCS = Path(__file__).resolve().parent
PICTURES = gallery_pictures.PICTURES | gallery_at_work.PICTURES | equal_arithmetic.PICTURES
PAGES = ("attention-gallery.md", "composed-attention.md", "attention-at-work.md", "equal-arithmetic.md")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"^!\[.*?\]\(images/gallery/(\w[\w-]*)\.png\)$", re.MULTILINE)


class Step(NamedTuple):
    """A block of Python, and the names of the pictures between it and the next."""

    code: str
    pictures: list[str]


def steps(markdown: str) -> list[Step]:
    """The page as a program."""
    _, *parts = FENCE.split(markdown)  # text, code, text, code, ..., text
    return [Step(code, PICTURE.findall(text)) for code, text in zip(parts[::2], parts[1::2], strict=True)]


def draw(name: str, variables: dict[str, Any], folder: Path) -> Path:
    """Draw one picture of what a page computed."""
    path = folder / f"{name}.png"
    with torch.no_grad():
        PICTURES[name](variables, path)
    return path


def main(arguments: list[str] | None = None) -> None:
    """Draw everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DOCS / "images", help="folder (default: %(default)s)")
    images = parser.parse_args(arguments).out
    folder = images / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.DRAWINGS.items():
        drawing(images / f"{name}.png")
        print(images / f"{name}.png")
    for page in PAGES:
        variables: dict[str, Any] = {"__name__": "__gallery__"}
        for step in steps((DOCS / page).read_text(encoding="utf-8")):
            exec(step.code, variables)
            for name in step.pictures:
                print(draw(name, variables, folder))


if __name__ == "__main__":
    main()
