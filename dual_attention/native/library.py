"""A library in C as Python calls it: loaded once, with the types of its functions and of their arguments."""

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
        arguments: structure of arguments, whose size ``size_of_call`` of the library tells.
        sizes: other functions that return a size.
        procedures: functions that return nothing.
    """

    def __init__(
        self, source: Path, arguments: type[ctypes.Structure], sizes: Iterable[str] = (), procedures: Iterable[str] = ()
    ) -> None:
        self._source, self._arguments = source, arguments
        self._sizes, self._procedures = ("size_of_call", *sizes), tuple(procedures)
        self._loading = threading.Lock()
        self._found: ctypes.CDLL | str | None = None

    def get(self) -> ctypes.CDLL:
        """The library; ``RuntimeError`` where it cannot be had, with the reason, which is not tried again."""
        with self._loading:
            if self._found is None:
                self._found = self._load()
        if isinstance(self._found, str):
            raise RuntimeError(f"the C kernels cannot be had: {self._found}")
        return self._found

    def _load(self) -> ctypes.CDLL | str:
        try:
            library = built(self._source)
            for name in self._sizes:
                getattr(library, name).restype = ctypes.c_int64
            for name in self._procedures:
                getattr(library, name).restype = None
        except (UnavailableError, AttributeError) as error:  # the latter if a function is missing
            return str(error)
        fits = library.size_of_call() == ctypes.sizeof(self._arguments)
        return library if fits else "it was built for arguments of another size"
