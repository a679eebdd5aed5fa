"""Generated questions in a cache: made once, in parallel, into a folder of the official layout that appears whole."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from dual_attention._base.checksums import checksums_of, damaged_files, write_checksums
from dual_attention._base.digests import stream_seed
from dual_attention._base.extras import require
from dual_attention._base.files import folder_made_atomically, write_atomically, write_json

from ..._processes import check_not_repeated, follow_parent, starting_workers
from .files import LEVELS, MODULES, TESTS, Pair, path_of, shares
from .generator import draw_pairs

PART = 50
"""Questions that are drawn from one seed, by one process."""

Report = Callable[[int, int], None]
"""``report(done, all)`` is told how many questions there are."""


class _Part(NamedTuple):
    """Questions that are drawn together."""

    module: str
    split: str
    n: int
    seed: int

    def pairs(self) -> list[Pair]:
        """The questions and their answers."""
        return draw_pairs(self.module, self.split, self.n, self.seed)


def parts(module: str, counts: Mapping[str, int], seed: int) -> list[_Part]:
    """The parts of a module, split by split; more questions of a split begin with the same."""
    return [
        _Part(module, split, min(PART, n - first), stream_seed(seed, module, split, first))
        for split, n in counts.items()
        for first in range(0, n, PART)
    ]


def generated_folder(
    cache: Path,
    module: str,
    *,
    n_train: int,
    n_test: int,
    seed: int,
    workers: int | None = None,
    report: Report | None = None,
) -> Path:
    """Folder with questions of one module in the official layout; made below ``cache``, unless it is there already.

    Another process that makes the same is waited for. If this one is stopped, nothing of it stays.

    Args:
        n_train: questions to train and to validate on, a third of them for each level.
        n_test: questions to interpolate and to extrapolate.
        seed: of the questions, which depend on nothing else but the versions of the generator, of sympy and
            of this package.
        workers: processes; None takes one for each core. One draws in this process.
        report: told of the progress.

    Raises:
        ImportError: the generator is not installed.
        RuntimeError: several processes draw, and the script that calls this does so outside of
            ``if __name__ == "__main__":``.
        ValueError: unknown module, or a file is no longer as it was written.
    """
    if module not in MODULES:
        raise ValueError(f"module: expected one of {', '.join(MODULES)}, got {module!r}")
    counts = {**dict(zip(LEVELS, shares(n_train), strict=True)), **dict.fromkeys(TESTS, n_test)}
    folder = cache / f"{module}-train{n_train}-test{n_test}-seed{seed}"
    if not folder.is_dir():
        require("mathematics_dataset", extra="mathematics")  # before anything is made: it may not be installed
        jobs = parts(module, counts, seed)
        processes = min(workers or os.cpu_count() or 1, len(jobs))
        if processes > 1:
            check_not_repeated()
        cache.mkdir(parents=True, exist_ok=True)
        with require("filelock", extra="train").FileLock(cache / f".{folder.name}.lock"):
            if not folder.is_dir():
                _generate(folder, jobs, processes, report)
    if damaged := damaged_files(folder):
        raise ValueError(
            f"{folder / damaged[0]}: damaged or changed since it was generated; remove the folder, and it is made again"
        )
    return folder


def _generate(folder: Path, jobs: list[_Part], workers: int, report: Report | None) -> None:
    """Draw the parts and write them as one folder, at once."""
    total, done = sum(job.n for job in jobs), 0
    texts: dict[Path, list[str]] = {}
    with folder_made_atomically(folder) as temporary:
        for job, pairs in zip(jobs, _drawn(jobs, workers), strict=True):
            lines = texts.setdefault(path_of(temporary, job.split, job.module), [])
            lines += [f"{question}\n{answer}\n" for question, answer in pairs]
            done += job.n
            if report is not None:
                report(done, total)
        for path, lines in texts.items():
            path.parent.mkdir(parents=True)
            write_atomically(path, "".join(lines))
        versions = {name: version(name) for name in ("mathematics_dataset", "numpy", "sympy")}
        write_json(temporary / "about.json", {"questions": total, "versions": versions})
        write_checksums(temporary, checksums_of(temporary))


def _drawn(jobs: list[_Part], workers: int) -> Iterator[list[Pair]]:
    """The questions of each part, in order."""
    if workers == 1:
        yield from map(_Part.pairs, jobs)
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=follow_parent)
    try:
        with starting_workers():
            drawn = executor.map(_Part.pairs, jobs)
        yield from drawn
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
