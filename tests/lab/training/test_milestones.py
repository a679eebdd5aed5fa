"""Checkpoints that are kept: after steps, tokens or words, beside the newest two; opened and gone on from by name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli.main import main
from dat.experiments.language.config import LanguageConfig
from dat.experiments.language.data import TextSequences, count_words
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.sequences.config import RecallConfig
from dat.experiments.sequences.experiment import Recall
from dat.explorer.opening import open_session
from dat.training.average import exchange_average
from dat.training.config_io import commented_yaml
from dat.training.configs import StepLoopConfig
from dat.training.plan import StepPlan
from dat.training.run_folder import RunFolder
from dat.training.runs import resume_run, start_run
from dual_attention.generation.tokenizer import BytePairTokenizer, ByteTokenizer
from tests.lab.experiments.language.conftest import TEXT, named, tiny_config
from tests.support.processes import dat_together
from tests.support.refusals import refused
from tests.support.runs import failing_at

from .test_placement import OPTIM, make_trainer

LANGUAGE = LanguageModelling()


def milestones_run(folder: Path, decay: float | None = 0.8) -> LanguageConfig:
    """A run of 12 steps with dropout, an average, and milestones after 2, 3 (288 tokens) and 5 steps."""
    config = tiny_config(folder)
    loop = replace(config.loop, steps=12, eval_every=0, checkpoint_every=4, milestones=(2, 5), milestone_tokens=(250,))
    return replace(config, loop=loop, optim=replace(config.optim, average_decay=decay))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return start_run(LANGUAGE, milestones_run(tmp_path_factory.mktemp("run")))


def steps_in(folder: Path) -> list[int]:
    return [int(path.name.rpartition("-")[2]) for path in sorted(folder.iterdir())]


def checkpoint(run: RunFolder, step: int) -> str:
    return str(next(run.checkpoints.folder.glob(f"*-{step:08d}")))


def test_they_are_kept_beside_the_newest_two(run):
    assert steps_in(run.checkpoints.folder) == [2, 3, 5, 8, 12]


def test_they_are_kept_after_a_restart(run, tmp_path):
    """And training is as it was."""
    config = milestones_run(tmp_path)
    with failing_at(7):
        start_run(LANGUAGE, config)
    found = resume_run(LANGUAGE, Path(config.output.folder) / "run")
    assert steps_in(found.checkpoints.folder) == [2, 3, 5, 8, 12]
    assert found.weights.read_bytes() == run.weights.read_bytes()


def test_each_has_the_average_of_its_moment(run, tmp_path, monkeypatch):
    """Which is what a run that ended there would have; without an average, the weights themselves."""
    config = milestones_run(tmp_path)
    loop = replace(config.loop, steps=5, milestones=(), milestone_tokens=())
    constant = replace(config.optim, schedule="constant")
    whole = start_run(LANGUAGE, named(config, "whole", optim=constant))
    short = start_run(LANGUAGE, named(config, "short", optim=constant, loop=loop))
    found = open_checkpoint(checkpoint(whole, 5))
    for name, tensor in open_checkpoint(short.path).model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor), name
    assert (found.state, found.kind) == ("weights of step 5", "language run")
    raw = start_run(LANGUAGE, named(config, "raw", optim=replace(constant, average_decay=None), loop=loop))
    weights = open_checkpoint(checkpoint(raw, 5)).model.state_dict()
    for name, tensor in open_checkpoint(raw.path).model.state_dict().items():
        assert torch.equal(weights[name], tensor), name
    assert open_checkpoint(checkpoint(whole, 5), device="meta").state == "weights of step 5"


@pytest.mark.slow
def test_they_are_opened_by_every_command(run, tmp_path, capsys):
    source, text = checkpoint(run, 3), str(run.path.parents[1] / "text.txt")

    def dat(*words: str) -> str:
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    written = dat("generate", source, "3 times", "--temperature", "0", "--max_new_tokens", "20")
    numbers = json.loads(dat("evaluate", source, "--text", text, "--json"))["text"]
    assert numbers["loss"] > json.loads(dat("evaluate", str(run.path), "--text", text, "--json"))["text"]["loss"]
    assert "weights of step 3" in dat("info", source)
    assert open_session(source).title == Path(source).name
    dat("export", source, "--to", "hub", "--out", str(tmp_path / "exported"))
    again = dat("generate", str(tmp_path / "exported"), "3 times", "--temperature", "0", "--max_new_tokens", "20")
    assert again == written


def test_one_that_is_not_there(run):
    with pytest.raises(FileNotFoundError, match="no checkpoint; expected one of report-"):
        open_checkpoint(run.checkpoints.folder / "report-00001-step-00000001")


def test_a_run_goes_on_from_one(run, tmp_path):
    """And keeps those that are still to come."""
    config = milestones_run(tmp_path)
    config = named(config, "branch", loop=replace(config.loop, continue_from=checkpoint(run, 3)))
    config = replace(config, data=replace(config.data, path=str(run.path.parents[1] / "text.txt")))
    branch = start_run(LANGUAGE, config)
    assert steps_in(branch.checkpoints.folder) == [3, 5, 8, 12]
    assert branch.weights.read_bytes() == run.weights.read_bytes()


@pytest.mark.slow
def test_parts_are_opened_as_well(tmp_path, monkeypatch):
    """Of a run in two processes that share the model, its average included, finished or not."""
    config = milestones_run(tmp_path)
    words = ["train", "language", "--config", "shared.yaml"]
    machine = replace(config.machine, parallel="shard")
    model = replace(config.model, dropout_rate=0.0)
    (tmp_path / "shared.yaml").write_text(commented_yaml(replace(config, machine=machine, model=model)))
    ended = dat_together(words, words, folder=tmp_path)
    assert [process.status for process in ended] == [0, 0], ended[0].err
    shared = RunFolder(tmp_path / "runs" / "run")
    alone = start_run(LANGUAGE, named(config, "alone", model=model))
    for step in (3, 12):
        assert (Path(checkpoint(shared, step)) / "shards").is_dir()
        found, expected = (open_checkpoint(checkpoint(run, step)).model.state_dict() for run in (shared, alone))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    end, last = (open_checkpoint(source).model.state_dict() for source in (shared.path, checkpoint(shared, 12)))
    assert all(torch.equal(end[name], tensor) for name, tensor in last.items())
    assert open_checkpoint(checkpoint(shared, 3), device="meta").weights_dtype == torch.float32
    for path in (Path(checkpoint(shared, 5)) / "shards").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="damaged or changed since it was written"):
        open_checkpoint(checkpoint(shared, 5))


def test_the_average_of_tied_weights_has_their_name_in_files(endless, tmp_path):
    loop = StepLoopConfig(steps=4, batch_size=4, eval_every=0, checkpoint_every=2)
    trainer = make_trainer(optim=replace(OPTIM, average_decay=0.8), loop=loop, folder=tmp_path)
    trainer.fit()
    exchange_average(trainer.optimizer)  # the weights again
    names = trainer._state({})["names"]
    weights = trainer.problem.model.state_dict(keep_vars=True)
    parameters = [parameter for group in trainer.optimizer.param_groups for parameter in group["params"]]
    assert all(weights[name] is parameter for name, parameter in zip(names, parameters, strict=True))
    assert len(names) == len(set(names)) > 10


WORDS = "two words\n\nthree  more words, \tand a last one"


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_words_are_counted(kind, monkeypatch):
    """In parts of any size, over documents and files, by any tokenizer."""
    if kind == "bpe":
        pytest.importorskip("tokenizers")
    tokenizer = ByteTokenizer() if kind == "bytes" else BytePairTokenizer.train([WORDS, TEXT], 300)
    texts = [[WORDS, "x", " y ", ""], [TEXT]]
    arrays = [torch.tensor([t for x in file for t in (tokenizer.end, *tokenizer.encode(x))]).numpy() for file in texts]
    sequences = TextSequences(arrays, 4, vocab_size=tokenizer.vocab_size)
    expected = sum(len(text.split()) for file in texts for text in file)
    for most in (1, 7, 1 << 22):
        monkeypatch.setattr("dat.experiments.language.data.MOST_AT_ONCE", most)
        assert count_words(sequences, tokenizer) == expected


def test_words_of_a_run(tmp_path):
    """A step has those of its tokens, on average over the text to train on."""
    config = milestones_run(tmp_path)
    loop = replace(config.loop, milestones=(), milestone_tokens=(), milestone_words=(30, 60), checkpoint_every=0)
    folder = start_run(LANGUAGE, replace(config, loop=loop))
    per_step = 96 * len(TEXT.split()) / len(TEXT.encode())
    assert steps_in(folder.checkpoints.folder) == [int(-(-words // per_step)) for words in (30, 60)]


def test_words_past_the_end_of_a_run(tmp_path):
    config = milestones_run(tmp_path)
    loop = replace(config.loop, milestones=(), milestone_tokens=(), milestone_words=(30, 60_000))
    with pytest.raises(ValueError, match=r"loop\.milestone_words: expected different integers from 1 to \d{3}, what"):
        start_run(LANGUAGE, replace(config, loop=loop))
    assert not (tmp_path / "runs" / "run").exists()


def with_milestones(key, values, *, tmp_path):
    config = tiny_config(tmp_path)
    return replace(config, loop=replace(config.loop, steps=12, **{key: values}))


test_milestones_past_the_end = refused(
    ("milestones", (13,), r"^loop\.milestones: .* integers from 1 to 12, what loop\.steps=12 has, got"),
    ("milestones", (0,), r"^loop\.milestones: expected different integers from 1 to 12"),
    ("milestones", (3, 3), r"^loop\.milestones: expected different integers from 1 to "),
    ("milestone_tokens", (12 * 96 + 1,), r"^loop\.milestone_tokens: expected different integers from 1 to 1,152"),
    by=with_milestones,
)


@pytest.mark.parametrize("steps", [1, 7, 897])
def test_the_most_words_are_reached_with_the_last_step(steps):
    """For any number of words a step, less than one too."""
    loop = StepLoopConfig(steps=steps)
    for words in (*range(steps, 40 * steps, 3), 35_840):
        most, per_step = int(steps * (words / steps)), words / steps
        assert replace(loop, milestone_words=(most,)).steps_of("milestone_words", per_step) == {steps}


def test_an_experiment_without_words():
    config: Any = RecallConfig()
    with pytest.raises(ValueError, match=r"loop\.milestone_words: expected none in an experiment without words"):
        start_run(Recall(), replace(config, loop=replace(config.loop, milestone_words=(5,))))


def test_spans_between_milestones():
    plan = StepPlan(StepLoopConfig(steps=10, milestones=(3, 7), report_every=0, eval_every=0, checkpoint_every=5))
    assert [plan.first_step(span) for span in range(1, plan.spans)] == [3, 5, 7]
    assert [plan.saves(span) for span in range(plan.spans)] == [True] * 4 and plan.milestones == {3, 7}
