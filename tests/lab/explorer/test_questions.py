"""Models that answer questions are recorded on a question and on the answer that they give it."""

import json

import pytest
import torch

from dat.checkpoints import Checkpoint
from dat.data.mathematics import END, START, VOCABULARY, decode_text, encode_questions
from dat.experiments.mathematics.config import MathematicsConfig
from dat.experiments.mathematics.model_keys import PRESETS
from dat.experiments.mathematics.problem import build_mathematics_model
from dat.explorer import opening
from dat.explorer.exporting import Exporter
from dat.explorer.questions import EXAMPLES, QuestionSession
from dat.explorer.view_state import View
from dual_attention.model_analysis.capture import capture
from tests.lab.explorer.conftest import rows_of, saved
from tests.lab.explorer.test_server import ask
from tests.support.refusals import refused

QUESTION = "Solve 3*x = 9 for x."


def model_of(name: str = "DAT-tiny"):
    model = build_mathematics_model(PRESETS[name], seed=0).eval()
    with torch.no_grad():  # apart from each other, as those of a trained model are, and no answer that never ends
        for parameter in model.parameters():
            parameter.add_(
                0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
    return model


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "attended"])
@pytest.mark.parametrize("name", ["DAT-tiny", "T-tiny"])
def test_maps_are_those_of_the_question_and_its_answer(name, masked):
    session = QuestionSession(model_of(name), "a model", masked=masked)
    found = session.record(QUESTION)
    question, answer = found.sequences["question"], found.sequences["answer"]
    assert "".join(question[:21]).replace("␣", " ") == QUESTION + "⟨end⟩"
    assert len(question) == (21 if masked else 161) and set(question[21:]) <= {"⟨padding⟩"}
    assert answer[0] == "⟨start⟩" and "".join(answer[1:]).startswith(found.facts["answer"][:30].replace(" ", "␣"))

    source = encode_questions([QUESTION]).long()[:, : len(question)]
    read = torch.tensor([[START, *(VOCABULARY.index(label.replace("␣", " ")) for label in answer[1:])]])
    with torch.no_grad(), capture(session.model) as maps:
        logits = session.model(source, read, read)[0]  # of every character, since there are some to predict
    likeliest = logits[0].argmax(-1)
    assert torch.equal(likeliest[:-1], read[0, 1:])  # greedy decoding gives the answer
    assert decode_text(likeliest) == found.facts["answer"]
    assert len(read[0]) == 31 or likeliest[-1] == END
    for heads, expected in zip(found.heads, maps.heads(), strict=True):
        senders = "answer" if heads.layer.startswith("decoder") and not heads.layer.endswith("cross") else "question"
        receivers = "question" if heads.layer.startswith("encoder") else "answer"
        assert (heads.receivers, heads.senders) == (receivers, senders)
        n = heads.weights.receivers
        torch.testing.assert_close(heads.weights.values(0, n, heads.visible), expected.weights[0], rtol=1e-4, atol=1e-6)
        if heads.relations is not None:
            seen = expected.visible[0, 0] if expected.visible is not None else 1
            wanted = expected.relations[0].permute(2, 0, 1) * seen
            torch.testing.assert_close(heads.relations.values(0, n, heads.visible), wanted, rtol=1e-4, atol=1e-5)


def test_questions_of_all_modules_are_read():
    model = model_of()
    for module in EXAMPLES:
        session = QuestionSession(model, "a model", module=module)
        session.check(session.default)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text: expected a question, got an empty text"),
        ("x" * 161, "question: expected at most 160 characters, got 161"),
        ("Löse x = 1.", "question: expected characters of the vocabulary, got 'ö'"),
    ],
)
def test_questions_that_cannot_be_read_get_a_message(serve, text, message):
    server = serve(session=QuestionSession(model_of(), "a model"), text=QUESTION)
    status, body, _ = ask(server, json.dumps({"text": text}), path="/record")
    assert status == 422 and message in json.loads(body)["error"]
    assert ask(server, json.dumps({"text": QUESTION}), path="/record")[0] == 200
    assert ask(server, json.dumps({"text": QUESTION}), path="/generate")[0] == 404


@pytest.mark.slow
def test_views_of_questions(tmp_path):
    session = QuestionSession(model_of(), "a model")
    for name in ("a.html", "a.csv", "a.png"):
        assert Exporter(session, QUESTION, View.of("page=attention&layer=decoder.0.cross")).write(tmp_path / name) > 500


CONFIG = MathematicsConfig(module="polynomials__expand")


def opened(monkeypatch, **options):
    found = Checkpoint("a", "mathematics run", CONFIG, model_of(), (), torch.float32)
    monkeypatch.setattr(opening, "open_checkpoint", lambda *_: found)
    return opening.open_session("a", **options)


test_what_is_refused = refused(
    *((lambda _, page=page: Exporter(QuestionSession(model_of(), "a model"), QUESTION, View.of(page)), message)
      for page, message in (("generate", "is of language models"), ("vision", "is of images"))),
    (lambda patch: opened(patch, tokenizer="bytes"), "tokenizer: a reads characters; leave it out"),
    by=lambda call, *, monkeypatch: call(monkeypatch),
)  # fmt: skip


def test_a_run_is_opened(monkeypatch):
    session = opened(monkeypatch)
    assert isinstance(session, QuestionSession) and session.default == EXAMPLES["polynomials__expand"]
    assert session.masked == (CONFIG.data.padding == "masked") and session.facts["layers"] == "2"


@pytest.mark.slow
def test_a_question_is_asked_in_a_browser(visit, serve):
    server = serve(session=QuestionSession(model_of(), "a model"), text=QUESTION)
    visitor = visit()
    page = visitor.open(server.address)
    shown = [tab.inner_text() for tab in page.locator("nav button").all() if tab.is_visible()]
    assert shown == ["Relations", "Attention", "Symbols", "What matters"]
    assert page.input_value("#prompt") == QUESTION
    page.fill("#prompt", "Solve y - 1 = 2 for y.")
    page.click("#ask button")
    page.wait_for_function("() => !document.querySelector('#ask button').disabled")
    page.click("#tab-attention")
    senders = [row["sender_token"] for row in rows_of(saved(page, "csv"))[:23]]
    assert "".join(senders).replace("␣", " ") == "Solve y - 1 = 2 for y.⟨end⟩"
    assert visitor.inside(server.address.partition("?")[0])
