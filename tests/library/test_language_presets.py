"""Configurations of language models, and those of the paper with their parameter counts."""

import dataclasses
import inspect
import json
import operator

import pytest
import torch

from dual_attention import LANGUAGE_PRESETS, DualAttnTransformerLM, LanguageModelConfig, TransformerLM
from dual_attention.language_presets import language_preset
from tests.support.language import COMMON, SYMBOLS
from tests.support.refusals import refused


def preset(name, **ra_kwargs):
    """A preset with other arguments of the relational heads, `n_kv_heads` also of the sensory ones."""
    config = language_preset(name)
    sa_kwargs = {**(config.sa_kwargs or {}), **{k: v for k, v in ra_kwargs.items() if k == "n_kv_heads"}}
    return dataclasses.replace(config, sa_kwargs=sa_kwargs, ra_kwargs={**(config.ra_kwargs or {}), **ra_kwargs})


# As the published package builds them: all parameters, and those that are trained, without the frozen library.
COUNTS = [
    (language_preset("T-353M"), 353_601_536, 353_601_536),
    (language_preset("T-757M"), 756_894_720, 756_894_720),
    (language_preset("T-1.31B"), 1_311_182_848, 1_311_182_848),
    (language_preset("DAT-343M-nr8"), 344_386_560, 343_337_984),
    (language_preset("DAT-343M-nr32"), 344_681_472, 343_632_896),
    (language_preset("DAT-343M-nr64"), 345_074_688, 344_026_112),
    (preset("DAT-343M-nr32", symmetric_rels=True), 332_098_560, 331_049_984),
    (preset("DAT-343M-nr8", n_kv_heads=1), 325_512_192, 324_463_616),
    (preset("DAT-343M-nr8", n_kv_heads=2), 331_803_648, 330_755_072),
    (language_preset("DAT-368M"), 369_847_296, 368_798_720),
    (language_preset("DAT-734M"), 735_453_696, 733_880_832),
    (language_preset("DAT-1.27B-nr64"), 1_275_254_784, 1_271_060_480),
    (language_preset("DAT-1.27B-nr128"), 1_276_827_648, 1_272_633_344),
    (language_preset("DAT-1.37B"), 1_375_918_080, 1_371_723_776),
]


def parameters(config, **changes):
    """All parameters of a model, and those that are trained."""
    model = dataclasses.replace(config, **changes).build(device="meta")
    total = model.get_num_params()
    assert total == sum(parameter.numel() for parameter in model.parameters())
    return torch.tensor([total, model.get_num_params(trainable_only=True)])


@pytest.mark.parametrize(("config", "total", "trained"), COUNTS)
def test_parameter_counts_of_the_paper(config, total, trained):
    """Blocks are alike: two models that differ by one tell the size of any depth."""
    one, two = (parameters(config, n_layers=depth) for depth in (1, 2))
    assert (one + (config.n_layers - 1) * (two - one)).tolist() == [total, trained]


def test_parameter_counts_of_a_whole_model():
    config, *counts = COUNTS[3]
    assert parameters(config).tolist() == counts


def test_every_preset_of_the_paper_is_counted():
    counted = [config for config, *_ in COUNTS]
    assert all(config in counted for name, config in LANGUAGE_PRESETS.items() if "tiny" not in name)


@pytest.mark.parametrize("name", ["T-tiny", "DAT-tiny"])
def test_tiny_presets_run(name):
    model = language_preset(name).build()
    x = torch.randint(257, (2, 12))
    logits, loss = model(x, x)
    assert logits.shape == (2, 12, 257) and loss.isfinite()
    assert model.get_num_params() < 150_000


def test_arguments_are_those_of_the_classes_with_their_defaults():
    by_model = {"dat": DualAttnTransformerLM, "transformer": TransformerLM}
    known = {about.name: about for about in dataclasses.fields(LanguageModelConfig)}
    for name, kind in by_model.items():
        parameters = dict(inspect.signature(kind.__init__).parameters)
        for extra in ("self", "device", "dtype"):
            del parameters[extra]
        configs = {"dat": DAT, "transformer": TRANSFORMER}
        assert set(configs[name].arguments()) == set(parameters)
        for argument, parameter in parameters.items():
            default = known[argument].default
            if parameter.default is not inspect.Parameter.empty:
                assert default == parameter.default, argument
            else:
                assert default in (None, dataclasses.MISSING), argument


TRANSFORMER = LanguageModelConfig(model="transformer", n_heads=4, block_kwargs={"attn_kwargs": {"window": 3}}, **COMMON)
DAT = LanguageModelConfig(
    model="dat",
    n_heads_sa=2,
    n_heads_ra=2,
    symbol_retrieval_kwargs=SYMBOLS["symbolic_attention"],
    ra_kwargs={"n_relations": 4},
    **COMMON,
)


@pytest.mark.parametrize("config", [*LANGUAGE_PRESETS.values(), TRANSFORMER, DAT])
def test_round_trip_through_json(config):
    written = json.dumps(config.to_dict())
    assert LanguageModelConfig.from_dict(json.loads(written)) == config
    other = "n_heads" if config.model == "dat" else "n_heads_sa"
    assert other not in config.to_dict()


def test_what_is_left_out_has_its_default():
    values = {name: value for name, value in TRANSFORMER.to_dict().items() if name not in ("rope_theta", "bias")}
    assert LanguageModelConfig.from_dict(values) == TRANSFORMER


def test_build():
    for config, kind in ((DAT, DualAttnTransformerLM), (TRANSFORMER, TransformerLM)):
        model = config.build(dtype=torch.float64)
        assert type(model) is kind and model.layers.final_out.weight.dtype == torch.float64
    assert TRANSFORMER.build("meta").layers.blocks[0].self_attn.window == 3
    assert DAT.build("meta").layers.blocks[0].dual_attn.relational_attention.n_relations == 4


def test_a_config_keeps_a_copy():
    kwargs = {"n_relations": 4}
    config = dataclasses.replace(DAT, ra_kwargs=kwargs)
    kwargs["n_relations"] = 5
    assert config.ra_kwargs == {"n_relations": 4}


def read_with(config, **changes):
    return LanguageModelConfig.from_dict({**config.to_dict(), **changes})


test_bad_values = pytest.mark.parametrize("change", [dataclasses.replace, read_with])(refused(
    (DAT, {"d_model": "16"}, TypeError, "d_model: expected int, got '16'"),
    (DAT, {"d_model": True}, TypeError, "d_model: expected int, got True"),
    (DAT, {"dff": 1.5}, TypeError, "dff: expected int or None, got 1.5"),
    (DAT, {"dropout_rate": "0"}, TypeError, "dropout_rate: expected float, got '0'"),
    (DAT, {"norm_first": 1}, TypeError, "norm_first: expected True or False, got 1"),
    (DAT, {"model": "rnn"}, TypeError, "model: expected one of 'dat', 'transformer', got 'rnn'"),
    (DAT, {"ra_kwargs": [1]}, TypeError, r"ra_kwargs: expected a mapping of strings or None, got \[1\]"),
    (DAT, {"ra_type": "ra"}, TypeError, "ra_type: expected one of .*, 'rca', 'disrca', got 'ra'"),
    (DAT, {"n_heads": 4}, "n_heads: is no argument of model='dat', got 4"),
    (DAT, {"n_heads_ra": None}, "n_heads_ra: needed with model='dat', got None"),
    (TRANSFORMER, {"n_heads_sa": 4}, "n_heads_sa: is no argument of model='transformer', got 4"),
    (TRANSFORMER, {"ff_bias": None}, "ff_bias: is no argument of model='transformer', got None"),
    (TRANSFORMER, {"n_heads": None}, "n_heads: needed with model='transformer', got None"),
    by=lambda config, changes, *, change: change(config, **changes),
))  # fmt: skip


test_bad_dicts_and_changes = refused(
    (lambda: LanguageModelConfig.from_dict({**DAT.to_dict(), "heads": 2, "size": 3}),
     "unknown keys: 'heads', 'size'; expected some of model, vocab_size"),
    (lambda: LanguageModelConfig.from_dict({"d_model": 8}), "missing keys: model, vocab_size"),
    (lambda: setattr(DAT, "d_model", 5), dataclasses.FrozenInstanceError, "d_model"),
    (lambda: operator.setitem(LANGUAGE_PRESETS, "mine", DAT), TypeError, "item assignment"),
)  # fmt: skip
