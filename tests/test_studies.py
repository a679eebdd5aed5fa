"""Studies under studies/: their files, and the tables of their pages, which follow from the committed results."""

import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch

from dat.cli.main import main
from dat.experiments import experiment_named
from dat.experiments.relational_games.config import GamesModelConfig
from dat.sweeps.experiment import swept
from dat.sweeps.grid import GridConfig, cells
from dat.sweeps.study import load_module, load_study, with_study
from studies import hypotheses, rules
from studies._lib.inference import equivalence_p, half_width, mcnemar_p, paired_p, sign_flip_p
from studies._lib.matching import matching_width
from studies._lib.readings import compared
from studies._lib.tables import by_seed, differences
from studies.relation_or_product import models as arms
from studies.relation_or_product import study as product
from studies.relational_games.toolbox import ToolboxConfig, toolbox_relation
from tests.support.documents import PAGES, ROOT, links
from tests.support.refusals import refused

STUDIES = sorted(path.parent.name for path in ROOT.glob("studies/*/study.py"))
TABLE = re.compile(r"<!-- table: (.+?) -->\n(.*?)<!-- end of table -->", re.DOTALL)
INTERVAL = re.compile(r"−?\d+(?:\.\d+)? ± \d+(?:\.\d+)?")
MOST_LINES = 150


@pytest.fixture(scope="module", params=STUDIES)
def folder(request: pytest.FixtureRequest) -> Path:
    return ROOT / "studies" / request.param


@pytest.fixture(scope="module")
def module(folder: Path) -> ModuleType:
    return load_module(folder / "study.py")


def test_its_page_is_short_and_names_the_commit_of_its_runs(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES and re.search(r"commit `[0-9a-f]{7,}`", text)
    assert (folder / "NOTEBOOK.md").is_file()


@pytest.mark.sweep(3)
def test_its_tables_follow_from_its_results(folder, module):
    pages = [path.read_text(encoding="utf-8") for path in folder.glob("*.md")]
    written = {name: table.strip() for text in pages for name, table in TABLE.findall(text)}
    assert written == {name: make().strip() for name, make in module.TABLES.items()}


def test_its_grids_list_their_cells(folder):
    study = load_study(folder / "study.py")
    experiment = with_study(swept(experiment_named(study.experiment)), study)
    for grid in study.grids.values():
        assert isinstance(grid, GridConfig) and cells(experiment, grid)
        assert_results_name_models(grid)


def assert_results_name_models(grid):
    """As the grid does, and not two of them alike."""
    named = {model: grid.presets[model].name for model in getattr(grid, "models", ()) if model in grid.presets}
    assert all(name == model for model, name in named.items()), named


def test_all_hypotheses_follow_from_the_results():
    """What is corrected over all counts every comparison that a table of the pages corrects in its family."""
    written, found = pd.read_csv(hypotheses.FILE), hypotheses.hypotheses()
    pd.testing.assert_frame_equal(written, found, check_dtype=False, rtol=1e-9)
    assert not found.duplicated(["study", "family", "hypothesis"]).any()
    kept = [(found[p] < 0.05).sum() for p in ("holm_in_family", "benjamini_hochberg_over_all", "holm_over_all")]
    said = re.search(
        r"lists (\d+) comparisons in (\d+) families.*?: (\d+) are\s.*?, (\d+) after .*? and (\d+) after",
        PAGES["studies/README.md"],
        re.DOTALL,
    )
    assert said is not None
    families = found[["study", "family"]].drop_duplicates()
    assert [*map(int, said.groups())] == [len(found), len(families), *kept]
    assert (found["p"] <= found["holm_in_family"]).all() and (found["p"] <= found["benjamini_hochberg_over_all"]).all()
    assert (found["benjamini_hochberg_over_all"] <= found["holm_over_all"]).all()


def test_digests_are_of_all_announcements_as_they_are():
    files = sorted(ROOT.glob("studies/*/ANNOUNCED.md"))
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(ROOT)}\n" for file in files]
    assert (ROOT / "studies" / "announcements.sha256").read_text(encoding="utf-8") == "".join(lines)
    assert {file.parent.name for file in files} >= {*STUDIES} - rules.OLDER


# The rule of the house ------------------------------------------------------------------------------------------------

ROWS = {
    "untrained rule": "pixels, rule.py",
    "linear gate": "gate",
    "rotary positions": "every arm",
    "steps": "1,500",
    "rates": "own rates",
    "failed": "below 60 %",
}
NEW_STUDY = """
from dataclasses import replace
from dat.experiments.language.experiment import LanguageModelling

EXPERIMENT = "language"
PRESETS = {"gate": replace(LanguageModelling.presets["T-tiny"], name="gate", output_gate="identity")}
PRESETS["trained"] = replace(PRESETS["gate"], name="trained", pos_enc_type="pos_emb")
GRIDS = {"new": LanguageModelling.Grid.with_presets(PRESETS)(models=("gate", "T-tiny"), seeds=1)}
"""


def test_only_studies_of_before_the_rule_are_excused(folder, module):
    older = folder.name in rules.OLDER
    assert older or any("failed" in make() for make in module.TABLES.values())
    rules.check(module)
    assert {*STUDIES} >= rules.OLDER and len(rules.OLDER) == 14


FURTHER = [
    path
    for name in STUDIES
    for path in sorted((ROOT / "studies" / name).glob("*.py"))
    if path.name != "study.py" and "\nGRIDS" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("file", FURTHER, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_further_files_of_grids_follow_the_rule_and_list_their_cells(file):
    rules.check(load_module(file))
    study = load_study(file)
    experiment = with_study(swept(experiment_named(study.experiment)), study)
    for grid in study.grids.values():
        assert cells(experiment, grid)
        assert_results_name_models(grid)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({row: ""}, f"lacks {row} (") for row in ROWS),
        ({"linear gate": "T"}, "ROWS['linear gate']: expected a model of its grids or presets, got 'T'"),
        ({"rotary positions": "no order"}, "ROWS['rotary positions']: expected every arm or places or comp"),
        ({"rates": "tuned"}, "ROWS['rates']: expected own rates or one rate, got 'tuned'"),
        ({"rotary positions": "compared"}, None),
        ({}, None),
    ],
)
def test_a_new_study_without_its_rows_is_refused_by_the_command(change, message, tmp_path, monkeypatch, capsys):
    file = tmp_path / "studies" / "new" / "study.py"
    file.parent.mkdir(parents=True)
    shutil.copy(rules.__file__, file.parents[1])
    file.write_text(f"{NEW_STUDY}ROWS = {ROWS | change}\n")
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "language", "--study", str(file), "--scale=new", "--dry_run"]
    assert main(words) == (2 if message else 0)
    said = capsys.readouterr()
    assert message in said.err if message else "cells" in said.out


def test_an_arm_without_rotary_positions_and_a_study_without_any_row_are_refused(tmp_path):
    file = tmp_path / "new" / "study.py"
    file.parent.mkdir()
    file.write_text(NEW_STUDY)
    module = load_module(file)
    with pytest.raises(ValueError, match=r"lacks untrained rule \(.*; linear gate \(.*; failed \("):
        rules.check(module)
    vars(module)["ROWS"], grid = ROWS, module.GRIDS["new"]
    module.GRIDS["more"] = replace(grid, models=("gate", "trained"))
    with pytest.raises(ValueError, match="expected them in every arm, not so in trained"):
        rules.check(module)
    vars(module)["ROWS"] = ROWS | {"rotary positions": "compared"}
    rules.check(module)
    module.GRIDS.update(new=replace(grid, models=("trained",)), more=replace(grid, models=("trained",)))
    with pytest.raises(ValueError, match="expected them in every arm, not so in trained"):
        rules.check(module)


def test_no_run_chooses_its_own_rate(tmp_path, monkeypatch):
    """At rate 2 one seed is far ahead; over the other seeds rate 1 is better, and that is the one it is read at."""
    monkeypatch.setattr(product, "RULES", tmp_path / "rule.csv")
    family = product.Family("new", "accuracy", (1.0, 2.0), 2.0, 0.0)
    family.file.parent.mkdir()
    values = {1.0: (50, 50, 50), 2.0: (99, 40, 40)}
    rows = [
        {"model": product.at(arm, rate), "seed": seed, "accuracy": value}
        for arm in product.ARM_NAMES
        for rate, some in values.items()
        for seed, value in enumerate(some)
    ]
    pd.DataFrame(rows).to_csv(family.file, index=False)
    rates, found = product.own(family)
    assert rates["DAT"].tolist() == [1, 2, 2] and found["DAT"].tolist() == [50, 40, 40]


def test_rivals_are_as_large_as_the_transformers():
    module = load_module(ROOT / "studies" / "rivals" / "study.py")
    families = {"study": "transformer-128-h2-matched", "sequences": "T-positions", "language": "T-tiny-positions"}
    for name, transformer in families.items():
        study = load_study(ROOT / "studies" / "rivals" / f"{name}.py")
        experiment = with_study(swept(experiment_named(study.experiment)), study)
        found = cells(experiment, study.grids["rivals"])
        sizes = {
            cell["model"]: sum(p.numel() for p in experiment.empty_model(config).parameters() if p.requires_grad)
            for cell, config in ((cell, study.grids["rivals"].run_config(cell)) for cell in found)
        }
        rivals = {*module.DFF, "gated"} - ({"simplicial"} if name == "language" else set())
        assert rivals < set(sizes) and len(sizes) == len(rivals) + 2
        assert all(abs(size / sizes[transformer] - 1) < 0.005 for size in sizes.values()), sizes


def summaries() -> list[str]:
    """Rows of the page of all studies, and paragraphs of the front page, that give a number with its interval."""
    found = [*PAGES["studies/README.md"].splitlines(), *PAGES["README.md"].split("\n\n")]
    return [text for text in found if INTERVAL.search(text)]


@pytest.mark.parametrize("text", summaries())
def test_numbers_of_the_summaries_stand_on_a_page_that_they_link_to(text):
    start = ROOT if text in PAGES["README.md"] else ROOT / "studies"
    named = {(start / target).resolve() for target, _ in links(text)}
    there = "\n".join(path.read_text(encoding="utf-8") for path in named if path.suffix == ".md").replace("-", "−")
    assert set(INTERVAL.findall(text)) <= set(INTERVAL.findall(there))


def test_what_studies_share_is_small():
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "studies" / "_lib").glob("*.py")]
    assert sum(text.count("\n") for text in files) <= 500


def test_tests_and_intervals_agree():
    values = [0.3, 0.7, 0.1, 0.6, 0.2, 0.35]
    mean, half = sum(values) / len(values), half_width(values, 0.9)
    for bound in (mean + half - 1e-6, mean + half + 1e-6):
        assert (equivalence_p(values, bound) < 0.05) == (bound > mean + half)
    assert sign_flip_p(values) == pytest.approx(2 ** (1 - len(values)))  # all of one sign
    assert mcnemar_p([True] * 5 + [False], [False] * 6) == pytest.approx(2 * 2**-5)
    assert mcnemar_p([True, False, True], [False, True, True]) == mcnemar_p([True], [True]) == 1


def test_means_over_cells_take_seeds_that_have_all():
    runs = [(seed, arm, n) for seed in (0, 1) for arm in ("a", "b") for n in (5, 10) if (seed, arm, n) != (1, "b", 10)]
    rows = pd.DataFrame([{"seed": s, "arm": arm, "n": n, "x": (s + 1) * n * (arm == "b")} for s, arm, n in runs])
    found = differences(by_seed(rows, "arm", "x"), [("b", "a")])
    assert found["pairs"].item() == 2
    table = by_seed(rows, "arm", "x", points=["n"])
    assert table["b"][0] == 7.5 and table["b"].isna().tolist() == [False, True]
    without = by_seed(rows[(rows["arm"] == "a") | (rows["n"] == 5)], "arm", "x", points=["n"])
    assert without["b"].isna().all() and not without["a"].isna().any()


def test_nothing_is_read_from_fewer_seeds_than_announced():
    found = compared({"a": [3.0, 3.5] * 4}, 2)["a"]
    assert (found.verdict(), found.reading(8), found.reading(10)) == ("ahead", "ahead", "undecided, so far")


def test_published_curves_have_no_gaps(monkeypatch):
    module = load_module(ROOT / "studies" / "relational_games" / "published_runs.py")
    curve = {"object_set": "test", "task": "same", "model": "x", "trials": 1}
    rows = [{**curve, "n_train": 250, "accuracy": 60.0}, {**curve, "n_train": 500, "accuracy": 70.0, "sd": 1.0}]
    monkeypatch.setattr(module, "published_rows", lambda: rows)
    monkeypatch.setattr(module, "write_atomically", None)
    with pytest.raises(ValueError, match="test, same, x: expected sd at every size or at none"):
        module.renew([])


def parameters(width: int) -> int:
    return 1000 + 12 * width


def test_a_width_is_matched():
    assert matching_width(parameters, 2584) == 132


def test_differences_that_do_not_vary():
    assert (paired_p([0, 0, 0]), paired_p([1, 1])) == (1.0, 0.0)


test_bad_input = refused(
    (lambda: paired_p([1.0, float("nan")]), "values: expected two or more finite numbers"),
    (lambda: mcnemar_p([True], [True, False]), "second: expected as many outcomes as first, 1, got 2"),
    (lambda: matching_width(parameters, 900), "target: expected a number of parameters that some width has, got 900"),
)


@pytest.mark.parametrize("sharpness", [None, 2.0])
def test_detached_relations_are_as_sharp_as_those_of_pairs(sharpness: float | None):
    model = GamesModelConfig(n_relations=3, d_model=12)
    pair, receiver, sender = (
        toolbox_relation(model, ToolboxConfig(of=of, sharpness=sharpness)) for of in ("pair", "receiver", "sender")
    )
    x = torch.randn(2, 5, 12)
    own = pair(x, x).diagonal(dim1=1, dim2=2).mT
    for other, axis in ((receiver, 2), (sender, 1)):
        other.load_state_dict(pair.state_dict())
        torch.testing.assert_close(other(x, x), own.unsqueeze(axis).expand(2, 5, 5, 3))


# Relations of another sender ------------------------------------------------------------------------------------------


def test_detached_relations_are_of_a_sender_that_is_no_later():
    own = torch.nn.Linear(8, 6, bias=False)
    keys = arms.KeysOfAnother(8, 6, bias=False)
    keys.weight = own.weight
    x = torch.randn(64, 5, 8)
    for training in (False, True):
        keys.train(training)
        same = (keys(x)[:, :, None] == own(x)[:, None]).all(-1)  # (example, sender, whose relation)
        assert (same.sum(-1) == 1).all() and not same.triu(1).any()
        assert (same.unique(dim=0).shape[0] > 1) == training
    assert same.any(0).equal(torch.ones(5, 5).bool().tril())


@pytest.mark.parametrize(
    "family", [arms.LANGUAGE, arms.OF_SEQUENCES, arms.OF_MATHEMATICS], ids=["language", "s3", "maths"]
)
def test_arms_are_of_one_size_and_detached_ones_of_the_same_parameters(family):
    def build(keys):
        if isinstance(keys, arms.MathematicsModelKeys):
            return keys.build()
        return keys.build(6, seed=0) if isinstance(keys, arms.SequenceModelKeys) else keys.language_config(257).build()

    models = {name: build(keys) for name, keys in family.items()}
    sizes = [sum(p.numel() for p in model.parameters() if p.requires_grad) for model in models.values()]
    assert max(sizes) <= 1.005 * min(sizes)
    dat, detached = models["DAT"].state_dict(), models["DAT-detached"].state_dict()
    assert {name: x.shape for name, x in dat.items()} == {name: x.shape for name, x in detached.items()}
    models["DAT"].load_state_dict(detached)
    kinds = {type(layer) for layer in models["DAT-detached"].modules()} - {type(x) for x in models["DAT"].modules()}
    assert kinds == {arms.KeysOfAnother}
