"""``dat evaluate``: the numbers of a trained model, measured again, or of a language model on a text or on pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dual_attention._base.files import json_text
from dual_attention.language_models import LanguageModel

from .._native import use_native
from .._terminal import tell
from ..checkpoints import CHECKPOINT, open_checkpoint
from ..experiments import experiment_of_run
from ..experiments.files import run_given, takes_file
from ..training.config_io import build_parser, parse_config, read_config
from ..training.configs import MachineConfig, check
from ..training.device import prepare_device
from ..training.online import NOTHING, OPTION, OPTION_HELP
from ..training.run_folder import RunFolder
from ..training.runs import evaluate_run
from ..training.saved_weights import whose_weights
from ..training.tables import show


@dataclass(frozen=True)
class EvaluateConfig:
    """Machine on which the model is measured."""

    machine: MachineConfig = field(default_factory=MachineConfig)
    """Device and threads."""


def evaluate(prog: str, arguments: Sequence[str]) -> int:
    """``dat evaluate``."""
    about = (
        "Measure a run, or one of its checkpoints, on the evaluation sets of its experiment. Or any language "
        "model, of a run, a folder, an adapter, or a name on the hub: with --text, loss and perplexity on a text; with "
        "--pairs, the share of minimal pairs in which it finds the good sentence more probable than the bad one."
    )
    parser = build_parser(EvaluateConfig, prog=prog, description=about)
    parser.usage = "%(prog)s CHECKPOINT [--text FILE ... | --pairs FILE ...] [--KEY VALUE ...]"
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT)
    takes_file(parser)
    add = parser.add_argument
    text = (
        "Text or tokens, as data.path of `dat train language`; may be given several times. It is scored in whole "
        "sequences of the context."
    )
    add("--text", type=str, action="append", metavar="FILE", help=text)
    pairs = (
        'Minimal pairs in the format of BLiMP: JSON Lines with "sentence_good", "sentence_bad" and perhaps "field"; a '
        "file, a folder or a pattern; may be given several times."
    )
    add("--pairs", type=str, action="append", metavar="FILE", help=pairs)
    add("--tokens", type=int, help="With --text: score the first sequences with at most that many tokens.")
    add("--batch_size", type=int, help="With --text or --pairs: sequences at once; by default 16.")
    add(
        "--tokenizer", type=str, help="With --text or --pairs: as of `dat generate`; by default that of the checkpoint."
    )
    add(OPTION, action="store_true", help=OPTION_HELP)
    add("--json", action="store_true", help="Print the numbers as JSON instead of words or a table.")
    config, options = parse_config(parser, EvaluateConfig, arguments)
    run_given(options)
    if options.text is not None or options.pairs is not None:
        return _evaluate_language(options, config.machine)
    for name, needed in (("tokens", "--text"), ("batch_size", "--text or --pairs"), ("tokenizer", "--text or --pairs")):
        check(getattr(options, name) is None, name, f"none without {needed}", getattr(options, name))
    folder, checkpoint = RunFolder.at(options.checkpoint)
    if folder.path.is_dir() and not folder.config.is_file():
        raise ValueError(
            f"{options.checkpoint}: no run, which has evaluation sets; name a text (--text FILE) or minimal pairs "
            "(--pairs FILE)"
        )
    experiment = experiment_of_run(RunFolder.open(folder.path))
    online = None if options.online else NOTHING
    numbers = evaluate_run(experiment, options.checkpoint, config.machine, online=online)
    tell(f"{options.checkpoint}: {whose_weights(folder, checkpoint)}")
    if options.json:
        print(json_text(numbers, indent=2))
        return 0
    if checkpoint is not None:
        print(f"{checkpoint}:")
    show(experiment.describe({} if checkpoint or not folder.finished else folder.read_result(), numbers))
    return 0


def _evaluate_language(options: Any, machine: MachineConfig) -> int:
    from ..experiments.language.config import LanguageConfig
    from ..experiments.language.evaluation import evaluate_text
    from ..experiments.language.experiment import numbers_in_words
    from ..experiments.language.pairs import evaluate_pairs, read_minimal_pairs, table_of_pairs
    from ..experiments.language.problem import DocumentMask, documents_of

    check(options.text is None or options.pairs is None, "pairs", "none with --text", options.pairs)
    check(options.pairs is None or options.tokens is None, "tokens", "none with --pairs", options.tokens)
    tokens, size = options.tokens, 16 if options.batch_size is None else options.batch_size
    check(tokens is None or tokens >= 1, "tokens", "a positive integer", tokens)
    check(size >= 1, "batch_size", "a positive integer", size)
    device, pairs = prepare_device(machine), None if options.pairs is None else read_minimal_pairs(options.pairs)
    checkpoint = open_checkpoint(options.checkpoint, device=device)
    if not isinstance(checkpoint.model, LanguageModel):
        kind = type(checkpoint.model).__name__
        raise ValueError(f"{options.checkpoint}: expected a causal language model, got a {kind}")
    tokenizer = checkpoint.tokenizer(options.tokenizer)
    whose = None if checkpoint.run is None else checkpoint.whose
    use_native(checkpoint.model)
    if pairs is not None:
        found = evaluate_pairs(checkpoint.model, tokenizer, pairs, device=device, batch_size=size)
        if whose is not None:
            tell(whose)
        print(json_text(found, indent=2)) if options.json else show(table_of_pairs(options.checkpoint, found))
        return 0
    documents = read_as = None
    if checkpoint.run is not None:
        read_as = read_config(LanguageConfig, checkpoint.run.config).data
        documents = documents_of(read_as, tokenizer)
    elif checkpoint.kind == "babylm format":
        documents = DocumentMask(tokenizer.end, restart=False)  # as all of them were trained
    numbers = evaluate_text(
        checkpoint.model,
        tokenizer,
        tuple(options.text or ()),
        device=device,
        tokens=tokens,
        batch_size=size,
        documents=documents,
        read_as=read_as,
    )
    if whose is not None:
        tell(whose)
    if options.json:
        print(json_text({"text": numbers}, indent=2))
    else:
        show(f"{options.checkpoint}: {numbers_in_words(numbers)}")
    return 0
