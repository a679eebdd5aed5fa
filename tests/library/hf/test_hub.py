"""Models of the hub: what the published package wrote, what we write, and what cannot be loaded."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dual_attention import DualAttnTransformerLM, TransformerLM, mechanisms, with_parts
from dual_attention._models.weights import shared_names
from dual_attention.checkpoints.weights import Weights, fit_state_dict
from dual_attention.hf import (
    DualAttnTransformerLM_HFHub,
    TransformerLM_HFHub,
    load_language_model,
    read_weights,
    save_language_model,
)
from tests.support.language import COMMON, SYMBOLS, build, tokens
from tests.support.refusals import refused

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "hub"
DUAL = dict.fromkeys(("dat", "dat_symmetric"), DualAttnTransformerLM_HFHub)
PUBLISHED = {**DUAL, "transformer": TransformerLM_HFHub}
SIGNATURES = json.loads((GOLDEN.parent / "signatures.json").read_text())
PUBLISHED_ARGUMENTS = {
    kind: [name for name, *_ in SIGNATURES[f"language_models.{owner}"]]
    for kind, owner in {"dat": "DualAttnTransformerLM", "transformer": "TransformerLM"}.items()
}
"""Those of the constructors of dual-attention 0.0.7."""
HEADS = {"n_heads_sa": 2, "n_heads_ra": 2, "symbol_retrieval_kwargs": SYMBOLS["symbolic_attention"]}


def expected(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    stored = load_file(GOLDEN / "expected.safetensors")
    return stored[f"{name}/tokens"], stored[f"{name}/logits"]


def assert_published_logits(model: torch.nn.Module, name: str) -> None:
    x, logits = expected(name)
    with torch.no_grad():
        torch.testing.assert_close(model(x)[0], logits.float(), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(model.double()(x)[0], logits, atol=1e-10, rtol=0)


def dat(**more) -> DualAttnTransformerLM_HFHub:
    return DualAttnTransformerLM_HFHub(**{**COMMON, **HEADS, **more}).eval()


def copied(name: str, folder: Path, **changed) -> Path:
    """A published folder, with entries of its config.json changed."""
    shutil.copytree(GOLDEN / name, folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return folder


# ---- published checkpoints


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_folders_give_the_published_logits(name: str):
    model = PUBLISHED[name].from_pretrained(GOLDEN / name)
    assert not model.training
    assert_published_logits(model, name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_folders_are_our_models_too(name: str):
    model, config = load_language_model(GOLDEN / name)
    assert type(model) is {"dat": DualAttnTransformerLM, "transformer": TransformerLM}[config.model]
    assert_published_logits(model, name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_we_save_is_what_the_published_package_saves(name: str, tmp_path: Path):
    PUBLISHED[name].from_pretrained(GOLDEN / name).save_pretrained(tmp_path)
    theirs, ours = (json.loads((folder / "config.json").read_text()) for folder in (GOLDEN / name, tmp_path))
    assert theirs.items() <= ours.items()
    assert set(ours) <= set(PUBLISHED_ARGUMENTS[name.partition("_")[0]])  # with others, it could not load ours
    theirs, ours = (load_file(folder / "model.safetensors") for folder in (GOLDEN / name, tmp_path))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[key], ours[key]) for key in theirs)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("saved", ["bin", "compiled", "parallel", "training", "shards"])
def test_other_files_of_weights(name: str, saved: str, tmp_path: Path):
    """A full state dict, names with prefixes, a training checkpoint around it, and more files than one."""
    folder = copied(name, tmp_path / "copy")
    state_dict = PUBLISHED[name].from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    prefix = {"compiled": "_orig_mod.", "parallel": "module.", "training": "_orig_mod."}.get(saved, "")
    state_dict = {prefix + key: tensor for key, tensor in state_dict.items()}
    if saved == "training":
        torch.save({"model": state_dict, "optimizer": {"state": {0: {"step": 1}}}, "step": 3}, folder / "last.pt")
        shutil.copy(folder / "last.pt", folder / "pytorch_model.bin")
        assert read_weights(folder / "last.pt").tensors.keys() == {key.removeprefix(prefix) for key in state_dict}
    elif saved == "shards":
        names = sorted(state_dict)
        parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, part in parts.items():
            save_file({key: state_dict[key].clone() for key in part}, folder / file)
        index = {"weight_map": {key: file for file, part in parts.items() for key in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        torch.save(state_dict, folder / "pytorch_model.bin")
    assert_published_logits(PUBLISHED[name].from_pretrained(folder), name)


# ---- saving and loading


@pytest.mark.parametrize("kind", [*SYMBOLS, "transformer"])
@pytest.mark.parametrize("positions", ["pos_emb", "RoPE"])
def test_saved_and_loaded(kind: str, positions: str, tmp_path: Path):
    arguments = {**COMMON, "pos_enc_type": positions, "n_heads": 4}
    hub: type = TransformerLM_HFHub
    if kind != "transformer":
        del arguments["n_heads"]
        relative = {"ra_kwargs": {"use_relative_positional_symbols": kind == "position_relative"}}
        arguments |= {**HEADS, **relative, "symbol_retrieval": kind, "symbol_retrieval_kwargs": SYMBOLS[kind]}
        hub = DualAttnTransformerLM_HFHub
    model = hub(**arguments).eval()
    model.save_pretrained(tmp_path)
    again = hub.from_pretrained(tmp_path)
    x = tokens(2, 9)
    assert torch.equal(model(x)[0], again(x)[0])
    assert again.language_config == model.language_config
    assert [sorted(names) for names in shared_names(again)] == [sorted(names) for names in shared_names(model)]


def test_positional_arguments_reload(tmp_path: Path):
    names = PUBLISHED_ARGUMENTS["dat"][:11]
    model = DualAttnTransformerLM_HFHub(*({**COMMON, **HEADS}[name] for name in names), bias=False).eval()
    model.save_pretrained(tmp_path)
    again = DualAttnTransformerLM_HFHub.from_pretrained(tmp_path)
    assert not again.bias
    x = tokens(2, 5)
    assert torch.equal(model(x)[0], again(x)[0])

    names = PUBLISHED_ARGUMENTS["transformer"][:9]
    baseline = TransformerLM_HFHub(*({**COMMON, "n_heads": 2}[name] for name in names), "rmsnorm").eval()
    baseline.save_pretrained(tmp_path / "baseline")
    assert torch.equal(baseline(x)[0], TransformerLM_HFHub.from_pretrained(tmp_path / "baseline")(x)[0])


@pytest.mark.parametrize(
    "more",
    [
        {"tie_weights": False},
        {"output_bias": True, "final_norm": False},
        {"symbol_retriever_config": {"shared_symbol_retriever": False, "weight_tie_symbol_library": True}},
        {"ff_bias": None, "bias": False},
        {"share_attn_params": True},
        {"ra_kwargs": {"symmetric_rels": True}, "norm_type": "rmsnorm", "activation": "swiglu"},
        {"rope_theta": 100.0, "pos_enc_type": "RoPE"},
    ],
)
def test_arguments_that_change_parameters_reload(more: dict, tmp_path: Path):
    model = dat(**more)
    model.save_pretrained(tmp_path)
    x = tokens(2, 5)
    assert torch.equal(model(x)[0], DualAttnTransformerLM_HFHub.from_pretrained(tmp_path)(x)[0])


def test_subclasses_that_pass_arguments_on_reload(tmp_path: Path):
    class Own(TransformerLM_HFHub):
        def __init__(self, vocab_size, *rest, **more):
            super().__init__(vocab_size, *rest, **more)

    model, x = Own(50, 32, 1, n_heads=2, tie_weights=False).eval(), tokens(2, 5)
    model.save_pretrained(tmp_path)
    assert torch.equal(model(x)[0], Own.from_pretrained(tmp_path)(x)[0])


def test_the_callers_dicts_may_change(tmp_path: Path):
    symbols = dict(SYMBOLS["symbolic_attention"])
    model = dat(symbol_retrieval_kwargs=symbols)
    symbols["n_symbols"] = 7
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["symbol_retrieval_kwargs"]["n_symbols"] == 5


def test_symbols_that_were_left_out_are_saved(tmp_path: Path):
    """Since the published package has no defaults of them, and ours may change."""
    sizes = {**COMMON, **HEADS, "symbol_retrieval_kwargs": {"n_symbols": 5}}
    DualAttnTransformerLM_HFHub(**sizes).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["symbol_retrieval_kwargs"] == {"n_symbols": 5, "d_model": COMMON["d_model"], "n_heads": 4}
    DualAttnTransformerLM_HFHub.from_pretrained(tmp_path)


def test_device_and_dtype_are_not_saved(tmp_path: Path):
    dat(device="cpu", dtype=torch.float64, pos_enc_type="RoPE").save_pretrained(tmp_path)
    assert not {"device", "dtype"} & json.loads((tmp_path / "config.json").read_text()).keys()
    again = DualAttnTransformerLM_HFHub.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert again.layers.norm.weight.dtype == torch.bfloat16
    assert torch.equal(again.freqs_cos, dat(pos_enc_type="RoPE").freqs_cos)  # float32 always


def test_copies_and_pickles_know_their_arguments():
    model = dat(final_norm=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.hub_config == model.hub_config
        assert other.hub_config["final_norm"] is False


def test_arguments_may_be_replaced(tmp_path: Path):
    dat(dropout_rate=0.1).save_pretrained(tmp_path)
    assert DualAttnTransformerLM_HFHub.from_pretrained(tmp_path, dropout_rate=0.3).dropout_rate == 0.3


def test_weights_that_do_not_fit_may_be_allowed(tmp_path: Path):
    model = dat()
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["layers.norm.weight"]
    save_file({**weights, "other": torch.zeros(1)}, tmp_path / "model.safetensors")
    again = DualAttnTransformerLM_HFHub.from_pretrained(tmp_path, strict=False)
    x = tokens(2, 5)
    assert torch.equal(model(x)[0], again(x)[0])  # a fresh norm has weights of one, as the saved one did


def test_model_card(tmp_path: Path):
    dat().save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "arxiv.org/abs/2405.16727" in card and "pipeline_tag: text-generation" in card
    assert "More Information Needed" not in card and "`pip install '.[hf]'` in a clone of" in card
    code = card.split("```python")[1].split("```")[0].replace("path/to/this/folder", str(tmp_path))
    exec(code, here := {})
    assert type(here["model"]).__name__ in card


def test_pushed_to_the_hub(monkeypatch: pytest.MonkeyPatch):
    """What would be uploaded; the hub itself is not at hand."""
    from huggingface_hub import HfApi

    pushed: dict = {}
    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: type("Url", (), {"repo_id": repo_id}))

    def upload(self, *, repo_id, folder_path, **_):
        pushed.update(repo=repo_id, files={path.name: path.read_bytes() for path in Path(folder_path).iterdir()})
        return "address"

    monkeypatch.setattr(HfApi, "upload_folder", upload)
    model = dat(final_norm=False)
    assert model.push_to_hub("someone/model") == "address"
    assert pushed["repo"] == "someone/model"
    assert json.loads(pushed["files"]["config.json"]) == model.hub_config
    assert {"model.safetensors", "README.md"} <= pushed["files"].keys()


# ---- what cannot be loaded


def test_weights_that_do_not_fit_are_named(tmp_path: Path):
    folder = copied("dat", tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    del weights["layers.norm.weight"], weights["layers.final_out.weight"]
    weights["layers.blocks.0.norm1.weight"] = torch.ones(9)
    save_file({**weights, "layers.extra": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match="do not fit DualAttnTransformerLM_HFHub") as error:
        DualAttnTransformerLM_HFHub.from_pretrained(folder)
    message = str(error.value)
    assert "missing: layers.token_embedder.weight, layers.norm.weight, layers.final_out.weight;" in message
    assert "unexpected: layers.extra;" in message
    assert "of another shape: layers.blocks.0.norm1.weight (9,), expected (8,)" in message
    with pytest.raises(ValueError, match="of another shape"):
        DualAttnTransformerLM_HFHub.from_pretrained(folder, strict=False)


def test_weights_that_are_one_may_not_differ():
    model = build("symbolic_attention")
    state_dict = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state_dict["layers.symbol_retrievers.1.q_proj.bias"] += 1
    weights = Weights(state_dict, {})
    with pytest.raises(ValueError, match=r"of different values.*symbol_retrievers\.0\.q_proj\.bias, .*1\.q_proj\.bias"):
        fit_state_dict(model, weights, source="here")


class Runs:
    def __reduce__(self):
        return (print, ("code ran",))


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = copied("dat", tmp_path / "copy")
    (folder / "model.safetensors").unlink()
    torch.save({"layers.norm.weight": Runs()}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin: refused, since it holds more than data"):
        DualAttnTransformerLM_HFHub.from_pretrained(folder)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x08\0\0\0\0\0\0\0{}"])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_damaged_files(name: str, content: bytes, tmp_path: Path):
    folder = copied("dat", tmp_path / "copy")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        DualAttnTransformerLM_HFHub.from_pretrained(folder)


def test_a_file_without_a_state_dict(tmp_path: Path):
    torch.save({"step": 1, "a": {"x": torch.zeros(1)}, "b": {"x": torch.zeros(1)}}, tmp_path / "some.pt")
    with pytest.raises(ValueError, match="expected a state dict, or a dict with one in it"):
        read_weights(tmp_path / "some.pt")


def test_folders_without_files(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        TransformerLM_HFHub.from_pretrained(tmp_path)
    shutil.copy(GOLDEN / "transformer" / "config.json", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no weights, neither of model\.safetensors"):
        TransformerLM_HFHub.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="expected the folder of a checkpoint or a name on the hub"):
        TransformerLM_HFHub.from_pretrained(tmp_path / "missing")


test_configs_of_other_things = refused(
    ({"n_layer": 2}, "unknown keys: 'n_layer'"),
    ({"args": 13, "kwargs": 8}, "unknown keys: 'args', 'kwargs'"),
    ({"d_model": "8"}, TypeError, "d_model: expected int, got '8'"),
    ({"model_type": "dual_attn"}, "in the format of transformers"),
    by=lambda new, *, tmp_path: DualAttnTransformerLM_HFHub.from_pretrained(copied("dat", tmp_path / "copy", **new)),
)


def test_the_other_class():
    with pytest.raises(ValueError, match=r"does not hold arguments of TransformerLM_HFHub .*n_heads_sa"):
        TransformerLM_HFHub.from_pretrained(GOLDEN / "dat", n_heads=2)


@pytest.mark.parametrize("load", [DualAttnTransformerLM_HFHub.from_pretrained, load_language_model])
def test_a_name_on_the_hub_without_network(load, tmp_path: Path):
    """The tests' environment is offline."""
    with pytest.raises(OSError, match=r"awni00/DAT-343M: there is no such folder here.*the hub cannot be reached"):
        load("awni00/DAT-343M", cache_dir=tmp_path)


def test_a_name_that_is_in_the_cache(tmp_path: Path):
    """As hf_hub_download keeps what it has fetched."""
    snapshot = tmp_path / "models--someone--model" / "snapshots" / "abc"
    shutil.copytree(GOLDEN / "dat", snapshot)
    (tmp_path / "models--someone--model" / "refs").mkdir()
    (tmp_path / "models--someone--model" / "refs" / "main").write_text("abc")
    model = DualAttnTransformerLM_HFHub.from_pretrained("someone/model", cache_dir=tmp_path)
    assert_published_logits(model, "dat")


def test_arguments_that_json_has_no_word_for(tmp_path: Path):
    model = dat(ra_kwargs={"rel_activation": torch.relu})
    with pytest.raises(TypeError, match="ra_kwargs: cannot be written as JSON"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "build",
    [
        lambda: DualAttnTransformerLM(50, 32, 2, 1, 1, ra_kwargs={"n_relations": 3}, pos_enc_type="RoPE"),
        lambda: DualAttnTransformerLM(50, 32, 1, 2, 0, max_block_size=16, ff_bias=None, tie_weights=False),
        lambda: TransformerLM(50, 32, 1, 2, max_block_size=16, block_kwargs={"attn_kwargs": {"n_kv_heads": 1}}),
    ],
)
def test_a_native_model_is_saved_and_loaded_in_one_call_each(build, tmp_path):
    model, tokens = build().eval(), torch.randint(50, (2, 9))
    loaded = load_language_model(save_language_model(model, tmp_path / "saved"))
    assert type(loaded.model) is type(model) and torch.equal(loaded.model(tokens).logits, model(tokens).logits)
    with pytest.raises(FileExistsError, match="exists already and is not overwritten"):
        save_language_model(model, tmp_path / "saved")


def test_what_has_no_such_form_is_not_saved(tmp_path):
    own = with_parts(TransformerLM(50, 32, 1, 2), heads=mechanisms.Cosine)
    with pytest.raises(ValueError, match="model: parts of your own have no such form"):
        save_language_model(own, tmp_path / "saved")
    changed = TransformerLM(50, 32, 1, 2)
    changed.layers["final_out"] = torch.nn.Linear(32, 60)
    with pytest.raises(ValueError, match=r"model: its configuration is not that of this T.* layers.final_out.bias, "):
        save_language_model(changed, tmp_path / "saved")
    with pytest.raises(TypeError, match="model: expected a language model of this library, got Linear"):
        save_language_model(torch.nn.Linear(2, 2), tmp_path / "saved")
    assert not list(tmp_path.iterdir())
