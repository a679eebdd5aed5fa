"""A language model trained for a few steps, in a run folder that tests share and leave as it is."""

from pathlib import Path

import pytest
import torch

from dat.experiments.language.config import LanguageConfig, LanguageDataConfig, LanguageMachineConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.training.configs import OutputConfig, StepLoopConfig
from dat.training.runs import start_run

from .text_runs import TEXT

MODEL = LanguageModelKeys(
    context=24, d_model=16, n_layers=2, n_heads_sa=1, n_heads_ra=1, dff=16, n_relations=2, n_symbols=4, symbol_heads=2
)


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text("".join(f"{i} ünd {i + 1}\n" for i in range(100)))
    threads = torch.get_num_threads()
    config = LanguageConfig(
        data=LanguageDataConfig(path=str(folder / "text.txt"), val_tokens=48),
        model=MODEL,
        loop=StepLoopConfig(steps=20, batch_size=4, eval_every=0, checkpoint_every=10),
        machine=LanguageMachineConfig(device="cpu", threads=1),
        output=OutputConfig(folder=str(folder), name="run", tensorboard=False, progress=False),
    )
    path = start_run(LanguageModelling(), config).path
    torch.set_num_threads(threads)
    return path


@pytest.fixture
def hub_folder(run, tmp_path) -> Path:
    """The same model as a folder of the hub has it."""
    folder = tmp_path / "hub"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((run / name).read_bytes())
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder, in which ``dat`` runs as from a terminal of 120 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAT_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with the text, and one that is shorter than a context."""
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "short.txt").write_text("a text of few letters, " * 4, encoding="utf-8")
    return tmp_path
