"""Agreement with the published package, `dual-attention==0.0.7`: outputs and all gradients, in float64, to rounding.

The numbers are in tests/golden; see the README there for how they were made.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dual_attention.functional import apply_rotary, rotary_tables
from tests.golden.loading import Golden, areas, descriptions, load

assert_close = functools.partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)

AREAS = ("attention", "relational", "cross_relational", "symbols", "dual", "blocks", "positional")
AREAS += ("vision", "language", "seq2seq")

# Outputs that our layers return only if asked to.
MAPS = {"weights", "relations", "self_weights", "rel_weights"}

# The published scale of the scores takes the width of a head for that of its keys.
OTHER_SCALE = {("attention", "attention_key_dim_scale"), ("relational", "relational_key_dim_scale")}

CONFIGURATIONS = [(area, name) for area in AREAS for name in descriptions(area) if (area, name) not in OTHER_SCALE]


def calls() -> Iterator[Any]:
    """Each configuration, and once more with the maps asked for where our layer has any."""
    for area, name in CONFIGURATIONS:
        yield pytest.param(area, name, {}, id=name)
        if takes_need_weights(descriptions(area)[name]["target"]):
            yield pytest.param(area, name, {"need_weights": True}, id=f"{name}-weights")


def published_rotation(xq: Tensor, xk: Tensor, freqs_cos: Tensor, freqs_sin: Tensor) -> tuple[Tensor, ...]:
    """Ours rotates one tensor at a time, with heads before positions."""
    return tuple(apply_rotary(x.transpose(1, 2), freqs_cos, freqs_sin).transpose(1, 2) for x in (xq, xk))


def published_tables(dim: int, end: int, theta: float = 10000.0) -> tuple[Tensor, ...]:
    return tuple(table.double() for table in rotary_tables(dim, end, theta=theta))


# Our functions are not those of the published `attention_utils`, but they calculate the same things.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "attention_utils.apply_rotary_emb": published_rotation,
    "attention_utils.precompute_freqs_cis": published_tables,
}


def resolve(target: str) -> Callable[..., Any]:
    """Our class or function for a published one."""
    if target in FUNCTIONS:
        return FUNCTIONS[target]
    path, name = target.rsplit(".", 1)
    return getattr(importlib.import_module(f"dual_attention.{path}"), name)


def build(golden: Golden) -> Callable[..., Any]:
    """Our module with the published weights, or our function."""
    ours = resolve(golden.target)
    if not isinstance(ours, type):
        return ours
    module: nn.Module = ours(**golden.kwargs).double().eval()
    module.load_state_dict(golden.state_dict, strict=True)
    return module


def takes_need_weights(target: str) -> bool:
    ours = resolve(target)
    signature = inspect.signature(ours.forward if isinstance(ours, type) else ours)
    return "need_weights" in signature.parameters


def call(function: Callable[..., Any], golden: Golden, **options: Any) -> list[Tensor]:
    """Results in the order of `golden.outputs`, differentiable with respect to what it has gradients for."""
    for name in golden.input_grads:
        golden.inputs[name].requires_grad_()
    tensors = {argument: golden.inputs[name] for argument, name in golden.args.items()}
    return flatten(function(**tensors, **golden.options, **options))


def flatten(result: Any) -> list[Tensor]:
    if result is None:
        return []
    if isinstance(result, Tensor):
        return [result]
    if hasattr(result, "dense"):  # position-relative symbols, which the published package builds for every pair
        return [result.dense()]
    return [tensor for part in result for tensor in flatten(part)]


def compare_gradients(function: Callable[..., Any], golden: Golden, results: dict[str, Tensor]) -> None:
    """Every parameter and every real input; a gradient that is None in the published package may also be zero."""
    if not golden.cotangents:
        return
    torch.stack([(results[name] * cotangent).sum() for name, cotangent in golden.cotangents.items()]).sum().backward()
    for name, expected in golden.input_grads.items():
        assert_close(golden.inputs[name].grad, expected, msg=explain(f"gradient of {name}"))
    if not isinstance(function, nn.Module):
        return
    for name, parameter in function.named_parameters(remove_duplicate=False):
        expected = golden.weight_grads.get(golden.aliases.get(name, name))
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        expected = torch.zeros_like(parameter) if expected is None else expected
        assert_close(found, expected, msg=explain(f"gradient of {name}"))


def explain(what: str) -> Callable[[str], str]:
    return lambda message: f"{what}: {message}"


@pytest.mark.parametrize(("area", "name", "options"), list(calls()))
def test_agrees_with_published(area: str, name: str, options: dict[str, bool]) -> None:
    golden = load(area, name)
    function = build(golden)
    found = call(function, golden, **options)
    if options:  # our blocks return maps after the output, which the published ones do not
        names = list(golden.outputs)
        found = found[: len(names)]
    else:  # no maps unasked
        names = [name for name in golden.outputs if name not in MAPS]
    results = dict(zip(names, found, strict=True))
    for name, result in results.items():
        assert_close(result, golden.outputs[name], msg=explain(name))
    if results.keys() >= golden.cotangents.keys():
        compare_gradients(function, golden, results)


@pytest.mark.parametrize(("area", "name"), sorted(OTHER_SCALE))
def test_scale_of_scores_is_the_only_difference_with_key_dim(area: str, name: str) -> None:
    """Scores are scaled by the width of keys, not of heads as published; a factor on the queries makes up for it."""
    golden = load(area, name)
    module = build(golden)
    assert isinstance(module, nn.Module)
    key_dim, head_dim = golden.kwargs["key_dim"], golden.kwargs["d_model"] // golden.kwargs["total_n_heads"]
    assert key_dim != head_dim
    (ours, *_) = call(module, golden, need_weights=True)
    assert (ours - golden.outputs["output"]).abs().max() > 1e-3
    queries = module.get_parameter("wq.weight" if area == "attention" else "wq_attn.weight")
    with torch.no_grad():
        queries.mul_((key_dim / head_dim) ** 0.5)
    for name, result in zip(golden.outputs, call(module, golden, need_weights=True), strict=True):
        assert_close(result, golden.outputs[name], msg=explain(name))


def test_golden_files_are_small_and_many() -> None:
    folder = Path(__file__).parent / "golden"
    assert sum(path.stat().st_size for path in folder.glob("*.safetensors")) < 1_000_000
    assert sum(len(descriptions(area)) for area in areas()) >= 60
    assert set(AREAS) <= set(areas())
