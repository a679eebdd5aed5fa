"""One clean file of text, made of packages that the user has unpacked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...data.text.corpus import write_corpus
from ...training.configs import check, check_integers


@dataclass(frozen=True)
class Corpus:
    """A JSON Lines file of the texts in folders, for data.path: tidied, in a fixed order, none twice."""

    out: str
    """File (JSON Lines) to write."""
    path: tuple[str, ...] | str
    """Folders, of unpacked packages for instance."""
    files: tuple[str, ...] | str = ("*.txt", "*.md", "*.rst")
    """Names of the files to take, each a document; they may be compressed by gzip."""
    shortest: int = 1000
    """Characters of a document; shorter ones are left out."""

    def __post_init__(self) -> None:
        check(len(self.path) > 0, "path", "at least one folder", self.path)
        check(len(self.files) > 0, "files", "at least one pattern", self.files)
        check_integers(self, "", "shortest")

    def draw(self) -> None:
        """Write it, and say what it holds."""
        paths, files = ((given,) if isinstance(given, str) else given for given in (self.path, self.files))
        folders = [Path(path) for path in paths]
        for folder in folders:
            check(folder.is_dir(), "path", "folders", str(folder))
        made = write_corpus(Path(self.out), folders, files, shortest=self.shortest)
        print(
            f"{made.documents:,} documents, {made.characters:,} characters; left out: {made.duplicates:,} that are "
            f"there already, {made.short:,} shorter than {self.shortest:,} characters\nsha256 {made.sha256}"
        )
