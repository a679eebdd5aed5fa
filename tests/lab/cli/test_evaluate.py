"""``dat evaluate --text``: the numbers of a language model on a text, whichever folder it is in."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dual_attention._base.checksums import read_checksums, write_checksums
from tests.lab.cli.commands import dat, fails, printed
from tests.lab.test_old_runs import KEPT

QUIET = ("--machine.threads=1", "--machine.device=cpu")
UNSEEN = ("--output.progress=false", "--output.tensorboard=false")
SMALL = ("--model.context=8", "--model.d_model=16", "--loop.batch_size=2", "--data.val_tokens=160")


@pytest.fixture(autouse=True)
def place(here) -> None:
    Path("text.txt").write_text("".join(f"{i} ünd {i + 2}\n" for i in range(60)))


@pytest.fixture
def evaluated(capsys):
    def run(*words: Any) -> dict[str, dict[str, float]]:
        return json.loads(printed(capsys, "evaluate", *map(str, words), "--json", *QUIET))

    return run


@pytest.mark.slow
def test_a_text_has_the_numbers_that_validation_has(capsys, evaluated):
    """Of a run, and of the folders that it is exported to; the first tokens too."""
    sizes = [*SMALL, "--loop.steps=2"]
    files = ["--data.path=text.txt", "--data.val_path=text.txt", *UNSEEN]
    assert dat("train", "language", *files, *sizes, *QUIET, "--output.name=run") == 0
    expected = evaluated("runs/run")["val"]
    assert expected["tokens"] == 160
    for to in ("hub", "transformers"):
        assert dat("export", "runs/run", f"--to={to}", f"--out={to}") == 0
    for folder in ("runs/run", "hub", "transformers"):
        found = evaluated(folder, "--text=text.txt", "--tokens=160", "--batch_size=3")["text"]
        assert found == pytest.approx(expected, rel=1e-5)
    whole = evaluated("hub", "--text=text.txt")["text"]
    tokens = open_checkpoint("hub").tokenizer().encode(Path("text.txt").read_text())
    assert whole["tokens"] == len(tokens) // 8 * 8  # an end token comes before the text
    assert dat("evaluate", "hub", "--text=text.txt", *QUIET) == 0
    assert f"hub: loss {whole['loss']:.4f}, perplexity {whole['perplexity']:.2f}" in capsys.readouterr().out


def test_a_checkpoint_of_a_run(run, evaluated, capsys):
    """The last one has the numbers of the run's end; a run that is not finished has those of its newest."""
    early, last = sorted((run / "checkpoints").glob("*-step-*"))
    assert evaluated(last) == evaluated(run) != evaluated(early)
    shutil.copytree(run, "unfinished")
    Path("unfinished/result.json").unlink()
    found = evaluated(Path("unfinished") / early.relative_to(run))
    assert found == evaluated(early)
    assert dat("evaluate", str(early), *QUIET) == 0
    assert capsys.readouterr().out.startswith(f"{early}:\nvalidation loss {found['val']['loss']:.4f}")
    assert "the run is not finished" in fails(capsys, "evaluate", "unfinished")  # its end is lost
    ends = ("metrics.jsonl", "model.safetensors", "result.json")
    begun = {name: value for name, value in read_checksums(Path("unfinished")).items() if name not in ends}
    write_checksums(Path("unfinished"), begun)
    for words in ((), ("--text=text.txt",)):
        assert dat("evaluate", "unfinished", *words, *QUIET) == 0
        assert "dat: unfinished: weights of step 20, since the run is not finished\n" in capsys.readouterr().err
    assert dat("evaluate", str(run), *QUIET) == 0
    assert f"dat: {run}: weights of step 20, the last ones\n" in capsys.readouterr().err
    shutil.rmtree("unfinished/checkpoints")
    assert "the run has no weights yet (continue it" in fails(capsys, "evaluate", "unfinished")
    assert f"no checkpoint; expected one of {early.name}" in fails(capsys, "evaluate", f"{early}1")


def test_a_checkpoint_of_a_run_of_images(evaluated, capsys):
    words = "--data.n_train=40 --data.n_val=20 --data.n_test=20 --loop.epochs=1 --output.name=digits"
    assert dat("train", "images", "--data.dataset=digits", *words.split(), "--output.progress=false", *QUIET) == 0
    [checkpoint] = Path("runs/digits/checkpoints").iterdir()
    assert evaluated(checkpoint) == evaluated("runs/digits")
    assert str(checkpoint) in printed(capsys, "evaluate", checkpoint, *QUIET)


@pytest.mark.parametrize("to", ["hub", "transformers"])
def test_a_name_on_the_hub(to, run, evaluated, monkeypatch):
    """As hf_hub_download keeps what it has fetched; the tests' environment is offline."""
    repository = Path("cache/models--someone--model")
    assert dat("export", str(run), f"--to={to}", f"--out={repository / 'snapshots' / 'abc'}") == 0
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(Path("cache").absolute()))
    found = evaluated("someone/model", "--text=text.txt")["text"]
    assert found == pytest.approx(evaluated(run, "--text=text.txt")["text"], rel=1e-5)


def test_a_text_is_read_as_that_of_the_run(evaluated):
    """The key of its lines, and what parts its documents."""
    Path("notes.jsonl").write_text("".join(json.dumps({"body": f"{i} and ## {i + 2}"}) + "\n" for i in range(60)))
    sizes = [*SMALL, "--loop.steps=1"]
    files = ["--data.path=notes.jsonl", "--data.val_path=notes.jsonl", "--data.field=body", "--data.separator=##"]
    assert dat("train", "language", *files, *sizes, *UNSEEN, *QUIET, "--output.name=run") == 0
    found = evaluated("runs/run", "--text=notes.jsonl", "--tokens=160")["text"]
    assert found == pytest.approx(evaluated("runs/run")["val"], rel=1e-5)


def test_a_text_that_is_shorter_than_the_context(run, evaluated):
    Path("short.txt").write_text("abc")
    assert evaluated(run, "--text=short.txt")["text"]["tokens"] == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_an_adapter(run, evaluated, capsys):
    """It is merged into the model that it names, whichever format that has; other commands take it, too."""
    peft = pytest.importorskip("peft")
    from dual_attention.hf import to_transformers

    found = {}
    for base in ("hub", "transformers"):
        assert dat("export", str(run), f"--to={base}", f"--out={base}") == 0
        opened = open_checkpoint(base)
        model: Any = to_transformers(opened.model, opened.config)
        model.config._name_or_path = model.name_or_path = base
        lora = peft.LoraConfig(r=2, target_modules=["wq", "wv"], init_lora_weights=False, task_type="CAUSAL_LM")
        torch.manual_seed(0)
        adapted: Any = peft.get_peft_model(model, lora)
        adapted.save_pretrained(f"adapter-{base}")
        x = torch.randint(200, (2, 9))
        logits = open_checkpoint(f"adapter-{base}").model(x)[0]
        torch.testing.assert_close(logits, adapted.eval()(input_ids=x).logits, atol=1e-5, rtol=1e-5)
        found[base] = evaluated(f"adapter-{base}", "--text=text.txt")["text"]
    assert found["hub"] == found["transformers"] != evaluated("hub", "--text=text.txt")["text"]
    assert dat("info", "adapter-hub") == 0 and dat("export", "adapter-hub", "--out=merged") == 0
    assert evaluated("merged", "--text=text.txt")["text"] == pytest.approx(found["hub"], rel=1e-6)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"task_type": "SEQ_CLS"}, "expected an adapter of a language model that it names, got task_type='SEQ_CLS'"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path=None"),
        ({"base_model_name_or_path": "./nowhere"}, "./nowhere: expected the folder of a checkpoint"),
        ({"peft_type": "PREFIX_TUNING"}, "cannot be merged into"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_adapters_of_other_models(run, about, message, capsys):
    peft = pytest.importorskip("peft")
    from dual_attention.hf import DualAttnForCausalLM

    assert dat("export", str(run), "--out=base") == 0
    lora = peft.LoraConfig(r=2, target_modules=["wq"], task_type="CAUSAL_LM")
    adapted: Any = peft.get_peft_model(DualAttnForCausalLM.from_pretrained("base"), lora)
    adapted.save_pretrained("adapter")
    path = Path("adapter/adapter_config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **about}))
    assert message in fails(capsys, "evaluate", "adapter", "--text=text.txt")


def test_wrong_calls(run, hub_folder, capsys):
    for words, message in (
        (["hub"], "hub: no run, which has evaluation sets; name a text (--text FILE)"),
        (["nowhere"], "nowhere"),
        (["someone/model", "--text=text.txt"], "someone/model: there is no such folder here, no copy of its"),
        ([str(run), "--tokens=3"], "tokens: expected none without --text, got 3"),
        (["hub", "--text=none.txt"], "text: no such file or folder: none.txt"),
        (["hub", "--text=text.txt", "--tokens=0"], "tokens: expected a positive integer, got 0"),
        ([str(KEPT / "images"), "--text=text.txt"], "expected a causal language model, got a VisionDualAttn"),
        ([str(KEPT / "recall"), "--text=text.txt"], "a run of recall, no language model"),
    ):
        assert message in fails(capsys, "evaluate", *words)
