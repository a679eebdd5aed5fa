"""Relation dictionaries of a model over a corpus, in bounded memory.

Shapes: B documents, N tokens, R relations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..._base.digests import document_hash
from ...generation import evaluating
from ..capture import capture
from ..maps import CallMaps
from ..measures.matching import count_tokens, frequency_bins
from ..sites import LayerChoice, RelationChoice
from .dictionary import DictionaryEntry, PairExample, RelationDictionary, context_around
from .pairs import Found, LargestPairs, Place, Places, StratifiedSample

_ENDS = ("high", "low")
_OCTAVES = 64  # strata of a frequency or a distance, at most


@dataclass(frozen=True)
class DictionarySettings:
    """Size and content of a dictionary.

    Attributes:
        top: pairs of each relation.
        per_tokens: most of them with the same two tokens.
        ends: ``("high",)`` for the largest values, ``("high", "low")`` for the smallest, too, which say as much of a
            relation whose sign is arbitrary.
        counterexamples: pairs beside each, of about the same distance and of tokens that are about as frequent.
        context: tokens on each side of an object.
        seed: of the draw of counterexamples.

    >>> DictionarySettings(top=5, context=4)
    DictionarySettings(top=5, per_tokens=1, ends=('high',), counterexamples=3, context=4, seed=0)
    """

    top: int = 20
    per_tokens: int = 1
    ends: Sequence[str] = ("high",)
    counterexamples: int = 3
    context: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("top", 1), ("per_tokens", 1), ("counterexamples", 0), ("context", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        if not self.ends or any(end not in _ENDS for end in self.ends):
            raise ValueError(f"ends: expected some of {', '.join(_ENDS)}, got {list(self.ends)}")


def build_dictionary(
    model: nn.Module,
    documents: Sequence[Tensor],
    settings: DictionarySettings | None = None,
    *,
    layers: LayerChoice = None,
    relations: RelationChoice = None,
    batch_size: int = 8,
    call: Callable[[Tensor], Any] | None = None,
) -> RelationDictionary:
    """The pairs that excite each relation of a model most, over a corpus.

    Pairs are of different places, and such that the masks of all chosen layers let the receiver see the sender. The
    result is the same for any batch size as far as the model's rounding errors allow: values are kept to one in 4096,
    so that errors seldom show in single precision, and in double precision never.

    Args:
        documents: token ids, ``(N,)`` each, no longer than the model takes. Documents that follow each other and are of
            one length are computed together; windows of one length are fastest.
        settings: by default those of :class:`DictionarySettings`.
        layers, relations: as :func:`~dual_attention.model_analysis.capture.capture`.
        batch_size: most documents that are computed together.
        call: calls the model with ``(B, N)`` tokens; by default ``model(tokens)``.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> documents = [torch.randint(50, (12,)) for _ in range(8)]
    >>> build_dictionary(lm, documents, DictionarySettings(top=2)).relations
    [('blocks.0', 0)]
    """
    settings = settings or DictionarySettings()
    if not len(documents):
        raise ValueError("documents: expected at least one, got none")
    if not any(map(len, documents)):
        raise ValueError(f"documents: expected one with tokens, got {len(documents)} empty ones")
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    about = _describe(model, documents, settings, layers, relations)
    findings = _Findings(settings)
    largest = max(int(document.max()) for document in documents if len(document))
    frequency = frequency_bins(torch.arange(largest + 1), count_tokens(documents, largest + 1))
    with evaluating(model):
        for batch in _batches(documents, batch_size):
            tokens = torch.stack([documents[number] for number in batch]).long()
            tokens = tokens.to(next(model.parameters()).device)
            with capture(
                model, ["relations", "visible"], layers=layers, heads="relational", relations=relations
            ) as maps:
                (call or model)(tokens)
            findings.add(maps.only, tokens, batch[0], frequency)
    return findings.finish(documents, about, frequency)


def _batches(documents: Sequence[Tensor], size: int) -> Iterator[list[int]]:
    """Numbers of documents that follow each other and have one length, which is two tokens at least."""
    batch: list[int] = []
    for number, document in enumerate(documents):
        length = len(document)
        if batch and (len(batch) == size or length != len(documents[batch[0]])):
            yield batch
            batch = []
        if length > 1:
            batch.append(number)
    if batch:
        yield batch


@dataclass
class _Findings:
    """Findings in the documents so far."""

    settings: DictionarySettings
    names: list[tuple[str, int]] = field(default_factory=list)
    largest: dict[tuple[str, int, str], LargestPairs] = field(default_factory=dict)
    sample: StratifiedSample = field(init=False)

    def __post_init__(self) -> None:
        # Several times as many, since some are of an entry's own document or tokens, and entries share strata.
        self.sample = StratifiedSample(4 * self.settings.counterexamples, self.settings.seed)

    def add(self, maps: CallMaps, tokens: Tensor, first: int, frequency: Tensor) -> None:
        """Look at all pairs of a batch, whose first document has the number ``first``."""
        layers = [heads for heads in maps.heads("relational") if heads.relations is not None]
        seen = ~torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
        for heads in layers:
            sizes = tuple(heads.get("relations").shape[:3])
            if sizes != seen.shape:
                raise ValueError(f"layers: expected relations of {tuple(seen.shape)}, got {sizes} in {heads.layer}")
            seen = seen & heads.get("visible").any(1)
        document, receiver, sender = seen.nonzero(as_tuple=True)
        places = Places(document + first, receiver, sender, tokens[document, receiver], tokens[document, sender])
        values = torch.cat([heads.get("relations")[seen] for heads in layers], 1)
        if not values.isfinite().all():
            raise ValueError(f"model: its relations are not finite in documents {first} to {first + len(tokens) - 1}")
        self.names = [(heads.layer, number) for heads in layers for number in heads.relation_numbers]
        for column, name in enumerate(self.names):
            for end in self.settings.ends:
                pairs = self.largest.setdefault((*name, end), LargestPairs(self.settings.top, self.settings.per_tokens))
                pairs.add(values[:, column] if end == "high" else -values[:, column], places)
        if self.settings.counterexamples:
            self.sample.add(values, places, _strata(places, frequency.to(tokens.device)))

    def finish(self, documents: Sequence[Tensor], about: dict[str, Any], frequency: Tensor) -> RelationDictionary:
        """The dictionary, with contexts and counterexamples."""
        entries = []
        for (layer, number, end), pairs in self.largest.items():
            column, sign = self.names.index((layer, number)), 1 if end == "high" else -1
            for rank, found in enumerate(pairs.found, 1):
                example = self._example(documents, Found(sign * found.value, found.place))
                others = [self._example(documents, one) for one in self._others(found.place, rank, column, frequency)]
                entries.append(DictionaryEntry(layer, number, end, rank, example, tuple(others)))
        order = {name: place for place, name in enumerate(self.names)}
        entries.sort(key=lambda entry: (order[entry.layer, entry.relation], entry.end, entry.rank))
        return RelationDictionary(tuple(entries), about)

    def _others(self, place: Place, rank: int, column: int, frequency: Tensor) -> list[Found]:
        """Some drawn pairs of the same stratum, of other documents and tokens; not the same ones for every rank."""
        columns = Places(*(torch.tensor([value]) for value in place))
        drawn = self.sample.drawn.get(int(_strata(columns, frequency)), [])
        others = [one for one in drawn if one.place.document != place.document and one.place[3:] != place[3:]]
        count = min(self.settings.counterexamples, len(others))
        first = (rank - 1) * count
        chosen = [others[(first + number) % len(others)] for number in range(count)]
        return [Found(one.values[column], one.place) for one in chosen]

    def _example(self, documents: Sequence[Tensor], found: Found) -> PairExample:
        place, width = found.place, self.settings.context
        document = documents[place.document].tolist()
        contexts = (context_around(document, where, width) for where in (place.receiver, place.sender))
        return PairExample(found.value, *place, *contexts)


def _strata(places: Places, frequency: Tensor) -> Tensor:
    """Strata of pairs by their distance and their tokens' frequencies, each to a factor of two."""
    distance = (places.receiver - places.sender).abs().double().log2().floor().long() * 2
    distance += (places.receiver < places.sender).long()
    bins = frequency[places.receiver_token] * _OCTAVES + frequency[places.sender_token]
    return bins * 2 * _OCTAVES + distance


def _describe(
    model: nn.Module,
    documents: Sequence[Tensor],
    settings: DictionarySettings,
    layers: LayerChoice,
    relations: RelationChoice,
) -> dict[str, Any]:
    """Description of a dictionary, as JSON: settings, choice, and fingerprints of model and corpus."""
    corpus, tokens = document_hash(), 0
    for document in documents:
        if document.dim() != 1 or document.is_floating_point():
            raise ValueError(f"documents: expected ids of shape (N,), got {document.dtype} {tuple(document.shape)}")
        tokens += len(document)
        corpus.update(len(document).to_bytes(8, "little"))
        corpus.update(document.long().cpu().contiguous().numpy())

    def listed(choice: Any) -> Any:
        return choice if choice is None or isinstance(choice, str | int) else list(choice)

    return {
        **{name: listed(value) for name, value in asdict(settings).items()},
        "layers": listed(layers),
        "relations": listed(relations),
        "documents": len(documents),
        "tokens": tokens,
        "corpus": corpus.hexdigest(),
        "model": weights_digest(model),
    }


def weights_digest(model: nn.Module) -> str:
    """Fingerprint of a model's weights and their names, as the field ``model`` of a dictionary's ``about`` has it.

    >>> layer = torch.nn.Linear(2, 2)
    >>> before = weights_digest(layer)
    >>> layer.bias.data += 1
    >>> weights_digest(layer) == before
    False
    """
    weights = document_hash()
    for name, tensor in model.state_dict().items():
        weights.update(name.encode())
        weights.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return weights.hexdigest()
