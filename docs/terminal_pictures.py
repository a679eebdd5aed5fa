"""Run commands of the pages in a terminal, and draw what it shows as SVG.

python docs/terminal_pictures.py            # all, some minutes; let nothing else run, since times are shown
python docs/terminal_pictures.py estimate   # one
"""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/images/terminal"
COLUMNS = 100
COMMANDS = {
    "train": "dat train relational-games --task occurs --data.n_train 500 --preset dat-0+2-sym --output.name dat",
    "estimate": "dat estimate DAT-343M-nr64 --batch 8 --dtype bf16 --param_dtype float32",
    "language": "dat train language --output.name first",
}
"""Picture -> the command, as its page has it."""
# Drawn with a font of the reader's, so that a page needs no network.
FORMAT = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
CONTROL = re.compile(r"(\r\n|\r|\n|\x1b\[\??[\d;]*[A-Za-z])")


def output_of(command: str, folder: Path) -> str:
    """What a command of ``dat`` writes to a terminal of :data:`COLUMNS` columns, run in a folder."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    words = [sys.executable, "-m", *command.split()]
    process = subprocess.Popen(words, stdin=end, stdout=end, stderr=end, cwd=folder, env=environment)
    os.close(end)
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:  # which Linux raises when the last writer has closed its end
        pass
    os.close(terminal)
    output = b"".join(parts).decode()
    if process.wait():
        raise SystemExit(f"{command}: {output}")
    return output


def screen(output: str) -> str:
    """What stands in the terminal at the end, with colours. What draws a line again erases it, after going up to it."""
    lines = [""]
    for part in CONTROL.split(output):
        code = part[-1:] if CONTROL.fullmatch(part) else ""
        if code == "\n":
            lines.append("")
        elif code == "A":
            del lines[-int(part[2:-1] or 1) :]
        elif code == "K":
            lines[-1] = ""
        elif code in ("", "m"):
            lines[-1] += part
    return "\n".join(lines).rstrip()


def draw(command: str, shown: str, path: Path) -> None:
    """Write a terminal window with a command and what it showed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}\n", "bold"))
    console.print(Text.from_ansi(shown))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = console.export_svg(title="", code_format=FORMAT, unique_id=path.stem)
    path.write_text(f"{' '.join(text.split())}\n", encoding="utf-8")  # spaces that are seen are written as &#160;


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            draw(COMMANDS[name], screen(output_of(COMMANDS[name], Path(folder))), FOLDER / f"{name}.svg")
        print(FOLDER / f"{name}.svg")
