"""The authors' tables of single runs, as numbers for each cell."""

import csv

import pytest

from dat.experiments.relational_games.presets import PRESETS
from dat.experiments.relational_games.published_runs import preset_of, renew

MAY = "sa=0; rca=2; d=128; L=2; rca_type=disentangled_v2; sym_rel=True; symbol_type=pos_sym_retriever"
AUGUST = "sa=0; ra=2; nr=8; d=128; L=2; ra_type=relational_attention; sym_rel=False; symbol_type=symbolic_attention"


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        (MAY, "dat-0+2-sym"),
        (MAY.replace("sa=0; rca=2", "sa=1; rca=1").replace("True", "False"), "dat-1+1-asym"),
        (MAY.replace("disentangled_v2", "standard").replace("True", "False"), "rca-0+2"),
        ("sa=2; d=128; L=2", "transformer-128-h2"),
        (AUGUST, "dat-0+2-nr8-asym-symbolic-small-wr"),
        (AUGUST.replace("symbolic_attention", "positional_symbols").replace("nr=8", "nr=2"), "dat-0+2-asym-small-wr"),
        (AUGUST.replace("ra=2; nr=8", "ra=8; nr=16"), "dat-0+8-nr16-asym-symbolic-small-wr"),
        ("corelnet", "corelnet"),
    ],
)
def test_models_by_the_names_of_our_presets(name, preset):
    assert preset_of(name) == preset


def test_presets_of_the_authors_models_exist():
    assert {"dat-0+2-sym", "rca-0+2", "dat-0+2-nr8-asym-symbolic-small-wr", preset_of("predinet")} <= set(PRESETS)


def table(path, accuracies, **changed):
    rows = [
        {
            "task": "1task_between",
            "model_name": MAY,
            "train_size": "500.0",
            **{f"test/acc_{name}": accuracy for name in ("in_distribution", "hexos", "stripes")},
            **{f"test/loss_{name}": "0.5" if accuracy else "" for name in ("in_distribution", "hexos", "stripes")},
            **changed,
        }
        for accuracy in accuracies
    ]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_cells_are_summarised_and_means_of_others_kept(tmp_path):
    out = tmp_path / "published.csv"
    out.write_text(
        "object_set,task,model,n_train,accuracy,trials\ntest,between,dat-0+2-sym,500,1.0,5\ntest,same,other,250,66.1,14-15\n"
    )
    said = renew([table(tmp_path / "runs.csv", ["0.75", "0.7", "0.8", ""])], out)
    assert "3 cells from single runs (3 in " in said and "1 means only" in said
    with open(out, newline="") as file:
        first, other, *heldout = list(csv.DictReader(file))
    assert {key: first[key] for key in ("model", "n_train", "trials", "accuracy", "sd", "lowest", "highest")} == {
        "model": "other",
        "n_train": "250",
        "trials": "14-15",
        "accuracy": "66.1",
        "sd": "",
        "lowest": "",
        "highest": "",
    }
    assert (other["trials"], other["accuracy"], other["sd"], other["lowest"], other["highest"], other["loss"]) == (
        "3",
        "75.0",
        "5.0",
        "70.0",
        "80.0",
        "0.5",
    )
    assert [row["object_set"] for row in heldout] == ["hexominoes", "stripes"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"task": "left_of"}, "'left_of'"), ({"model_name": "sa=2; x=1"}, "published model, got 'sa=2; x=1'")],
)
def test_other_tables_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=rf"runs\.csv: expected a table of the authors' runs .*{message}"):
        renew([table(tmp_path / "runs.csv", ["0.7"], **changed)], tmp_path / "never.csv")
    with pytest.raises(ValueError, match=r"other\.csv: expected a table of the authors' runs"):
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        renew([tmp_path / "other.csv"], tmp_path / "never.csv")
