"""``dat export``: the folder goes on as the run does, with its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli.main import main
from dual_attention.generation import generate


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def printed(capsys, *arguments) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("to", ["transformers", "hub"])
def test_the_folder_writes_what_the_run_writes(run, to, capsys):
    assert printed(capsys, "export", run, "--to", to, "--out=folder") == "folder\n"
    words = ("1 ünd", "--seed=3", "--max_new_tokens=20", "--device=cpu")
    assert printed(capsys, "generate", "folder", *words) == printed(capsys, "generate", run, *words)
    ids = printed(capsys, "generate", run, *words, "--tokenizer=folder/tokenizer.json")
    assert ids == printed(capsys, "generate", run, *words)
    assert main(["export", str(run), "--out=folder"]) == 2
    assert "exists already and is not overwritten" in capsys.readouterr().err


def test_transformers_takes_model_and_tokenizer(run, capsys):
    transformers = pytest.importorskip("transformers")
    from dual_attention.hf import DualAttnForCausalLM

    printed(capsys, "export", run, "--out=folder")
    ours = open_checkpoint(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained("folder")
    text = "1 ünd <|zwei|>\n 漢"
    tokens = ours.tokenizer().encode(text)
    assert tokenizer(text)["input_ids"] == tokens and tokenizer.decode(tokens) == text
    assert tokenizer.eos_token_id == ours.tokenizer().end and tokenizer.model_max_length == 24
    pipeline = transformers.pipeline("text-generation", "folder", device="cpu")
    assert isinstance(pipeline.model, DualAttnForCausalLM)
    written = pipeline("1 ü", max_new_tokens=6, do_sample=False)[0]["generated_text"]
    idx = torch.tensor([ours.tokenizer().encode("1 ü")])
    expected = generate(ours.model, idx, 6, temperature=0, stop_tokens=256)[0]
    assert written == ours.tokenizer().decode(expected.tolist())


def test_large_weights_in_several_files(run, capsys):
    """With an index, as transformers and this library read them."""
    transformers = pytest.importorskip("transformers")
    printed(capsys, "export", run, "--out=one")
    printed(capsys, "export", run, "--out=several", "--max_shard_size=20KB")
    index = json.loads(Path("several/model.safetensors.index.json").read_text())
    files = sorted(Path("several").glob("*.safetensors"))
    assert len(files) > 1 and {path.name for path in files} == set(index["weight_map"].values())
    expected = transformers.AutoModelForCausalLM.from_pretrained("one").state_dict()
    found = transformers.AutoModelForCausalLM.from_pretrained("several").state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    words = ("1 ü", "--seed=3", "--max_new_tokens=9", "--device=cpu")
    assert printed(capsys, "generate", "several", *words) == printed(capsys, "generate", run, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max_shard_size=many"], "--max_shard_size: expected a size such as 5GB, got 'many'"),
        (["--max_shard_size=5GB", "--to=hub"], "--max_shard_size: expected --to transformers, got '--to hub'"),
    ],
)
def test_wrong_sizes_of_files(run, words, message, capsys):
    assert main(["export", str(run), "--out=folder", *words]) == 2
    assert message in capsys.readouterr().err and not Path("folder").exists()


def test_a_learned_tokenizer_goes_from_text_to_folder(capsys, tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"body": f"one two three {n} four"}) for n in range(200)))
    words = ["--data.path=t.jsonl", "--data.field=body", "--data.tokenizer=bpe", "--data.bpe_vocab_size=280"]
    sizes = ["--model.context=8", "--model.d_model=16", "--loop.steps=2", "--loop.batch_size=2", "--machine.threads=1"]
    quiet = ["--output.progress=false", "--output.tensorboard=false", "--output.name=one"]
    assert main(["train", "language", *words, *sizes, *quiet]) == 0
    capsys.readouterr()
    assert json.loads(Path("runs/one/result.json").read_text())["tokenizer"] == "bpe"
    assert printed(capsys, "evaluate", "runs/one", "--machine.threads=1")
    printed(capsys, "export", "runs/one", "--out=folder")
    call = ("one two", "--seed=0", "--max_new_tokens=5", "--device=cpu")
    assert printed(capsys, "generate", "folder", *call) == printed(capsys, "generate", "runs/one", *call)
    assert main(["train", "language", "--data.path=x.npy", "--data.tokenizer=bpe"]) == 2


def test_what_is_not_exported(capsys, tmp_path):
    assert main(["export", "none", "--out=folder"]) == 2
    assert main(["export", "none"]) == 2
    assert not Path("folder").exists()
    assert "required: --out" in capsys.readouterr().err
