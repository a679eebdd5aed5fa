"""``dat estimate``: presets, files, folders, times, and errors in one line."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml

from dat.cli.estimate import find_model
from dat.estimate import estimate, parallel_estimate
from dat.experiments.language.config import LanguageConfig, LanguageDataConfig, LanguageMachineConfig
from dat.experiments.relational_games.config import RelationalGamesConfig
from dat.experiments.relational_games.model import build_games_model
from dat.experiments.relational_games.presets import PRESETS
from dat.training.config_io import commented_yaml
from dual_attention import LANGUAGE_PRESETS
from tests.lab.cli.commands import fails, printed
from tests.support.documents import PAGES, ROOT

pytestmark = pytest.mark.sweep(3)

MODEL = {
    "model": "TransformerLM",
    "vocab_size": 50,
    "d_model": 32,
    "n_layers": 1,
    "n_heads": 4,
    "dff": None,
    "dropout_rate": 0.0,
    "activation": "gelu",
    "norm_first": True,
    "max_block_size": 40,
}


MATRICES = "studies/matrices/experiment.py"


def figures(capsys, *arguments: object) -> dict:
    return json.loads(printed(capsys, "estimate", *arguments, "--json"))


def test_a_language_model_by_name(capsys):
    found = figures(capsys, "DAT-tiny", "--batch=4", "--length=1e2", "--dtype", "bf16")
    expected = estimate("DAT-tiny", batch=4, length=100, dtype="bf16")
    assert found == json.loads(json.dumps(expected.to_dict()))


@pytest.mark.slow
def test_a_model_of_relational_games_by_name(capsys):
    found = figures(capsys, "dat-0+2-sym", "--batch", "512", "--device=cpu")
    name = "dat-0+2-sym"
    expected = estimate(build_games_model(PRESETS[name], 2, seed=0), batch=512, device="cpu", name=name)
    assert found == json.loads(json.dumps(expected.to_dict()))


NAMED = [pytest.param("ViT", 7_149_034, marks=pytest.mark.slow), ("ViDAT-digits", 137_746), ("DAT-832K", None)]


@pytest.mark.parametrize(("name", "parameters"), NAMED)
def test_models_of_images_and_mathematics_by_name(capsys, name, parameters):
    """ViT is the one of CIFAR, as in the run that comes with it."""
    found = figures(capsys, name, "--batch", "2", "--device=cpu")
    assert found["model"] == name and parameters in (None, found["parameters"]) and found["step_flops"] > 0


def test_table_and_times(capsys):
    out = printed(capsys, "estimate", "T-tiny", "--rate=1e12", "--mfu=0.5", "--tokens=1e9", "--devices=2")
    assert "T-tiny: 1 x 256 tokens, training, float32, cuda" in out
    step = re.search(r"time of a batch +(\S+) ms at 50% of 1\.00 TFLOP/s on 2 devices, ([\d,]+) tokens/s", out)
    expected = estimate("T-tiny")
    assert step is not None and float(step[1]) == pytest.approx(1000 * expected.time(1e12, 0.5, devices=2), rel=0.01)
    assert re.search(r"time of 1\.00 B tokens +\d", out)


@pytest.mark.slow
def test_costs_on_several_devices(capsys):
    """Of a device's own part of the batch, in passes."""
    all_of_it = ("T-tiny", "--rate=1e12", "--batch=16", "--devices=4", "--device=cpu")
    words = (*all_of_it, "--shard=hsdp", "--shard_size=2", "--micro_batch=2")
    found = figures(capsys, *words)
    model = LANGUAGE_PRESETS["T-tiny"].build(device="meta")
    options = {"shard": "hsdp", "devices": 4, "shard_size": 2, "passes": 2}
    expected = parallel_estimate(model, estimate("T-tiny", batch=2, device="cpu"), **options)
    assert found["parallel"] == json.loads(json.dumps(expected.to_dict())) and found["batch"] == 2
    alone = figures(capsys, "T-tiny", "--rate=1e12", "--batch=16", "--devices=4", "--device=cpu")
    assert found["step_seconds"] == pytest.approx(alone["step_seconds"], rel=1e-9)
    out = printed(capsys, "estimate", *words)
    assert "on 4 devices, sharded in groups of 2, replicated" in out and "2 passes of 2 per device and step" in out
    for name in ("memory per device", "sent per device and step", "gradients, reduce-scattered", "checkpoint"):
        assert name in out


def test_the_planned_model():
    """The file that the page on costs plans for, with the number of parameters that stands there."""
    name, model, _ = find_model(str(ROOT / "examples" / "DAT-7B.yaml"))
    assert sum(parameter.numel() for parameter in model.parameters()) == 6_435_778_560
    assert name == "DualAttnTransformerLM" and "6.44 B" in PAGES["docs/costs.md"]


@pytest.mark.slow
def test_options_change_the_estimate(capsys):
    plain = figures(capsys, "T-tiny")
    assert figures(capsys, "T-tiny", "--inference")["backward_flops"] == 0
    assert figures(capsys, "T-tiny", "--checkpointing")["backward_flops"] > plain["backward_flops"]
    assert figures(capsys, "T-tiny", "--all_logits")["activation_bytes"] > plain["activation_bytes"]
    assert figures(capsys, "T-tiny", "--dtype=bf16", "--param_dtype=fp32")["cast_bytes"] > 0
    assert figures(capsys, "DAT-tiny", "--impl=dense")["activation_bytes"] > plain["activation_bytes"]
    times = figures(capsys, "T-tiny", "--rate=1e12", "--tokens=1e6")
    assert times["seconds"] == pytest.approx(1e6 / times["tokens_per_second"])


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_with_a_class_and_its_arguments(capsys, tmp_path: Path, suffix: str):
    path = tmp_path / f"model.{suffix}"
    path.write_text(json.dumps(MODEL) if suffix == "json" else yaml.safe_dump(MODEL), encoding="utf-8")
    found = figures(capsys, str(path))
    assert (found["model"], found["length"]) == ("TransformerLM", 40)
    assert found["parameters"] == estimate(MODEL).parameters


@pytest.mark.slow
def test_a_saved_configuration_of_a_language_model(capsys, tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LANGUAGE_PRESETS["DAT-tiny"].to_dict()), encoding="utf-8")
    expected, other = (
        sum(parameter.numel() for parameter in LANGUAGE_PRESETS[name].build(device="meta").parameters())
        for name in ("DAT-tiny", "T-tiny")
    )
    assert figures(capsys, str(path))["parameters"] == figures(capsys, str(tmp_path))["parameters"] == expected
    arguments = LANGUAGE_PRESETS["DAT-tiny"].arguments()  # alone, as they are saved beside weights
    path.write_text(json.dumps(arguments), encoding="utf-8")
    assert figures(capsys, str(tmp_path))["parameters"] == expected
    path.write_text(json.dumps({**LANGUAGE_PRESETS["T-tiny"].arguments()}), encoding="utf-8")
    assert figures(capsys, str(tmp_path))["parameters"] == other


@pytest.mark.parametrize("tokenizer", ["bytes", "gpt2"])
def test_a_run_of_language(capsys, tmp_path: Path, tokenizer: str):
    config = LanguageConfig(data=LanguageDataConfig(tokenizer=tokenizer))
    (tmp_path / "config.yaml").write_text(commented_yaml(config))
    found = figures(capsys, str(tmp_path))
    assert found["model"] == config.model.name == "DAT-tiny"
    vocabulary = {"bytes": 257, "gpt2": 50257}[tokenizer]
    expected = config.model.language_config(vocabulary).build(device="meta")
    assert found["parameters"] == sum(parameter.numel() for parameter in expected.parameters())


TOLD = [((), ("bfloat16", "float32", True)), (("--dtype=bf16",), ("bfloat16", "bfloat16", True))]


@pytest.mark.parametrize(("options", "expected"), [*TOLD, (("--param_dtype=float64",), ("float64", "float64", True))])
def test_a_configuration_tells_precision_and_checkpointing(capsys, tmp_path: Path, options, expected):
    """Unless an option about either dtype does."""
    machine = LanguageMachineConfig(precision="bfloat16", gradient_checkpointing=True)
    (tmp_path / "run.yaml").write_text(commented_yaml(LanguageConfig(machine=machine)))
    found = figures(capsys, tmp_path / "run.yaml", "--length=8", "--device=cpu", *options)
    assert (found["dtype"], found["param_dtype"], found["checkpointing"]) == expected


@pytest.mark.parametrize(("file", "name"), [("examples/my_experiment.py", "sums"), (MATRICES, "matrices")])
def test_an_experiment_tells_the_inputs_of_its_model(capsys, tmp_path: Path, file: str, name: str):
    """As many of them as ``--batch`` says."""
    (tmp_path / "run.yaml").write_text(f"experiment: {name}")
    words = (tmp_path / "run.yaml", "--experiment", ROOT / file, "--device=cpu")
    one, three = (figures(capsys, *words, f"--batch={n}") for n in (1, 3))
    assert (one["batch"], three["batch"]) == (1, 3)
    assert three["forward_flops"] == pytest.approx(3 * one["forward_flops"], rel=0.01)


def test_a_run_of_relational_games(capsys, tmp_path: Path):
    config = RelationalGamesConfig(task="colour_and_or_shape", model=PRESETS["transformer-128-h2"])
    (tmp_path / "config.yaml").write_text(commented_yaml(config))
    found = figures(capsys, str(tmp_path))
    assert found["model"] == "transformer-128-h2"
    expected = build_games_model(config.model, 4, seed=0)
    assert found["parameters"] == sum(parameter.numel() for parameter in expected.parameters())


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is traced where there is one")
def test_without_a_gpu_a_cpu_is_traced_and_named(capsys):
    out = printed(capsys, "estimate", "T-tiny", "--device=cuda", "--length=8")
    assert "8 tokens, training, float32, cuda" in out
    assert "No GPU here: traced with the kernels of a CPU." in out and "are approximate" in out
    found, on_cpu = (figures(capsys, "T-tiny", f"--device={device}", "--length=8") for device in ("cuda", "cpu"))
    assert (found["device"], found["traced_on"], on_cpu["notes"]) == ("cuda", "cpu", [])
    assert "".join(found["notes"]) in out.replace("\n", "")
    assert found["parts"] == on_cpu["parts"]


@pytest.mark.slow
def test_every_preset_is_known():
    assert all(find_model(name)[0] == name for name in (*LANGUAGE_PRESETS, *PRESETS))


def test_a_wrong_name_gets_the_next_one_and_a_few_others(capsys):
    err = fails(capsys, "estimate", "DAT-34M")
    assert "'DAT-34M'; did you mean DAT-734M? (presets known by name: T-tiny, T-353M," in err and len(err) < 500


SUMS = ("sums.yaml", "--experiment", str(ROOT / "examples" / "my_experiment.py"))
HYBRID = ("--shard=hsdp", "--devices=4", "--batch=4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: MODEL"),
        (["nothing"], r"MODEL: there is no file, folder or preset 'nothing' .*by name: T-tiny, "),
        (["none.yaml"], r"none\.yaml: no such file"),
        (["T-tiny", "--batch=0"], "argument --batch: expected a positive number, got '0'"),
        (["T-tiny", "--batch=1.5"], "argument --batch: expected a positive integer, got '1.5'"),
        (["T-tiny", "--length=many"], "argument --length: expected a positive number, got 'many'"),
        (["T-tiny", "--length=512"], "longer than the context"),
        (["T-tiny", "--dtype=int8"], "dtype: expected one of 'float64', .*, got int8"),
        (["T-tiny", "--rate=inf"], "argument --rate: expected a positive number"),
        (["T-tiny", "--rate=1e12", "--mfu=40"], r"--mfu: expected a share in \(0, 1\], got 40"),
        (["T-tiny", "--tokens=1e9"], "--tokens: needs --rate"),
        # Options that would change nothing
        (["T-tiny", "--mfu=0.9"], "--mfu: needs --rate$"),
        (["T-tiny", "--devices=7"], "--devices: needs --rate or --shard"),
        (["T-tiny", "--impl=linear"], "--impl: expected none, as T-tiny makes no use of it, got linear"),
        (["T-tiny", "--checkpointing", "--inference"], "--checkpointing: expected training, got --inference"),
        (["T-tiny", "--all_logits", "--inference"], "--all_logits: expected training, got --inference"),
        (["T-tiny", "--context_length=99", "--length=8"], "--context_length: expected none, as T-tiny .*, got 99"),
        ([*SUMS, "--length=9"], "--length: expected none, as sums makes no use of it, got 9"),
        (["T-tiny", "--bogus"], "--bogus: there is no such option; expected one of .*--batch"),
        (["bad.json"], r"bad\.json: .*line 1"),
        (["list.yaml"], r"list\.yaml: expected a mapping, got list"),
        (["other.yaml"], r"other\.yaml: model: expected the name of a class"),
        (["run.yaml"], r"run\.yaml.*chess"),
        # Several devices
        (["T-tiny", "--shard=ddp", "--devices=3", "--batch=4"], "--batch: expected a multiple of the 3 devices, got 4"),
        (["T-tiny", *HYBRID], "--shard hsdp: needs --shard_size"),
        (["T-tiny", *HYBRID, "--shard_size=3"], "shard_size: expected a divisor of 4 devices"),
        (["T-tiny", "--shard=fsdp", "--inference"], "--shard: expected training, got --inference"),
        (["T-tiny", "--micro_batch=2"], "--micro_batch: needs --shard"),
        (["T-tiny", "--shard=some"], "shard: expected one of 'ddp', 'fsdp', 'hsdp', got some"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{", encoding="utf-8")
    Path("list.yaml").write_text("- 1", encoding="utf-8")
    Path("other.yaml").write_text("model: ResNet", encoding="utf-8")
    Path("sums.yaml").write_text("experiment: sums", encoding="utf-8")
    Path("run.yaml").write_text("task: chess\nmodel: {}", encoding="utf-8")
    assert re.search(message, fails(capsys, "estimate", *arguments))
