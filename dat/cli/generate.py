"""``dat generate``: a trained language model continues a text."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dual_attention._base.words import printable
from dual_attention.generation import CausalLM, beam_search, generate_stream
from dual_attention.generation.tokenizer import TextStream, Tokenizer
from dual_attention.language_models import LanguageModel

from .._terminal import tell
from ..checkpoints import CHECKPOINT, open_checkpoint
from ..data.text.files import standard_input
from ..estimate.units import DTYPES
from ..experiments import experiment_of_run
from ..experiments.files import run_given, takes_file
from ..training.config_io import option_parser, parse_options
from ..training.configs import MOST_THREADS, MachineConfig, check
from ..training.device import prepare_device

DTypeName = Literal["float32", "bfloat16", "float16"]

TEMPERATURE = 0.8
"""Temperature by default: a little less random than the model."""

MOST_BEAMS = 1024
"""Texts that beam search follows."""

_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


class WithinVocabulary(nn.Module):
    """A language model with the logits of a tokenizer's tokens only, where it has more to round up their number.

    Args:
        model: see :class:`~dual_attention.generation.CausalLM`.
        vocab_size: tokens that may be generated, from 0 on.
    """

    def __init__(self, model: Any, vocab_size: int) -> None:
        super().__init__()
        self.model = model
        self.block_size: int = model.block_size
        self.vocab_size = vocab_size

    def new_cache(self, max_length: int | None = None) -> Any:
        """New cache of the model."""
        return self.model.new_cache(max_length)

    def forward(self, x: Tensor, *, all_logits: bool = True, **arguments: Any) -> tuple[Tensor]:
        logits, *_ = self.model(x, all_logits=all_logits, **arguments)
        return (logits[..., : self.vocab_size],)


def continuations(
    model: CausalLM, tokenizer: Tokenizer, prompt: str, *, stop: Sequence[str] = (), device: Any = "cpu", **options: Any
) -> Iterator[str]:
    """The text that a model writes after a prompt, piece by piece as its characters become certain.

    It ends with the end token, which is not part of it, a stop text or ``max_new_tokens``.

    Args:
        stop: texts at which to end; they are not part of the result.
        options: of :func:`~dual_attention.generation.generate_stream`, or with ``num_beams`` above 1 of
            :func:`~dual_attention.generation.beam_search`, which yields the text in one piece.
    """
    text = TextStream(stop)
    ids = tokenizer.encode_alone(check_prompt(prompt))
    if not ids:
        raise ValueError("prompt: expected a text of which the tokenizer knows something, got none of its characters")
    idx = torch.tensor([ids], device=device)
    beams = options.pop("num_beams", 1)
    if beams == 1:
        tokens = (int(token) for token in generate_stream(model, idx, stop_tokens=tokenizer.end, **options))
    else:
        found = beam_search(model, idx, num_beams=beams, stop_tokens=tokenizer.end, **options)
        tokens = iter(found.tokens[0, 0, idx.shape[1] :].tolist())
    return _decoded(tokens, tokenizer, text)


def _decoded(tokens: Iterator[int], tokenizer: Tokenizer, text: TextStream) -> Iterator[str]:
    for token in tokens:
        if token == tokenizer.end:
            break
        if piece := text.add(tokenizer.token_bytes(token)):
            yield piece
        if text.ended:
            return
    if piece := text.close():
        yield piece


def check_prompt(prompt: str) -> str:
    """The prompt."""
    if not prompt:
        raise ValueError("prompt: expected a text of at least one character, got an empty one")
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"prompt: expected UTF-8 text ({error})") from error
    return prompt


def _parser(prog: str) -> Any:
    """The options of ``dat generate``."""
    parser = option_parser(
        prog=prog, description="Let a trained language model continue a text, token by token as they are chosen."
    )
    add, default = parser.add_argument, f"by default {TEMPERATURE}, without beams"
    add("checkpoint", metavar="CHECKPOINT", help=CHECKPOINT)
    add("prompt", metavar="PROMPT", help='Text to continue; "-" reads it from standard input.')
    add("--max_new_tokens", type=int, default=200, help="Most tokens to add.")
    add("--temperature", type=float, help=f"Divides the logits; 0: always the likeliest token; {default}.")
    add("--top_k", type=int, help="Draw from that many of the likeliest tokens only.")
    add("--top_p", type=float, help="Draw only from the likeliest tokens that have this probability together.")
    add("--min_p", type=float, help="Draw only from tokens at least this fraction as likely as the likeliest.")
    add("--repetition_penalty", type=float, help="Above 1: tokens that have occurred become less likely.")
    add("--seed", type=int, help="Of the random numbers; without it they differ each time.")
    add("--num_beams", type=int, default=1, help="Above 1: beam search instead of drawing.")
    add("--stop", type=str, action="append", metavar="TEXT", help="End before this text; may be given several times.")
    add("--continuation_only", action="store_true", help="Do not print the prompt.")
    add("--tokenizer", type=str, help="bytes, gpt2, a tokenizer.json, or a folder with one; else the checkpoint's.")
    devices = Literal["auto", "cpu", "cuda"]
    add("--device", type=devices, default="auto", help="A GPU if there is one, or the one named.")
    add("--dtype", type=DTypeName, default="float32", help="Of the model.")
    add("--threads", type=int, help="CPU threads; by default one for each core.")
    takes_file(parser)
    return parser


def generate(prog: str, arguments: Sequence[str]) -> int:
    """``dat generate``."""
    options = parse_options(_parser(prog), arguments)
    run_given(options)
    choices = sampling_options(options)
    prompt = standard_input("prompt") if options.prompt == "-" else options.prompt
    check_prompt(prompt)  # before anything is loaded
    device = prepare_device(MachineConfig(device=options.device, threads=options.threads))
    checkpoint = open_checkpoint(options.checkpoint, device=device, dtype=DTYPES[options.dtype])
    if not isinstance(checkpoint.model, LanguageModel):
        run, kind = checkpoint.run, type(checkpoint.model).__name__
        what = f"its {kind}" if run is None else f"a run of {experiment_of_run(run).title}, whose model"
        raise ValueError(f"{options.checkpoint}: {what} writes no text; expected a causal language model")
    tokenizer = checkpoint.tokenizer(options.tokenizer)
    if checkpoint.state.startswith("unfinished"):
        tell(f"{options.checkpoint} is {checkpoint.state}")
    model = WithinVocabulary(checkpoint.model, tokenizer.vocab_size)
    pieces = continuations(model, tokenizer, prompt, stop=options.stop or (), device=device, **choices)
    shown = printable if sys.stdout.isatty() else str  # a file gets what the model wrote
    try:
        if not options.continuation_only:
            print(shown(prompt), end="", flush=True)
        for piece in pieces:
            print(shown(piece), end="", flush=True)
    finally:
        print(flush=True)
    return 0


def sampling_options(options: Any) -> dict[str, Any]:
    """Those that generation is given."""
    seed, beams, threads = options.seed, options.num_beams, options.threads
    check(seed is None or 0 <= seed < 1 << 64, "seed", "an integer from 0 to 2**64 - 1", seed)
    check(beams <= MOST_BEAMS, "num_beams", f"an integer from 1 to {MOST_BEAMS:,}", beams)
    check(threads is None or 1 <= threads <= MOST_THREADS, "threads", f"an integer from 1 to {MOST_THREADS:,}", threads)
    found = {"max_new_tokens": options.max_new_tokens}
    given = {name: getattr(options, name) for name in _OF_SAMPLING if getattr(options, name) is not None}
    if options.num_beams == 1:
        return {**found, "temperature": TEMPERATURE, **given}
    if given:
        raise ValueError(f"num_beams: beam search draws nothing; leave out {', '.join(given)}")
    return {**found, "num_beams": options.num_beams}
