"""``dat export``: the folder goes on as the run does, with its tokenizer, and is written whole or not at all."""

import contextlib
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
import torch

from dat.checkpoints import open_checkpoint
from dat.cli.main import main
from dat.data.images import IMAGE_SETS
from dat.experiments.images.config import ImageConfig, ImageDataConfig
from dat.experiments.images.examples import NormalisedImages
from dat.experiments.images.experiment import ImageClassification
from dat.experiments.images.model import build_image_model
from dat.experiments.language.pairs import log_probabilities
from dat.experiments.relational_games.config import RelationalGamesConfig
from dat.experiments.relational_games.experiment import RelationalGames
from dat.experiments.relational_games.presets import PRESETS as GAMES
from dual_attention.generation import generate
from tests.lab.cli.commands import printed, refusal
from tests.lab.test_old_runs import KEPT

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("to", ["transformers", "hub"])
def test_the_folder_writes_what_the_run_writes(run, to, capsys):
    assert printed(capsys, "export", run, "--to", to, "--out=folder") == "folder\n"
    words = ("1 ünd", "--seed=3", "--max_new_tokens=20", "--device=cpu")
    assert printed(capsys, "generate", "folder", *words) == printed(capsys, "generate", run, *words)
    ids = printed(capsys, "generate", run, *words, "--tokenizer=folder/tokenizer.json")
    assert ids == printed(capsys, "generate", run, *words)
    assert "exists already and is not overwritten" in refusal(capsys, "export", run, "--out=folder")


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
    assert message in refusal(capsys, "export", run, "--out=folder", *words) and not Path("folder").exists()


def test_a_learned_tokenizer_goes_from_text_to_folder(capsys, tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"body": f"one two three {n} four"}) for n in range(200)))
    words = ["--data.path=t.jsonl", "--data.field=body", "--data.tokenizer=bpe", "--data.bpe_vocab_size=280"]
    sizes = ["--model.context=8", "--model.d_model=16", "--loop.steps=2", "--loop.batch_size=2", "--machine.threads=1"]
    quiet = ["--output.progress=false", "--output.tensorboard=false", "--output.name=one"]
    assert main(["train", "language", *words, *sizes, *quiet]) == 0
    assert json.loads(Path("runs/one/result.json").read_text())["tokenizer"] == "bpe"
    assert printed(capsys, "evaluate", "runs/one", "--machine.threads=1")
    printed(capsys, "export", "runs/one", "--out=folder")
    call = ("one two", "--seed=0", "--max_new_tokens=5", "--device=cpu")
    assert printed(capsys, "generate", "folder", *call) == printed(capsys, "generate", "runs/one", *call)
    assert main(["train", "language", "--data.path=x.npy", "--data.tokenizer=bpe"]) == 2


def test_what_is_not_exported(capsys, tmp_path):
    assert refusal(capsys, "export", "none", "--out=folder")
    assert "required: --out" in refusal(capsys, "export", "none") and not Path("folder").exists()


@pytest.mark.parametrize(
    ("name", "auto", "inputs"),
    [
        ("images", "AutoModelForImageClassification", lambda: torch.rand(3, 1, 8, 8)),
        ("relational-games", "AutoModelForImageClassification", lambda: torch.rand(3, 3, 36, 36)),
        ("recall", "AutoModelForCausalLM", lambda: torch.randint(64, (3, 9))),
    ],
)
def test_runs_of_other_experiments(name, auto, inputs, capsys):
    transformers = pytest.importorskip("transformers")
    shutil.copytree(KEPT / name, name)
    printed(capsys, "export", name, "--out=folder")
    model = getattr(transformers, auto).from_pretrained("folder")
    ours, x = open_checkpoint(name, without_text=True).model, inputs()
    with torch.no_grad():
        found, expected = model(x).logits, ours(x)
    torch.testing.assert_close(found, expected[0] if isinstance(expected, tuple) else expected)
    assert not Path("folder", "tokenizer.json").exists()
    for words, message in ((["--to=hub"], "--to: expected transformers"), (["--tokenizer=bytes"], "expected none")):
        assert f"{message} for a run of {name}, got" in refusal(capsys, "export", name, "--out=other", *words)
        assert not Path("other").exists()
    reason = "does not say which tokenizer" if name == "recall" else "in the format of transformers already"
    assert reason in refusal(capsys, "export", "folder", "--out=other")


def test_images_become_inputs_as_in_training(capsys):
    """Of the models that are exported with what makes their inputs, those of colour images."""
    transformers = pytest.importorskip("transformers")
    image_module = pytest.importorskip("PIL.Image")
    about = ImageDataConfig(dataset="cifar10", folder="cifar")
    config = ImageConfig(data=about)
    model = build_image_model(config.model, IMAGE_SETS["cifar10"], seed=0)
    ImageClassification().export(config, model, Path("folder"))
    pixels = torch.randint(256, (1, 3, 32, 32), dtype=torch.uint8)
    made = NormalisedImages(pixels, torch.zeros(1).long(), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    processor = transformers.AutoImageProcessor.from_pretrained("folder")
    image = image_module.fromarray(pixels[0].permute(1, 2, 0).numpy())
    found = processor(image, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(found, made.batch(torch.tensor([0]))[0], atol=1e-5, rtol=1e-5)
    loaded = transformers.AutoModelForImageClassification.from_pretrained("folder")
    torch.testing.assert_close(loaded(found).logits, model.eval()(found))


@pytest.mark.parametrize("preset", ["predinet", "corelnet"])
def test_models_without_a_class_of_transformers(preset, tmp_path):
    experiment, config = RelationalGames(), RelationalGamesConfig(model=GAMES[preset])
    with pytest.raises(ValueError, match="relational-games: expected a model that transformers has a class for, got"):
        experiment.export(config, experiment.empty_model(config), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("to", ["transformers", "hub"])
def test_files_are_readable_as_any_new_ones(run, to, capsys):
    before = os.umask(0o022)
    try:
        printed(capsys, "export", run, f"--to={to}", "--out=here/folder")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path("here/folder").iterdir()}
    assert len(modes) > 3 and set(modes.values()) == {0o644}
    assert not any(".tmp" in path.read_text() for path in Path("here/folder").glob("*.[jm]*") if path.stem != "model")


@contextlib.contextmanager
def files_of_at_most(size: int):
    """As on a disk that is nearly full: files cannot become larger."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.skipif(sys.platform == "win32", reason="files have no largest size there")
@pytest.mark.parametrize(("to", "size"), [("transformers", 10_000), ("hub", 10_000), ("transformers", 300)])
def test_a_full_disk_is_named_and_leaves_nothing(run, to, size, capsys):
    """Whether safetensors finds it, with an error of its own, or Python does; and the next call goes through."""
    with files_of_at_most(size):
        error = refusal(capsys, "export", run, f"--to={to}", "--out=folder")
    assert "File too large" in error and "folder" in error and ".tmp" not in error
    assert not list(Path().iterdir())
    printed(capsys, "export", run, f"--to={to}", "--out=folder")


def test_what_a_killed_export_left_is_no_hindrance(run, capsys):
    dead = Path(f".folder.{2**22 + 1}.dat.tmp")  # above the largest number of a process
    dead.mkdir()
    (dead / "config.json").write_text("{")
    printed(capsys, "export", run, "--out=folder")
    assert [path.name for path in Path().iterdir()] == ["folder"]


def test_an_evaluation_harness_scores_sentences_as_we_do(run, capsys):
    """lm-eval, on which BabyLM's evaluation stands: log-probabilities after the token that begins a text."""
    harness = pytest.importorskip("lm_eval.models.huggingface")
    instance = pytest.importorskip("lm_eval.api.instance")
    import dual_attention.hf  # noqa: F401  (registers the Auto classes)

    printed(capsys, "export", run, "--out=folder")
    texts = ["1 ünd 2", "2 ünd", "ünd ünd ünd"]
    model = harness.HFLM(pretrained="folder", device="cpu", dtype="float32", batch_size=2)
    asked = [instance.Instance("loglikelihood", {}, ("", text), number) for number, text in enumerate(texts)]
    found = [score for score, _ in model.loglikelihood(asked, disable_tqdm=True)]
    opened = open_checkpoint(run)
    sums, _ = log_probabilities(opened.model, opened.tokenizer(), [(text, "") for text in texts])
    assert found == pytest.approx(sums.tolist(), rel=1e-5)
