"""The command that starts the explorer, or writes its page into a file: ``dat explore``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._files import write_atomically
from ..._words import printable
from ...checkpoints import CHECKPOINT
from ...data.text.files import standard_input
from ...estimate.units import nbytes
from ...training.config_io import option_parser, parse_options
from .example import example_model
from .html import page_html
from .opening import Explored, open_session
from .packing import BITS
from .server import ExplorerServer


def parser_of(prog: str) -> Any:
    """The options of ``dat explore``."""
    parser = option_parser(
        prog=prog,
        description="Open a page on this machine that shows what a language model attends to, which relations it "
        "computes and which symbols it assigns, for texts of your own; or write that page into one file. It asks "
        "nothing of the network. Ctrl-C ends it.",
    )
    add = parser.add_argument
    add(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        help=f"{CHECKPOINT} Without one: a small model, trained in about a minute the first time and kept.",
    )
    add("--text", type=str, help='First text to show; "-" reads it from standard input.')
    add("--export", type=str, metavar="FILE", help="Write the page of that text into an HTML file instead.")
    add("--host", type=str, default="127.0.0.1", help="Name or address to listen on; others can be reached by others.")
    add("--port", type=int, default=0, help="To listen on; by default a free one.")
    add("--tokenizer", type=str, help="As of `dat generate`; by default that of the checkpoint.")
    add(
        "--bits", type=int, help="Of the numbers in the page, 8, 16 or 32; by default the fewest that change no colour."
    )
    return parser


def explore(prog: str, arguments: Sequence[str]) -> int:
    """``dat explore``."""
    options = parse_options(parser_of(prog), arguments)
    if options.bits not in (None, *BITS):
        raise ValueError(f"bits: expected 8, 16 or 32, got {options.bits}")
    if not 0 <= options.port <= 65535:
        raise ValueError(f"port: expected a number from 0 to 65535, got {options.port}")
    out = None if options.export is None else checked_export(options.export)
    text = standard_input("text") if options.text == "-" else options.text
    session = session_of(options)
    text = session.default if text is None else text
    session.check(text)  # before anything else is done
    if out is not None:
        write_atomically(out, page := page_html(session.packed(text)))
        print(printable(f"{out} ({nbytes(len(page.encode()))})"))
        return 0
    with ExplorerServer(session, text, host=options.host, port=options.port) as server:
        if not server.is_local:
            warning = "other machines can reach this server; whoever has the address sees the model and its texts"
            print(f"dat: {warning}", file=sys.stderr)
        print(printable(f"{session.title}: {server.address}\nCtrl-C ends it."), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def checked_export(name: str) -> Path:
    """The file to write.

    Raises:
        ValueError, OSError: if it has no name, is a folder, or its folder is not there.
    """
    out = Path(name)
    if not name or out.is_dir():
        raise ValueError(f"export: expected the name of a file, got {name!r}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"export: there is no folder {out.parent}")
    return out


def session_of(options: Any) -> Explored:
    """The model that the options name, or else the small one."""
    about = {"tokenizer": options.tokenizer, "bits": options.bits}
    if options.checkpoint is not None:
        return open_session(options.checkpoint, **about)
    return open_session(str(example_model(progress=True)), title="A small model of this library", **about)


def run_app(prog: str = "dat explore", arguments: Sequence[str] | None = None) -> int:
    """Run :func:`explore` as a program of its own, whose errors are one line.

    Args:
        arguments: by default those of the process.

    Returns:
        The exit status.
    """
    try:
        return explore(prog, sys.argv[1:] if arguments is None else arguments)
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"{prog}: error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
