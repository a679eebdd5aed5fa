"""A library in C as Python calls it: loaded once, and refused where it would read other arguments."""

import ctypes
import threading
from pathlib import Path
from unittest import mock

import pytest

from dual_attention.native.building import UnavailableError
from dual_attention.native.library import Library

BUILT = "dual_attention.native.library.built"


class Triple(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int64), ("second", ctypes.c_int64), ("third", ctypes.c_double)]


def loaded(monkeypatch, size):
    library = mock.MagicMock()
    library.size_of_call.return_value = size
    build = mock.Mock(return_value=library)
    monkeypatch.setattr(BUILT, build)
    return Library(Path("triple.c"), Triple, sizes=["scratch"], procedures=["run"]), library, build


def test_functions_have_types_and_the_library_is_loaded_once(monkeypatch):
    library, found, build = loaded(monkeypatch, 24)
    threads = [threading.Thread(target=library.get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert library.get() is found
    build.assert_called_once_with(Path("triple.c"))
    assert found.scratch.restype is found.size_of_call.restype is ctypes.c_int64
    assert found.run.restype is None


def refusal(library):
    with pytest.raises(RuntimeError) as error:
        library.get()
    return str(error.value)


def test_a_library_for_other_arguments_is_not_taken(monkeypatch):
    library, *_ = loaded(monkeypatch, 16)
    assert refusal(library) == "the C kernels cannot be had: it was built for arguments of another size"


def test_a_library_without_its_functions_is_not_taken(monkeypatch):
    monkeypatch.setattr(BUILT, lambda source: ctypes.CDLL(None))
    assert "size_of_call" in refusal(Library(Path("triple.c"), Triple))
    monkeypatch.setattr(BUILT, lambda source: mock.Mock(spec=["size_of_call"], size_of_call=mock.Mock(return_value=24)))
    assert "no_such_procedure" in refusal(Library(Path("triple.c"), Triple, procedures=["no_such_procedure"]))


def test_why_there_is_none_is_told_and_not_tried_again(monkeypatch):
    build = mock.Mock(side_effect=UnavailableError("found no compiler"))
    monkeypatch.setattr(BUILT, build)
    library = Library(Path("triple.c"), Triple)
    assert [refusal(library), refusal(library)] == ["the C kernels cannot be had: found no compiler"] * 2
    build.assert_called_once()
