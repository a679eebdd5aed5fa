"""timm's registry: with a stand-in that keeps what is registered, and with timm itself where it is installed."""

import sys
import types

import pytest
import torch

from dual_attention import timm_models
from dual_attention.timm_models import TIMM_MODELS, register_with_timm
from tests.library.test_vision_features import vidat
from tests.support.refusals import refused

SMALL = {"depth": 2, "embed_dim": 24}


@pytest.fixture
def create(monkeypatch: pytest.MonkeyPatch):
    """``create_model`` of a registry that does with a function what timm's does."""
    entries = {}

    def register_model(function):
        sys.modules[function.__module__].__all__.append(function.__name__)
        assert entries.setdefault(function.__name__, function) is function

    models = types.ModuleType("timm.models")
    vars(models).update(register_model=register_model, is_model=entries.__contains__)
    monkeypatch.setitem(sys.modules, "timm", types.ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.models", models)
    register_with_timm()
    register_with_timm()  # once is enough, and twice does no harm
    assert entries.keys() == TIMM_MODELS.keys()
    assert all(hasattr(timm_models, name) for name in timm_models.__all__)
    return lambda name, **arguments: entries[name](pretrained_cfg=None, pretrained_cfg_overlay=None, **arguments)


@pytest.mark.parametrize("name", TIMM_MODELS)
def test_models_by_the_arguments_of_timm(create, name):
    more = {"img_size": (32, 64), "patch_size": (8, 16), "in_chans": 1, "num_classes": 3, "reg_tokens": 2}
    model = create(name, **SMALL, **more, global_pool="avg", drop_rate=0.5)
    assert type(model) is TIMM_MODELS[name][0]
    assert model(torch.randn(2, 1, 32, 64)).shape == (2, 3)
    assert (model.grid_size, model.n_registers, model.pool, model.dropout.p) == ((4, 4), 2, "patches", 0.5)
    assert model.pretrained_cfg["input_size"] == (1, 32, 64) and model.pretrained_cfg["num_classes"] == 3
    features = create(name, **SMALL, img_size=32, patch_size=8, features_only=True, out_indices=(0, 1))
    assert [tuple(one.shape) for one in features(torch.randn(2, 3, 32, 32))] == [(2, 24, 4, 4)] * 2
    headless = create(name, **SMALL, img_size=32, patch_size=8, num_classes=0, dynamic_img_size=True)
    assert headless(torch.randn(2, 3, 32, 64)).shape == (2, 24)


def test_models_are_built_where_and_as_timm_says(create):
    parameters = [*create("vidat_cifar_patch4_32", **SMALL, device="meta", dtype=torch.float64).parameters()]
    assert {(p.device.type, p.dtype) for p in parameters} == {("meta", torch.float64)}


@pytest.mark.parametrize("name", TIMM_MODELS)
def test_models_have_the_sizes_of_their_names(create, name):
    with torch.device("meta"):
        model = create(name)
        size, patch = int(name.split("_")[-1]), int(name.split("patch")[1].split("_")[0])
        assert model.pretrained_cfg["input_size"] == (3, size, size) and model.patch_height == patch
        classes = 10 if "cifar" in name else 1000
        assert model(torch.empty(1, 3, size, size)).shape == (1, classes)


test_what_no_model_has_is_refused = refused(
    ({"pretrained": True}, "no weights of vidat_cifar"),
    ({"drop_path_rate": 0.1}, TypeError, "drop_path_rate"),
    ({"global_pool": "max"}, r"global_pool: .*'max'"),
    by=lambda options, *, create: create("vidat_cifar_patch4_32", **options),
)


def test_without_timm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "timm.models", None)
    with pytest.raises(ImportError, match="pip install timm"):
        register_with_timm()


def test_timm_itself():
    timm = pytest.importorskip("timm")
    getter, group_parameters = timm.models._features.FeatureGetterNet, timm.models._manipulate.group_parameters
    register_with_timm()
    assert {*timm.list_models("vidat*")} == {name for name in TIMM_MODELS if name.startswith("vidat")}
    model = timm.create_model("vidat_cifar_patch4_32", num_classes=7, **SMALL)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)
    model, images = vidat(final_norm=True, n_layers=3), torch.randn(2, 3, 8, 12)
    groups = group_parameters(model, model.group_matcher())
    assert [{*names} for names in groups.values()] == [{*group} for group in model.layer_groups()]
    wanted = model.features_only([0, 2], norm=True)(images)
    for one, other in zip(getter(model, out_indices=[0, 2], norm=True)(images), wanted, strict=True):
        assert torch.equal(one, other)
