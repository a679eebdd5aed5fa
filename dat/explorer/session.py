"""Sessions: a model of texts and its tokenizer, asked by pages for the recordings of texts."""

import copy
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from dual_attention.generation.tokenizer import Tokenizer
from dual_attention.language_models import LanguageModel
from dual_attention.model_analysis.sites import LayerChoice, choose_sites
from dual_attention.model_analysis.views.tokens import token_labels

from ..checkpoints import Checkpoint
from . import packing
from .memory import check_recording_fits
from .packing import Bits, Packed, pack
from .recording import Recording, record
from .requests import Json, Malformed, text_of
from .view_state import short_layer

DEFAULT_TEXT = (
    "The relation between two objects is not a property of either. The cat sat on the mat; the dog sat on the log."
)

TextEncoder = EncoderModel | EncoderForMaskedLM | EncoderForSequenceClassification
"""Models of texts that generate none, and of which there are maps only."""


@dataclass(frozen=True, kw_only=True)
class ModelSession:
    """A model that is looked into, of any kind.

    Nothing of it changes but what the model reads at the moment, which a lock keeps to one.

    Attributes:
        model: in evaluation mode.
        bits: of factors, see :func:`~dat.explorer.packing.pack`.
        layers: those that are recorded; by default all.
        checkpoint: what was opened.
        corpus: effects over a corpus, as of :attr:`~.corpus.CorpusRun.json`; empty until a page has had them measured.
        run: over that corpus, a :class:`~.corpus.CorpusRun`, if pages start it.
        beside: session of a second model, of which pages show the same text; see :func:`~.opening.with_beside`.
    """

    model: Any
    bits: Bits | None = None
    layers: LayerChoice = None
    checkpoint: Checkpoint | None = None
    corpus: Json | None = field(default=None, repr=False)
    run: Any = field(default=None, repr=False)
    beside: Any = field(default=None, repr=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def kept(self) -> Json:
        """Answers that its pages have from the beginning: of the corpus, all but where each relation fires."""
        if not self.corpus:
            return {}
        return {"corpus": {name: value for name, value in self.corpus.items() if name != "fires"}}

    def fires(self, layer: Any, relation: Any) -> Json:
        """Strongest pairs of a relation in the corpus; empty if there are none."""
        return (self.corpus or {"fires": {}})["fires"].get(f"{layer} {relation}", {})

    @contextmanager
    def reserved(self) -> Iterator[Any]:
        """The model, which nobody else calls within this context, so that hooks see one text."""
        with self._lock:
            yield self.model


@dataclass(frozen=True)
class TextSession(ModelSession):
    """A model of texts that is looked into, by one text at a time.

    Attributes:
        tokenizer: of its tokens.
        title, facts: of its pages.
    """

    model: Any
    tokenizer: Tokenizer
    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    _large: list[tuple[str, Packed]] = field(default_factory=list, repr=False, compare=False)
    _again: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def default(self) -> str:
        """Text to show first, if nothing else is asked for: as much of one as the model reads."""
        words, most = DEFAULT_TEXT.split(" "), min(self.context, (self.beside or self).context)
        while len(words) > 1 and len(self.tokenizer.encode_alone(" ".join(words))) > most:
            words.pop()
        return " ".join(words)

    def check(self, text: str) -> None:
        """Raise ``ValueError`` if the model cannot read a text."""
        self.tokens(text)

    @property
    def context(self) -> int:
        """Most tokens of a text."""
        return getattr(self.model, "encoder", self.model).block_size

    def tensor(self, tokens: list[int]) -> torch.Tensor:
        """Tokens as the model takes them, ``(1, N)``."""
        return torch.tensor([tokens], device=next(self.model.parameters()).device)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text.

        Raises:
            ValueError: if it has none, or more than a model reads at a time, or is not Unicode.
        """
        if not text:
            raise ValueError("text: expected at least one character, got an empty text")
        tokens = self.tokenizer.encode_alone(text)
        if not tokens:
            raise ValueError("text: expected one of which the tokenizer knows something, got none of its characters")
        for reader in (self, self.beside or self):
            if len(tokens) > reader.context:
                who = f"the model {reader.title}" if self.beside else "the model"
                raise ValueError(
                    f"text: {len(tokens):,} tokens, but {who} reads at most {reader.context:,} at a time; shorten it"
                )
        return tokens

    def record(self, text: str) -> Recording:
        """Record the model on a text; errors as :meth:`tokens`, and if memory does not suffice."""
        return self.record_tokens(self.tokens(text))

    def record_tokens(self, tokens: list[int]) -> Recording:
        """Record the model on the tokens of a text; ``ValueError`` if memory does not suffice."""
        check_recording_fits((choice.site for choice in choose_sites(self.model, self.layers)), len(tokens))
        x, labels = self.tensor(tokens), token_labels(self.tokenizer, tokens)
        with self.reserved() as model:
            facts = {**self.facts, "tokens": f"{len(tokens)} of {self.context}"}
            about = {"title": self.title, "facts": facts, "reads": "text", "layers": self.layers}
            return record(model, lambda: model(x), {"tokens": labels}, **about)

    def packed(self, text: str, layers: Collection[str] = ()) -> Json:
        """The recording of a text as JSON, with that of the model beside, if there is one; errors as :meth:`tokens`.

        Args:
            layers: of a large recording, of more than :data:`~.packing.WHOLE`, those whose maps are in it, by name or
                as addresses have them, the first if there are none of these; without, a page asks :meth:`maps` for
                each. All if layers were chosen for the session.
        """
        if self.beside is not None:
            self.check(text)
            alone = replace(self, beside=None)
            return {**alone.packed(text, layers), "beside": self.beside.packed(text, layers)}
        found = self._packed(text)
        if found.size <= packing.WHOLE:
            return {**found.json, "source": text}
        self._large[:] = [(text, found)]
        if not layers:
            return {**found.outline, "source": text, "large": True}
        names = list(dict.fromkeys(heads["layer"] for heads in found.outline["heads"]))
        if self.layers is None:
            names = [name for name in names if name in layers or short_layer(name) in layers] or names[:1]
        json = found.of_layers(names)
        return {**json, "facts": {**json["facts"], "maps": f"of {', '.join(names)} only"}, "source": text}

    def maps(self, request: Mapping[str, Any]) -> Json:
        """Maps of a recording: of its ``text``, ``heads`` by place, the ``name`` of factors, and ``numbers``."""
        text, numbers = text_of(request), request.get("numbers")
        with self._again:  # the last large one is kept, and many maps are asked for at a time
            if [text] != [kept for kept, _ in self._large]:
                self._large[:] = [(text, self._packed(text))]
            [(_, found)] = self._large
        try:
            return {"maps": found.maps(request["heads"], request["name"], list(numbers or ()))}
        except (IndexError, KeyError, TypeError) as error:
            raise Malformed("The request names no maps of this text.") from error

    def _packed(self, text: str) -> Packed:
        return pack(self.record(text), self.bits)


@dataclass(frozen=True)
class Session(TextSession):
    """A language model, which also continues texts, and of which heads, relations and symbols are switched.

    Attributes:
        dictionary: a dictionary of its relations, as a page reads it.
    """

    dictionary: Json | None = field(default=None, repr=False)

    def named(self, token: int) -> Json:
        """A token by ``id`` and label."""
        return {"id": token, "token": token_labels(self.tokenizer, [token])[0]}

    def twin(self) -> LanguageModel:
        """The same model with modules of its own and shared parameters: hooks on it see no other call."""
        with self.reserved() as model:  # whose hooks of the moment would be copied
            shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
            return copy.deepcopy(model, shared)
