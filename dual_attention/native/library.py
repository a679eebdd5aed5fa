"""Libraries in C as Python calls them: loaded once, with the types of their functions and of their arguments."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .building import UnavailableError, built


def structure(name: str, *fields: tuple[Any, str]) -> type[ctypes.Structure]:
    """A structure of C, from types and the names of the fields that have them, in the order of the library's own."""
    of = [(field, kind) for kind, names in fields for field in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": of})


def check_symbol_rows(row: int, rows: int) -> None:
    """Raise ``IndexError`` if an index of relative symbols has led out of their library.

    Args:
        row: one out of range, if there is any, as a kernel has told, which reads and writes none such.
        rows: of the library; 0 for symbols without an index.
    """
    if rows and not 0 <= row < rows:
        raise IndexError(f"symbols.index: expected 0 to {rows - 1}, rows of the library, got {row}")


class Library:
    """A library that is built, loaded and tried when it is first asked for; other threads wait meanwhile.

    Args:
        source: its file in C.
        arguments: structures of arguments, by the function of the library that tells its size of one.
        sizes: other functions that return a size.
        procedures: functions that return nothing.
        flags: of the compiler, beside the usual ones.
    """

    def __init__(
        self,
        source: Path,
        arguments: dict[str, type[ctypes.Structure]],
        sizes: Iterable[str] = (),
        procedures: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> None:
        self._source = source
        self._arguments = arguments
        self._sizes = tuple(sizes)
        self._procedures = tuple(procedures)
        self._flags = tuple(flags)
        self._loading = threading.Lock()
        self._found: ctypes.CDLL | str | None = None

    def find(self) -> ctypes.CDLL | str:
        """The library; or why it cannot be had, as a clause."""
        if self._found is None:
            with self._loading:
                if self._found is None:
                    self._found = self._load()
        return self._found

    def get(self) -> ctypes.CDLL:
        """The library; ``RuntimeError`` where it cannot be had, with the reason."""
        found = self.find()
        if isinstance(found, str):
            raise RuntimeError(f"the C kernels cannot be had: {found}")
        return found

    def _load(self) -> ctypes.CDLL | str:
        try:
            library = built(self._source, *self._flags)
            for name in (*self._arguments, *self._sizes):
                getattr(library, name).restype = ctypes.c_int64
            for name in self._procedures:
                getattr(library, name).restype = None
        except (UnavailableError, AttributeError) as error:  # the latter if a function is missing
            return str(error)
        if any(getattr(library, name)() != ctypes.sizeof(of) for name, of in self._arguments.items()):
            return "it was built for arguments of another size"
        return library
