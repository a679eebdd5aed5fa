"""Runs that begin with the weights of a trained model: what is taken, what stays as drawn, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dat.checkpoints import open_checkpoint
from dat.cli.main import main
from dat.experiments.language.config import LanguageConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.problem import build_language_model
from dat.experiments.relational_games.experiment import RelationalGames
from dat.training.configs import LoopConfig, StepLoopConfig
from dat.training.metrics import read_rows
from dat.training.run_folder import RunFolder
from dat.training.runs import resume_run, start_run
from dat.training.saved_weights import weights_of_run
from tests.lab.experiments.language.conftest import TEXT, named, tiny_config
from tests.support.processes import together
from tests.support.refusals import refused
from tests.support.runs import failing_at

from .conftest import tiny_config as games_config
from .test_placement import COPIED, OPTIM, SHARDED, make_trainer

pytestmark = pytest.mark.sweep(3)

LANGUAGE = LanguageModelling()
MODELS = {"positional": {"pos_enc_type": "pos_emb", "symbols": "positional_symbols"}, "rotary": {}}


def trained_config(folder: Path, kind: str) -> LanguageConfig:
    config = tiny_config(folder)
    model = replace(config.model, dropout_rate=0.0, **MODELS[kind])
    optim = replace(config.optim, average_decay=0.5)
    return replace(config, model=model, optim=optim, loop=replace(config.loop, milestones=(3,)))


@pytest.fixture(scope="module", params=[*MODELS])
def trained(request, tmp_path_factory) -> tuple[RunFolder, LanguageConfig]:
    config = trained_config(tmp_path_factory.mktemp("trained"), request.param)
    return start_run(LANGUAGE, config), config


def begun(folder: Path, config: LanguageConfig, source: Any, **changes: Any) -> tuple[dict[str, Tensor], RunFolder]:
    """The weights that a run begins with, which its first checkpoint holds, and the run."""
    loop = replace(config.loop, weights_from=str(source), steps=2, milestones=(), eval_every=0, checkpoint_every=0)
    output = replace(config.output, folder=str(folder), name="begun")
    run = start_run(LANGUAGE, replace(config, loop=loop, output=output, **changes))
    assert [path.name for path in run.checkpoints.all()] == ["report-00000-step-00000000"]
    return weights_of_run(run, run.checkpoints.all()[0])[0].tensors, run


def test_the_weights_are_those_at_the_end_and_all_else_begins_anew(trained, tmp_path):
    """The average of them; learning rate, steps and order are those of a new run."""
    source, config = trained
    weights, run = begun(tmp_path, config, source.path, seed=5)
    expected = weights_of_run(source)[0].tensors
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    rows = read_rows(run.metrics)
    assert [row["step"] for row in rows] == [2] and rows[0]["train_loss"] < read_rows(source.metrics)[0]["train_loss"]


def test_a_milestone_and_an_exported_folder(trained, tmp_path, capsys):
    source, config = trained
    milestone = next(source.checkpoints.folder.glob("*-00000003"))
    weights, _ = begun(tmp_path / "a", config, milestone)
    expected = open_checkpoint(milestone).model.state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in weights.items())
    for to in ("hub", "transformers"):
        assert main(["export", str(milestone), "--to", to, "--out", str(tmp_path / to)]) == 0
        again, _ = begun(tmp_path / f"of {to}", config, tmp_path / to)
        assert all(torch.equal(again[name], tensor) for name, tensor in weights.items())


@pytest.mark.parametrize(("context", "vocab"), [(24, 300), (12, 257)])
def test_more_tokens_and_another_context(trained, tmp_path, context, vocab):
    """Rows that are new are as drawn; a shorter context takes the first ones."""
    source, config = trained
    model = replace(config.model, context=context, vocab_size=vocab)
    weights, _ = begun(tmp_path, config, source.path, model=model)
    old = weights_of_run(source)[0].tensors
    drawn = build_language_model(model.language_config(257), seed=config.seed).state_dict()
    by_row = 0
    for name, tensor in weights.items():
        rows = min(len(tensor), len(old[name]))
        by_row += tensor.shape != old[name].shape
        assert torch.equal(tensor[:rows], old[name][:rows]), name
        assert torch.equal(tensor[rows:], drawn[name][rows:]), name
    assert by_row == (vocab > 257) + 2 * (config.model.pos_enc_type == "pos_emb")


@pytest.mark.parametrize("last", [0, 1])
def test_resumed_when_the_source_is_gone(trained, tmp_path, last):
    source, config = trained
    moved = shutil.copytree(source.path, tmp_path / "source")
    _, whole = begun(tmp_path / "whole", config, moved)
    with failing_at(last):
        begun(tmp_path / "parts", config, moved)
    shutil.rmtree(moved)
    parts = resume_run(LANGUAGE, tmp_path / "parts" / "begun")
    assert parts.weights.read_bytes() == whole.weights.read_bytes()


WRONG = {
    "wider": ({"d_model": 32}, r"layers\.token_embedder\.weight|expected shape \(\d+, 32\), got \(\d+, 16\)"),
    "fewer layers": ({"n_layers": 2}, r"layers\.blocks\.1\..* is missing"),
    "no relations": ({"n_heads_ra": 0, "n_heads_sa": 2}, r" is not in TransformerLM"),
    "a wider feed-forward": ({"dff": 20}, r"loop\.weights_from: the weights do not fit: .*\(20, 16\), got \(16, 16\)"),
    "more symbols": ({"n_symbols": 6}, r"symbol_library: expected shape \(6, 16\), got \(4, 16\)"),
}


@pytest.mark.parametrize("trained", ["rotary"], indirect=True)
@pytest.mark.parametrize("kind", WRONG)
def test_models_that_do_not_fit(trained, tmp_path, kind):
    """Both shapes are named, and no folder is left."""
    source, config = trained
    changes, message = WRONG[kind]
    with pytest.raises(ValueError, match=message):
        begun(tmp_path, config, source.path, model=replace(config.model, **changes))
    assert not (tmp_path / "begun").exists()


def with_more_tokens(config: LanguageConfig, folder: Path) -> Path:
    model, loop = replace(config.model, vocab_size=300), replace(config.loop, milestones=())
    output = replace(config.output, folder=str(folder), name="larger")
    return start_run(LANGUAGE, replace(config, model=model, loop=loop, output=output)).path


test_sources_that_are_none = refused(
    (lambda config, path: begun(path, config, with_more_tokens(config, path)),
     r"expected shape \(257, 16\), got \(300, 16\)"),
    (lambda config, path: begun(path, config, "nowhere/at/all"), FileNotFoundError,
     r"loop\.weights_from: nowhere/at/all: no such folder"),
    (lambda *_: StepLoopConfig(weights_from="a", continue_from="b"),
     r"loop\.weights_from: expected null with loop\.continue_from, got 'a'"),
    by=lambda call, *, trained, tmp_path: call(trained[1], tmp_path),
)  # fmt: skip


def test_tokens_that_mean_something_else(tmp_path):
    """A tokenizer that was learned is taken over by name; another one of the same kind is refused."""
    pytest.importorskip("tokenizers")
    config = tiny_config(tmp_path)
    config = replace(config, data=replace(config.data, tokenizer="bpe", bpe_vocab_size=270))
    source = start_run(LANGUAGE, config)
    (tmp_path / "other.txt").write_text(TEXT.replace("times", "mal").replace("text", "Wort"), encoding="utf-8")
    data = replace(config.data, path=str(tmp_path / "other.txt"))
    with pytest.raises(ValueError, match=r"loop\.weights_from: expected a run with the same tokens \(data\."):
        begun(tmp_path / "a", config, source.path, data=data)
    _, run = begun(tmp_path / "a", config, source.path, data=replace(data, tokenizer_folder=str(source.path)))
    about = [(folder.path / "tokenizer" / "about.json").read_bytes() for folder in (run, source)]
    assert about[0] == about[1]


def test_every_experiment_can(tmp_path):
    source = start_run(RelationalGames(), games_config(tmp_path, "source"))
    loop = LoopConfig(epochs=1, batch_size=16, eval_batch_size=20, weights_from=str(source.path))
    run = start_run(RelationalGames(), games_config(tmp_path, "begun", loop=loop, seed=4))
    first = read_rows(run.metrics)[0]["train_loss"]
    assert first < read_rows(source.metrics)[0]["train_loss"]
    assert run.checkpoints.all()[0].name == "epoch-00000-step-00000000"


@pytest.mark.parametrize("machine", [pytest.param(COPIED, marks=pytest.mark.slow), SHARDED], ids=["copies", "sharded"])
def test_processes_begin_alike(tmp_path, machine, endless):
    """With rows that are new, too, of which each process has a part."""
    loop = StepLoopConfig(steps=2, batch_size=4, eval_every=0, checkpoint_every=0)
    config = trained_config(tmp_path, "rotary")
    keys = replace(config.model, d_model=16, context=12)
    source = start_run(LANGUAGE, replace(config, model=keys))

    def losses(workers=None):
        trainer = make_trainer(
            *(() if workers is None else (workers, machine)),
            model=replace(keys, vocab_size=301),
            loop=replace(loop, weights_from=str(source.path)),
            optim=OPTIM,
            folder=tmp_path / ("alone" if workers is None else "shared"),
        )
        return trainer.fit(), {name: tensor.clone() for name, tensor in trainer.placement.weights().items()}

    expected, whole = losses()
    found, weights = together(2, losses)[0]
    assert found == pytest.approx(expected, rel=1e-11)
    torch.testing.assert_close(weights, whole, rtol=1e-9, atol=1e-9)


def test_an_output_layer_of_its_own(tmp_path):
    """Weights that are one serve a model in which they are two, but not the other way round."""
    config = trained_config(tmp_path, "rotary")
    tied, apart = config.model, replace(config.model, tie_weights=False)
    source = start_run(LANGUAGE, named(config, "tied"))
    weights, run = begun(tmp_path / "a", config, source.path, model=apart)
    assert torch.equal(weights["layers.token_embedder.weight"], weights["layers.final_out.weight"])
    with pytest.raises(ValueError, match=r"final_out\.weight differ, and are one tensor in DualAttnTransformerLM"):
        begun(tmp_path / "b", config, run.path, model=tied)
