"""Lines that say how much of a text was read, and how much of it is not used."""

from dual_attention._base.words import counted, listed

from ...data.text.tokens import TokenSource


def about_text(heading: str, source: TokenSource, context: int) -> str:
    """A line on one text: its files, documents and characters, and what is left out of them.

    Args:
        context: arrays of no more tokens are not used.
    """
    files, split = source.origin.get("files", ()), source.origin.get("split")
    n_documents, duplicates = None if source.documents is None else len(source.documents.starts), 0
    if isinstance(split, dict):
        n_documents, duplicates = split["documents"], split["duplicates"]
    short = [len(array) for array in source.arrays if len(array) <= context]
    read = [counted(len(files), "file") if files else source.name]
    read += _counted((n_documents, "document"), (source.characters, "character"))
    dropped = _counted((duplicates or None, "duplicate"), (source.empty or None, "empty document"))
    if short:
        what = f"{counted(sum(short), 'token')} of {counted(len(short), 'file')}"
        dropped.append(f"{what} not longer than the context ({context:,})")
    if source.left_out:
        dropped.append(f"{counted(len(source.left_out), 'file')} ({listed(list(map(str, source.left_out)))})")
    return f"{heading}: {', '.join(read)}" + (f"; left out: {', '.join(dropped)}" if dropped else "")


def _counted(*numbers: tuple[int | None, str]) -> list[str]:
    """The numbers that are known, with their nouns."""
    return [counted(number, noun) for number, noun in numbers if number is not None]


def about_tokens(train: int, sequences: int, context: int, validated: int) -> str:
    """A line on the tokens that are used: those to train on, the sequences of a pass, and those to validate on."""
    passed = f"{counted(sequences, 'sequence')} of {context:,} in a pass"
    return f"tokens: {train:,} to train on ({passed}), {validated:,} to validate on"
