"""The objectives under examples/, each beside its formula written out position by position."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dat import _own_code
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.problem import build_language_model
from dat.training.metrics import read_rows
from dat.training.run_folder import RunFolder
from dat.training.runs import start_run
from tests.lab.experiments.language.conftest import tiny_config
from tests.support.documents import ROOT
from tests.support.refusals import refusals

from .training.test_placement import CPU, MODEL

FILE = ROOT / "examples" / "objectives.py"
EXAMPLES = _own_code.module_of(FILE)
B, N = 3, 12


@pytest.fixture
def model():
    return build_language_model(MODEL.language_config(257), seed=4).double().eval()


@pytest.fixture
def batch():
    tokens = torch.randint(257, (B, N + 1), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:].clone()


def begun(objective, model):
    module = objective.begin(model, CPU)
    if module is not None:
        module.double()
    return objective


SEGMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 12, [*range(12)]])
"""Two documents, one, and twelve of one token each."""


@pytest.mark.parametrize("segments", [None, SEGMENTS])
def test_next_latent(model, batch, segments):
    objective, given = begun(EXAMPLES.NextLatent(weight=0.3), model), {} if segments is None else {"segments": segments}
    loss, numbers = objective(model, *batch, **given)
    hidden = model.hidden(batch[0], **given)
    errors = []
    for b in range(B):
        for n in range(N - 1):
            if segments is None or segments[b, n] == segments[b, n + 1]:
                pair = (F.layer_norm(x, (16,)) for x in (objective.head(hidden[b, n]), hidden[b, n + 1]))
                difference = torch.sub(*pair).abs()
                errors.append(torch.where(difference < 1, difference**2 / 2, difference - 0.5).mean())
    expected = torch.stack(errors).mean()
    torch.testing.assert_close(numbers["next_latent"], expected, rtol=1e-10, atol=0)
    plain = model(*batch, **given).loss
    torch.testing.assert_close(loss, plain + 0.3 * expected, rtol=1e-10, atol=0)


def test_the_target_of_the_next_latent_gets_no_gradient(model, batch):
    """What only the target depends on does not change by it: the last hidden state, which predicts none."""
    objective, seen = begun(EXAMPLES.NextLatent(), model), []
    model.layers.norm.register_forward_hook(lambda *given: (given[2].retain_grad(), seen.append(given[2]))[0])
    objective(model, *batch)[1]["next_latent"].backward()
    assert not seen[0].grad[:, -1].any() and seen[0].grad[:, :-1].any(-1).all()


@pytest.mark.parametrize("segments", [None, SEGMENTS])
def test_several_tokens(model, batch, segments):
    objective, given = begun(EXAMPLES.SeveralTokens(k=4), model), {} if segments is None else {"segments": segments}
    batch[1][1, 3] = -1
    loss, numbers = objective(model, *batch, **given)
    hidden, found = model.hidden(batch[0], **given), []
    for apart in range(4):
        terms = []
        for b in range(B):
            for n in range(N - apart):
                crosses = segments is not None and segments[b, n] != segments[b, n + apart]
                if not crosses and batch[1][b, n + apart] != -1:
                    state = hidden[b, n] if apart == 0 else objective.heads[apart - 1](hidden[b, n])
                    terms.append(-model.layers.final_out(state).log_softmax(-1)[batch[1][b, n + apart]])
        found.append(torch.stack(terms).mean())
        torch.testing.assert_close(numbers[f"token_{apart + 1}"], found[-1], rtol=1e-10, atol=0)
    torch.testing.assert_close(loss, torch.stack(found).mean(), rtol=1e-10, atol=0)


def test_distillation(tmp_path, batch):
    """Beside its formula; the teacher does not learn, and a model has nothing to learn from itself."""
    config = tiny_config(tmp_path)
    run = start_run(LanguageModelling(), config)
    model = build_language_model(config.model.language_config(257), seed=9).eval()
    objective = EXAMPLES.Distillation(str(run.path), temperature=3.0, weight=0.25)
    assert objective.begin(model, CPU) is None
    tokens, targets = batch
    targets[0, :4] = -1
    loss, numbers = objective(model, tokens, targets)
    ours, theirs = (of(tokens).logits.detach().double() for of in (model, objective.other))
    p, q = (theirs / 3).softmax(-1), (ours / 3).softmax(-1)
    expected = 9 * (p * (p / q).log()).sum(-1)[targets != -1].mean()
    torch.testing.assert_close(numbers["teacher"].double(), expected, rtol=1e-4, atol=0)
    plain = model(tokens, targets).loss
    torch.testing.assert_close(loss.double(), 0.75 * plain.double() + 0.25 * expected, rtol=1e-4, atol=0)
    loss.backward()
    assert all(parameter.grad is None for parameter in objective.other.parameters())
    objective.other.load_state_dict(model.state_dict())
    assert objective(model, tokens, targets)[1]["teacher"].item() == pytest.approx(0.0, abs=1e-5)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> RunFolder:
    return start_run(LanguageModelling(), tiny_config(tmp_path_factory.mktemp("teacher")))


def pupil(folder: Path, kind: str, **options: Any) -> RunFolder:
    """A run with an objective of the example; ``bpe`` gives it other tokens."""
    config, learned = tiny_config(folder), options.pop("bpe", False)
    data = replace(config.data, tokenizer="bpe", bpe_vocab_size=260) if learned else config.data
    loop = replace(config.loop, objective=f"objectives.py:{kind}", objective_options=options or None)
    return start_run(LanguageModelling(), replace(config, data=data, loop=loop))


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(_own_code, "_given", [str(FILE)])


@pytest.mark.slow
def test_it_is_trained_with_a_teacher(tmp_path, given, teacher):
    run = pupil(tmp_path, "Distillation", teacher=str(teacher.path))
    assert {"train_teacher", "train_next_token"} <= {*read_rows(run.metrics)[0]}
    assert run.read_result()["parameters"] == teacher.read_result()["parameters"]


@refusals(
    ("Distillation", {"teacher": None, "bpe": True}, r"Distillation: teacher: expected 260 tokens, got 257 \(line"),
    ("Distillation", {}, "_options: expected a value for teacher, got none"),
    ("Distillation", {"teacher": "."}, "Distillation: .*not a checkpoint"),
    ("Distillation", {"teacher": None, "temperature": 0.0}, "temperature: expected a positive number, got 0.0"),
    ("SeveralTokens", {"k": 1}, "k: expected an integer from 2 to 15, got 1"),
    of="kind, options",
)
def test_options_that_are_wrong(tmp_path, given, teacher, kind, options, error, message):
    options = {key: str(teacher.path) if value is None else value for key, value in options.items()}
    with pytest.raises(error, match=rf"loop\.objective.*{message}"):
        pupil(tmp_path, kind, **options)
