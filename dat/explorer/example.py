"""The small trained models that come with this package, for a first look."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .opening import Explored, open_session

FOLDER = Path(__file__).resolve().parent / "models"


@dataclass(frozen=True)
class ExampleModel:
    """A trained model of this package.

    Attributes:
        path: its run folder; the README in it says how it was trained, and what it can do.
        title: of its pages.
        source: text or sample to show first.
        view: what is shown of it first, as ``--view`` takes it.
    """

    path: Path
    title: str
    source: str
    view: str = ""

    @property
    def held_out(self) -> str:
        """Text that it was not trained on; empty for a model of pictures."""
        file = self.path / "held-out.txt"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def open(self, **options: Any) -> Explored:
        """A session of the model; options and errors as of :func:`~.opening.open_session`."""
        return open_session(str(self.path), title=self.title, **options)


_ADDRESS = (
    "Fellow-Citizens of the Senate and House of Representatives: In the midst of unprecedented political troubles we "
    "have cause of great gratitude to God for unusual good health and most abundant harvests. You will not be "
    "surprised to learn that in the peculiar exigencies of the times our intercourse with foreign nations has been "
    "attended with profound solicitude, chiefly turning upon our own domestic affairs."
)  # Lincoln, 1861, which the model was not trained on

EXAMPLES: Mapping[str, ExampleModel] = {
    "language": ExampleModel(FOLDER / "language", "A small language model", _ADDRESS, "layer=1&relation=3&i=150&j=63"),
    "games": ExampleModel(
        FOLDER / "games", "A model of the game “same”", "game same 1", "page=vision&relation=3&shared=1"
    ),
}
"""Models by name."""

DEFAULT = "language"
"""The model that ``dat explore`` shows if it is given none."""
