"""DocumentMask that a sequence holds are trained on as if each stood alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dat.experiments.language.config import LanguageDataConfig
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.problem import DocumentMask, build_language_model, language_loss
from dat.training.runs import evaluate_run, resume_run, start_run
from tests.lab.cli.commands import printed
from tests.support.refusals import refused
from tests.support.runs import interrupted

from .conftest import MODEL

END = 256
POSITIONS = ["pos_emb", "RoPE", "none"]
SYMBOLS = ["symbolic_attention", "positional_symbols", "position_relative"]


def model(**keys):
    config = replace(MODEL, dropout_rate=0.0, **keys).language_config(257)
    return build_language_model(config, seed=3).double()


def packed(*lengths):
    """A row of the tokens of documents, each with the end token in front, and the rows of each alone; with targets."""
    documents = [torch.cat((torch.tensor([END]), torch.randint(256, (n - 1,)))) for n in lengths]
    row = torch.cat((*documents, torch.tensor([END])))
    ends = torch.tensor(lengths).cumsum(0).tolist()
    alone = [(row[None, e - n : e], row[None, e - n + 1 : e + 1]) for e, n in zip(ends, lengths, strict=True)]
    return (row[None, :-1], row[None, 1:]), alone


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("symbols", SYMBOLS)
def test_the_loss_is_that_of_one_document_at_a_time(symbols, positions):
    lm, (row, alone) = model(symbols=symbols, pos_enc_type=positions), packed(5, 1, 7, 3)
    loss = language_loss(documents=DocumentMask(END))
    together = loss(lm, row)[0]
    each = torch.stack([language_loss()(lm, document)[0] * document[0].numel() for document in alone]).sum() / 16
    torch.testing.assert_close(together, each, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(x, [p for p in lm.parameters() if p.requires_grad]) for x in (together, each)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
    assert (language_loss()(lm, row)[0] - together).abs() > 1e-4


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_may_go_on(positions):
    """Rotary positions know differences only, so that it is the same to them."""
    lm, (row, _) = model(pos_enc_type=positions), packed(5, 1, 7, 3)
    anew, on = (language_loss(documents=DocumentMask(END, restart))(lm, row)[0] for restart in (True, False))
    if positions == "pos_emb":
        assert (anew - on).abs() > 1e-6
    else:
        torch.testing.assert_close(anew, on, rtol=1e-12, atol=1e-12)


def test_a_document_that_began_earlier_is_the_first_of_its_row():
    lm = model()
    row = torch.cat((torch.randint(256, (6,)), torch.tensor([END]), torch.randint(256, (10,))))[None]
    loss = language_loss(documents=DocumentMask(END))(lm, (row[:, :-1], row[:, 1:]))[0]
    parts = [(row[:, :6], row[:, 1:7]), (row[:, 6:-1], row[:, 7:])]
    each = torch.stack([language_loss()(lm, part)[0] * part[0].numel() for part in parts]).sum() / 16
    torch.testing.assert_close(loss, each, rtol=1e-12, atol=1e-12)


@pytest.fixture
def documents(config, tmp_path):
    """A run on a text of short documents, which are kept apart."""
    path = tmp_path / "documents.txt"
    path.write_text("<|endoftext|>".join(f"{i} and {i} are {2 * i}." for i in range(200)))
    return replace(config, data=replace(config.data, path=str(path), document_mask=True))


@pytest.mark.slow
def test_runs_keep_documents_apart_and_go_on(documents, capsys):
    whole = start_run(LanguageModelling(), documents).read_result()
    run = Path(documents.output.folder) / "run"
    weights = (run / "model.safetensors").read_bytes()
    assert evaluate_run(LanguageModelling(), run)["val"]["loss"] == whole["loss"]["val"]
    other = replace(documents, output=replace(documents.output, name="other"))
    with interrupted(6):
        start_run(LanguageModelling(), other)
    assert (resume_run(LanguageModelling(), run.with_name("other")).weights).read_bytes() == weights
    mixed = replace(documents.data, document_mask=False)
    unmasked = start_run(LanguageModelling(), replace(other, data=mixed, output=replace(other.output, name="mixed")))
    assert unmasked.weights.read_bytes() != weights
    masked = printed(capsys, "evaluate", run, "--text", documents.data.path)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("document_mask: true", "document_mask: false"))
    (run / "checksums.json").unlink()
    assert masked != printed(capsys, "evaluate", run, "--text", documents.data.path)


test_positions_need_the_mask = refused(
    ("continue", "data.document_positions: expected restart without"),
    by=lambda positions: LanguageDataConfig(document_positions=positions),
)
