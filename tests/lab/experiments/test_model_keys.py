"""Keys of models that go to symbol mechanisms."""

import inspect
from dataclasses import fields, replace

import pytest
import torch

from dat.experiments import EXPERIMENTS
from dat.experiments.images.config import ImageModelConfig
from dat.experiments.language.presets import PRESETS
from dat.training.config_io import field_help
from dual_attention import RelationalConfig
from dual_attention.checkpoints.babylm import language_config_of
from dual_attention.configs import LibraryConfig, RelationsConfig

MODEL = EXPERIMENTS["language"].load().Config().model
KINDS = list(dict.fromkeys(type(experiment.load().Config().model) for experiment in EXPERIMENTS.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_options_of_relational_heads_are_told_by_the_library(kind: type):
    """An experiment may set another default, and nothing else."""
    help_of = field_help(kind)
    for about in fields(RelationalConfig):
        telling = [owner.__module__ for owner in kind.__mro__ if about.name in inspect.get_annotations(owner)]
        assert not telling or telling[-1] == "dual_attention.configs"
        assert not telling or help_of[about.name] == field_help(RelationalConfig)[about.name], about.name
    assert {about.name for about in fields(RelationsConfig)} <= {about.name for about in fields(kind)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_library_is_told_by_the_library(kind: type):
    for about in fields(LibraryConfig):
        telling = [owner.__module__ for owner in kind.__mro__ if about.name in inspect.get_annotations(owner)]
        assert telling[-1] == "dual_attention.configs"
    for trained in (True, False):
        keys = kind(symbols="symbolic_attention", n_symbols=5, trainable_symbols=trained)
        options = keys.symbol_config(9, 8)
        assert (options.n_symbols, options.trainable_symbols) == (5, trained)


def test_symbols_that_always_train_are_not_asked_to_stay():
    with pytest.raises(ValueError, match=r"trainable_symbols: expected true with .* position_relative"):
        ImageModelConfig(symbols="position_relative", trainable_symbols=False)


@pytest.mark.parametrize("symbols", ["positional_symbols", "position_relative"])
def test_symbols_may_be_sinusoids(symbols: str):
    learned = replace(MODEL, symbols=symbols)
    models = [
        keys.language_config(31).build(device="meta") for keys in (learned, replace(learned, sinusoidal_symbols=True))
    ]
    counts = [sum(p.numel() for p in model.parameters()) for model in models]
    rows = MODEL.context if symbols == "positional_symbols" else 2 * MODEL.n_symbols + 1
    assert counts[0] - counts[1] == rows * MODEL.d_model


@pytest.mark.parametrize("symbols", ["symbolic_attention", "rel_sym_attn"])
def test_symbols_that_objects_retrieve_are_no_sinusoids(symbols: str):
    with pytest.raises(ValueError, match=f"model.symbols: expected positional_symbols, .*got '{symbols}'"):
        replace(MODEL, symbols=symbols, sinusoidal_symbols=True)


# Their fields in configs/submitted_18l and submitted_16l_wide; the rest has its default.
SUBMITTED = {
    "model_type": "dat",
    "max_seq_len": 512,
    "norm_type": "layernorm",
    "ffn_activation": "swiglu",
    "symbol_retrieval": "relative",
    "relative_symbols_rope": True,
    "max_rel_pos": 512,
    "tie_lm_head": False,
    "use_bias_out": False,
}
SCALES = {
    "DAT-babylm-191M": {"hidden_dim": 768, "n_layers": 18, "n_heads_sa": 9, "n_heads_ra": 3, "ra_type": "rca"},
    "DAT-babylm-304M": {"hidden_dim": 1024, "n_layers": 16, "n_heads_sa": 12, "n_heads_ra": 4, "ra_type": "ra"},
}


@pytest.mark.parametrize("name", SCALES)
def test_models_of_babylm_have_the_parameters_that_their_fields_imply(name: str):
    """Every name and shape, and by hand: embedding and output, then in each layer dual attention, SwiGLU and norms."""
    fields = {**SUBMITTED, **SCALES[name]}
    built = [language_config_of(fields).build(device="meta"), PRESETS[name].language_config(16384).build(device="meta")]
    shapes = [{key: w.shape for key, w in model.state_dict().items()} for model in built]
    assert shapes[0] == shapes[1]
    d, heads, ra = fields["hidden_dim"], fields["n_heads_sa"] + fields["n_heads_ra"], fields["n_heads_ra"]
    sensory, relational = d * fields["n_heads_sa"] // heads, d * ra // heads
    attention = 3 * d * d + sensory**2 + relational**2
    if fields["ra_type"] == "ra":
        attention += 2 * d * relational + relational * ra
    layer = attention + 3 * 4 * d * d + 9 * d + 4 * d
    count = sum(w.numel() for w in built[1].parameters())
    assert count == 2 * 16384 * d + fields["n_layers"] * layer + 2 * d
    assert f"{round(count / 1e6)}M" in name


@torch.no_grad()
def test_the_preset_is_their_model():
    """Its logits are those of their fields, for the same weights under our names."""
    sizes = {"vocab_size": 300, "hidden_dim": 96, "n_layers": 2, "max_seq_len": 16}
    for name, relations in SCALES.items():
        small = replace(PRESETS[name], vocab_size=300, d_model=96, n_layers=2, context=16)
        theirs = language_config_of({**SUBMITTED, **relations, **sizes}).build().eval()
        ours = small.language_config(300).build().eval()
        ours.load_state_dict(theirs.state_dict())
        x = torch.randint(300, (2, 16))
        torch.testing.assert_close(ours(x).logits, theirs(x).logits)
