"""Imports of a command until it begins with its work. Modules are counted, since times would depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

SLOW = (
    "torch._dynamo",
    "torch._inductor",
    "sympy",
    "triton",
    "matplotlib",
    "transformers",
    "datasets",
    "scipy",
    "pandas",
)
SLOW += ("torchvision", "sklearn", "tokenizers", "rich", "torch.onnx", "torch.fx.experimental.symbolic_shapes")

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
sys.exit(main(sys.argv[1:]))
"""


def loaded(script: str, *arguments: str) -> list[str]:
    """The modules that a script prints, run by an interpreter of its own."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


HELP = """
import json
from dat.cli.main import main
main(["--help"])
print(json.dumps(sorted(sys.modules)))
"""


def test_help_waits_for_nothing():
    modules = loaded(HELP)
    assert "dat.cli.main" in modules
    assert not {"torch", "numpy", "yaml"} & {*modules}
    assert len(modules) < 180  # with importlib.metadata, which knows the experiments of installed packages


GAMES = ("--data.n_train=20", "--data.n_val=8", "--data.n_test=8", "--data.n_heldout=8")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("relational-games", GAMES),
        ("relational-games", (*GAMES, "--preset=transformer-128-h2")),
        ("language", ()),
        ("language", ("--preset=T-tiny",)),
        ("language", ("--model.symbols=position_relative", "--model.pos_enc_type=pos_emb", "--optim.optimizer=adam")),
    ],
)
def test_the_first_training_step_waits_for_little(name: str, options: tuple[str, ...], tmp_path: Path):
    """Neither PyTorch's compiler nor anything that is for later, such as pictures."""
    (tmp_path / "text.txt").write_text("one two three four five\n" * 500)
    if name == "language":
        options = (f"--data.path={tmp_path / 'text.txt'}", "--loop.steps=60", "--loop.batch_size=2", *options)
    common = ("--machine.device=cpu", f"--output.folder={tmp_path}", "--output.progress=false")
    modules = loaded(UNTIL_THE_FIRST_STEP, "train", name, *options, *common)
    assert "torch" in modules and "dat.training.loop" in modules
    assert not [module for module in modules if module in SLOW]
    assert len(modules) < 1900  # 2450 with the compiler
