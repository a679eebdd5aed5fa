"""Text of data sets on the Hugging Face hub, fetched by ``datasets`` (the extra of that name)."""

import hashlib
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dual_attention._base.checksums import sha256_of
from dual_attention._base.extras import require
from dual_attention._base.files import first_line

from ..folders import files_below
from .files import Piece

VALIDATION = ("validation", "valid", "val", "test")
"""Names of the split to validate on, the first of which is taken."""
PATIENCE = 5.0
"""Seconds that the hub has to answer."""
CONTENTS = "sha256 of its files"
"""Mark of a data set in a folder, in the identity of its splits; older versions did not note it."""


def open_dataset(name: str, *, streamed: bool = False) -> dict[str, Any]:
    """The splits of a data set, ``train`` among them.

    Args:
        name: ``OWNER/NAME``, or ``OWNER/NAME:CONFIG`` if it has several configurations. A folder of that name is taken
            in place of the hub; and without the network, what ``datasets`` has kept of it.
        streamed: read its files from the hub as they are needed, and keep no copy.

    Raises:
        OSError: naming it, if it cannot be had.
        ValueError: if it has no split to train on.
    """
    library = require("datasets", extra="datasets")
    path, _, config = name.partition(":")
    here = Path(path).exists() or hub_answers()
    if streamed and not here:
        raise OSError(f"data.dataset: {name} cannot be streamed: {_silence()}")
    asked = () if here else (library.config, require("huggingface_hub.constants", extra="datasets"))
    try:
        with ExitStack() as offline:  # what is kept, as the libraries' variable has it
            for place in asked:
                offline.enter_context(patch.object(place, "HF_HUB_OFFLINE", True))
            found = library.load_dataset(path, config or None, streaming=streamed)
    except Exception as error:  # of the hub, of the network, or of a file in any of many formats
        if not here:
            raise OSError(f"data.dataset: {name} is not kept here, and {_silence()}") from error
        raise OSError(f"data.dataset: {name} could not be loaded ({first_line(error)})") from error
    if "train" not in found:
        raise ValueError(f"data.dataset: expected a split train in {name}, got {', '.join(map(str, found))}")
    return dict(found)


def hub_answers() -> bool:
    """Whether the hub answers, whatever it says, within :data:`PATIENCE`; its clients would try for half a minute."""
    address = require("huggingface_hub.constants", extra="datasets").ENDPOINT
    answers: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE).close()
        except urllib.error.HTTPError:
            pass
        except Exception:  # of the network, of an address, of a proxy
            return
        answers.append(True)

    asking = threading.Thread(target=ask, daemon=True)  # names may be looked up for longer than any time-out says
    asking.start()
    asking.join(PATIENCE)
    return bool(answers)


def _silence() -> str:
    address = require("huggingface_hub.constants", extra="datasets").ENDPOINT
    return f"the Hugging Face hub ({address}) cannot be reached; try again online, or give files"


def split_identity(split: Any) -> dict[str, Any]:
    """Marks of the version of a split, as JSON; of a streamed one, the sizes that its card gives."""
    about = (split.info.splits or {}).get(str(split.split))
    if hasattr(split, "num_rows"):
        return {"rows": len(split), "bytes": None if about is None else about.num_bytes}
    sizes = {} if about is None else {"rows": about.num_examples, "bytes": about.num_bytes}
    return {"streamed": True, **sizes}


def folder_identity(name: str, hashed: Callable[[Path], str] = sha256_of) -> dict[str, str]:
    """A mark of the contents of a data set's files, as JSON, if it lies in a folder; those of the hub have none.

    Args:
        hashed: gives the hash of a file; of one that is streamed, which may be large, that of a part of it.
    """
    folder = Path(name.partition(":")[0])
    if not folder.is_dir():
        return {}
    digest = hashlib.sha256()
    for file in files_below(folder):  # without hidden ones, as ``datasets`` reads it
        digest.update(repr((file.relative_to(folder).as_posix(), hashed(file))).encode())
    return {CONTENTS: digest.hexdigest()}


def read_dataset(split: Any, name: str, field: str, most: int | None = None) -> Iterator[Piece]:
    """The documents of a split, streamed or not; a row without a text is an empty one.

    Args:
        field: name of the column that holds the text.
        most: rows to read, the first ones; None reads all.

    Raises:
        ValueError: if there is no such column of texts, or they are not UTF-8.
    """
    columns = split.column_names or list(next(iter(split), {}))
    if field not in columns:
        raise ValueError(f"data.field: expected a column of {name} ({', '.join(columns)}), got {field!r}")
    try:
        for row in islice(split.select_columns([field]), most):
            text = row[field]
            if text is not None and not isinstance(text, str):
                kind = type(text).__name__
                raise ValueError(f"data.field: expected a column of texts, got {kind} in {field!r} of {name}")
            yield Piece(text or "", True)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 text in the column {field!r} ({error})") from error
