"""Ablations: every head, relation and symbol path of a model taken away in turn, and what that does to its predictions.

Shapes: B examples of a batch, all of them the same one; P places of a prediction; V tokens or classes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from dual_attention.functional import cross_entropy
from dual_attention.generation import evaluating
from dual_attention.model_analysis.capture import uncompiled
from dual_attention.model_analysis.interventions import Intervention, Rotated
from dual_attention.model_analysis.interventions.edits import Edit, edits_of
from dual_attention.model_analysis.interventions.targets import TAPS
from dual_attention.model_analysis.sites import choose_sites

from .images import ImageSession
from .opening import Explored
from .questions import QuestionSession
from .recording import SWITCHED
from .requests import Json, integer_of, text_of
from .session import Session
from .switches import CONTROLS, Switch, change_in_words, interventions_of, requested_change

MOST_CONTROLS = 20
"""Random directions that a page may ask for, each of which takes a forward pass for each part."""

MOST_EXAMPLES = 16
"""Examples of a batch."""

MOST_PLACES = 2048
"""Places of a batch, so that long texts pass alone."""

MOST_NUMBERS = 1 << 24
"""Logits of a batch."""

ABLATED = (Session, ImageSession, QuestionSession)
"""Sessions whose models predict something."""


class Subject(NamedTuple):
    """The predictions of a model for one example.

    Attributes:
        logits: calls the model with that many copies of the example; ``(B, P, V)``.
        answers: what is scored at each place, ``(P,)``, or fewer where the last ones have no answer.
        scored: what that is, in words.
    """

    logits: Callable[[nn.Module, int], Tensor]
    answers: Tensor
    scored: str


def subject_of(session: Explored, request: Mapping[str, Any]) -> Subject:
    """The predictions for the text, question or image of a request.

    Raises:
        ValueError: for one that the model cannot read.
    """
    if isinstance(session, ImageSession):
        x = session.normalised(session.pixels_of_page(request.get("pixels")))

        def classes(model: nn.Module, copies: int) -> Tensor:
            return model(x.expand(copies, -1, -1, -1))[:, None]

        with session.reserved() as model, evaluating(model):
            return Subject(classes, classes(model, 1)[0].argmax(-1), "the class that the model itself names")
    if isinstance(session, QuestionSession):
        question = session.question(text_of(request))
        with session.reserved() as model, evaluating(model):
            read, answer = session.answer(model, question)
        options = session.options(question)

        def characters(model: nn.Module, copies: int) -> Tensor:
            given = {name: value.expand(copies, -1) for name, value in options.items()}
            return model(question.expand(copies, -1), *[read.expand(copies, -1)] * 2, **given)[0]

        return Subject(characters, answer[0], "a character of the answer that the model itself gives")
    assert isinstance(session, Session)
    return subject_of_tokens(session, session.tokens(text_of(request)))


def subject_of_tokens(session: Session, ids: list[int]) -> Subject:
    """The predictions for the tokens of a text."""
    tokens = session.tensor(ids)
    return Subject(lambda model, copies: model(tokens.expand(copies, -1)).logits, tokens[0, 1:], "a token of the text")


class SwitchedPart(NamedTuple):
    """A part of a model that is taken away.

    Attributes:
        switch: the head, relation, or symbols of a head.
        alone: whether its example must be the only one of a batch, since all examples share relative symbols.
    """

    switch: Switch
    alone: bool


def switched_parts(session: Explored) -> list[SwitchedPart]:
    """Every head, relation and symbol path of a session's layers that interventions can change, in order."""
    with session.reserved() as model:
        sites = [choice.site for choice in choose_sites(model, session.layers)]
    return [
        SwitchedPart(
            Switch(mediator, site.layer, site.kind, number), mediator == "symbol" and site.has_relative_symbols
        )
        for site in sites
        for mediator in SWITCHED
        if site.tap(TAPS[mediator]) is not None
        for number in range(site.n_relations if mediator == "relation" else site.n_heads)
    ]


def batches_of(parts: Sequence[SwitchedPart], size: int) -> list[list[int]]:
    """Places of the parts that pass together."""
    found: list[list[int]] = []
    for place, part in enumerate(parts):
        if found and len(found[-1]) < size and not part.alone and not parts[found[-1][0]].alone:
            found[-1].append(place)
        else:
            found.append([place])
    return found


@contextmanager
def intervene_each(model: nn.Module, interventions: Sequence[Intervention]) -> Iterator[None]:
    """Change each example of a batch of as many by an intervention of its own, while a model is called within this.

    It computes what :func:`~dual_attention.model_analysis.interventions.intervene` does with batches of one.
    """
    edits = [(example, edit) for example, one in enumerate(interventions) for edit in edits_of(model, [one])]
    taps: dict[nn.Module, list[tuple[int, Edit, str | None]]] = {}
    for example, edit in edits:
        for name in (edit.tap, *edit.reads):
            tap = edit.choice.site.tap(name)
            assert tap is not None
            taps.setdefault(tap, []).append((example, edit, None if name == edit.tap else name))

    def hook_of(uses: Sequence[tuple[int, Edit, str | None]]) -> Callable[..., Tensor | None]:
        def passing(_module: nn.Module, _args: Any, x: Tensor) -> Tensor | None:
            changed = None
            for example, edit, read in uses:
                own = x[example : example + 1] if len(x) > 1 else x  # symbols may be the same for all
                if read is not None:
                    edit.seen[read] = own
                    continue
                if changed is None:
                    changed = x.expand(len(interventions), *x.shape[1:]).clone()
                changed[example] = edit(own)[0]
            return changed

        return passing

    with ExitStack() as hooks, uncompiled():
        for tap, uses in taps.items():
            hooks.enter_context(tap.register_forward_hook(hook_of(uses)))
        yield


def ablations(
    session: Explored,
    request: Mapping[str, Any],
    parts: Sequence[SwitchedPart] | None = None,
    subject: Subject | None = None,
) -> Iterator[Json]:
    """Effects of taking every part of a model away in turn, and those of as large a change in random directions.

    Args:
        request: ``text``, or the ``pixels`` of an image as its recording has them; ``change`` and ``factor``, as of
            :func:`~.switches.switch_effects`; ``draws`` of random directions, to :data:`MOST_CONTROLS`.
        parts: what is taken away; by default everything.
        subject: what is predicted, if it is not that of the request.

    Yields:
        At first ``parts``, as :class:`~.switches.Switch` has them; the ``change`` in words; ``draws``; the number of
        forward ``passes``; what is ``scored``; and the ``loss`` as it is, in nats, None where nothing is scored. Then
        for each batch its ``draw``, None for the ablation itself; the number of the ``first`` part; and ``effects`` of
        this part and those that follow: change of the loss (or None), and divergence of the predictions from those as
        they are, the mean over places, both in nats.

    Raises:
        ValueError: for what the model cannot read, and a change or number out of range.
    """
    draws = integer_of(request, "draws", 0, MOST_CONTROLS, CONTROLS)
    change, factor = requested_change(request)
    parts = switched_parts(session) if parts is None else parts
    changes = [interventions_of([part.switch], change, factor)[0] for part in parts]
    subject = subject or subject_of(session, request)
    with session.reserved() as model, evaluating(model):
        before = subject.logits(model, 1).float().log_softmax(-1)
    loss = _losses(before, subject.answers)
    yield {
        "parts": [part.switch._asdict() for part in parts],
        "change": change_in_words(change, factor, "example"),
        "draws": draws,
        "passes": 1 + len(parts) * (1 + draws),
        "scored": subject.scored,
        "loss": None if loss is None else float(loss),
    }
    size = max(1, min(MOST_EXAMPLES, MOST_PLACES // before.shape[1], MOST_NUMBERS // before.numel()))
    for draw in (None, *range(draws)):
        for places in batches_of(parts, size):
            batch = [changes[place] for place in places]
            if draw is not None:  # with the seeds that the page of interventions gives a single switch
                batch = [Rotated(one, seed=draw) for one in batch]
            with session.reserved() as model, evaluating(model), intervene_each(model, batch):
                after = subject.logits(model, len(batch)).float().log_softmax(-1)
            divergences = (before.exp() * (before - after)).sum(-1).mean(-1).tolist()
            losses = _losses(after, subject.answers)
            rises = [None] * len(batch) if losses is None or loss is None else (losses - loss).tolist()
            effects = [list(pair) for pair in zip(rises, divergences, strict=True)]
            yield {"draw": draw, "first": places[0], "effects": effects}


def _losses(log_probs: Tensor, answers: Tensor) -> Tensor | None:
    """Mean cross-entropy of the answers in nats for each example, ``(B,)``; None without an answer."""
    if not len(answers):
        return None
    scored = log_probs[:, : len(answers)]
    return cross_entropy(scored, answers.expand(len(scored), -1), reduction="none").mean(-1)


def ablated(session: Explored, request: Mapping[str, Any], *given: Any) -> Json:
    """All that :func:`ablations` yields, in one object as a page keeps it, see :func:`joined_batches`."""
    return joined_batches(ablations(session, request, *given))


def joined_batches(found: Iterable[Json]) -> Json:
    """The first item of :func:`ablations`, and ``effects`` and ``controls`` of each part: the effect, and those of
    random directions.
    """
    begin, *batches = found
    effects: list[Any] = [None] * len(begin["parts"])
    controls: list[list[Any]] = [[] for _ in effects]
    for batch in batches:
        for place, effect in enumerate(batch["effects"], batch["first"]):
            if batch["draw"] is None:
                effects[place] = effect
            else:
                controls[place].append(effect)
    return {**begin, "effects": effects, "controls": controls}
