"""The command that answers one input, and says without which relations the answer would differ: ``dat predict``."""

from collections.abc import Sequence
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import nn

from dual_attention._base.words import printable
from dual_attention.generation import evaluating

from .._native import use_native
from ..checkpoints import CHECKPOINT
from ..data.mathematics import decode_text
from ..experiments.files import run_given, takes_file
from ..training.config_io import option_parser, parse_options
from .ablations import ABLATED, Subject, ablated, subject_of, switched_parts
from .command import waiting, what_is_read
from .corpus import fires
from .example import EXAMPLES
from .images import ImageSession
from .opening import Explored, open_session
from .packing import packed_array
from .questions import QuestionSession
from .recording import Recording
from .requests import Json

SHOWN = 3
"""Relations, and answers, that are printed."""


class ReasonedAnswer(NamedTuple):
    """The answer of a model to an input.

    Attributes:
        words: likely answers and their probabilities, the likeliest first; None where there is but one.
        about: the input, in words.
        recording: of the model on it.
        subject: the prediction, which changes if parts are taken away.
    """

    words: Sequence[tuple[str, float | None]]
    about: str
    recording: Recording
    subject: Subject


def answer_to(session: Explored, source: str) -> ReasonedAnswer:
    """The answer to a text, an image, or a question; that of a language model is the next token.

    Raises:
        ValueError, OSError: for what it cannot read, or if it predicts nothing.
    """
    if isinstance(session, ImageSession):
        pixels, about = session.pixels(source)
        recording, shown = session.record(pixels, about)
        request = {"pixels": packed_array(pixels.permute(1, 2, 0).contiguous())}
        return ReasonedAnswer(shown.classes[:SHOWN], about, recording, subject_of(session, request))
    if not isinstance(session, ABLATED):
        raise ValueError(
            "checkpoint: this model predicts nothing; expected one of images, a language model, or a run of mathematics"
        )
    recording, subject = session.record(source), subject_of(session, {"text": source})
    if isinstance(session, QuestionSession):
        return ReasonedAnswer([(decode_text(subject.answers), None)], source, recording, subject)

    def last(model: nn.Module, copies: int) -> torch.Tensor:
        return subject.logits(model, copies)[:, -1:]

    with session.reserved() as model, evaluating(model):
        shares, tokens = last(model, 1)[0, 0, : session.tokenizer.vocab_size].float().softmax(-1).topk(SHOWN)
    words = [repr(session.tokenizer.decode([token])) for token in tokens.tolist()]
    scored = "the next token that the model itself names"
    return ReasonedAnswer(
        [*zip(words, shares.tolist(), strict=True)], source, recording, Subject(last, tokens[:1], scored)
    )


def reasons_for(session: Explored, answer: ReasonedAnswer) -> list[Json]:
    """Relations by how far the prediction moves without them, in nats, the furthest first; heads of a model without
    relations. With the furthest that a random direction moves it, and the strongest ``pair`` of a relation.
    """
    parts = switched_parts(session)
    chosen = [part for part in parts if part.switch.mediator == "relation"]
    chosen = chosen or [part for part in parts if part.switch.mediator == "head"]
    found, pairs = ablated(session, {}, chosen, answer.subject), fires(answer.recording)["relations"]
    if not all(isfinite(nats) for _, nats in found["effects"]):
        raise ValueError("checkpoint: expected finite predictions of the model, got nan or infinity")
    reasons = []
    for part, (_, moved), controls in zip(chosen, found["effects"], found["controls"], strict=True):
        switch = part.switch
        reason = {"part": f"{switch.part} of {switch.layer}", "nats": moved}
        own = pairs.get(f"{switch.layer} {switch.number}") if switch.mediator == "relation" else None
        reason |= {"random": max(nats for _, nats in controls), "pair": own and own["pairs"][0]["example"]}
        reasons.append(reason)
    return sorted(reasons, key=lambda reason: -reason["nats"])


def reasons_in_words(answer: ReasonedAnswer, reasons: Sequence[Json]) -> str:
    """The answer and its reasons, for people."""
    words = ", ".join(name if share is None else f"{name} {share:.1%}" for name, share in answer.words)
    about = (
        "Without each of these, the answer's distribution changes by so many nats "
        "(KL divergence; in brackets: for the strongest random change as large):"
    )
    lines = [answer.about, f"answer: {words}", "", about]
    for reason in reasons[:SHOWN]:
        own, random = (max(0.0, reason[name]) for name in ("nats", "random"))  # rounding can make them negative
        lines.append(f"  {reason['part']}: {own:.3g} ({random:.3g})")
        if pair := reason["pair"]:
            receiver, sender = (pair[end]["labels"][pair[end]["at"]] for end in ("receiver", "sender"))
            lines[-1] += f"; largest between receiver {receiver} and sender {sender}: {pair['value']:.3g}"
    return "\n".join(lines)


def run_predict(prog: str, arguments: Sequence[str]) -> int:
    """``dat predict``."""
    names = " or ".join(EXAMPLES)
    parser = option_parser(
        prog=prog, description="Answer one input, and say without which relations the answer moves most."
    )
    parser.add_argument("checkpoint", metavar="NAME", help=f"A model of this package, {names}; or: {CHECKPOINT}")
    about = "Text, question or image: a file, or a sample as of `dat explore`; by default the first that a page shows."
    parser.add_argument("input", metavar="INPUT", nargs="?", help=about)
    parser.add_argument("--tokenizer", type=str, help="As of `dat generate`; by default that of the checkpoint.")
    takes_file(parser)
    options: Any = parse_options(parser, arguments)
    run_given(options)
    example = EXAMPLES.get(options.checkpoint)
    opens = example.open if example else partial(open_session, options.checkpoint)
    session = opens(tokenizer=options.tokenizer)
    use_native(session.model)
    source = (example.source if example else session.default) if options.input is None else options.input
    session.check(source)
    with waiting(f"reading the {what_is_read(session)}"):
        answer = answer_to(session, source)
        reasons = reasons_for(session, answer)
    print(printable(reasons_in_words(answer, reasons)))
    return 0
