"""``make release-check``: build wheel and sdist, check what they contain, and try each in new environments.

    python -m tests.release [--out dist] [--pythons python3.10 python3.12]

Each Python installs the wheel without an extra and with ``train``; those that the machine lacks are named and left out.
The last of them installs the sdist and runs tests of the library that it brings. ``make versions`` tries the oldest and
the newest torch and transformers.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.versions import SMOKE, TOOLS, answers

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = tuple(f"python3.{minor}" for minor in range(10, 15))
PACKAGES = {"dual_attention", "dat"}
IN_SDIST = {"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "constraints.txt", "pyproject.toml"}
IN_WHEEL = {
    "dual_attention/py.typed",
    "dat/explorer/page/page.html",
    *(f"dat/explorer/models/{name}/model.safetensors" for name in ("games", "language")),
}
LAYER = """
import torch, dual_attention
layer = dual_attention.DualAttention(d_model=8, n_heads_sa=1, n_heads_ra=1)
assert layer(torch.randn(2, 3, 8), torch.randn(2, 3, 8)).output.shape == (2, 3, 8)
"""
FROM_SDIST = ("tests/library/test_relational_attention.py", "tests/library/test_dual_attention.py")


def built(out: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built into a folder in place of those that it has."""
    for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        old.unlink()
    run([sys.executable, "-m", "build", "--outdir", str(out)], ROOT)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Raise ``ValueError`` if either has what it should not have, or lacks what it should have."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    if roots != PACKAGES:
        raise ValueError(f"{wheel.name}: expected the packages {sorted(PACKAGES)}, got {sorted(roots)}")
    missing = IN_WHEEL - {*names}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    missing |= IN_SDIST - inside
    if missing:
        raise ValueError(f"{wheel.name}, {sdist.name}: expected {', '.join(sorted(missing))}, got none")
    left = sorted(name for name in inside if "__pycache__" in name or name.startswith((".venv", "dist/")))
    if left:
        raise ValueError(f"{sdist.name}: expected no {left[0]}")


def try_wheel(python: str, wheel: Path, folder: Path) -> None:
    """Install a wheel with torch and einops alone, then with ``train``, and use it from an empty folder."""
    own = environment(python, folder)
    install(own, str(wheel))
    run([own, "-c", LAYER], folder)
    install(own, f"{wheel}[train]")
    run([own, *SMOKE.split()], folder)


def try_sdist(python: str, sdist: Path, folder: Path) -> None:
    """Install what an sdist unpacks to, and run tests that it brings."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [unpacked] = (path for path in folder.iterdir() if path.is_dir())
    own = environment(python, folder)
    install(own, ".[train]", *TOOLS, cwd=unpacked)
    run([own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *FROM_SDIST], unpacked)


def environment(python: str, folder: Path) -> str:
    """Make a virtual environment and return the path of its interpreter."""
    run([python, "-m", "venv", str(folder / "venv")], folder)
    return str(folder / "venv" / "bin" / "python")


def install(python: str, *what: str, cwd: Path = ROOT) -> None:
    """Install with the pinned versions."""
    run([python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *what], cwd)


def run(command: Sequence[str], cwd: Path) -> None:
    """Run a command that must succeed, without our checkout on its path."""
    print(">", *command, flush=True)
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(command, cwd=cwd, env=others, check=True)


def usable(names: Iterable[str]) -> list[str]:
    """The interpreters that run; the others are reported."""
    found = []
    for name in names:
        if answers(name):
            found.append(name)
        else:
            print(f"{name}: not on this machine, not tried")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The whole check."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for both, in place of the ones it has")
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="interpreters to try, of those on this machine")
    options = parser.parse_args(arguments)
    wheel, sdist = built(options.out.resolve())
    check_contents(wheel, sdist)
    pythons = usable(options.pythons)
    if not pythons:
        print("none of these interpreters is here", file=sys.stderr)
        return 1
    for python in pythons:
        with tempfile.TemporaryDirectory() as folder:
            try_wheel(python, wheel, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        try_sdist(pythons[-1], sdist, Path(folder))
    print(f"{wheel.name} and {sdist.name}: whole, and work with {', '.join(pythons)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
