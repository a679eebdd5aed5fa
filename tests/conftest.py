"""Every test: a fixed seed, no network beyond this machine, no more threads than its share, no waiting for a disk."""

import functools
import gc
import os
import random
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import hypothesis
import pytest
import torch

from tests.support.browser import Visit, launched

os.environ["MPLBACKEND"] = "Agg"
os.environ["HF_HUB_OFFLINE"] = "1"
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before any test imports Triton, which reads it once
for device in (torch.cuda, torch.mtia, torch.xpu):
    if not device.is_available():  # of one that may come later, each seed would be kept with the stack of its caller
        device.manual_seed_all = lambda seed: None
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for processes that tests start

# `deterministic` tries the same examples in every run; `explore` draws new ones: HYPOTHESIS_PROFILE=explore make pytest
COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("deterministic", derandomize=True, **COMMON)
hypothesis.settings.register_profile("explore", **COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))


CASES = 4  # of a test, that `make test` runs
TESTS = Path(__file__).parent

gc.disable()  # until all tests are collected: what they import stays


def pytest_collection_finish() -> None:
    gc.enable()
    set_aside()


def set_aside() -> None:
    """Have garbage collected, and leave out of later collections what is not: compilers ask for many of them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First the tests that fork: of a process that has run many others, a copy is made with all that those left. Last
    those of pages: the driver of their browser keeps an event loop in the process.

    Of the cases of a test that is marked ``sweep(n)``, ``make test`` runs about one in n, of others in a folder about
    ``CASES``, the first among them; the rest is slow. A checksum chooses: every nth would leave out values of stacked
    parameters. Tests that are in no folder are of pages, numbers and files that are published: none is left out.
    """
    cases = Counter(_function(item) for item in items)
    seen: set[str] = set()
    for item in items:
        name, mark = _function(item), item.get_closest_marker("sweep")
        share = 1 / mark.args[0] if mark else CASES / cases[name] if item.path.parent != TESTS else 1
        if name in seen and crc32(item.nodeid.encode()) >= share * 2**32:
            item.add_marker("slow")
        seen.add(name)
    items.sort(key=lambda item: (not _forks(item), "browser" in getattr(item, "fixturenames", ())))


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _forks(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and _imports_processes(item.module)


@functools.cache
def _imports_processes(module: ModuleType) -> bool:
    return any(getattr(thing, "__module__", None) == "tests.support.processes" for thing in vars(module).values())


@pytest.fixture(scope="module", autouse=True)
def garbage() -> Iterator[None]:
    yield
    set_aside()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """A function that sends a visitor; at the end nobody may have complained."""
    visitors: list[Visit] = []

    def send(scheme: str = "light") -> Visit:
        visitors.append(Visit(browser, scheme))
        return visitors[-1]

    yield send
    complaints = [complaint for visitor in visitors for complaint in visitor.complaints]
    for visitor in visitors:
        visitor.close()
    assert not complaints


@pytest.fixture(autouse=True)
def seed() -> None:
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    """Runs set the number of threads of the process."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def restore_backward() -> Iterator[None]:
    """nnsight puts a function in its place that reads the source of whoever calls it."""
    backward = torch.Tensor.backward
    yield
    torch.Tensor.backward = backward


@pytest.fixture(autouse=True)
def disable_kernels() -> Iterator[None]:
    """Commands enable C kernels for the process."""
    yield
    native = sys.modules.get("dual_attention.native")
    if native is not None:
        native.disable()


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """What tests write need not survive a loss of power; that all is synced in time, a test of its own traces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which fails for what is no open file, too
        yield


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Sockets reach only this machine; looking up a foreign name, or connecting to one, fails the test."""

    def local(address: object) -> bool:
        host = address[0] if isinstance(address, tuple) else None  # not a tuple: a Unix socket
        return host is None or host in ("", "localhost", "::1") or str(host).startswith("127.")

    def guarded(function):
        def call(self, address, *args):
            if not local(address):
                raise RuntimeError(f"a test tried to reach the network: {address}")
            return function(self, address, *args)

        return call

    def lookup(host, *args, **kwargs):
        if host is not None and not local((host.decode() if isinstance(host, bytes) else host,)):
            raise RuntimeError(f"a test tried to look up {host!r}")
        return getaddrinfo(host, *args, **kwargs)

    getaddrinfo = socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", lookup)
        yield
