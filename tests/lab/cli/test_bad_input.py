"""Wrong commands and wrong files: one line, and status 2."""

import re
from pathlib import Path

import pytest

from dat.experiments import EXPERIMENTS
from dat.sweeps.experiment import SweptExperiment
from dat.sweeps.grid import GridFolder
from tests.lab.cli.commands import dat, fails, shown

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "unknown command 'frobnicate': expected .*train"),
        (["plot", "runs/mine"], "unknown experiment 'runs/mine': expected babylm or"),
        (
            ["train", "docs"],
            "unknown experiment 'docs': .*; for a table, pictures or texts of your own: dat compare docs$",
        ),
        (["train", "chess"], "unknown experiment 'chess': expected images or .* or relational-games or FILE.py"),
        (["train", "language", "--model.n_heads_sa=0", "--model.n_heads_ra=0"], "at least 1, got 0"),
        (["train", "language", "--model.n_kv_heads=3"], r"model\.n_kv_heads: expected null or a divisor of 2 and 2"),
        (["train", "language", "--preset=T-tiny", "--model.n_kv_heads=3"], r"model\.n_kv_heads: .* of 4, .*got 3"),
        (["train", "images", "--model.n_kv_heads=3"], r"model\.n_kv_heads: expected null or a divisor of 2 and 2"),
        (["train", "mathematics", "--model.n_kv_heads=3"], r"model\.n_kv_heads: expected null or a divisor of 4 and 4"),
        (["train", "language", "--model.symbol_heads=3"], r"model\.symbol_heads: .* divisor of model\.d_model=64"),
        (["train", "language", "--model.n_relations=1000"], r"model\.n_relations: expected at most 32"),
        (["train", "language", "--model.rel_activation=foo"], r"model\.rel_activation: .*softmax, got 'foo'$"),
        (["train", "language", "--data.path", "none.txt"], r"data\.path: no such file or folder: none\.txt"),
        (["data", "language", "--path=."], "expected a value for out, got none$"),
        (["train", "language", "--preset", "gpt"], "preset: expected one of .*got 'gpt'"),
        (["train", "language", "--resume", "none"], "none: not a run folder"),
        (["train", "language", "--optim.min_lr=1"], r"optim\.min_lr: expected a number from 0 to optim\.lr"),
        (["generate"], "required: CHECKPOINT, PROMPT"),
        (["generate", "none", ""], "prompt: expected a text"),
        (["info", "none"], "none: no such folder, and no name on the Hugging Face hub"),
        (["train", "relational-games", "--task", "chess"], "task: expected one of 'same', 'occurs', .*, got chess$"),
        (["train", "relational-games", "--optim.lr=-1"], r"optim\.lr: expected a positive number, got -1"),
        (["train", "relational-games", "--data.n_train=many"], r"data\.n_train.*many"),
        (["train", "relational-games", "--bogus", "1"], "bogus"),
        (["train", "relational-games", "--preset", "resnet"], "preset: expected one of .*got 'resnet'"),
        (["train", "relational-games", "--preset"], "preset: expected one of .*'corelnet', .*, got nothing"),
        (["train", "relational-games", "--config", "none.yaml"], r"none\.yaml"),
        (["train", "relational-games", "--resume", "none"], "none: not a run folder"),
        (["train", "relational-games", "--resume", "none", "--seed=1"], "--resume RUN stands alone"),
        (["evaluate"], "required: CHECKPOINT"),
        (["evaluate", "none"], "none: not a run folder"),
        (["reproduce", "relational-games", "--models=[resnet]"], "models: expected names among"),
        (["reproduce", "relational-games", "--sizes=[0]"], "sizes: expected integers of at least 1"),
        (["reproduce", "relational-games", "--scale", "figure2"], r"scale: .*got 'figure2'; did you mean figure-2\?"),
        (["reproduce", "relational-games", "--scale"], "scale: expected one of 'published', .*, got nothing"),
        (["data", "relational-games"], "out"),
        (["data", "relational-games", "--out", "none/x.png"], "no folder none"),
        (["data", "relational-games", "--out", "x.png", "--tasks=[chess]"], "chess"),
        (["demo", "--seeds=0"], "seeds"),
        # Wrong types, in the words of this package
        (["train", "language", "--optim", "3"], r"optim: expected a group of keys \(optimizer, lr, .*\), got 3$"),
        (["train", "language", "--machine.threads=many"], r"machine\.threads: expected an integer or null, got many$"),
        (["train", "language", "--optim.grad_clip=big"], r"optim\.grad_clip: expected a number or null, got big$"),
        (["train", "language", "--optim.betas=[1]"], r"optim\.betas: expected a list of two numbers, got \[1\]$"),
        (["train", "language", "--output.progress=perhaps"], r"output\.progress: expected true or false, got perhaps$"),
        (["train", "language", "--optim.lr"], r"optim\.lr: expected a number, got nothing$"),
        (["train", "relational-games", "--model.corelnet", "3"], r"model\.corelnet: expected a group .* got 3$"),
        (["generate", "x", "y", "--top_k=few"], "top_k: expected an integer, got few$"),
        (["generate", "x", "y", "--device=tpu"], "device: expected one of 'auto', 'cpu', 'cuda', got tpu$"),
        (["estimate", "DAT-tiny", "--batch=few"], "batch: .*expected a positive number, got 'few'"),
        (["train", "language", "--model.d_model", "null"], r"model\.d_model: expected an integer, got null$"),
        (
            ["train", "language", "--model.rel_score", "squared_distance", "--model.rel_activation", "relu"],
            r"model\.rel_activation: expected one that tells negative relations apart, .*got 'relu'$",
        ),
        (["train", "language", "--model.rel_score", "cosine"], r"model\.rel_score: expected one of 'dot', 'squared_di"),
        (["train", "language", "--model.rel_init_size=0"], r"model\.rel_init_size: expected a positive number or null"),
        (
            ["train", "relational-games", "--model.ra_type", "rca", "--model.rel_init_size", "1"],
            r"model\.rel_init_size: expected null with ra_type rca, got 1\.0$",
        ),
        (
            ["train", "relational-games", "--model.ra_type", "rca", "--model.rel_score", "squared_distance"],
            r"model\.rel_score: expected dot with ra_type rca, got 'squared_distance'$",
        ),
        (["train", "language", "--resume"], "resume: expected a text, got nothing$"),
        (["train", "relational-games", "--model.abstractor.n_heads=x"], r"\.abstractor\.n_heads: .* integer, got x$"),
        (["train", "relational-games", "--model.corelnet.typo=3"], r"typo: .* no such option; .* --model\.corelnet"),
        (["train", "language", "more", "words"], "expected no further word, got more words$"),
        (["plot", "language", "x"], "required: --out;"),
        # Names that are nearly right
        (["train", "language", "--confi=x"], r"--confi: there is no such option; did you mean --config\?$"),
        (["train", "language", "--lr=1"], r"--lr: there is no such option; did you mean --optim\.lr\?$"),
        (["train", "language", "--optim.learning_rate=1"], r"--optim\.learning_rate"),
        (["train", "images", "--loop.steps=2"], r"there is no such option; expected one of .*--loop\.epochs"),
        (["train", "language", "--data.paht=x"], r"did you mean --data\.path\?$"),
        (["train", "language", "--n_layers", "3"], r"did you mean --model\.n_layers\?$"),
        (["train", "language", "--preset=DAT-tny"], r"preset: .*got 'DAT-tny'; did you mean DAT-tiny\?"),
        (["reproduce", "language", "--models=[T-tny]"], r"got 'T-tny'; did you mean T-tiny\?"),
        (["estimate", "DAT-tny"], r"did you mean DAT-tiny\?"),
        (["estimate", "dat-343m-nr64"], r"did you mean DAT-343M-nr64\?"),
        (["train", "language", "--preset=dat-tiny"], r"did you mean DAT-tiny\?"),
        (["estimate", "DAT-tiny", "--bach=3"], r"--bach: there is no such option; did you mean --batch\?"),
        (["trian", "language"], r"did you mean train\?"),
        (["train", "langauge"], r"did you mean language\?"),
        # Incomplete commands
        (["train"], "dat train: expected images or .* or relational-games or FILE.py next"),
        (["reproduce", "--dry_run"], "dat reproduce: expected babylm or .* or relational-games or FILE.py next"),
        (["data"], "dat data: expected language or relational-games or FILE.py next"),
        (["estimate"], "MODEL|model"),
        # Absurd sizes
        (["train", "language", "--machine.threads=1000000"], r"machine\.threads: expected an integer from 1 to 1,024"),
        (["train", "language", "--model.n_layers=1000000000"], r"model\.n_layers: expected .* from 1 to 1,000,"),
        (["train", "language", "--loop.steps=1000000000"], r"loop\.steps: expected an integer from 1 to 10,000,000"),
        (["train", "language", "--model.context=1000000000"], r"model\.context: expected .* from 1 to 16,777,216"),
        (["train", "language", "--model.d_model=1048576"], r"model: its weights take .* GiB, more than the .* GiB of"),
        (["train", "language", "--loop.batch_size=10000000"], r"loop\.batch_size \* model\.context: expected at most"),
        (["train", "language", "--optim.lr", "-inf"], r"optim\.lr: expected a number, got -inf"),
        (["train", "language", "--optim.lr", "-.inf"], r"optim\.lr: expected a positive number, got -inf"),
        (["train", "language", "--optim.lr", "-1e-3"], r"optim\.lr: expected a positive number, got -0\.001"),
        (["train", "language", "--optim.lr=.inf"], r"optim\.lr: expected a positive number, got inf"),
        (["train", "language", "--optim.lr=.nan"], r"optim\.lr: expected a positive number, got nan"),
        (["train", "relational-games", "--data.n_train=3000000000"], r"data\.n_train: expected .* to 10,000,000"),
        (["train", "relational-games", "--model.corelnet.dff=9999999", "--model.architecture=corelnet"], r"net\.dff"),
        (["reproduce", "relational-games", "--seeds=1000000000"], "seeds: expected an integer from 1 to 10,000"),
        (["reproduce", "relational-games", "--sizes=[9000000000]"], "sizes: expected integers of at most 10,000,000"),
        (["reproduce", "relational-games", "--workers=1000000"], "workers: expected an integer from 1 to 1,024"),
        (["demo", "--workers=1000000"], "workers: expected an integer from 1 to 1,024"),
        (["data", "relational-games", "--out=x.png", "--per_class=100000"], "per_class: expected .* to 100"),
        (["generate", "none", "x", "--threads=1000000"], "threads: expected an integer from 1 to 1,024"),
        (["generate", "none", "x", "--num_beams=1000000"], "num_beams: expected an integer from 1 to 1,024"),
        (["estimate", "DAT-tiny", "--batch=1e30"], "expected an integer from 1 to 1,000,000,000"),
        # Seeds, names, and texts
        (["train", "language", "--seed=99999999999999999999"], "seed: expected an integer of 64 bits"),
        (["train", "relational-games", "--data.seed=-99999999999999999999"], r"data\.seed: expected an integer of 64"),
        (["reproduce", "language", "--first_seed=99999999999999999999"], "first_seed: expected an integer of 64"),
        (["generate", "none", "x", "--seed=-1"], "seed: expected an integer from 0 to"),
        (["generate", "none", "x", "--seed=99999999999999999999"], "seed: expected an integer from 0 to"),
        (["train", "language", "--output.name=../../x"], r"output\.name: expected the name of a folder inside"),
        (["train", "language", "--output.name=/tmp/x"], r"output\.name: expected the name of a folder inside"),
        (["train", "language", "--output.name=\x1b[31mred"], r"output\.name: .*\\x1b\[31mred"),
        (["train", "language", "--model.name=../x"], r"model\.name: expected the name of a folder inside"),
        (["train", "language", "--output.name=a\0b"], "expected options without zero bytes"),
        (["info", "\x1b]0;title\x07"], r"\\x1b\]0;title\\x07"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys, tmp_path):
    assert re.search(message, fails(capsys, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train", "reproduce"])
@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"optim: 3", r"optim: expected a group of keys \(optimizer, lr, .*\), got 3$"),
        (b"lr: 3", r"lr: there is no such key; did you mean optim\.lr\?$"),
        (b"optim: {lr: fast}", r"optim\.lr: expected a number, got fast$"),
        (b"optim: {lr: 1}\noptim: {lr: 2}", "the key optim is there twice, the second time in line 2$"),
        (b"optim: [1", "not YAML: "),
        (b"\x89PNG\r\n\x1a\n\x00", "not UTF-8 text"),
        (b"optim: \x00", "not text"),
        (b"- 1", "expected a mapping, got list"),
        (b"# optim: {lr: 1}", "expected keys and values, got none"),
    ],
)
def test_a_wrong_file_is_named(command, contents, message, capsys):
    Path("c.yaml").write_bytes(contents)
    error = fails(capsys, command, "language", "--config=c.yaml")
    assert error.startswith("dat: error: c.yaml: ") and re.search(message, error.strip())
    assert error.strip().isprintable()


def test_data_in_the_place_of_an_experiment_are_compared(capsys):
    Path("own table.csv").touch()
    assert fails(capsys, "train", "own table.csv").endswith("texts of your own: dat compare 'own table.csv'\n")


def test_a_file_with_a_byte_order_mark(capsys):
    Path("c.yaml").write_bytes(b"\xef\xbb\xbfoptim: {lr: 7e-2}\n")
    assert "lr: 0.07" in shown(capsys, "train", "language", "--config", "c.yaml", "--print_config")


def test_a_folder_with_a_grid_of_another_experiment(capsys):
    """Each command that takes folders of grids names it; where no experiment reads the file, the error is another."""
    images = EXPERIMENTS["images"].load()
    assert isinstance(images, SweptExperiment)
    GridFolder(images, "grid").open(images.scales["tiny"])
    for words in (["reproduce", "mathematics", "--out=grid"], ["plot", "mathematics", "grid", "--out=figures"]):
        assert fails(capsys, *words) == "dat: error: grid: a grid of images, not of mathematics; name another folder\n"
    assert dat("reproduce", "images", "--scale=tiny", "--out=grid", "--dry_run") == 0
    Path("grid/grid.yaml").write_text("nonsense: 1\n")
    assert "grid.yaml: nonsense: there is no such key" in fails(capsys, "reproduce", "mathematics", "--out=grid")
