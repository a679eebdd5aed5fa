"""Opening trained models: the weights that were saved, under any of their names, and nothing else."""

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

from dat.checkpoints import open_checkpoint
from dat.experiments.language.config import LanguageConfig
from dat.training.config_io import commented_yaml
from dat.training.run_folder import RunFolder
from dual_attention import LanguageModelConfig
from dual_attention.language_models import DualAttnTransformerLM
from tests.lab.cli.commands import refusal
from tests.support.language import KINDS, build, tokens
from tests.support.refusals import refusals, refused


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


class Evil:
    def __init__(self, path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def folder(tmp_path) -> Path:
    return save(build("transformer"), tmp_path / "m", "transformer")


def configured(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def weighted(change: Callable[[dict[str, torch.Tensor], str], dict[str, torch.Tensor]]) -> Callable[[Path], object]:
    """Other weights, made from all of them and the name of the first."""

    def rewrite(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        save_file({**state, **change(state, next(iter(state)))}, folder / "model.safetensors")

    return rewrite


def indexed(shard: Any, *more: str) -> Callable[[Path], object]:
    """An index that says of all tensors, and of more, in which file they are."""

    def write(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "one.safetensors")
        names = [*load_file(folder / "one.safetensors"), *more]
        place = shard(folder) if callable(shard) else shard
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(names, place)}))

    return write


def pickled(make: Callable[[Path], Any], save: Callable[[Any, Path], object] = torch.save) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        save(make(folder), folder / "pytorch_model.bin")

    return write


def with_first(number: float) -> Callable[[Path], object]:
    """Weights of which one number is another one."""
    return weighted(lambda state, name: {name: torch.cat([torch.tensor([number]), state[name][1:]])})


FIRST = r"layers\.blocks\.0\.ff_block\.linear1\.bias"
INFINITE = f"m: the weights do not fit .*NaN or infinite: {FIRST}"
BESIDE = r"index\.json: weight_map: expected names of files beside it"
NO_MODEL = r"m: config\.json is not that of a language model"


@refusals(
    (with_first(float("nan")), INFINITE),
    (with_first(float("-inf")), INFINITE),
    (weighted(lambda state, name: {name: state[name].int()}),
     rf"m: the weights do not fit .*of another dtype: {FIRST} torch\.int32, expected torch\.float32"),
    (weighted(lambda state, name: {**{key: state[key].bfloat16() for key in state}, name: state[name].half()}),
     r"m: the weights do not fit .*dtypes of 16 bits, which one file does not have: "
     r"torch\.bfloat16, torch\.float16"),
    (weighted(lambda state, _: {"layers.token_embedder.weight": state["layers.final_out.weight"] + 1}),
     "of different values, though the model has one: .*token_embedder"),
    *((indexed(shard), BESIDE) for shard in ("../one.safetensors", "config.json", 3, None)),
    (indexed(lambda folder: str(folder / "one.safetensors")), BESIDE),
    (indexed("one.safetensors", "other"), r"index\.json: names tensors that the files do not hold: other"),
    (configured(d_model=0), (TypeError, ValueError), NO_MODEL),
    (configured(n_heads=3), (TypeError, ValueError), NO_MODEL),
    (configured(d_model=None), (TypeError, ValueError), NO_MODEL),
    (configured(n_layers=None), (TypeError, ValueError), NO_MODEL),
    (configured(dff="x"), (TypeError, ValueError), NO_MODEL),
    (configured(n_head=3), "unknown keys: 'n_head'"),
    (configured(model_type="gpt2"), "m: expected a model of this library, got model_type='gpt2'"),
    (lambda folder: (folder / "config.json").write_text("{"), r"config\.json: is not JSON"),
    (lambda folder: (folder / "config.json").write_text("[]"), "expected a JSON object, got list"),
    (lambda folder: (folder / "model.safetensors").unlink(), FileNotFoundError, "m: has no weights"),
    (pickled(lambda folder: {"x": Evil(folder / "ran")}),
     r"pytorch_model\.bin: refused, since it holds more than data \(\w+\.mkdir\)"),
    (pickled(lambda folder: pickle.dumps(Evil(folder / "ran"), 2), lambda data, path: path.write_bytes(data)),
     r"pytorch_model\.bin: refused; it is damaged, or a pickle that runs code"),
    (pickled(lambda _: [1]), "expected a state dict"),
    of="change",
)  # fmt: skip
def test_folders_that_are_refused(folder, change, error, message):
    change(folder)
    with pytest.raises(error, match=message):
        open_checkpoint(folder)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("damage", [lambda _: b"broken", lambda x: x[: len(x) // 2], lambda x: x[:-1]])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_damaged_weights(folder, damage, device):
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors: .* it is damaged or incomplete"):
        open_checkpoint(folder, device=device)


def test_weights_of_16_bits_and_an_index_are_read(folder):
    weighted(lambda state, _: {key: tensor.half() for key, tensor in state.items()})(folder)
    indexed("one.safetensors")(folder)
    opened = open_checkpoint(folder)
    assert opened.weights_dtype == torch.float16 and opened.files == (folder / "one.safetensors",)


NOWHERE = "no such folder, and no name on the Hugging Face hub"


@refusals(
    ("empty", "empty: not a checkpoint"),
    ("model.pt", r"model\.pt: a pickle, which could run code"),
    ("m/model.safetensors", r"a file; name the folder of the checkpoint \(m, perhaps\)"),
    ("model.safetensors", "a file; name the folder of the checkpoint$"),  # as those of a grid's cells
    *((name, FileNotFoundError, NOWHERE) for name in ("none", "./a/b", "a/b/c", "empty/none")),
    ("~/run", FileNotFoundError, "~/run: no such folder"),
    of="name",
)
def test_what_is_no_checkpoint(folder, monkeypatch, name, error, message):
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    Path("empty").mkdir()
    for file in ("model.pt", "model.safetensors"):
        Path(file).touch()
    with pytest.raises(error, match=message):
        open_checkpoint(name)


def test_a_name_on_the_hub_without_network(capsys):
    """How soon it is said: tests/library/hf/test_files.py."""
    pytest.importorskip("huggingface_hub")
    error = refusal(capsys, "info", "somebody/no-such-model")
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


@pytest.fixture(params=[(name, kind) for name in ("masked", "classifier", "vision") for kind in ("dat", "transformer")])
def other(request, tmp_path):
    """A model of transformers that is none of language to be continued, saved as m."""
    pytest.importorskip("transformers")
    from tests.library.hf import models

    architecture, kind = request.param
    made = getattr(models, architecture)
    model = made("symbolic_attention" if kind == "dat" and architecture != "vision" else kind)
    model.save_pretrained(tmp_path / "m")
    return model


def test_other_models_of_transformers(tmp_path, other):
    model, vision = other, type(other).__name__.endswith("ForImageClassification")
    checkpoint = open_checkpoint(tmp_path / "m", dtype=torch.float64)
    assert checkpoint.kind == "transformers format" and not checkpoint.model.training
    assert checkpoint.weights_dtype == torch.float32
    x = torch.randn(2, 3, 12, 8, dtype=torch.float64) if vision else tokens(2, 9)
    with torch.no_grad():
        ours, theirs = checkpoint.model(x), model.double()(x).logits
        torch.testing.assert_close(getattr(ours, "logits", ours), theirs, atol=1e-12, rtol=0)
    assert open_checkpoint(tmp_path / "m", device="meta").model.training is False


def test_other_models_that_do_not_fit(tmp_path, other):
    for change, message in (
        (weighted(lambda _, name: {name: torch.zeros(7, 7)}), r"of another shape: (?!model\.)\S+ \(7, 7\), expected"),
        (configured(architectures=["Other"]), r"in config\.json: expected DualAttnFor\w+.*, got \['Other'\]"),
        (configured(architectures=[type(other).__name__], n_layers="two"), r"config\.json is not .* DualAttnFor\w+ \("),
    ):
        change(tmp_path / "m")
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


test_a_run_that_has_no_weights_yet = refused(
    (commented_yaml(LanguageConfig()), FileNotFoundError, "the run has no weights yet"),
    ("x: 1", "not the configuration of a run"),
    by=lambda text, *, tmp_path: open_checkpoint(RunFolder.create(tmp_path / "run", text).path),
)
