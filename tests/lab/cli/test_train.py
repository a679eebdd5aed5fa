"""``dat train``, and what is done with its runs."""

import json
from pathlib import Path

import pytest

from tests.lab.cli.commands import dat, fails, games, printed
from tests.support.runs import stopping

pytestmark = pytest.mark.usefixtures("here")

TINY = [
    *(*games(24, 8, epochs=2), "--loop.batch_size=16", "--machine.threads=1", "--output.tensorboard=false"),
    *("--model.d_model=16", "--model.dff=16", "--model.n_layers=1", "--model.rel_proj_dim=4"),
]


def test_a_second_attempt_has_a_folder_of_its_own(capsys):
    words = ["train", "relational-games", *TINY, "--output.progress=false"]
    name = "same-DAT-1-layer-width-16-dff-16-rel_proj_dim-4-n24-seed0"
    assert dat(*words) == 0
    assert f"{name}: a finished run is never overwritten" in fails(capsys, *words)
    assert dat(*words, "--optim.lr=0.01") == 0
    assert dat(*words, "--optim.lr=0.02") == 0
    assert f"{name}-2: a finished run is never overwritten" in fails(capsys, *words, "--optim.lr=0.01")
    assert sorted(path.name for path in Path("runs").iterdir()) == [name, f"{name}-2", f"{name}-3"]
    assert "lr: 0.01" in Path(f"runs/{name}-2/config.yaml").read_text()


@pytest.mark.parametrize("name", [None, "one"])
def test_after_a_diverged_run_the_advice_leads_somewhere(capsys, name):
    words = ["train", "relational-games", *TINY, "--output.progress=false"]
    named = lambda name: [] if name is None else [f"--output.name={name}"]  # noqa: E731
    error = fails(capsys, *words, *named(name), "--optim.lr=1e30")
    advice = "the same command with others and another --output.name" if name else "the same command with others"
    assert "try a smaller optim.lr" in error and f"{advice} trains in a new folder" in error
    assert dat(*words, *named(name and f"{name}-2"), "--optim.lr=0.001") == 0


@pytest.mark.parametrize(("warmup", "told"), [(3, False), (4, True), (5, True)])
def test_a_warm_up_longer_than_training_is_said(capsys, warmup, told):
    """In a training counted in epochs, too; this one has four steps."""
    words = [*TINY, "--output.progress=false", f"--optim.warmup_steps={warmup}"]
    assert dat("train", "relational-games", *words) == 0
    notice = f"the warm-up of {warmup} steps (optim.warmup_steps) is not shorter than the training of 4: the learning"
    assert (notice in capsys.readouterr().err) is told


def test_a_context_longer_than_the_text_is_refused_before_the_model_is_built(capsys, tmp_path, monkeypatch):
    from dat.experiments.language import problem

    (tmp_path / "text.txt").write_text("one two three\n")
    monkeypatch.setattr(problem, "build_language_model", None)
    error = fails(capsys, "train", "language", "--data.path=text.txt", "--model.context=100000")
    assert "text.txt: expected at least 200,002 tokens, of which some are kept apart to validate on, got 15" in error


def test_train_and_evaluate(capsys):
    out = printed(capsys, "train", "relational-games", *TINY, "--output.name=one")
    assert "stripes, never trained on" in out and "run folder: runs/one" in out
    numbers = json.loads(printed(capsys, "evaluate", "runs/one", "--json", "--machine.threads=1"))
    expected = json.loads(Path("runs/one/result.json").read_text())["accuracy"]
    assert {name: value["accuracy"] for name, value in numbers.items()} == expected
    assert f"{100 * expected['test']:.1f} %" in printed(capsys, "evaluate", "runs/one", "--machine.threads=1")


def test_interruption_says_how_to_continue(capsys):
    with stopping(0):
        assert dat("train", "relational-games", *TINY, "--output.name=one") == 130
    assert "continue with: dat train relational-games --resume runs/one" in capsys.readouterr().err


def test_quiet_training_prints_nothing(capsys):
    assert dat("train", "relational-games", *TINY, "--output.progress=false") == 0
    assert capsys.readouterr() == ("", "")


def test_an_architecture_by_its_keys(capsys):
    words = ["--model.architecture=corelnet", "--model.corelnet.activation=tanh", "--model.name=mine"]
    assert dat("train", "relational-games", *TINY, *words, "--output.name=one") == 0
    assert "activation: tanh" in Path("runs/one/config.yaml").read_text()
    numbers = json.loads(printed(capsys, "evaluate", "runs/one", "--json", "--machine.threads=1"))
    result = json.loads(Path("runs/one/result.json").read_text())
    assert {name: value["accuracy"] for name, value in numbers.items()} == result["accuracy"]
    message = "model.corelnet: expected null with model.architecture=dat"
    assert message in fails(capsys, "train", "relational-games", "--model.corelnet.activation=tanh")


def test_train_a_language_model_and_let_it_write(capsys, tmp_path):
    (tmp_path / "text.txt").write_text("one two three\n" * 40)
    words = ["--data.path=text.txt", "--preset=T-tiny", "--model.d_model=16", "--model.context=8", "--loop.steps=3"]
    quick = ["--loop.batch_size=2", "--machine.threads=1", "--output.tensorboard=false", "--output.name=one"]
    out = printed(capsys, "train", "language", *words, *quick)
    assert "Transformer (2 layers, width 16, context 8), 48 tokens: validation loss " in out and "bits per byte" in out
    assert 'dat generate runs/one "..."' in out
    numbers = json.loads(printed(capsys, "evaluate", "runs/one", "--json", "--machine.threads=1"))["val"]
    assert numbers["loss"] == json.loads(Path("runs/one/result.json").read_text())["loss"]["val"]
    assert f"perplexity {numbers['perplexity']:.2f}" in printed(capsys, "evaluate", "runs/one", "--machine.threads=1")
    assert dat("generate", "runs/one", "one", "--max_new_tokens=5", "--seed=0", "--threads=1") == 0
    assert capsys.readouterr().out.startswith("one")
    assert "TransformerLM, language run (finished)" in printed(capsys, "info", "runs/one")
