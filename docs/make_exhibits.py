"""Write the exhibits of exhibits.md: views of the models that come with the package, each one file for any browser.

python docs/make_exhibits.py --out build/exhibits
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from dat.explorer.example import EXAMPLES
from dat.explorer.exporting import Exporter
from dat.explorer.view_state import View


class Exhibit(NamedTuple):
    """A view of a model that comes with the package.

    Attributes:
        model: its name, as ``dat explore --example`` takes it.
        view: as ``--view`` takes it.
        caption: stands above it.
        source: text or sample; empty takes what the model is shown with at first.
    """

    model: str
    view: str
    caption: str
    source: str = ""


EXHIBITS = {
    "relations-of-a-language-model": Exhibit(
        "language",
        EXAMPLES["language"].view,
        "Relations between the tokens of a text, as in Figure 5 of the paper. This one is largest between equal words, "
        "and between such as “our”, “their” and “the”. Choose a token: the text takes the colours of its row.",
    ),
    "patches-of-a-game": Exhibit(
        "games",
        EXAMPLES["games"].view,
        "A patch compared with every other, as in Figure 9 of the paper, by a model that says whether two objects are "
        "the same. The framed relation is ½ for equal patches and 0 for others. Choose another patch, or another map.",
    ),
    "what-matters-in-a-game": Exhibit(
        "games",
        "page=effects&change=mean",
        "What a model of the game “same” says of one picture without each of its parts in turn, beside changes of the "
        "same size in random directions.",
    ),
    "without-the-relation": Exhibit(
        "games",
        EXAMPLES["games"].view.replace("vision", "card"),
        "The relation that carries “same” in a model of that game, over 256 new pictures: how it tells equal "
        "objects from others, and how many answers are right without it, beside changes of the same size in random "
        "directions.",
    ),
}
"""By the stems of their files."""


def write_exhibits(folder: Path) -> None:
    """Write all exhibits into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sessions = {name: example.open() for name, example in EXAMPLES.items()}
    for name, exhibit in EXHIBITS.items():
        example, session = EXAMPLES[exhibit.model], sessions[exhibit.model]
        command = f"dat explore --example {exhibit.model}"
        source, view = exhibit.source or example.source, View.of(exhibit.view)
        Exporter(session, source, view, command, exhibit.caption).write(folder / f"{name}.html")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    write_exhibits(parser.parse_args().out)


if __name__ == "__main__":
    main()
