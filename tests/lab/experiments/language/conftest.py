"""Tiny runs of language modelling: a model of a few thousand parameters on a page of text."""

from dataclasses import replace
from pathlib import Path

import pytest

from dat.experiments.language.config import (
    LanguageConfig,
    LanguageDataConfig,
    LanguageMachineConfig,
    LanguageOptimConfig,
)
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.training.configs import OutputConfig, StepLoopConfig
from dat.training.run_folder import RunFolder
from dat.training.runs import start_run

TEXT = "".join(f"{i} times {i} is {i * i}. Ünïcödé is text, too.\n" for i in range(80))
MODEL = LanguageModelKeys(
    name="tiny",
    context=16,
    d_model=16,
    n_layers=1,
    n_heads_sa=1,
    n_heads_ra=1,
    dff=16,
    n_relations=2,
    n_symbols=4,
    symbol_heads=2,
    dropout_rate=0.1,
)


def tiny_config(folder: Path) -> LanguageConfig:
    """A run of 7 steps with dropout and micro-batches, whose reports, evaluations and checkpoints do not coincide."""
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return LanguageConfig(
        data=LanguageDataConfig(path=str(folder / "text.txt"), val_tokens=160),
        model=MODEL,
        optim=LanguageOptimConfig(lr=1e-2, warmup_steps=2),
        loop=StepLoopConfig(
            steps=7,
            batch_size=6,
            micro_batch_size=4,
            eval_batch_size=4,
            report_every=2,
            eval_every=3,
            checkpoint_every=5,
        ),
        machine=LanguageMachineConfig(device="cpu", threads=1),
        output=OutputConfig(folder=str(folder / "runs"), name="run", tensorboard=False, progress=False),
    )


@pytest.fixture
def config(tmp_path) -> LanguageConfig:
    return tiny_config(tmp_path)


@pytest.fixture
def text(tmp_path, config) -> Path:
    return tmp_path / "text.txt"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> RunFolder:
    """That run in a folder of its own, trained without a stop; not to be changed."""
    return start_run(LanguageModelling(), tiny_config(tmp_path_factory.mktemp("whole")))


def named(config: LanguageConfig, name: str, **changes) -> LanguageConfig:
    """The same in another run folder."""
    return replace(config, output=replace(config.output, name=name), **changes)
