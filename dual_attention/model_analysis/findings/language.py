"""Relations of language models: do predictions depend on them where words mean alike, or where grammar links them?

The questions and the rules of reading are those of ``experiments/looking_inside/ANNOUNCED.md``::

    python -m dual_attention.model_analysis.findings.language runs/language-* --out FOLDER

WordNet's files and the link grammar parser are to be installed, see :mod:`..labels`. What was found in a run is kept in
the folder, and not computed again.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn

from ..._files import read_json, write_atomically, write_json
from ...checkpoints import open_checkpoint
from ...data.text.tokenizer import Tokenizer, fingerprint
from ...sweeps.intervals import half_width
from ..interventions import Target
from ..labels import LinkGrammar
from ..measures import Selectivity, selectivity
from .language_figure import draw
from .language_reading import read_labels_of
from .language_report import report
from .language_results import ALL, LABELS, NOISE, AtPairs, Everywhere, LanguageFound
from .matched_pairs import MatchedPairs, balance, match_pairs
from .mediators import agreement, repeated_text
from .pair_effects import Change, Changes, Mediators, Totals, capture_mediators, random_directions, total_effects
from .passages import SYNONYMS, HeldOut, Meanings, Passages, label_passages, read_held_out

LONGEST, SECONDS = 60, 30
"""Words of a sentence that is parsed, at most, and the time for it."""


@dataclass(frozen=True)
class Extent:
    """How much is measured; the defaults are the announced numbers.

    Attributes:
        permutations: shuffles of words for p of the reading.
        least: pairs of a label that a document needs to count.
        least_synonyms: documents that need pairs with a common synset, for these to be measured.
        directions: random directions of each layer, at labelled pairs.
        everywhere, everywhere_directions: passages, and random directions, for what is resampled at all pairs.
    """

    permutations: int = 200
    least: int = 5
    least_synonyms: int = 10
    directions: int = 4
    everywhere: int = 96
    everywhere_directions: int = 10


def look_into(
    model: nn.Module,
    tokenizer: Tokenizer,
    passages: Passages,
    *,
    run: str = "",
    seed: int = 0,
    loss: float = float("nan"),
    extent: Extent | None = None,
) -> LanguageFound:
    """Read and change the relations of a language model.

    Args:
        model: with relations, and shared symbols.
        tokenizer: its own.
        passages: labelled ones, that it was not trained on.
        run, seed, loss: to be kept with the results.
        extent: how much is measured.

    Raises:
        ValueError: if the model has no relations, or too few pairs have a label.
    """
    extent = Extent() if extent is None else extent
    mediators = capture_mediators(model, passages)
    matched = {label: match_pairs(passages, label) for label in (*LABELS, SYNONYMS)}
    drawn = balance({label: matched[label] for label in LABELS}, passages.distances)
    at_pairs, beyond_noise = at_labelled_pairs(
        model, passages, drawn, changes(mediators, extent.directions), extent.least
    )
    mediation = [repeated_text(model, passages), agreement(model, tokenizer)]
    return LanguageFound(
        run=run,
        seed=seed,
        loss=loss,
        documents=len(passages.documents.unique()),
        passages=len(passages.documents),
        pairs=_counts(passages, matched, drawn),
        read=tuple(read_labels_of(model, passages, LABELS, permutations=extent.permutations)),
        at_pairs=tuple(at_pairs),
        beyond_noise=beyond_noise,
        synonyms=_synonyms(model, passages, mediators, matched[SYNONYMS], extent.least_synonyms),
        everywhere=tuple(everywhere(model, passages, mediators, extent)),
        mediation=tuple(one for one in mediation if one is not None),
    )


def changes(mediators: Mediators, directions: int) -> dict[str, list[tuple[Target, Change]]]:
    """Interventions at pairs: all relations, noise instead, selection, each relation, random directions of a layer."""
    layers = [(number, site.layer) for number, site in enumerate(mediators.sites)]
    found: dict[str, list[tuple[Target, Change]]] = {
        ALL: [(Target("relation", layers=name), mediators.resampled(layer)) for layer, name in layers],
        NOISE: [(Target("relation", layers=name), mediators.noise(layer)) for layer, name in layers],
        "selection": [
            (Target("selection", layers=name, heads="relational"), mediators.selection(layer)) for layer, name in layers
        ],
    }
    for layer, name in layers:
        target, count = Target("relation", layers=name), mediators.sites[layer].n_relations
        axes = torch.eye(count)
        for number, axis in enumerate(axes):
            found[f"relation {layer}.{number}"] = [(target, mediators.along(layer, axis))]
        usual = math.sqrt(fmean(mediators.size(layer, axis) ** 2 for axis in axes))
        for number, direction in enumerate(random_directions(count, directions, layer)):
            scale = usual / mediators.size(layer, direction)
            found[f"direction {layer}.{number}"] = [(target, mediators.along(layer, direction, scale))]
    return found


ByDocument = dict[int, tuple[float, float]]
"""Effects at pairs with a label and at those without, by the number of the document, in nats a pair."""


def at_labelled_pairs(
    model: nn.Module, passages: Passages, drawn: Mapping[str, MatchedPairs], chosen: Changes, least: int
) -> tuple[list[AtPairs], Selectivity]:
    """Effects of changes at the pairs of both labels; and D of all relations, less that of noise."""
    totals = {label: both_kinds(model, passages, drawn[label], chosen) for label in LABELS}
    found, by_what = [], {}
    for what in chosen:
        values = {
            metric: [
                by_document([kind[what] for kind in totals[label]], metric, drawn[label], passages.documents, least)
                for label in LABELS
            ]
            for metric in ("kl", "loss")
        }
        semantic, syntactic = (_selectivity(one) for one in values["kl"])
        by_what[what] = _both_labels(*values["kl"])
        difference, loss = _selectivity(by_what[what]), _selectivity(_both_labels(*values["loss"]))
        found.append(AtPairs(what, semantic, syntactic, difference, loss))
    apart = {what: [a - b for a, b in by_what[what].values()] for what in (ALL, NOISE)}
    return found, selectivity(apart[ALL], apart[NOISE])


def both_kinds(
    model: nn.Module, passages: Passages, pairs: MatchedPairs, chosen: Changes
) -> tuple[dict[str, Totals], dict[str, Totals]]:
    """Effects of changes at pairs with a label, and at those without."""
    with_label, without = (
        total_effects(model, passages, pairs.places(labelled=labelled), chosen) for labelled in (True, False)
    )
    return with_label, without


def by_document(
    totals: Sequence[Totals], metric: str, pairs: MatchedPairs, documents: Tensor, least: int
) -> ByDocument:
    """Effects a pair of each document that has at least so many pairs.

    Args:
        totals: at pairs with the label, and at those without.
    """
    found = {}
    for document in documents.unique().tolist():
        own = documents == document
        count = int(pairs.count[own].sum())
        if count >= least:
            with_label, without = (float(getattr(one, metric)[own].sum()) / count for one in totals)
            found[document] = with_label, without
    return found


def _both_labels(semantic: ByDocument, syntactic: ByDocument) -> ByDocument:
    """Selectivity for each of two labels, of documents that have both."""
    both = [one for one in semantic if one in syntactic]
    return {one: (semantic[one][0] - semantic[one][1], syntactic[one][0] - syntactic[one][1]) for one in both}


def _selectivity(values: ByDocument) -> Selectivity:
    return selectivity([one for one, _ in values.values()], [other for _, other in values.values()])


def _synonyms(
    model: nn.Module, passages: Passages, mediators: Mediators, pairs: MatchedPairs, documents: int
) -> Selectivity | None:
    """Selectivity of all relations for pairs with a common synset; None with too few documents."""
    if len(passages.documents[pairs.count > 0].unique()) < documents:
        return None
    chosen = {ALL: changes(mediators, 0)[ALL]}
    totals = [kind[ALL] for kind in both_kinds(model, passages, pairs, chosen)]
    return _selectivity(by_document(totals, "kl", pairs, passages.documents, 1))


def everywhere(model: nn.Module, passages: Passages, mediators: Mediators, extent: Extent) -> list[Everywhere]:
    """Change of the loss when a relation, or a direction that changes as much, is resampled at all pairs."""
    size, n = passages.strata.shape[:2]
    pairs = torch.zeros(size, n, n, dtype=torch.bool)
    pairs[: extent.everywhere] = True
    found = []
    for layer, site in enumerate(mediators.sites):
        target, count = Target("relation", layers=site.layer), site.n_relations
        directions = random_directions(count, extent.everywhere_directions, layer)
        for number, axis in enumerate(torch.eye(count)):
            scales = [mediators.size(layer, axis) / mediators.size(layer, one) for one in directions]
            along = [mediators.along(layer, *one) for one in zip(directions, scales, strict=True)]
            chosen = {"relation": [(target, mediators.along(layer, axis))]}
            chosen |= {str(place): [(target, change)] for place, change in enumerate(along)}
            effects = total_effects(model, passages, pairs, chosen)
            losses = {what: (one.loss[: extent.everywhere] / n).tolist() for what, one in effects.items()}
            own = losses.pop("relation")
            means = tuple(map(fmean, losses.values()))
            found.append(Everywhere(f"{layer}.{number}", fmean(own), half_width(own), means))
    return found


def _counts(
    passages: Passages, matched: Mapping[str, MatchedPairs], drawn: Mapping[str, MatchedPairs]
) -> dict[str, tuple[int, ...]]:
    """Pairs with each label: all, matched, and drawn."""
    return {
        label: (
            int(passages.labels[label].sum()),
            *(len(kind[label].positives) for kind in (matched, drawn) if label in kind),
        )
        for label in matched
    }


def find_in_runs(runs: Sequence[Path], out: Path) -> list[LanguageFound]:
    """Look into runs of one text and tokenizer, or read what was found before.

    Raises:
        ValueError: if a run is of something else, of another text than the others, or has no relations.
        OSError: if something cannot be read.
    """
    first: tuple[HeldOut, Passages] | None = None
    found = []
    for run in runs:
        file = out / f"{run.name}.json"
        if file.is_file():
            found.append(LanguageFound.from_json(read_json(file)))
            continue
        print(f"{run} ...", flush=True)
        held_out, opened = read_held_out(run), open_checkpoint(str(run))
        result = read_json(run / "result.json")
        if first is None:
            links = LinkGrammar(longest=LONGEST, seconds=SECONDS)
            passages = label_passages(
                held_out.documents,
                held_out.tokenizer,
                held_out.frequencies,
                meanings=Meanings().label,
                links=links.label,
            )
            first = held_out, passages
        elif held_out.documents != first[0].documents or fingerprint(held_out.tokenizer) != fingerprint(
            first[0].tokenizer
        ):
            raise ValueError(f"{run}: expected the text and the tokenizer of the other runs, got others")
        about = {"run": run.name, "seed": result["seed"], "loss": result["loss"]["val"]}
        one = look_into(opened.model, held_out.tokenizer, first[1], **about)
        write_json(file, one.as_json())
        found.append(one)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Look into the runs that are named; write a JSON of each, ``language.md`` and ``language.png``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="Folders of finished runs of language, on one text.")
    parser.add_argument("--out", type=Path, required=True, help="Folder for results and report.")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        found = find_in_runs(options.runs, options.out)
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = report(found)
    write_atomically(options.out / "language.md", text)
    draw(found, options.out / "language.png")
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
