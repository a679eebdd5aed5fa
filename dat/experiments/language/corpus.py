"""One clean file of text, made of packages that the user has unpacked, or of a corpus of BabyLM."""

from dataclasses import dataclass
from pathlib import Path

from ...data.text.corpus import PATTERNS, Layout, write_corpus
from ...training.configs import check, check_integers


@dataclass(frozen=True)
class Corpus:
    """A JSON Lines file of the texts in folders, for data.path: tidied, in a fixed order, none twice."""

    out: str
    """File (JSON Lines) to write."""
    path: tuple[str, ...] | str
    """Folders, of unpacked packages for instance."""
    layout: Layout = "files"
    """Unit of a document: a file, or, as in the corpora of BabyLM, what follows a line "= = = Title = = =" (babylm)."""
    files: tuple[str, ...] | str | None = None
    """Names of the files to take, which may be compressed by gzip; null takes *.txt, *.md and *.rst, and of BabyLM
    *.train and *.train.txt."""
    shortest: int | None = None
    """Characters of a document; shorter ones are left out. null takes 1000 of files, and 1 of BabyLM."""

    def __post_init__(self) -> None:
        check(len(self.path) > 0, "path", "at least one folder", self.path)
        check(self.files is None or len(self.files) > 0, "files", "null or at least one pattern", self.files)
        check_integers(self, "", "shortest")

    def draw(self) -> None:
        """Write it, and say what it holds."""
        named = PATTERNS[self.layout] if self.files is None else self.files
        paths, files = ((given,) if isinstance(given, str) else given for given in (self.path, named))
        folders = [Path(path) for path in paths]
        for folder in folders:
            check(folder.is_dir(), "path", "folders", str(folder))
        shortest = (1000 if self.layout == "files" else 1) if self.shortest is None else self.shortest
        made = write_corpus(Path(self.out), folders, files, shortest=shortest, layout=self.layout)
        print(
            f"{made.documents:,} documents, {made.words:,} words, {made.characters:,} characters; left out: "
            f"{made.duplicates:,} that are there already, {made.short:,} shorter than {shortest:,} characters\n"
            f"sha256 {made.sha256}"
        )
