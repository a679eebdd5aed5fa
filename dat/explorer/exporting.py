"""Writing a view into a file: a page that opens from a disk, a picture, or numbers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dual_attention._base.files import write_atomically

from . import figures
from .ablations import ABLATED, ablated
from .answers import model_facts
from .cards import card
from .dictionaries import made_dictionary
from .html import Page, page_html
from .image_cards import image_card
from .images import ImageSession, Shown
from .opening import Explored
from .patching import patched
from .recording import Recording
from .requests import Json
from .session import Session
from .streaming import collected, map_of_step, maps_of
from .switches import Switch, switch_effects
from .view_state import SWITCH_CODES, View, heads_of, named_heads, within
from .writes import written


@dataclass(frozen=True)
class Exporter:
    """A view of a session on a text or an image.

    Attributes:
        session: of the model.
        source: the text, or the sample or file of an image.
        view: what is shown.
        command: that opens the model, for whoever has the file.
        caption: of a page.
    """

    session: Explored
    source: str
    view: View
    command: str = ""
    caption: str = ""

    def __post_init__(self) -> None:
        page, of_language = self.view.page, ("dictionary", "generate", "interventions", "patching", "writes")
        if page == "card" and not isinstance(self.session, Session | ImageSession):
            raise ValueError("view: the page card is of language models and image classifiers, and this is neither")
        if page in of_language and not isinstance(self.session, Session):
            raise ValueError(f"view: the page {page} is of language models, and this is none")
        if page == "effects" and not isinstance(self.session, ABLATED):
            raise ValueError("view: this model predicts nothing, so that nothing can be taken away")
        if self.view.model and self.session.beside is None:
            raise ValueError("view: it is of two models; give the second with --beside")
        if page == "effects" and self.view.corpus and self.shown.corpus is None:
            raise ValueError("view: these effects are over a corpus; give it with --corpus")
        if page == "patching" and not self.view.other:
            raise ValueError("view: the page patching needs a second text, as in page=patching&other=TEXT")
        if page == "vision" and not isinstance(self.session, ImageSession):
            raise ValueError("view: the page vision is of images, and this model reads texts")

    def write(self, path: Path) -> int:
        """Write a file of the kind that its name ends in; returns its bytes.

        Raises:
            ValueError: for another ending, or a view that cannot be shown or not in that way.
        """
        ending, page = figures.ending_of(path), self.view.page
        if ending in figures.PICTURES and page not in figures.MAPS:
            raise ValueError(f"export: the page {page} has no picture; expected a name that ends in .csv or .html")
        if ending == ".html":
            data = self.page.encode()
        elif ending == ".csv":
            data = self.seen.csv.encode()
        else:
            data = self.seen.picture(ending)
        write_atomically(path, data)
        return len(data)

    @property
    def page(self) -> Page:
        """The page, with the answers that the view shows."""
        answers = {} if self._answer is None else {self._answer[0]: self._answer[1]}
        if self.view.page == "card":
            answers["fires"] = {
                key: self.shown.fires(one["layer"], one["relation"]) for key, one in answers["cards"].items()
            }
        kept = self.session.kept | (answers if self.shown is self.session else {"beside": answers})
        recording = self.session.packed(self.source, [self.view.layer])
        return page_html(recording, kept=kept, view=self.view.fragment, command=self.command, caption=self.caption)

    @property
    def seen(self) -> figures.Seen:
        """The view as numbers and figure."""
        page = self.view.page
        if page in ("relations", "attention"):
            if self.view.model == 2:
                return figures.seen_pairs(self.session.beside.record(self.source), self.view, self._recording)
            return figures.seen_pairs(self._recording, self.view)
        if page == "symbols":
            return figures.seen_symbols(self._recording, self.view)
        if page == "vision":
            return figures.seen_patches(*self._image, self.view)
        assert self._answer is not None
        found = self._answer[1]
        if page == "effects":
            return figures.seen_ablations(found, self.view)
        if page == "card":
            (found,) = found.values()
            return figures.seen_card(found)
        if page == "dictionary":
            return figures.seen_dictionary(found, self._recording, self.view)
        if page == "generate":
            maps = maps_of(found["sites"])
            chosen = maps[within("map", self.view.map, len(maps))]
            rows = [map_of_step(found, step, chosen) for step in range(len(found["steps"]))]
            return figures.seen_steps(found, rows, chosen.title)
        return _SEEN[page](found)

    @property
    def shown(self) -> Explored:
        """The session of the model that the view is of: that beside, if it is."""
        return self.session.beside if self.view.model == 1 else self.session

    @cached_property
    def _image(self) -> tuple[Recording, Shown]:
        assert isinstance(self.session, ImageSession)
        return self.session.record(*self.session.pixels(self.source))

    @cached_property
    def _recording(self) -> Recording:
        return self._image[0] if isinstance(self.shown, ImageSession) else self.shown.record(self.source)

    @cached_property
    def _answer(self) -> tuple[str, Json] | None:
        """Name and content of the answer that the page of the view asks its server for; None where it asks nothing."""
        session, view = self.shown, self.view
        if view.page == "model":
            return "model", model_facts(session)
        if view.page == "card":
            heads = heads_of(self._recording, view, relational=True)
            asked = {"layer": heads.layer, "relation": view.relation}
            if isinstance(session, ImageSession):
                found = image_card(session, asked)
            else:
                assert isinstance(session, Session)
                found = card(session, {"text": self.source, **asked})
            return "cards", {f"{found['layer']} {found['relation']}": found}
        if view.page == "effects" and view.corpus:
            return "corpus", session.kept["corpus"]
        if view.page == "effects":
            return "effects", ablated(session, {**self._example, **self._change, "draws": view.draws})
        if not isinstance(session, Session):
            return None
        if view.page == "interventions":
            return "interventions", switch_effects(session, self._switches)
        if view.page == "writes":
            return "writes", written(session, {"by": view.by, **self._at("target")})
        if view.page == "patching":
            by = "head" if view.each else "kind"
            return "patching", patched(session, {"other": view.other, "by": by, **self._at("answer", "foil")})
        if view.page == "dictionary":
            return "dictionary", session.dictionary or _last(made_dictionary(session, {"text": self.source}))
        if view.page == "generate":
            asked = {name: getattr(view, name) for name in ("tokens", "temperature", "top_k", "seed")}
            return "generation", collected(session, {"text": self.source, **asked})
        return None

    @property
    def _switches(self) -> Json:
        if self.view.off == "beside":
            return {"beside": 1, **self._at()}
        found = [switch_of(code, self._recording)._asdict() for code in self.view.off.split("_") if code]
        return {"switches": found, **self._change, **self._at()}

    def _at(self, *more: str) -> Json:
        """The text, and of the place and more numbers of the view those that it has."""
        given = {name: getattr(self.view, name) for name in ("place", *more)}
        return {"text": self.source, **{name: value for name, value in given.items() if value is not None}}

    @property
    def _change(self) -> Json:
        return {"change": self.view.change, "factor": self.view.factor}

    @property
    def _example(self) -> Json:
        """The text or image, as a page sends it."""
        if isinstance(self.session, ImageSession):
            return {"pixels": self._image[1].json["pixels"]}
        return {"text": self.source}


def switch_of(code: str, recording: Recording) -> Switch:
    """The switch of a code of :data:`~.view_state.SWITCH_CODES` in an address.

    Raises:
        ValueError: if it is no code, or the layer has nothing of the kind.
    """
    match = re.fullmatch(r"(sa|ra|r|s)(.+)\.(\d{1,9})", code, re.ASCII)
    if match is None:
        raise ValueError(f"view: expected switches such as r1.3_sa0.1, each {SWITCH_CODES}; got {code!r}")
    letters, layer, number = match.groups()
    mediator, kind = _LETTERS[letters]
    able = [heads for heads in recording.heads if mediator in heads.mediators and kind in ("", heads.kind)]
    if not able:
        raise ValueError(f"view: {code}: this model has no {mediator} to be switched")
    heads = named_heads(able, View(layer=layer))
    count = heads.relations.maps if mediator == "relation" and heads.relations is not None else heads.n_heads
    return Switch(mediator, heads.layer, heads.kind, within(f"{mediator} of {heads.layer}", int(number), count))


_SEEN = {
    "interventions": figures.seen_effects,
    "model": figures.seen_model,
    "patching": figures.seen_patching,
    "writes": figures.seen_writes,
}
_LETTERS = {"r": ("relation", ""), "sa": ("head", "sensory"), "ra": ("head", "relational"), "s": ("symbol", "")}


def _last(parts: Iterator[Json]) -> Json:
    *_, last = parts
    return last["dictionary"]
