"""Operations a second of a device, and MFU, their share that a training reaches."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dat.estimate import estimate
from dat.experiments.language import problem
from dat.experiments.language.config import LanguageConfig, LanguageMachineConfig
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.problem import build_language_model, derived_numbers, share_of_peak
from dat.training import peak
from dat.training.device import peak_memory
from dat.training.peak import known_peak, measured_peak

CPU = torch.device("cpu")
MODEL = LanguageModelKeys(context=12, d_model=16, n_layers=1, n_heads_sa=1, n_heads_ra=1, dff=16, symbol_heads=2)
NO_TEXT: Any = SimpleNamespace(val_bytes=0)


@pytest.mark.parametrize(
    ("name", "precision", "rate"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4e12),
        ("NVIDIA H100 PCIe", "tf32", 378e12),
        ("NVIDIA A100-SXM4-80GB", "float32", 19.5e12),
        ("NVIDIA Unknown 1", "bfloat16", None),
    ],
)
def test_gpus_by_name(name, precision, rate):
    assert known_peak(name, precision) == rate


def test_a_measurement_is_of_the_fastest_product(monkeypatch):
    """By a clock on which two products take 0.1 s and 0.05 s."""
    moments = iter([0.0, 0.1, 0.15, 0.2])
    monkeypatch.setattr(peak, "TIMES", 2)
    monkeypatch.setattr(peak, "SIZE", 8)
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    assert measured_peak(CPU, torch.float32) == pytest.approx(2 * 8**3 / 0.05)


def share(**machine):
    config = LanguageConfig(model=MODEL, machine=LanguageMachineConfig(device="cpu", **machine))
    model = build_language_model(MODEL.language_config(257), seed=0)
    return share_of_peak(config, model, CPU), model


@pytest.mark.slow
def test_mfu_is_the_share_of_the_operations_that_are_counted():
    found, model = share(peak_flops=1e9)
    costs = estimate(model, batch=3, length=12, device="cpu")
    assert found == pytest.approx(costs.step_flops / 36 / 1e9)
    assert found is not None
    row = {"step": 10, "seconds": 2.0, "processes": 4}
    numbers = derived_numbers(100, NO_TEXT, found)(row)
    assert numbers["tokens_per_second"] == 500 and numbers["mfu"] == pytest.approx(found * 500 / 4)
    assert share(peak_flops=1e9, gradient_checkpointing=True)[0] == found
    assert share(peak_flops=2e9)[0] == pytest.approx(found / 2)


def test_a_peak_that_is_not_known(monkeypatch):
    """On a CPU nothing is counted, unless the peak is measured."""
    assert share()[0] is None
    numbers = derived_numbers(100, NO_TEXT)({"step": 1, "seconds": 1.0, "processes": 1})
    assert numbers["mfu"] is None
    monkeypatch.setattr("dat.experiments.language.problem.measured_peak", lambda *_: 1e9)
    assert share(peak_flops="measured")[0] == share(peak_flops=1e9)[0]


def test_a_peak_is_measured_in_the_precision_of_training(monkeypatch):
    seen = []
    monkeypatch.setattr(problem, "measured_peak", lambda *_: seen.append(torch.get_float32_matmul_precision()))
    for tf32 in (True, False):
        config = LanguageConfig(machine=LanguageMachineConfig(peak_flops="measured", tf32=tf32))
        assert problem.share_of_peak(config, torch.nn.Identity(), torch.device("cuda")) is None
    assert seen == ["high", "highest"] and torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_wrong_peaks(value):
    with pytest.raises(ValueError, match=r"machine\.peak_flops: expected a positive number, measured or null"):
        LanguageMachineConfig(peak_flops=value)


def test_memory_grows_with_what_is_held():
    before = peak_memory(CPU)
    held = torch.ones(40 << 20)
    after = peak_memory(CPU)
    assert before is not None and after is not None and before > 1 << 20
    assert after > before or after > held.nbytes  # an earlier peak may have been higher
