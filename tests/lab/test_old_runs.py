"""Run folders, grids and exported models that earlier versions made (old_runs/README.md) are opened by this one."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli.main import main
from dat.training.metrics import read_rows
from tests.support.processes import fork_workers

KEPT = Path(__file__).parent / "old_runs"
RUNS = ["language", "relational-games", "recall", "images", "questions"]
CONTINUATION = "3 times 1 is t, to..\n\n\n1 ti\n"
"""Text that the version which trained ``language`` generated."""

MACHINE = ("--device", "cpu", "--workers", "1", "--seeds", "2", "--quiet")
GRIDS = {
    "grid": (*("--tasks", "[same]", "--sizes", "[20]", "--models", "[dat-0+2-sym]", "--loop.epochs", "1"),
        *("--data.n_val", "8", "--data.n_test", "8", "--data.n_heldout", "8")),
    "grid-unfinished": (
        *("--tasks", "[mqar-2]", "--steps", "[4]", "--evaluations", "2", "--models", "[T,DAT-symbolic]"),
        *("--data.n_val", "16", "--data.n_test", "16", "--loop.batch_size", "8", "--optim.warmup_steps", "2"),
    ),
}  # fmt: skip
"""Options of the commands that made the grids."""


@pytest.fixture(autouse=True)
def working_folder(tmp_path, monkeypatch) -> Path:
    """Copies of the old folders, and the working folder of the test."""
    fork_workers(monkeypatch)
    shutil.copytree(KEPT, tmp_path / "old")
    shutil.copy(KEPT / "transformers" / "tokenizer.json", tmp_path / "old" / "hub")
    text = "".join(f"{i} times {i} is {i * i}. Ünïcödé is text, too.\n" for i in range(80))
    (tmp_path / "old" / "text.txt").write_text(text, encoding="utf-8")
    (tmp_path / "old" / "language-unfinished" / "tokenizer").mkdir()
    for name in ("config.json", "config.yaml", "data.json", "tokenizer/about.json"):
        of_both = (KEPT / "language" / name).read_text(encoding="utf-8")
        own = of_both.replace("  name: language\n", "  name: language-unfinished\n")
        (tmp_path / "old" / "language-unfinished" / name).write_text(own, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def dat(capsys):
    def run(*words: str) -> str:
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("run", [*RUNS[:-1], pytest.param("questions", marks=pytest.mark.slow)])
def test_evaluation_gives_the_recorded_numbers(dat, run):
    if run in ("images", "questions"):  # whose data other packages bring
        pytest.importorskip("sklearn" if run == "images" else "mathematics_dataset")
    recorded = json.loads(Path(run, "result.json").read_text())
    for part, numbers in json.loads(dat("evaluate", run, "--json")).items():
        for name in numbers.keys() & {"loss", "accuracy", "perplexity", "matching", "top5"}:
            assert numbers[name] == pytest.approx(recorded[name][part], rel=1e-4, abs=1e-6), (part, name)


def test_an_interrupted_run_goes_on_to_the_end_of_the_whole_one(dat):
    dat("train", "language", "--resume", "language-unfinished")
    runs = (read_rows(Path(run, "metrics.jsonl")) for run in ("language", "language-unfinished"))
    whole, resumed = ([row["train_loss"] for row in rows] for rows in runs)
    assert len(resumed) == 40 and resumed == pytest.approx(whole, rel=1e-3)
    loss = [json.loads(Path(run, "result.json").read_text())["loss"] for run in ("language", "language-unfinished")]
    assert loss[1] == pytest.approx(loss[0], rel=1e-3)


@pytest.mark.parametrize("source", ["language", "transformers", "hub"])
def test_models_and_what_they_write(dat, source):
    run = open_checkpoint("language").model
    model = open_checkpoint(source).model
    x = torch.arange(24).view(2, 12)
    with torch.no_grad():
        assert torch.equal(model(x).logits, run(x).logits)
    assert dat("generate", source, "3 times", "--temperature", "0", "--max_new_tokens", "20") == CONTINUATION


@pytest.mark.sweep(3)
@pytest.mark.parametrize("source", ["language", "language-unfinished", "relational-games", "transformers", "hub"])
def test_info(dat, source):
    assert "parameters" in dat("info", source)


def test_transformers_opens_the_exported_folder():
    transformers = pytest.importorskip("transformers")
    import dual_attention.hf  # noqa: F401

    model = transformers.AutoModelForCausalLM.from_pretrained("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained("transformers")
    written = model.generate(**tokenizer("3 times", return_tensors="pt"), max_new_tokens=12, do_sample=False)
    assert tokenizer.decode(written[0], skip_special_tokens=True) == CONTINUATION[: len("3 times") + 12]


def test_a_grid_is_drawn_from_its_cells_and_from_its_table(dat):
    dat("plot", "relational-games", "grid", "grid/results.csv", "--out", "figures")
    assert list(Path("figures").rglob("*.png"))


def test_a_finished_grid_has_nothing_left_to_do(dat):
    before = Path("grid/results.csv").read_text()
    dat("reproduce", "relational-games", *GRIDS["grid"], "--out", "grid", *MACHINE)
    assert Path("grid/results.csv").read_text() == before


def test_a_grid_goes_on_where_it_was_interrupted(dat):
    cells = {path.name: path.read_bytes() for path in Path("grid-unfinished/cells").glob("*.json")}
    dat("reproduce", "recall", *GRIDS["grid-unfinished"], "--out", "grid-unfinished", *MACHINE)
    assert len(list(Path("grid-unfinished/cells").glob("*.json"))) == 4 == 2 * len(cells)
    assert all(Path("grid-unfinished/cells", name).read_bytes() == bytes_ for name, bytes_ in cells.items())
    with open("grid-unfinished/results.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 4
