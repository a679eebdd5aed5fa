"""An answer with its reasons: the model's own prediction, and what it becomes without each relation."""

import copy

import pytest
import torch

from dat.explorer.images import ImageSession
from dat.explorer.predicting import answer_to, reasons_for, reasons_in_words
from dat.explorer.questions import QuestionSession
from dat.explorer.session import Session, TextSession
from dual_attention.encoder_models import TransformerEncoder
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.relational_attention import RelationalAttention
from tests.lab.cli.commands import printed, refusal
from tests.lab.explorer.conftest import TEXT, dat, transformer, vision
from tests.lab.explorer.test_questions import QUESTION, model_of


def test_the_next_token_and_what_it_is_without_each_relation(session):
    """As if its column of W_r were zero; numbers of a text are those of its last token alone."""
    answer, tokens = answer_to(session, TEXT), session.tensor(session.tokens(TEXT))
    with torch.no_grad():
        before = session.model(tokens).logits[0, -1].log_softmax(-1)
    likeliest = before.argmax()
    assert answer.words[0] == (
        repr(session.tokenizer.decode([int(likeliest)])),
        pytest.approx(before.max().exp().item()),
    )
    reasons = reasons_for(session, answer)
    assert len(reasons) == 8 and [one["nats"] for one in reasons] == sorted(
        (one["nats"] for one in reasons), reverse=True
    )
    for reason in reasons:
        relation, layer = reason["part"].removeprefix("relation ").split(" of ")
        other = copy.deepcopy(session.model)
        (heads,) = [
            one for name, one in other.named_modules() if layer in name and isinstance(one, RelationalAttention)
        ]
        with torch.no_grad():
            heads.wr[..., int(relation)] = 0
            after = other(tokens).logits[0, -1].log_softmax(-1)
        assert reason["nats"] == pytest.approx((before.exp() * (before - after)).sum().item(), rel=1e-3, abs=1e-6)
        assert reason["random"] > 0


def test_images_questions_and_models_without_relations():
    images = ImageSession(vision(), "a model", names=("no", "yes"))
    answer = answer_to(images, "game same")
    assert answer.words == images.record(images.pixels("game same")[0])[1].classes
    assert {one["part"].partition(" ")[0] for one in reasons_for(images, answer)} == {"relation"}
    questions = QuestionSession(model_of(), "a model")
    answer = answer_to(questions, QUESTION)
    assert answer.words == [(questions.record(QUESTION).facts["answer"], None)] and reasons_for(questions, answer)
    plain = Session(transformer(), ByteTokenizer(), "a model")
    answer = answer_to(plain, TEXT)
    reasons = reasons_for(plain, answer)
    assert [one["part"] for one in sorted(reasons, key=lambda one: one["part"])] == [
        f"sensory head {head} of blocks.0" for head in (0, 1)
    ]
    assert "largest between" not in reasons_in_words(answer, reasons)
    said = reasons_in_words(answer, [{"part": "relation 0 of blocks.0", "nats": -5e-9, "random": 0.0, "pair": None}])
    assert said.endswith("  relation 0 of blocks.0: 0 (0)")


def test_a_model_that_has_diverged():
    broken = Session(dat(), ByteTokenizer(), "a model")
    with torch.no_grad():
        broken.model.layers.final_out.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="checkpoint: expected finite predictions of the model, got nan or infinity"):
        reasons_for(broken, answer_to(broken, TEXT))


def test_the_command(capsys):
    """The example of games is right about a picture because of one relation."""
    said = printed(capsys, "predict", "games").splitlines()
    assert said[0].endswith("whose answer is “same”") and said[1].startswith("answer: same 9") and len(said) == 7
    assert said[4].startswith("  relation 3 of blocks.0: ") and "largest between receiver row" in said[4]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["games", "nothing.png"], "image: expected a file or one of game same"),
        (["games", "--tokenizer", "bytes"], "reads images; leave it out"),
        (["language", ""], "text: expected at least one character"),
        (["nothing-here"], "nothing-here: no such folder"),
        ([], "the following arguments are required: NAME"),
    ],
)
def test_bad_input(words, error, capsys):
    assert error in refusal(capsys, "predict", *words)


def test_a_model_that_predicts_nothing():
    session = TextSession(TransformerEncoder(257, 32, n_layers=1, n_heads=2), ByteTokenizer(), "a model")
    with pytest.raises(ValueError, match="checkpoint: this model predicts nothing"):
        answer_to(session, TEXT)
