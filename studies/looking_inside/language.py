"""Relations of language models: do predictions depend on them where words mean alike, or where grammar links them?

The questions and the rules of reading are those of ``studies/looking_inside/ANNOUNCED.md``::

    python -m studies.looking_inside.language runs/language-* --out FOLDER

WordNet's files and the link grammar parser are to be installed, see ``wordnet.py`` and ``link_grammar.py``. What was
found in a run is kept in the folder, and not computed again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from dat.checkpoints import open_checkpoint
from dual_attention._files import read_json, write_atomically, write_json
from dual_attention.generation.tokenizer import Tokenizer, fingerprint

from .language_effects import at_labelled_pairs, changes, everywhere, synonyms
from .language_figure import draw
from .language_reading import read_labels_of
from .language_report import report
from .language_results import LABELS, LanguageFound
from .link_grammar import LinkGrammar
from .matched_pairs import MatchedPairs, balance, match_pairs
from .mediators import agreement, repeated_text
from .pair_effects import capture_mediators
from .passages import SYNONYMS, HeldOut, Meanings, Passages, label_passages, read_held_out

LONGEST, SECONDS = 60, 30
"""Words of a sentence that is parsed, at most, and the time for it."""


@dataclass(frozen=True)
class Extent:
    """Amount of what is measured; the defaults are the announced numbers.

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
        synonyms=synonyms(model, passages, mediators, matched[SYNONYMS], extent.least_synonyms),
        everywhere=tuple(
            everywhere(model, passages, mediators, most=extent.everywhere, directions=extent.everywhere_directions)
        ),
        mediation=tuple(one for one in mediation if one is not None),
    )


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
