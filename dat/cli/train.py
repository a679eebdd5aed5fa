"""``dat train``: one run of an experiment."""

import inspect
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from dual_attention._base.checksums import sha256_of

from .._own_code import OPTION, give, given_in
from .._terminal import tell
from ..experiments import experiment_named, name_in
from ..experiments.files import goes_by
from ..experiments.model_keys import named_by_keys
from ..training.config_io import AUTO, OptionParser, build_parser, check_only_resume, commented_yaml, parse_config
from ..training.configs import RunConfig, check, own_names, value_named
from ..training.distributed import Workers, launched, restarted
from ..training.experiment import AnyExperiment
from ..training.interrupt import Interrupted
from ..training.loop import Diverged
from ..training.online import NOTHING, OPTION_HELP, Said, network_names
from ..training.online import OPTION as ONLINE
from ..training.run_folder import RunFolder, versions
from ..training.run_names import settings_that_differ, with_free_name
from ..training.runs import own_files, resume_run, show_run, start_run


def train(prog: str, arguments: Sequence[str], name: str) -> int:
    """``dat train NAME``, in one process or in each of those that torchrun starts."""
    with launched() as workers:
        return train_together(prog, arguments, experiment_named(name), workers)


def run_parser(prog: str, experiment: AnyExperiment) -> OptionParser:
    """The options of ``dat train NAME``."""
    parser = build_parser(experiment.Config, prog=prog, description=experiment.about.get("train", ""))
    if presets := experiment.presets:
        about = f"Fill all keys of the model, those given before it too, with a named one: {', '.join(presets)}."
        names = Literal[tuple(presets)]
        model = lambda name: {"model": asdict(value_named("preset", presets, name))}  # noqa: E731
        parser.add_settings("--preset", model, hint=names, metavar="NAME", help=about)
    about = (
        f"Continue the unfinished run in this folder; takes no other option but {OPTION} and {ONLINE}. With {AUTO}, "
        "beside the options of a run: continue the run with these settings if it has started, and start it otherwise."
    )
    parser.add_argument("--resume", metavar="RUN", help=about)
    about = (
        "Your Python file, or MODULE:CLASS, with an objective or callback that the run uses; for --resume and "
        "--config. It is executed. Code that only a run or a configuration names never is. May be given several times."
    )
    parser.add_argument(OPTION, action="append", default=[], metavar="FILE.py", help=about)
    parser.add_argument(ONLINE, action="store_true", help=f"With --resume: {OPTION_HELP[0].lower()}{OPTION_HELP[1:]}")
    return parser


def train_together(prog: str, arguments: Sequence[str], experiment: AnyExperiment, workers: Workers) -> int:
    """Train in each of ``workers``."""
    name = lambda config: named_by_keys(config, experiment.presets)  # noqa: E731
    config, options = parse_config(run_parser(prog, experiment), experiment.Config, arguments, name)
    auto = options.resume == AUTO
    check(options.resume != "", "resume", f"a run folder or {AUTO}", "")
    check_only_resume(options.resume, without_code(arguments))
    give(*given_in([*arguments]))
    expected = experiment.source or experiment.name
    check(goes_by(experiment, config.experiment), "experiment", expected, config.experiment)
    if workers.size > 1:
        workers.agree("settings", f"resume: {options.resume}\n{commented_yaml(config)}")
        workers.agree("code", installed_code(experiment, config))
    unfinished = None if auto else options.resume
    another = " and another --output.name" * bool(config.output.name)
    if unfinished is None:
        auto = workers.from_first(auto or restarted())
        config, unfinished = workers.from_first(beginning(config, auto=auto) if workers.first else (config, None))
    path = Path(unfinished or Path(config.output.folder) / config.run_name)
    if auto:
        about, done = workers.from_first(state_of(RunFolder(path)))
        if workers.first:
            tell(f"{path}: {about}")
        if done:
            return 0
    given = auto or not options.resume  # what the run asks for, on the command line
    said = None if options.online else network_names(experiment, config) if given else NOTHING
    named = [word for name in (options.code if unfinished else own_names(config)) for word in (OPTION, name)]
    named += [ONLINE] if options.online or (given and network_names(experiment, config, begun=True)) else []
    if unfinished is None and workers.first:
        RunFolder(path).refuse_existing()
    try:
        folder = resume(experiment, path, workers, said) if unfinished else start_run(experiment, config, workers)
    except Interrupted as stop:
        raise type(stop)(f"continue with: {resuming(prog, path, workers, named)}") from None
    except Diverged as error:
        raise Diverged(
            f"{error}; its settings are in {path / 'config.yaml'}, and the same command with others{another} "
            "trains in a new folder"
        ) from error
    if workers.first and (unfinished or config.output.progress):
        show_run(experiment, folder)
    return 0


def without_code(arguments: Sequence[str]) -> list[str]:
    """The words of a command without those that say what a run may execute and ask for."""
    return [
        word
        for before, word in zip(("", *arguments), arguments, strict=False)
        if OPTION not in (before, word) and not word.startswith(f"{OPTION}=") and word != ONLINE
    ]


def resuming(prog: str, path: Path, workers: Workers, named: Sequence[str] = ()) -> str:
    """The command that continues a run in as many processes.

    Args:
        named: further options that it needs.
    """
    words = ["--resume", str(path), *named]
    command = f"{prog} {' '.join(map(shlex.quote, words))}"
    if workers.size == 1:
        return command
    one_machine = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    options = f"--standalone --nproc-per-node {workers.size}" if one_machine else "..."
    return f"torchrun {options} -m {command}"


def beginning(config: Any, *, auto: bool = False) -> tuple[Any, Path | None]:
    """A configuration with the name of its run folder, and that folder if the run is to go on there.

    Args:
        auto: whether it does, if it has started: with ``--resume auto``, or in a command that torchrun or a scheduler
            has started again.

    Raises:
        ValueError: with ``auto``, naming a key, if the run there has other settings.
    """
    config = with_free_name(config)
    folder = RunFolder(Path(config.output.folder) / config.run_name)
    if not auto or not folder.config.is_file():
        return config, None
    for key, before, now in settings_that_differ(folder, config):
        check(False, key, f"{before!r}, as in {folder.config}, or another output.name", now)
    return config, folder.path


def state_of(folder: RunFolder) -> tuple[str, bool]:
    """The position of the run in a folder, in words, and whether it is finished."""
    if not folder.config.is_file():
        return "a new run", False
    if folder.finished:
        return "the run is finished", True
    latest = folder.checkpoints.latest()
    return f"the run goes on from {'its beginning' if latest is None else latest.name}", False


def installed_code(experiment: AnyExperiment, config: RunConfig) -> str:
    """Versions of what computes, and the checksum of each file of both packages and of the user's own."""
    root, packages = Path(__file__).parents[2], ("dat", "dual_attention")
    paths = sorted(path for package in packages for path in (root / package).rglob("*.py"))
    files = {path.relative_to(root).as_posix(): sha256_of(path) for path in paths}
    files["experiment"] = sha256_of(Path(inspect.getfile(type(experiment))))
    files |= {path.name: sha256_of(path) for path in own_files(experiment, config) if path.is_file()}
    return "\n".join(f"{name} {value}" for name, value in {**versions(), **files}.items())


def resume(experiment: AnyExperiment, path: Path, workers: Workers, said: Said) -> RunFolder:
    """Continue the run in ``path``, which may ask for what was ``said`` on the network."""
    folder = RunFolder.open(path)
    name = name_in(folder.read_values(), folder.config)
    if not goes_by(experiment, name):
        raise ValueError(f"{folder.config}: a run of {name}, not of {experiment.source or experiment.name}")
    return resume_run(experiment, path, workers, online=said)
