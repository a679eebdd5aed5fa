"""Imports of a command until it begins with its work. Modules are counted, since times would depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.questions import write_official

ROOT = Path(__file__).resolve().parents[3]

SLOW = ("torch._dynamo", "torch._inductor", "sympy", "triton", "matplotlib", "transformers", "datasets", "scipy")
SLOW += ("pandas", "torchvision", "sklearn", "tokenizers", "rich", "torch.onnx")
SLOW += ("torch.fx.experimental.symbolic_shapes",)

UNTIL_THE_FIRST_STEP = """
import json, os, sys
from dat.cli.main import main
from dat.training.loop import Trainer

step = Trainer.train_step

def first(trainer, indices):
    step(trainer, indices)
    print(json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)

Trainer.train_step = first
for words in json.loads(sys.argv[1]):  # each by itself on top of what is imported so far
    if not os.fork():
        os._exit(main(words) or 1)
    assert os.wait()[1] == 0
"""


def loaded(script: str, *arguments: str) -> list[list[str]]:
    """The lists of modules that a script prints, run by an interpreter of its own."""
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


HELP = """
import json
from dat.cli.main import main
main(["--help"])
print(json.dumps(sorted(sys.modules)))
"""


def test_help_waits_for_nothing():
    (modules,) = loaded(HELP)
    assert "dat.cli.main" in modules
    assert not {"torch", "numpy", "yaml"} & {*modules}
    assert len(modules) < 190  # with importlib.metadata, which knows the experiments of installed packages


GAMES = ("--data.n_train=20", "--data.n_val=8", "--data.n_test=8", "--data.n_heldout=8")


COMMANDS = (
    ("relational-games", *GAMES),
    ("relational-games", *GAMES, "--preset=transformer-128-h2"),
    ("language",),
    ("language", "--preset=T-tiny"),
    ("language", "--model.symbols=position_relative", "--model.pos_enc_type=pos_emb", "--optim.optimizer=adam"),
    ("mathematics", "--data.n_train=9", "--data.n_val=3", "--data.n_test=3"),
    ("recall",),
    ("length",),
)


@pytest.mark.slow
def test_the_first_training_step_waits_for_little(tmp_path: Path):
    """Neither PyTorch's compiler nor anything that is for later, such as pictures."""
    (tmp_path / "text.txt").write_text("one two three four five\n" * 500)
    common = ["--machine.device=cpu", f"--output.folder={tmp_path}", "--output.progress=false"]
    of_data = {
        "language": (f"--data.path={tmp_path / 'text.txt'}", "--loop.steps=60", "--loop.batch_size=2"),
        "mathematics": (f"--data.official_folder={write_official(tmp_path / 'questions')}",),
    }
    words = [["train", *command, *common, *of_data.get(command[0], ())] for command in COMMANDS]
    lists = loaded(UNTIL_THE_FIRST_STEP, json.dumps(words))
    assert len(lists) == len(COMMANDS)
    for command, modules in zip(COMMANDS, lists, strict=True):
        assert "torch" in modules and "dat.training.loop" in modules
        assert not [module for module in modules if module in SLOW], command
        assert len(modules) < 1900  # 2450 with the compiler
