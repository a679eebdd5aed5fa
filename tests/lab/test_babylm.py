"""Checkpoints of abrsvn/babylm_dat_2026 in the commands of ``dat``: a folder as their export writes it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dat.checkpoints import open_checkpoint
from dat.cli.generate import continuations
from dat.explorer.opening import open_session
from dual_attention.model_analysis.views.tokens import token_labels
from tests.lab.cli.commands import dat, fails, printed
from tests.library.hf.test_babylm import BASE, documents, written

pytest.importorskip("tokenizers")

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
TEXT = "The child reads a book.\nMom laughs at the river.\nIt stood near a small house.\n"


def write_tokenizer(folder: Path) -> int:
    """Byte pairs that follow a space put in front, as theirs, and ``<s>`` before each text; returns their number."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    made: Any = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.NFKC()])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=290, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    made.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return made.get_vocab_size()


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "theirs"
    folder.mkdir()
    size = write_tokenizer(folder)
    written(folder, {**BASE, "vocab_size": size, "max_seq_len": 24, "norm_type": "layernorm", "ra_type": "rca"})
    return folder


@pytest.mark.slow
def test_a_folder_of_theirs_opens_in_every_command(theirs: Path, capsys):
    assert dat("info", "theirs") == 0 and "babylm format" in capsys.readouterr().out
    assert dat("generate", "theirs", "The child", "--max_new_tokens=5", "--seed=1") == 0 and capsys.readouterr().out
    assert dat("explore", "theirs", "--text=The child", "--export=page.html") == 0
    Path("text.txt").write_text(TEXT)
    assert dat("evaluate", "theirs", "--text=text.txt", "--json") == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["text"]["loss"] > 0
    Path("pairs.jsonl").write_text('{"sentence_good": "Mom laughs.", "sentence_bad": "Mom laugh."}\n')
    assert dat("evaluate", "theirs", "--pairs=pairs.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out)["all"]["all"]["pairs"] == 1


@pytest.mark.parametrize("to", ["transformers", "hub"])
def test_an_exported_one_is_the_same_model(to: str, theirs: Path, capsys):
    assert dat("export", "theirs", f"--to={to}", "--out=ours") == 0
    opened = open_checkpoint(theirs, dtype=torch.float64)
    ours = open_checkpoint("ours", dtype=torch.float64)
    x = torch.randint(opened.config.vocab_size, (2, 20))
    torch.testing.assert_close(ours.model(x)[0], opened.model(x)[0], atol=1e-5, rtol=1e-5)  # written in float32
    assert ours.tokenizer().encode(TEXT) == opened.tokenizer().encode(TEXT)
    assert (ours.tokenizer().begin, ours.tokenizer().end) == (1, 2)
    saved = json.loads(Path("ours/tokenizer_config.json").read_text())
    assert (saved["bos_token"], saved["eos_token"]) == ("<s>", "</s>")
    if to == "transformers":
        config = json.loads(Path("ours/config.json").read_text())
        assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)


def test_a_prompt_begins_with_the_token_that_begins_their_texts(theirs: Path):
    opened = open_checkpoint(theirs)
    model: Any = opened.model
    tokenizer = opened.tokenizer()
    found = "".join(continuations(model, tokenizer, "The child", max_new_tokens=4, temperature=0))
    idx = torch.tensor([[1, *tokenizer.encode("The child")]])
    tokens = model.generate(idx, 4, temperature=0, stop_tokens=2)[0, idx.shape[1] :]
    assert found == tokenizer.decode(tokens.tolist())


def test_the_explorer_reads_a_text_as_they_train_on_it(theirs: Path):
    session: Any = open_session("theirs")
    tokens = [1, *session.tokenizer.encode("The child")]
    assert session.tokens("The child") == tokens
    assert session.record("The child").sequences["tokens"] == ["⟨begin⟩", *token_labels(session.tokenizer, tokens[1:])]


def test_a_text_is_scored_document_by_document(theirs: Path, capsys):
    """As they train: an end token is the first of the next document, and positions go on."""
    end = 2
    tokens = torch.randint(4, 290, (25,))
    tokens[7] = tokens[15] = end
    np.save("tokens.npy", tokens.numpy().astype(np.uint16))
    loss = json.loads(printed(capsys, "evaluate", "theirs", "--text=tokens.npy", "--json"))["text"]["loss"]
    model: Any = open_checkpoint(theirs).model
    x = tokens[None, :24]

    def mean(**apart: Tensor) -> float:
        with torch.no_grad():
            return float(model(x, tokens[None, 1:25], **apart).loss)

    assert loss == pytest.approx(mean(**documents(x)), rel=1e-5) and abs(loss - mean()) > 1e-3


def test_a_value_without_counterpart_is_one_line(theirs: Path, capsys):
    saved = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps({**saved, "pe_type": "learned"}))
    assert "pe_type: expected 'rope', got 'learned'" in fails(capsys, "generate", "theirs", "The child")
