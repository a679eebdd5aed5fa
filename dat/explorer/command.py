"""The command that starts the explorer, or writes its page into a file: ``dat explore``."""

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dual_attention._base.extras import require
from dual_attention._base.words import printable
from dual_attention.model_analysis.sites import LayerChoice

from .._native import use_native
from .._terminal import tell
from ..checkpoints import CHECKPOINT
from ..data.text.files import standard_input
from ..estimate.units import nbytes
from ..experiments.files import run_given, takes_file
from ..training.config_io import option_parser, parse_options
from .ablations import ABLATED
from .citation import commands_of
from .corpus import HELD_OUT, TABLE, CorpusRun, held_out, read_corpus
from .dictionaries import read_dictionary
from .example import DEFAULT, EXAMPLES, ExampleModel
from .exporting import Exporter
from .figures import ending_of
from .images import DIGITS, GAMES, ImageSession
from .opening import Explored, open_session, with_beside
from .packing import BITS
from .server import ExplorerServer
from .session import Session
from .view_state import VIEW_GRAMMAR, View


def _parser_of(prog: str) -> Any:
    """The options of ``dat explore``."""
    parser = option_parser(
        prog=prog,
        description="Open a page on this machine that shows what a model attends to, which relations it computes and "
        "which symbols it assigns, for texts, images or questions of your own, and what changes if they are switched "
        "off; or write a view into a file. The page loads nothing from the network; a model named OWNER/NAME is "
        "downloaded from the Hugging Face hub if it is not cached. Ctrl-C stops the server.",
    )
    add = parser.add_argument
    add(
        "checkpoint",
        metavar="CHECKPOINT",
        nargs="?",
        help=f"{CHECKPOINT} Without one: a small model that comes with this package, see --example.",
    )
    names = " or ".join(EXAMPLES)
    about = f"Small model of this package: {names} (default: {DEFAULT}, with the extra language)."
    add("--example", type=str, metavar="NAME", help=about)
    add("--text", type=str, help='First text to show; "-" reads it from standard input.')
    samples = f'"game TASK" ({", ".join(GAMES)}), "digit 0" to "digit {DIGITS - 1}"'
    add("--image", type=str, help=f"First image to show, of an image classifier: a file, or a sample: {samples}.")
    add("--layers", type=str, help='Layers to show, such as "0,5" or "decoder"; by default all.')
    add("--beside", type=str, metavar="CHECKPOINT", help="A second model of texts, shown beside for the same text.")
    add("--dictionary", type=str, metavar="PATH", help="Dictionary of relations to show: a file, or its folder.")
    about = (
        "Measure What matters over a corpus first, and show that: a folder with a text in each file, a file with one "
        f"in each line, a folder of pictures, or {HELD_OUT}: texts or pictures that come with the model, as with our "
        "examples. Long texts are cut."
    )
    add("--corpus", type=str, metavar="PATH", help=about)
    about = "With --corpus: open the page at once, where a button of What matters measures, stops, and goes on."
    add("--later", action="store_true", help=about)
    about = "Folder of finished texts, with which a run over a corpus goes on (default: PATH.effects)."
    add("--results", type=str, metavar="FOLDER", help=about)
    add(
        "--export",
        type=str,
        metavar="FILE",
        help="Write a view into a file instead: .html or .csv; of maps also .png, .svg or .pdf.",
    )
    add("--view", type=str, help=f"What is shown at first, or written. {VIEW_GRAMMAR}")
    add("--host", type=str, help="Name or address to listen on, by default of this machine only.")
    add("--share", action="store_true", help="Let other machines of the network open the page by its address.")
    add("--port", type=int, default=0, help="Port (default: any free one).")
    add("--tokenizer", type=str, help="As of `dat generate`; by default that of the checkpoint.")
    takes_file(parser)
    add("--bits", type=int, help="Bits per stored number: 8, 16 or 32 (default: fewest that change no colour).")
    return parser


def run_explorer(prog: str, arguments: Sequence[str]) -> int:
    """``dat explore``."""
    options = parse_options(_parser_of(prog), arguments)
    run_given(options)
    check_options(options)
    example = example_of(options)
    out = None if options.export is None else checked_export(options.export)
    text = standard_input("text") if options.text == "-" else options.text
    view = view_of(options, example, text)
    session, commands = session_of(options), commands_of(options)
    use_native(session.model)
    session = with_corpus(session, options, example)
    if options.corpus is not None and not options.view:
        view = View(page="effects", corpus=1)
    view.check_weights(session.facts.get("weights"), session.beside and session.beside.facts.get("weights"))
    if text is None and options.image is None and (view.text or view.own):
        if view.own:
            raise ValueError("view: it is of an image from a file; give the file with --image")
        source = source_of(session, **{what_is_read(session): view.text})
    else:
        first = example.source if example else ""
        source, view = source_of(session, text, options.image, first), replace(view, text="", own=0)
    if view.page == "relations" and isinstance(session, ImageSession) and not options.view:
        view = View(page="vision")
    if out is not None:
        with waiting(f"reading the {what_is_read(session)}"):
            size = Exporter(session, source, view, commands.elsewhere).write(out)
        print(printable(f"{out} ({nbytes(size)})"))
        return 0
    host = "0.0.0.0" if options.share else options.host or "127.0.0.1"
    with waiting(f"reading the {what_is_read(session)}"):
        started = ExplorerServer(session, source, host=host, port=options.port, commands=commands)
    with started as server:
        if not server.is_local:
            tell(WARNING)
        name = socket.gethostname() if options.share else None
        folder = f"The model is in {example.path}\n" if example else ""
        print(printable(f"{session.title}: {server.address_of(view, name)}\n{folder}Ctrl-C ends it."), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def what_is_read(session: Explored) -> str:
    """``"text"`` or ``"image"``."""
    return "image" if isinstance(session, ImageSession) else "text"


def with_corpus(session: Explored, options: Any, example: ExampleModel | None = None) -> Explored:
    """The session with what matters over the corpus of the options, if they name one, or with the run for later.

    Raises:
        OSError, ValueError: as :func:`~.corpus.read_corpus`, before anything is measured; for a model that predicts
            nothing, results inside the corpus, and those of other settings.
    """
    if options.corpus is None:
        if options.results is not None:
            raise ValueError("results: they are of a corpus; give --corpus, too")
        return session
    if not isinstance(session, ABLATED):
        raise ValueError("corpus: this model predicts nothing, so that nothing can be taken away")
    corpus = Path(options.corpus).expanduser().resolve()
    brought = options.corpus == HELD_OUT and not corpus.exists()
    if brought:
        corpus = corpus.with_name(f"{Path(example.path if example else options.checkpoint).resolve().name}-{HELD_OUT}")
    folder = Path(options.results or f"{corpus}.effects").expanduser().resolve()
    if folder.is_relative_to(corpus):
        raise ValueError(f"results: expected a folder outside the corpus, where they would be texts, got {folder}")
    texts = held_out(session, example.held_out if example else "") if brought else read_corpus(session, str(corpus))
    run = CorpusRun(session, corpus.name, texts, folder)
    tell(f"corpus: {run.about}; finished ones are kept in {folder}")
    if options.later and run.left:
        return replace(session, corpus={}, run=run)
    with waiting("measuring the corpus", len(run.left)) as step:
        for _ in run.measure():
            step()
    tell(f"corpus: the table is {folder / TABLE}")
    return replace(session, corpus=run.json)


@contextmanager
def waiting(what: str, steps: int | None = None) -> Iterator[Callable[[], None]]:
    """Show on a terminal that something takes its time; yields what is called after each step of as many."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    rich = require("rich.progress", extra="train")
    console = require("rich.console", extra="train").Console(stderr=True)
    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeElapsedColumn()
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)


WARNING = (
    "other machines can reach this server; whoever has the address sees the model and its texts, and what is sent is "
    "not encrypted"
)


def check_options(options: Any) -> None:
    """Raise ``ValueError`` for options that are out of range, or do not go together."""
    if options.bits not in (None, *BITS):
        raise ValueError(f"bits: expected 8, 16 or 32, got {options.bits}")
    if not 0 <= options.port <= 65535:
        raise ValueError(f"port: expected a number from 0 to 65535, got {options.port}")
    if options.share and options.host is not None:
        raise ValueError("share: it listens on all networks of this machine; give --host or --share, not both")
    if options.text is not None and options.image is not None:
        raise ValueError("image: give a text or an image, not both")
    if options.export is not None and (options.share or options.host is not None):
        raise ValueError("export: a file needs no server; leave out --host and --share")
    if options.later and (options.corpus is None or options.export is not None):
        raise ValueError("later: a page starts it over a corpus; give --corpus, and no --export")


def layers_of(text: str | None) -> LayerChoice:
    """Layers by number or name, from a list with commas; None for all."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"layers: expected numbers or names such as 0,5, got {text!r}")
    return [int(name) if name.isdecimal() else name for name in names]


def source_of(session: Explored, text: str | None = None, image: str | None = None, first: str = "") -> str:
    """The text or image to show first, which the model can read.

    Args:
        first: shown if neither is given; empty takes that of the session.

    Raises:
        ValueError, OSError: if it cannot.
    """
    reads = what_is_read(session)
    wrong = image if reads == "text" else text
    if wrong is not None:
        raise ValueError(f"{'image' if reads == 'text' else 'text'}: this model reads {reads}s; give --{reads}")
    given = text if reads == "text" else image
    source = (first or session.default) if given is None else given
    session.check(source)
    return source


def checked_export(name: str) -> Path:
    """The file to write.

    Raises:
        ValueError, OSError: if it has no name or another ending, is there already, or its folder is not there.
    """
    out = Path(name)
    if not name or out.is_dir():
        raise ValueError(f"export: expected the name of a file, got {name!r}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"export: there is no folder {out.parent}")
    ending_of(out)
    if out.exists():
        raise FileExistsError(f"export: {out} is there already, and is not overwritten")
    return out


def example_of(options: Any) -> ExampleModel | None:
    """The model of this package that is asked for; None beside a checkpoint.

    Raises:
        ValueError: for both, or a name that none has.
    """
    if options.checkpoint is None:
        name = options.example or DEFAULT
        if name not in EXAMPLES:
            raise ValueError(f"example: expected {' or '.join(EXAMPLES)}, got {name!r}")
        return EXAMPLES[name]
    if options.example is not None:
        raise ValueError("example: give a checkpoint or an example, not both")
    return None


def view_of(options: Any, example: ExampleModel | None, text: str | None) -> View:
    """The view that is asked for, or else that of the example as far as it holds for other layers or another text."""
    if options.view or not example:
        return View.of(options.view or "")
    view = View.of(example.view)
    if options.layers is not None:
        return View(page=view.page)
    return view if text is None else replace(view, i=None, j=None)


def session_of(options: Any) -> Explored:
    """The model that the options name, or else an example."""
    about = {"tokenizer": options.tokenizer, "bits": options.bits, "layers": layers_of(options.layers)}
    if example := example_of(options):
        session = example.open(**about)
    else:
        session = open_session(options.checkpoint, **about)
    if options.beside is not None:
        session = with_beside(session, open_session(options.beside, **about))
        use_native(session.beside.model)
    if options.dictionary is None:
        return session
    if not isinstance(session, Session):
        raise ValueError("dictionary: this is no language model; a dictionary is of one")
    return replace(session, dictionary=read_dictionary(session, options.dictionary))


def run_app(prog: str = "dat explore", arguments: Sequence[str] | None = None) -> int:
    """Run ``explore`` as a program of its own, whose errors are one line.

    Args:
        arguments: by default those of the process.

    Returns:
        The exit status.

    >>> run_app("dat explore", ["no-such-run"])
    2
    """
    try:
        return run_explorer(prog, sys.argv[1:] if arguments is None else arguments)
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"{prog}: error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
