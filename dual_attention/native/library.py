"""Libraries in C as Python calls them: loaded once, with the types of their functions and of their arguments."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from pathlib import Path

from .building import UnavailableError, built


class Library:
    """A library that is built, loaded and tried when it is first asked for; other threads wait meanwhile.

    Args:
        source: its file in C.
        arguments: structures of arguments, by the function of the library that tells its size of one.
        sizes: other functions that return a size.
        procedures: functions that return nothing.
    """

    def __init__(
        self,
        source: Path,
        arguments: dict[str, type[ctypes.Structure]],
        sizes: Iterable[str] = (),
        procedures: Iterable[str] = (),
    ) -> None:
        self._source = source
        self._arguments = arguments
        self._sizes = tuple(sizes)
        self._procedures = tuple(procedures)
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
            library = built(self._source)
            for name in (*self._arguments, *self._sizes):
                getattr(library, name).restype = ctypes.c_int64
            for name in self._procedures:
                getattr(library, name).restype = None
        except (UnavailableError, AttributeError) as error:  # the latter if a function is missing
            return str(error)
        if any(getattr(library, name)() != ctypes.sizeof(of) for name, of in self._arguments.items()):
            return "it was built for arguments of another size"
        return library
