"""``dat compare``: what it says, finds and refuses on tables, pictures and texts."""

from __future__ import annotations

import csv
import random
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

from dat._own_code import give
from dat.cli import compare as command
from dat.experiments.own_data.config import ARMS, OWN, RATES, ArmConfig, ComparisonGrid, OwnSource, RatesGrid
from dat.experiments.own_data.experiment import Comparison, chosen_rates
from dat.experiments.own_data.kinds import OwnData, forget_data, load_own
from dat.experiments.own_data.models import RowModel, build_arm, picture_models
from dat.sweeps import reproduce
from dat.sweeps.results import to_csv
from dat.sweeps.workers import run_cells
from dat.training.experiment import count_parameters
from dat.training.loop import Diverged, Trainer
from dual_attention.attention import Attention
from dual_attention.language_models import DualAttnTransformerLM
from dual_attention.parts import OwnHeads
from tests.lab.cli.commands import dat, fails, printed, refusal
from tests.lab.sweeps.conftest import in_process  # noqa: F401
from tests.support.documents import ROOT

pytestmark = pytest.mark.usefixtures("here", "in_process")

TABLE = ["compare", "t.csv"]
MINE = f"{ROOT / 'examples' / 'parts.py'}:Averaging"
"""Heads of the user's own."""
TINY = ["--d_model=16", "--n_layers=1", "--n_heads=2", "--workers=1"]
SHORT = [*TINY, "--epochs=1", "--seeds=2", "--budget=2", "--models=dat,gated"]


@pytest.fixture(autouse=True)
def untimed(monkeypatch) -> None:
    """No steps are timed beforehand."""
    monkeypatch.setattr(command, "rates", lambda *_: dict.fromkeys((*ARMS, "untrained"), 1e-3))


def rows_of(n: int, seed: int = 0) -> list[dict]:
    """Rows whose label says whether two of their values are equal."""
    draw = random.Random(seed)
    rows = []
    for number in range(n):
        left, right = draw.choice("abc"), draw.choice("abc")
        right = left if number % 2 else right
        items = [draw.randrange(9) for _ in range(draw.randrange(1, 4))]
        same = "same" if left == right else "other"
        rows.append({"left": left, "right": right, "size": draw.random(), "items": items, "label": same})
    return rows


def write(path: str, rows: list[dict]) -> None:
    Path(path).write_text(to_csv(rows), encoding="utf-8")


def load_table(path: str, target: str) -> OwnData:
    forget_data()
    return load_own(OwnSource(path=path, target=target))


def results(out: str) -> dict[str, list[float]]:
    """Test results by model."""
    found: dict[str, list[float]] = {}
    for row in csv.DictReader(Path(out, "results.csv").read_text().splitlines()):
        found.setdefault(row["model"], []).append(float(row["test"]))
    return found


def files(out: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(out).rglob("*")) if path.is_file()}


def test_a_table_is_compared_and_the_same_command_changes_nothing(capsys, request):
    write("t.csv", rows_of(60))
    said = printed(capsys, "compare", "t.csv", "--target=label", *SHORT, "--dry_run")
    assert "data: 60 rows of 1 number, 2 categories, 1 sequence" in said and "2 classes (other, same)" in said
    assert "split: 36 rows to train on, 12 to validate on, 12 to test on" in said
    assert "runs: 4 to choose learning rates (0.001, 0.003), 6 to compare; 0 done; about" in said
    assert not Path("runs").exists()
    assert re.search(r"untrained +│.*│ +│ +\d", printed(capsys, "compare", "t.csv", "--target=label", *SHORT))
    before, names = files("runs"), request.getfixturevalue("in_process")
    parts = [row["part"] for row in csv.DictReader(Path("runs/compare-t/split.csv").read_text().splitlines())]
    assert len(parts) == 60 and parts.count("test") == 12
    assert Path("runs/compare-t/figures/comparison.png").stat().st_size > 10_000
    assert "| test set | 36 | gated | 2 | " in Path("runs/compare-t/contrasts.md").read_text()
    names.clear()
    assert dat("compare", "t.csv", "--target=label", *SHORT) == 0
    assert names == [] and files("runs") == before and "10 done" in capsys.readouterr().out
    assert dat("compare", "t.csv", "--target=label", *SHORT, "--seeds=3") == 0
    assert {name.rpartition("seed")[2] for name in names} == {"2"} and " over 3 seeds;" in capsys.readouterr().out
    assert " over 3 seeds;" in printed(capsys, "compare", "t.csv", "--target=label", *SHORT, "--seeds=1")


@pytest.mark.slow
@pytest.mark.parametrize("runs", [2, 6])
def test_what_is_stopped_goes_on_to_the_same_table(runs):
    """In the choice of learning rates, and after it."""
    write("t.csv", rows_of(60))
    words = ["compare", "t.csv", "--target=label", *SHORT]
    assert dat(*words, "--out=whole") == 0
    fit, left = Trainer.fit, iter(range(runs))

    def fit_or_stop(self):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return fit(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "fit", fit_or_stop)
        assert dat(*words, "--out=parts") == 130
    assert dat(*words, "--out=parts") == 0
    times = re.compile(r"[\d.]+,(?=[^,]*$)", re.MULTILINE)  # the seconds before the learning rate
    whole, parts = (times.sub("", Path(out, "results.csv").read_text()) for out in ("whole", "parts"))
    assert whole == parts
    for name in ("comparison.md", "contrasts.md", "rates/comparison.md"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


def test_a_learning_rate_that_diverges_is_no_candidate(monkeypatch, capsys, in_process):  # noqa: F811
    """Unless all of a model do; what was found is kept, so the same command goes on."""
    write("t.csv", rows_of(60))
    words, fit, fails_at = ["compare", "t.csv", "--target=label", *SHORT], Trainer.fit, {1e-3, 3e-3}

    def fit_or_diverge(self):
        if self.config.model.name.startswith("gated-lr") and self.config.optim.lr in fails_at:
            raise Diverged
        return fit(self)

    monkeypatch.setattr(Trainer, "fit", fit_or_diverge)
    assert dat(*words) == 2 and "cells failed" in capsys.readouterr().err
    fails_at.remove(1e-3)
    for runs in (8, 0):
        in_process.clear()
        assert dat(*words) == 0 and len(in_process) == runs
        assert "gated-lr0.003: diverged, so the best" in capsys.readouterr().out
    found = csv.DictReader(Path("runs/compare-t/results.csv").read_text().splitlines())
    assert {row["lr"] for row in found if row["model"] == "gated"} == {"0.001"}


def test_a_parquet_file_and_another_order_of_rows_are_the_same_data():
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = rows_of(60)
    write("a.csv", rows)
    parquet.write_table(arrow.Table.from_pylist(rows), "a.parquet")
    write("shuffled.csv", random.Random(1).sample(rows, len(rows)))
    first, *others = (load_table(name, "label").sets for name in ("a.csv", "a.parquet", "shuffled.csv"))
    for part, examples in first.items():
        every = torch.arange(len(examples))
        for other in others:
            assert all(map(torch.equal, examples.batch(every), other[part].batch(every)))


@pytest.mark.slow
def test_a_planted_signal_is_found_and_shuffled_labels_are_not():
    rows = rows_of(160)
    write("t.csv", rows)
    labels = random.Random(3).sample([row["label"] for row in rows], len(rows))
    write("shuffled.csv", [{**row, "label": label} for row, label in zip(rows, labels, strict=True)])
    long = [*TINY, "--d_model=32", "--dropout_rate=0", "--epochs=50", "--seeds=1", "--budget=1", "--leave_out=items"]
    long.append("--models=dat,gated")
    for name in ("t", "shuffled"):
        assert dat("compare", f"{name}.csv", "--target=label", *long, "--quiet") == 0
    found, chance = results("runs/compare-t"), results("runs/compare-shuffled")
    assert all(found[model][0] >= 90 for model in ("dat", "gated")), found
    assert found["untrained"][0] < 80
    most = 100 * max(labels.count(label) for label in {*labels}) / len(labels)
    assert all(abs(chance[model][0] - most) < 25 for model in chance), chance


@pytest.mark.slow
def test_a_number_is_predicted_and_a_mean_is_the_rule(capsys):
    draw = random.Random(0)
    write("t.csv", [{"x": (x := draw.random()), "y": 10 + 3 * x} for _ in range(60)])
    assert dat("compare", "t.csv", "--target=y", *SHORT, "--epochs=20", "--seeds=1") == 0
    assert "y is predicted as a number (regression)" in capsys.readouterr().out
    found = results("runs/compare-t")
    assert found["dat"][0] < found["untrained"][0] < 2
    assert re.search(r"untrained \(always 11\.\d+, the mean\)", Path("runs/compare-t/comparison.md").read_text())


def test_whole_numbers_of_many_digits_are_apart_and_a_changed_one_is_seen():
    for name, more in (("a.csv", 0), ("b.csv", 2)):
        write(name, [{"x": i, "few": 1234561 + i % 3, "many": 1234511 + 10 * i + more} for i in range(60)])
    assert len(load_table("a.csv", "few").answer(None)) == 3
    digests = {load_own(OwnSource(path=name, target="many", leave_out=("few",))).digest for name in ("a.csv", "b.csv")}
    assert len(digests) == 2


def test_a_target_among_the_categories_is_classes():
    write("t.csv", [{"x": i, "code": ("7", "007", "1.5", "x")[i % 4]} for i in range(60)])
    for asked in ({"categories": ("code",)}, {"task": "classes"}):
        about = load_own(OwnSource(path="t.csv", target="code", **asked)).about
        assert "60 rows of 1 number; code is predicted as 4 classes (007, 1.5, 7, x)" in about


def test_none_is_a_class_and_rows_without_a_target_are_counted():
    labels = ["None", "mild", "", "NA", "null"] * 12
    write("t.csv", [{"x": i, "label": label} for i, label in enumerate(labels)])
    said = load_table("t.csv", "label").about
    assert "24 rows of 1 number; 36 rows without label left out; label is predicted as 2 classes (None, mild)" in said


@pytest.mark.parametrize("n", [None, 10, 2])
@pytest.mark.parametrize("kind", ["classes", "number", "texts"])
def test_the_rule_sees_no_more_examples_than_models(kind, n):
    """It answers with the labels of the first ``n``, so other ones after them change nothing of it."""
    forget_data()
    path, target = ("t.txt", None) if kind == "texts" else ("t.csv", "y")
    write(
        "t.csv",
        [{"x": (x := random.Random(i).random()), "y": x if kind == "number" else "abba"[i % 4]} for i in range(60)],
    )
    Path("t.txt").write_text("".join(map(str, range(999))))
    data = load_own(OwnSource(path=path, target=target, task=None if target is None else kind, context=16))
    n = n or data.sizes["train"]
    labels = data.sets["train"].batch(torch.arange(n))[1]
    answer = data.answer(n).double()
    if kind == "number":
        assert answer.item() == pytest.approx(labels.mean().item(), abs=1e-6)
        return
    seen = torch.bincount(labels.flatten(), minlength=len(answer)) + (kind == "texts")
    near = {"atol": 1 / seen.sum().item() if kind == "texts" else 1e-6, "rtol": 0}  # its first byte is no label
    torch.testing.assert_close(answer.softmax(0), (seen.clamp(min=0.5) / seen.clamp(min=0.5).sum()).double(), **near)


@pytest.mark.slow
def test_pictures_and_a_number_of_those_trained_on(capsys):
    for kind, channel in (("red", 0), ("blue", 2)):
        Path("pets", kind).mkdir(parents=True)
        for i in range(15):
            pixels = torch.randint(128, (12, 12, 3), generator=torch.Generator().manual_seed(i + 50 * channel))
            pixels[..., channel] += 100
            Image.fromarray(pixels.to(torch.uint8).numpy()).save(f"pets/{kind}/{i}.png")
    words = [*SHORT, "--image_size=8", "--n_train=16", "--epochs=40", "--seeds=1", "--models=dat", "--budget=1"]
    said = printed(capsys, "compare", "pets", *words)
    assert "data: pictures of 2 classes (blue, red)" in said
    assert "split: 18 pictures to train on, 6 to validate on, 6 to test on, by --split_seed 0" in said
    assert min(results("runs/compare-pets")["dat"]) > 80
    Path("pets/red/0.png").write_bytes(b"no picture")
    assert "red/0.png: image: expected an image" in fails(capsys, "compare", "pets", *words)


def test_texts_say_which_files_are_not_read():
    Path("texts/.hidden").mkdir(parents=True)
    for name in ("a.png", "b.png", "../b.png"):
        Path("texts/.hidden", name).write_bytes(b"\xff\x00")
    Path("texts", "a.txt").write_text("".join(map(str, range(999))))
    Path("texts", "picture").write_bytes(b"\xff\x00")
    assert "data: 1 file, 2,887 characters; left out: 2 other files; the" in load_own(OwnSource(path="texts")).about


def test_what_is_cut_is_said():
    Path("long.txt").write_text("".join(map(str, range(140_000))))
    write("t.csv", [{"x": "a b c " * (i % 5) + f"x{i}", "y": i % 2} for i in range(60)])
    assert "the first 65,536 bytes are scored" in load_own(OwnSource(path="long.txt")).about
    assert "; 36 sequences cut to --context 4; y" in load_own(OwnSource(path="t.csv", target="y", context=4)).about


@pytest.mark.slow
def test_texts_in_a_folder(capsys):
    Path("texts").mkdir()
    for i in range(30):
        Path("texts", f"{i}.txt").write_text(f"{i} und {i + 1}, " * 30)
    words = [*SHORT, "--models=dat", "--budget=1", "--seeds=1"]
    said = printed(capsys, "compare", "texts", *words, "--context=16", "--epochs=12")
    assert "data: 30 files, " in said and "by hashes of documents" in said and "Bits per byte of" in said
    found = results("runs/compare-texts")
    assert max(found["dat"]) < min(found["untrained"]) < 8


def test_all_models_try_the_same_rates_and_the_best_on_validation_is_taken():
    grid = ComparisonGrid(path="x", n_train=9, models=("dat", "gated"), budget=3)
    before = RatesGrid.before(grid)
    rates = {model: {r for a, r in (before.lr_of or {}).items() if a.startswith(model)} for model in grid.models}
    assert list(rates.values()) == [{*RATES[:3]}] * 2
    of = {"seed": 0, "val_loss": 1.0}
    rows = [{**of, "model": arm, "val": rate, "lr": rate} for arm, rate in (before.lr_of or {}).items()]
    rows[:0] = [{**row, "seed": 1, "val": -row["val"]} for row in rows]
    assert chosen_rates(rows, before, "accuracy") == dict.fromkeys(grid.models, max(RATES[:3]))
    assert chosen_rates(rows, before, "rmse") == dict.fromkeys(grid.models, min(RATES[:3]))
    assert chosen_rates(rows[:-1], before, "rmse") == {"dat": min(RATES[:3])}
    cell = before.run_config(next(iter(reproduce.cells(Comparison(), before))))
    assert cell.tuning and cell.model.arm == "dat"


@pytest.mark.parametrize(
    "build",
    [
        partial(RowModel, [0, 1, 2, 2], 9, 3, ragged=True),
        partial(RowModel, [0, 1], 9, 1, ragged=False),
        picture_models(16, 3),
        partial(DualAttnTransformerLM, 9, max_block_size=8, pos_enc_type="RoPE"),
    ],
    ids=["ragged rows", "rows", "pictures", "texts"],
)
def test_models_are_of_one_size_and_one_has_heads_of_the_users(build):
    models = {arm: build_arm(build, ArmConfig(name=arm, arm=arm)) for arm in ARMS[:-1]}
    sizes = [count_parameters(model) for model in models.values()]
    assert max(sizes) < 1.01 * min(sizes)
    scores = {arm: {x.rel_score for x in models[arm].modules() if hasattr(x, "rel_score")} for arm in models}
    assert scores["distances"] == {"squared_distance"} and scores["dat"] == {"dot"} and not scores["gated"]
    give(MINE)
    own = build_arm(build, ArmConfig(name=OWN, arm=OWN, heads=MINE))
    assert [type(part.part).__name__ for part in own.modules() if isinstance(part, OwnHeads)] == ["Averaging"] * 2
    assert not any(isinstance(part, Attention) for part in own.modules())


@pytest.mark.slow
def test_heads_of_the_users_are_compared_in_processes_of_their_own(monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "run_cells", run_cells)
    write("t.csv", rows_of(60))
    shown = [*TABLE, "--target=label", *SHORT[:-1], "--workers=2", "--models=transformer,own", f"--heads={MINE}"]
    assert dat(*shown) == 0
    assert results("runs/compare-t").keys() == {"transformer", "own", "untrained"}
    before = [*TABLE, "--target=label", *SHORT[:-1], "--workers=2", "--models=transformer", "--out=runs/before"]
    assert dat(*before) == dat(*shown, "--out=runs/before") == 0  # more models add runs


OWN_HEADS = """
import torch
class Sees(torch.nn.Module):
    def forward(self, x, mask):
        return x @ torch.eye(x.shape[-1], dtype=x.dtype)
class Peeks(torch.nn.Module):
    def forward(self, x, mask):
        return x.roll(-1, 1)
"""


@pytest.mark.slow
def test_heads_that_peek_or_have_changed_are_refused(capsys):
    write("t.csv", rows_of(60))
    Path("my parts.py").write_text(OWN_HEADS)
    words = [*TABLE, "--target=label", *TINY, "--epochs=1", "--budget=1", "--models=own"]
    for name, message in (("Nobody", "got Nobody"), ("Peeks", "my parts.py:Peeks: fails pairs, ")):
        assert message in refusal(capsys, *words, f"--heads=my parts.py:{name}") and not Path("runs").exists()
    assert dat(*words, "--heads=my parts.py:Sees", "--seeds=1") == 0
    Path("my parts.py").write_text(OWN_HEADS.replace("@ torch.eye", "@ 2 * torch.eye"))
    assert "give another --out" in refusal(capsys, *words, "--heads=my parts.py:Sees", "--seeds=2")


def test_what_is_behind_the_end_of_a_sequence_changes_nothing():
    model = build_arm(partial(RowModel, [0, 1, 1, 1], 9, 3, ragged=True), ArmConfig(name="dat", arm="dat")).eval()
    rows, behind, before = torch.tensor([[[2.0, 0], [4, 0], [5, 0], [0, 0]]]), torch.zeros(4, 2), torch.zeros(4, 2)
    behind[3, 1] = before[0, 1] = 9
    with torch.no_grad():
        assert torch.allclose(model(rows), model(rows + behind))
        assert not torch.allclose(model(rows), model(rows + before))


def test_categories_of_test_rows_are_unknown_and_numbers_are_of_training_rows():
    write("t.csv", [{"kind": f"k{i // 2}", "x": i, "y": i % 2} for i in range(40)])
    sets = load_table("t.csv", "y").sets
    train, test = (sets[part].batch(torch.arange(len(sets[part])))[0] for part in ("train", "test"))
    numbers = train[:, 1, 1]
    assert abs(float(numbers.mean())) < 1e-5 and abs(float(numbers.std(correction=0)) - 1) < 1e-5
    assert {*test[:, 0, 0].tolist()} <= {*train[:, 0, 0].tolist(), 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TABLE, "--target=lable"], "t.csv (left, right, size, items, label), got lable; did you mean label?"),
        (TABLE, "target: expected a column of t.csv (left, right, size, items, label), got none"),
        ([*TABLE, "--target=label", "--models=dat,transfomer"], "got 'transfomer'; did you mean transformer?"),
        ([*TABLE, "--target=label", "--leave_out=lft"], "got lft; did you mean left?"),
        ([*TABLE, "--target=label", "--leave_out=label"], "leave_out: expected other columns than the target"),
        ([*TABLE, "--target=size", "--categories=size", "--task=number"], "task: expected classes, as categories"),
        (["compare", "blank.csv", "--target=mixed"], "where a value is missing, or give --task classes"),
        ([*TABLE, "--target=label", "--test=t.csv"], "test: row 1 of t.csv is row 1 of t.csv"),
        ([*TABLE, "--target=label", "--test=blank.csv"], "test: expected values in 'label' of blank.csv, got only"),
        ([*TABLE, "--target=label", "--lr_of={dat: 0.1}"], "lr_of: expected null, since the validation set chooses"),
        ([*TABLE, "--target=label", "--models=own"], "heads: expected FILE.py:CLASS with own among models, got None"),
        ([*TABLE, "--target=label", "--heads=a.py:B"], "with own among models, got 'a.py:B'"),
        ([*TABLE, "--target=label", "--n_train=99"], "n_train: expected from 1 to"),
        ([*TABLE, "--target=label", "--n_heads=3"], "n_heads: expected an even number that divides half of d_model=64"),
        (["compare", "empty.txt"], "there is no text in empty.txt"),
        (["compare", "short.txt"], "short.txt: expected at least"),
        (["compare", "short.txt", "--target=x"], "target: expected null without a table"),
        (["compare", "short.txt", "--split_seed=3"], "split_seed: expected 0 for texts, which are split by hashes of"),
        (["compare", "nowhere"], "nowhere: no such file or folder"),
        (["compare", "single"], "error: expected a folder of pictures for each of two classes or more in single, got"),
        (["compare", "bare"], "bare"),
        (["compare"], "dat compare: expected DATA next"),
        ([*TABLE, "--targt=label"], "targt: there is no such option; did you mean --target?"),
    ],
)  # fmt: skip
def test_bad_input_is_named_and_nothing_is_written(words, message, capsys):
    write("t.csv", rows_of(60))
    write("blank.csv", [{**row, "label": "", "mixed": i % 2 or "no"} for i, row in enumerate(rows_of(9, seed=1))])
    Path("empty.txt").write_text("")
    Path("short.txt").write_text("a few words")
    Path("bare").mkdir()
    Path("single/cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save("single/cat/0.png")
    assert message in fails(capsys, *words)
    assert not Path("runs").exists()


@pytest.mark.parametrize("words", [["--leave_out", "1"], ["--leave_out=1"], ["--leave_out=[1, '2020-01-01']"]])
def test_columns_may_be_named_by_numbers(words, capsys):
    write("t.csv", [{"0": i, "1": i, "2020-01-01": i, "y": i % 2} for i in range(60)])
    assert dat("compare", "t.csv", "--target=y", *words, *SHORT, "--dry_run") == 0
    assert f"60 rows of {1 if '2020' in words[0] else 2} number" in capsys.readouterr().out


def test_other_data_are_not_mixed_with_what_is_there(capsys):
    write("t.csv", rows_of(60))
    words = ["compare", "t.csv", "--target=label", *SHORT, "--seeds=1"]
    assert dat(*words) == 0
    assert "budget: expected 2, by which the learning rates" in fails(capsys, *words, "--budget=3")
    assert "first_seed: expected 0, by which the learning rates" in fails(capsys, *words, "--first_seed=9")
    write("t.csv", rows_of(60, seed=1))
    assert "data.contents: runs/compare-t holds cells run with" in fails(capsys, *words)


def test_rows_of_ones_own_to_test_on(capsys):
    rows = rows_of(90)
    write("t.csv", rows[:60])
    write("more.csv", [row for row in rows[60:] if row not in rows[:60]])
    assert dat("compare", "t.csv", "--test=more.csv", "--target=label", *SHORT, "--seeds=1", "--dry_run") == 0
    assert "split: 48 rows to train on, 12 to validate on, 30 to test on" in capsys.readouterr().out
