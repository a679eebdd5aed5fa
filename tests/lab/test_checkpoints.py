"""Opening trained models: the weights that were saved, under any of their names, and nothing else."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

from dat.checkpoints import open_checkpoint
from dat.cli import main as cli
from dual_attention import LanguageModelConfig
from dual_attention.language_models import DualAttnTransformerLM
from tests.support.language import KINDS, build, tokens


def save(model, folder: Path, kind: str) -> Path:
    """A folder of the hub's format."""
    folder.mkdir()
    config = {
        "vocab_size": 11,
        "d_model": 16,
        "n_layers": 2,
        "dff": 20,
        "dropout_rate": 0.0,
        "activation": "gelu",
        "norm_first": True,
        "max_block_size": 24,
        "pos_enc_type": model.pos_enc_type,
    }
    if kind == "transformer":
        config["n_heads"] = 4
    else:
        from tests.support.language import SYMBOLS

        config |= {"n_heads_sa": 2, "n_heads_ra": 2, "symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind]}
        if kind == "position_relative":
            config["ra_kwargs"] = {"use_relative_positional_symbols": True}
    (folder / "config.json").write_text(json.dumps(config))
    save_model(model, str(folder / "model.safetensors"))
    return folder


def same_logits(model, other) -> bool:
    x = tokens(2, 9)
    with torch.no_grad():
        return torch.equal(model.eval()(x).logits, other(x).logits)


@pytest.mark.parametrize("pos_enc_type", ["RoPE", "pos_emb"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_that_was_saved(tmp_path, kind, pos_enc_type):
    model = build(kind, pos_enc_type=pos_enc_type)
    checkpoint = open_checkpoint(save(model, tmp_path / "m", kind))
    assert not checkpoint.model.training and checkpoint.kind == "hub format"
    assert same_logits(model, checkpoint.model)
    assert isinstance(checkpoint.config, LanguageModelConfig) and checkpoint.weights_dtype == torch.float32


def test_symbols_that_are_computed_are_there(tmp_path):
    """Sinusoids are not in the file."""
    symbols = {"symbol_dim": 16, "max_length": 24, "sinusoidal": True}
    model = build("positional_symbols", symbol_retrieval_kwargs=symbols)
    folder = save(model, tmp_path / "m", "positional_symbols")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "symbol_retrieval_kwargs": symbols}))
    assert same_logits(model, open_checkpoint(folder).model)


def test_tensors_under_all_their_names_or_as_a_state_dict(tmp_path):
    model = build("symbolic_attention")
    folder = save(model, tmp_path / "m", "symbolic_attention")
    whole = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert len(whole) > len(load_file(folder / "model.safetensors"))
    save_file(whole, folder / "model.safetensors")
    assert same_logits(model, open_checkpoint(folder).model)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    assert same_logits(model, open_checkpoint(folder).model)


def test_dtype_and_what_is_stored(tmp_path):
    folder = save(build("transformer").bfloat16(), tmp_path / "m", "transformer")
    for device in ("cpu", "meta"):
        assert open_checkpoint(folder, device=device).weights_dtype == torch.bfloat16
    assert {p.dtype for p in open_checkpoint(folder).model.parameters()} == {torch.float32}
    assert {p.dtype for p in open_checkpoint(folder, dtype=torch.float64).model.parameters()} == {torch.float64}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_weights_that_do_not_fit_are_named(tmp_path, device):
    folder = save(build("symbolic_attention"), tmp_path / "m", "symbolic_attention")
    good = load_file(folder / "model.safetensors")
    block = "layers.blocks.0.dual_attn.relational_attention"
    bad = {**good, "extra.weight": torch.zeros(1), f"{block}.wr": torch.zeros(2, 3)}
    del bad["layers.blocks.1.norm1.weight"], bad["layers.final_out.weight"]
    save_file(bad, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"m: the weights do not fit DualAttnTransformerLM") as caught:
        open_checkpoint(folder, device=device)
    message = str(caught.value)
    assert "missing: " in message and "layers.blocks.1.norm1.weight" in message
    assert "layers.final_out.weight" in message or "layers.token_embedder.weight" in message
    assert "unexpected: extra.weight" in message
    assert f"of another shape: {block}.wr (2, 3), expected (2, " in message
    assert "\n" not in message


def test_tensors_that_are_one_may_not_differ(tmp_path):
    model = build("transformer")
    folder = save(model, tmp_path / "m", "transformer")
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["layers.token_embedder.weight"] += 1
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"of different values, though the model has one: .*token_embedder"):
        open_checkpoint(folder)


def test_weights_that_are_no_numbers_of_this_model_are_named(tmp_path):
    folder = save(build("transformer"), tmp_path / "m", "transformer")
    good = load_file(folder / "model.safetensors")
    name, *others = good
    nan, whole, half = good[name].clone(), torch.zeros_like(good[name], dtype=torch.int32), good[name].half()
    nan.view(-1)[0] = float("nan")
    for wrong, message in (
        ({name: nan}, f"NaN or infinite: {name}"),
        ({name: nan.nan_to_num(float("-inf"))}, f"NaN or infinite: {name}"),
        ({name: whole}, rf"of another dtype: {name} torch\.int32, expected torch\.float32"),
        (
            {name: half, **{other: good[other].bfloat16() for other in others}},
            r"dtypes of 16 bits, which one file does not have: torch\.bfloat16, torch\.float16",
        ),
    ):
        save_file({**good, **wrong}, folder / "model.safetensors")
        with pytest.raises(ValueError, match=rf"m: the weights do not fit .*{message}"):
            open_checkpoint(folder)
    save_file({key: tensor.half() for key, tensor in good.items()}, folder / "model.safetensors")
    assert open_checkpoint(folder).weights_dtype == torch.float16


def test_an_index_names_only_files_beside_it_and_tensors_in_them(tmp_path):
    folder = save(build("transformer"), tmp_path / "m", "transformer")
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    names = list(load_file(folder / "one.safetensors"))
    index = folder / "model.safetensors.index.json"
    for shard in ("../one.safetensors", str(folder / "one.safetensors"), "config.json", 3, None):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(names, shard)}))
        with pytest.raises(ValueError, match=r"index\.json: weight_map: expected names of files beside it"):
            open_checkpoint(folder)
    index.write_text(json.dumps({"weight_map": dict.fromkeys([*names, "other"], "one.safetensors")}))
    with pytest.raises(ValueError, match=r"index\.json: names tensors that the files do not hold: other"):
        open_checkpoint(folder)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "one.safetensors")}))
    assert open_checkpoint(folder).files == (folder / "one.safetensors",)


@pytest.mark.parametrize(
    "changed", [{"d_model": 0}, {"n_heads": 3}, {"d_model": None}, {"n_layers": None}, {"dff": "x"}]
)
def test_a_configuration_that_builds_no_model_is_named(tmp_path, changed):
    folder = save(build("transformer"), tmp_path / "m", "transformer")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changed}))
    with pytest.raises((TypeError, ValueError), match=r"m: config\.json is not that of a language model"):
        open_checkpoint(folder)


class Evil:
    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickles_that_run_code_are_refused(tmp_path):
    folder = save(build("transformer"), tmp_path / "m", "transformer")
    (folder / "model.safetensors").unlink()
    torch.save({"x": Evil(tmp_path / "ran")}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: refused, since it holds more than data \(\w+\.mkdir\)"):
        open_checkpoint(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(tmp_path / "ran"), protocol=2))
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: refused; it is damaged, or a pickle that runs code"):
        open_checkpoint(folder)
    assert not (tmp_path / "ran").exists()
    torch.save([1], folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="expected a state dict"):
        open_checkpoint(folder)


def test_what_is_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = save(build("transformer"), tmp_path / "m", "transformer")
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.pt").write_bytes(b"")
    config = folder / "config.json"
    good = config.read_text()
    for name, message in (
        ("empty", "empty: not a checkpoint"),
        ("model.pt", r"model\.pt: a pickle, which could run code"),
        ("m/model.safetensors", "a file; name the folder of the checkpoint"),
    ):
        with pytest.raises(ValueError, match=message):
            open_checkpoint(name)
    for name in ("none", "./a/b", "a/b/c", "empty/none"):
        with pytest.raises(FileNotFoundError, match="no such folder, and no name on the Hugging Face hub"):
            open_checkpoint(name)
    for text, message in (
        ("{", r"config\.json: is not JSON"),
        ("[]", "expected a JSON object, got list"),
        (json.dumps({**json.loads(good), "n_head": 3}), "unknown keys: 'n_head'"),
        (json.dumps({"model_type": "gpt2"}), "m: expected a model of this library, got model_type='gpt2'"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match=message):
            open_checkpoint(folder)
    config.write_text(good)
    whole = (folder / "model.safetensors").read_bytes()
    for damaged in (b"broken", whole[: len(whole) // 2], whole[:-1]):
        (folder / "model.safetensors").write_bytes(damaged)
        for device in ("cpu", "meta"):
            with pytest.raises(ValueError, match=r"model\.safetensors: .* it is damaged or incomplete"):
                open_checkpoint(folder, device=device)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="m: has no weights"):
        open_checkpoint(folder)


def test_a_name_on_the_hub_without_network(capsys):
    """How soon it is said: tests/library/hf/test_files.py."""
    pytest.importorskip("huggingface_hub")
    assert cli.main(["info", "somebody/no-such-model"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dat: error: somebody/no-such-model: there is no such folder here, no copy of its config")
    assert "and the hub cannot be reached (" in error
    assert error.count("\n") == 1


def test_a_name_on_the_hub(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    model = build("symbolic_attention")
    folder = save(model, tmp_path / "snapshot", "symbolic_attention")
    monkeypatch.setattr(hub, "hf_hub_download", lambda name, file, **_: str(folder / file))
    checkpoint = open_checkpoint("somebody/a-model")
    assert isinstance(checkpoint.model, DualAttnTransformerLM) and same_logits(model, checkpoint.model)
    assert checkpoint.source == "somebody/a-model" and checkpoint.files == (folder / "model.safetensors",)


# ---- folders of the classes in dual_attention.hf


def test_folders_that_the_published_package_wrote():
    from tests.library.hf.test_hub import GOLDEN, PUBLISHED, assert_published_logits

    for name in PUBLISHED:
        checkpoint = open_checkpoint(GOLDEN / name)
        assert checkpoint.kind == "hub format"
        assert_published_logits(checkpoint.model, name)


@pytest.mark.parametrize("kind", [*KINDS])
def test_language_models_of_transformers_and_of_the_hub(tmp_path, kind):
    pytest.importorskip("transformers")
    from dual_attention.hf import to_hub
    from tests.library.hf.models import causal

    model = causal(kind)
    for saved, format in ((model, "transformers format"), (to_hub(model), "hub format")):
        saved.save_pretrained(tmp_path / format)
        checkpoint = open_checkpoint(tmp_path / format)
        assert checkpoint.kind == format and checkpoint.config == model.config.language_config()
        assert same_logits(model.model, checkpoint.model)


@pytest.mark.parametrize("architecture", ["masked", "classifier", "vision"])
@pytest.mark.parametrize("kind", ["dat", "transformer"])
def test_other_models_of_transformers(tmp_path, architecture, kind):
    pytest.importorskip("transformers")
    from tests.library.hf import models

    made = getattr(models, architecture)
    model = made("symbolic_attention" if kind == "dat" and architecture != "vision" else kind)
    model.save_pretrained(tmp_path / "m")
    checkpoint = open_checkpoint(tmp_path / "m", dtype=torch.float64)
    assert checkpoint.kind == "transformers format" and not checkpoint.model.training
    assert checkpoint.weights_dtype == torch.float32
    x = torch.randn(2, 3, 12, 8, dtype=torch.float64) if architecture == "vision" else tokens(2, 9)
    with torch.no_grad():
        ours, theirs = checkpoint.model(x), model.double()(x).logits
        torch.testing.assert_close(getattr(ours, "logits", ours), theirs, atol=1e-12, rtol=0)
    assert open_checkpoint(tmp_path / "m", device="meta").model.training is False

    weights = load_file(tmp_path / "m" / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: torch.zeros(7, 7)}, tmp_path / "m" / "model.safetensors")
    with pytest.raises(ValueError, match=rf"of another shape: {name.removeprefix('model.')} \(7, 7\), expected"):
        open_checkpoint(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    for changed, message in (
        ({"architectures": ["Other"]}, r"architectures in config\.json: expected DualAttnFor\w+.*, got \['Other'\]"),
        ({"n_layers": "two"}, r"config\.json is not that of a DualAttnFor\w+ \("),
    ):
        path.write_text(json.dumps({**config, **changed}))
        with pytest.raises(ValueError, match=message):
            open_checkpoint(tmp_path / "m")


def test_what_is_read_without_the_extra(tmp_path, monkeypatch):
    """Folders of language models need neither huggingface_hub nor transformers; other things say what to install."""
    pytest.importorskip("transformers")
    from tests.library.hf.models import causal, masked

    model = causal()
    model.save_pretrained(tmp_path / "causal")
    masked().save_pretrained(tmp_path / "masked")
    hub = save(build("transformer"), tmp_path / "hub", "transformer")
    for module in ("huggingface_hub", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    assert open_checkpoint(hub).kind == "hub format"
    assert same_logits(model.model, open_checkpoint(tmp_path / "causal").model)
    for name, missing in ((tmp_path / "masked", "transformers"), ("somebody/a-model", "huggingface_hub")):
        with pytest.raises(ImportError, match=rf"'{missing}' could not be imported .*relational-attention\[hf\]"):
            open_checkpoint(name)


def test_a_run_that_has_no_weights_yet(tmp_path):
    from dat.experiments.language.config import LanguageConfig
    from dat.training.config_io import commented_yaml
    from dat.training.run_folder import RunFolder

    run = RunFolder.create(tmp_path / "run", commented_yaml(LanguageConfig()))
    with pytest.raises(FileNotFoundError, match="the run has no weights yet"):
        open_checkpoint(run.path)
    run.config.write_text("x: 1")
    with pytest.raises(ValueError, match="not the configuration of a run"):
        open_checkpoint(run.path)


def test_a_path_below_a_home_that_is_not_there(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(FileNotFoundError, match=r"~/run: no such folder"):
        open_checkpoint("~/run")
