"""Write the golden files: results of the published package `dual-attention==0.0.7`, held for our tests.

Run in an environment with that package, torch and safetensors, and nothing of this library (see README.md):

    python tests/golden/make_golden.py

Each configuration is one call of one published module (or function) in float64. What is kept of it: the
weights and inputs, every output, the cotangent (coefficients of a random linear functional of the outputs), and
the gradient of that functional with respect to every parameter and every real input. Weights, inputs and cotangents
are rounded to float16 before the call, so they can be stored in two bytes and still be exact.
"""

import copy
import importlib
import importlib.metadata
import json
import zlib
from pathlib import Path

import torch
from case import narrow
from cases import AREAS
from published import PUBLISHED, float64_kept, require_published, supply_missing_name
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent


def resolve(target):
    module, name = target.rsplit(".", 1)
    return getattr(importlib.import_module(f"dual_attention.{module}"), name)


def build(case):
    """The published module in float64, every parameter moved off its initial value (norm weights off 1, biases off
    0, everything large enough for attention to be far from uniform)."""
    module = resolve(case.target)(**copy.deepcopy(case.kwargs)).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(narrow(parameter + 0.4 * torch.randn(parameter.shape)))
    return module


def flatten(result):
    """Tensors of a nested tuple, in order, without the Nones."""
    if result is None:
        return []
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flatten(part)]


def call(function, case, inputs):
    options = dict(case.options, need_weights=True) if case.weights else case.options
    results = flatten(function(**{name: inputs[source] for name, source in case.args.items()}, **options))
    # Without targets, language models return (logits, None): the count is checked so that no output is lost.
    assert len(results) == len(case.outputs), (case.name, len(results), case.outputs)
    return dict(zip(case.outputs, results, strict=True))


def split_aliases(state):
    """One copy of each tensor, and for each further name of it the first name: safetensors stores no tensor twice."""
    first, kept, aliases = {}, {}, {}
    for name, tensor in state.items():
        owner = first.setdefault(id(tensor), name)
        if owner == name:
            kept[name] = tensor
        else:
            aliases[name] = owner
    return kept, aliases


def storable(tensor):
    """The narrowest dtype that holds the values exactly (see `loading.py` for the way back)."""
    tensor = tensor.detach().clone()
    if tensor.dtype == torch.bool:
        return tensor.to(torch.uint8)
    if not tensor.is_floating_point():
        return tensor.to(torch.int32)
    for dtype in (torch.float16, torch.float32):
        if torch.equal(tensor.to(dtype).double(), tensor):
            return tensor.to(dtype)
    return tensor


def record(case):
    """Run one configuration; return what to store of it: tensors by short role, and its description."""
    torch.manual_seed(zlib.crc32(case.name.encode()))
    is_module = isinstance(resolve(case.target), type)
    function = build(case) if is_module else resolve(case.target)
    inputs = {name: draw() for name, draw in case.inputs.items()}
    tables = ("freqs_cos", "freqs_sin")
    for name, tensor in inputs.items():
        tensor.requires_grad_(tensor.is_floating_point() and name not in tables)
    outputs = call(function, case, inputs)
    cotangents = {name: narrow(torch.randn(outputs[name].shape)) for name in case.loss if outputs[name].requires_grad}
    if cotangents:
        torch.stack([(outputs[name] * cotangent).sum() for name, cotangent in cotangents.items()]).sum().backward()

    state, aliases = split_aliases(function.state_dict(keep_vars=True) if is_module else {})
    buffers = {name: state.pop(name) for name in list(state) if not isinstance(state[name], torch.nn.Parameter)}
    weight_grads = {name: tensor.grad for name, tensor in state.items() if tensor.grad is not None}
    input_grads = {name: tensor.grad for name, tensor in inputs.items() if tensor.grad is not None}
    alone = {"input": inputs, "buffer": buffers}
    tensors = {f"{role}/{name}": storable(tensor) for role, group in alone.items() for name, tensor in group.items()}
    tensors |= {
        "weight": storable(pack(state)),
        "cotangent": storable(pack(cotangents)),
        "output": pack(outputs),
        "weight_grad": pack(weight_grads),
        "input_grad": pack(input_grads),
    }
    tensors = {key: tensor for key, tensor in tensors.items() if tensor.numel()}
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values()), case.name
    return tensors, describe(case, state, aliases, outputs, cotangents, weight_grads, input_grads)


def pack(tensors):
    """One flat tensor: an entry of a safetensors header is larger than most of these tensors are."""
    flat = [tensor.detach().double().flatten() for tensor in tensors.values()]
    return torch.cat(flat) if flat else torch.empty(0)


def describe(case, state, aliases, outputs, cotangents, weight_grads, input_grads):
    """What `loading.py` needs to make the call again and to take the flat tensors apart."""
    description = {
        "target": case.target,
        "kwargs": case.kwargs,
        "args": case.args,
        "options": case.options,
        "weights": {name: list(tensor.shape) for name, tensor in state.items()},
        "aliases": aliases,
        "outputs": {name: list(tensor.shape) for name, tensor in outputs.items()},
        "loss": list(cotangents),
        "no_grad": [name for name in state if name not in weight_grads],
        "input_grads": list(input_grads),
        "note": case.note,
    }
    return {key: value for key, value in description.items() if value or key == "kwargs"}


def write(area, cases):
    tensors, descriptions = {}, {}
    for case in cases:
        assert case.name not in descriptions, case.name
        recorded, descriptions[case.name] = record(case)
        tensors |= {f"{case.name}/{key}": tensor.contiguous() for key, tensor in recorded.items()}
    about = {"published": f"dual-attention=={PUBLISHED}", "torch": torch.__version__, "configurations": descriptions}
    path = HERE / f"{area}.safetensors"
    # One entry only: safetensors writes several in random order, and the files could not be compared by their bytes.
    save_file(tensors, path, {"golden": json.dumps(about, separators=(",", ":"))})
    return path.stat().st_size


def main():
    require_published()
    supply_missing_name()
    torch.set_num_threads(1)  # a fixed order of summation
    total = 0
    with float64_kept():
        for area, cases in AREAS.items():
            cases = cases()
            size = write(area, cases)
            total += size
            print(f"{area:18} {len(cases):3} configurations {size / 1e3:7.1f} kB")
    print(f"{total / 1e3:.1f} kB in all")


if __name__ == "__main__":
    main()
