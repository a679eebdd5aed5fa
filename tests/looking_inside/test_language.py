"""The study of language models, on small models in which a relation is planted, and in which nothing is."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dat.cli.main import main as dat
from dual_attention import DualAttnTransformerLM, RelationalAttention, TransformerLM
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.labels import LabelledText, label_same_words
from studies.looking_inside import language
from studies.looking_inside.language import Extent, look_into, main
from studies.looking_inside.language_report import detects, verdict
from studies.looking_inside.language_results import LanguageFound
from studies.looking_inside.passages import SEMANTIC, SYNONYMS, SYNTACTIC

from .planted import passages

EXTENT = Extent(permutations=40, least=2, least_synonyms=2, directions=1, everywhere=4, everywhere_directions=2)
SIZES = {"d_model": 32, "n_layers": 2, "dff": 32, "dropout_rate": 0.0, "activation": "gelu", "max_block_size": 128}


def planted_model(seed: int = 0) -> DualAttnTransformerLM:
    """A model whose relations are large between equal tokens, and matter much to what it predicts."""
    torch.manual_seed(seed)
    model = DualAttnTransformerLM(
        vocab_size=257,
        n_heads_sa=2,
        n_heads_ra=2,
        **SIZES,
        norm_first=True,
        ra_kwargs={"n_relations": 2, "rel_proj_dim": 16, "symmetric_rels": True},
        symbol_retrieval_kwargs={"d_model": 32, "n_heads": 2, "n_symbols": 8},
    )
    model.layers.token_embedder.weight.data.mul_(20)
    for module in model.modules():
        if isinstance(module, RelationalAttention):
            module.wr.data.mul_(200)
    return model.double().eval()


@pytest.fixture(scope="module")
def found_by_label():
    cases = {label: passages(label) for label in (SEMANTIC, SYNTACTIC, None)}
    return {
        label: look_into(planted_model(), ByteTokenizer(), one, loss=1.0, extent=EXTENT) for label, one in cases.items()
    }


@pytest.mark.parametrize(("label", "other"), [(SEMANTIC, SYNTACTIC), (SYNTACTIC, SEMANTIC)])
def test_a_planted_relation_is_found(found_by_label, label, other):
    one = found_by_label[label]
    models = [replace(one, seed=seed) for seed in range(3)]
    assert verdict(models) == f"{label} rather than {other}"
    assert detects(models, label)[0] and not detects(models, other)[0]
    own, without = (getattr(one.effect("all relations"), name) for name in (label, other))
    assert own.difference > own.without > 0
    assert without.p > 0.05 and abs(without.difference) < 0.4 * own.difference
    noise = getattr(one.effect("noise"), label)
    assert abs(noise.difference) < 0.3 * own.difference  # all pairs are read alike: what relations say there is larger


def test_nothing_is_found_where_nothing_is(found_by_label):
    models = [replace(found_by_label[None], seed=seed) for seed in range(3)]
    assert verdict(models) == "undecided"
    assert not any(detects(models, label)[0] for label in (SEMANTIC, SYNTACTIC))


def test_results_are_read_as_written(found_by_label):
    one = found_by_label[SEMANTIC]
    assert LanguageFound.from_json(json.loads(json.dumps(one.as_json()))) == one
    names = [effect.what for effect in one.at_pairs]
    assert names[:3] == ["all relations", "noise", "selection"]
    assert [name for name in names if name.startswith("relation")] == [
        f"relation {i}.{j}" for i in (0, 1) for j in (0, 1)
    ]
    assert [effect.relation for effect in one.everywhere] == ["0.0", "0.1", "1.0", "1.1"]
    assert all(len(effect.directions) == 2 for effect in one.everywhere)
    assert one.synonyms is not None and [part.task for part in one.mediation] == ["repeated text"]


def test_a_model_without_relations_is_refused():
    torch.manual_seed(0)
    model = TransformerLM(vocab_size=257, n_heads=2, **SIZES, norm_first=True)
    with pytest.raises(ValueError, match="expected one with relations, got none"):
        look_into(model, ByteTokenizer(), passages(None), extent=EXTENT)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on twelve documents of prose."""
    folder = tmp_path_factory.mktemp("language")
    words = ["house", "river", "stone", "garden", "window", "letter", "morning", "people", "winter", "story"]
    lines = []
    for number in range(12):
        chosen = [words[(number * 3 + i * i) % len(words)] for i in range(34)]
        lines.append(json.dumps({"text": " ".join(f"The {a} saw the {b}." for a, b in pairwise(chosen))}))
    (folder / "text.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {
        "data.path": folder / "text.jsonl",
        "data.val_fraction": 0.4,
        "model.context": 128,
        "model.d_model": 32,
        "model.n_relations": 2,
        "model.rel_proj_dim": 4,
        "loop.steps": 1,
        "optim.warmup_steps": 0,
        "output.folder": folder,
        "output.progress": "false",
        "output.tensorboard": "false",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    assert dat(["train", "language", *arguments]) == 0
    return next(path for path in folder.iterdir() if (path / "result.json").exists())


def numbered(text: str, holds) -> LabelledText:
    """A text whose words have labels by their numbers."""
    own = label_same_words(text)
    numbers = range(len(own.words))
    pairs = frozenset((i, j) for i in numbers for j in range(i) if holds(i, j))
    return replace(own, pairs={"link": pairs, SEMANTIC: pairs, SYNONYMS: pairs, "same": own.pairs["same word"]})


class Links:
    """In the place of a parser: it links words whose numbers make a multiple of three."""

    def __init__(self, **_: object) -> None:
        pass

    def label(self, text: str) -> LabelledText:
        own = numbered(text, lambda i, j: i * j % 3 == 0)
        return replace(own, pairs={"link": own.pairs["link"]})


class EvenMeanings:
    """In the place of WordNet: words mean alike if their numbers add up to an even one."""

    def label(self, text: str) -> LabelledText:
        own = numbered(text, lambda i, j: (i + j) % 2 == 0)
        return replace(own, pairs={name: pairs for name, pairs in own.pairs.items() if name != "link"})


def test_the_command(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(language, "LinkGrammar", Links)
    monkeypatch.setattr(language, "Meanings", EvenMeanings)
    monkeypatch.setattr(
        language, "Extent", lambda: replace(EXTENT, permutations=1, everywhere=2, everywhere_directions=1)
    )
    out = tmp_path / "out"
    assert main([str(run), "--out", str(out)]) == 0
    assert "By the announced rule, of 1 models" in capsys.readouterr().out
    assert (out / "language.png").stat().st_size > 10_000
    (file,) = out.glob("*.json")
    kept = json.loads(file.read_text())
    assert kept["documents"] > 1 and kept["pairs"][SEMANTIC][2] == kept["pairs"][SYNTACTIC][2] > 0
    file.write_text(json.dumps({**kept, "loss": 1.25}))
    assert main([str(run), "--out", str(out)]) == 0  # what was found before is not computed again
    assert "| 0 | 1.250 |" in capsys.readouterr().out


def test_other_runs_are_refused(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("experiment: relational-games\n", encoding="utf-8")
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "expected a run of language, got one of relational-games" in capsys.readouterr().err
