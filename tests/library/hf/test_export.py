"""Models for transformers as programs of other formats: torch.export, ONNX, and traces."""

import contextlib
import io
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.torch_version import TorchVersion

from dual_attention import RelationalAttention
from tests.library.hf.models import IMAGES, KINDS, causal, classifier, masked, tokens, vision

SIZES = [(2, 7), (3, 5), (1, 9)]
"""Batches and lengths; programs are made from the first."""


class Logits(nn.Module):
    """A model as a function of tensors only."""

    def __init__(self, model: nn.Module, **more: Any) -> None:
        super().__init__()
        self.model, self.more = model, more

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **self.more).logits


def causal_logits(kind: str, **more: Any) -> Logits:
    return Logits(causal(kind, **more), use_cache=False)


def padded(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and their mask, with padding on the left of the last row."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, :2] = 0
    return tokens(batch, length), mask


def open_sizes() -> dict[str, Any]:
    sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=24)}
    return {"input_ids": sizes, "attention_mask": sizes}


MODELS = {
    **{kind: (lambda kind=kind: causal_logits(kind, pos_enc_type="RoPE", n_layers=1)) for kind in KINDS},
    "learned positions": lambda: causal_logits("positional_symbols", n_layers=1),
    "masked": lambda: Logits(masked("position_relative", n_layers=1)),
    "classifier": lambda: Logits(classifier("symbolic_attention", n_layers=1)),
}


def assert_same(program, model: nn.Module, **how: Any) -> None:
    """What real tokens receive; padding may hold anything."""
    for batch, length in SIZES:
        x, mask = padded(batch, length)
        found, wanted = torch.as_tensor(program(x, mask)), model(x, mask)
        if found.dim() == 3:
            found, wanted = found[mask.bool()], wanted[mask.bool()]
        torch.testing.assert_close(found, wanted, **how)


QUICK = ("positional_symbols",)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in MODELS])
@torch.no_grad()
def test_export_with_a_mask_and_open_sizes(name: str):
    model = MODELS[name]().eval()
    program = torch.export.export(model, padded(*SIZES[0]), dynamic_shapes=open_sizes(), strict=False)
    assert_same(program.module(), model)


class Maps(nn.Module):
    """Logits, attention weights and relations, as a function of one tensor."""

    def __init__(self, model: nn.Module, **how: Any) -> None:
        super().__init__()
        self.model, self.how = model, how

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.model(x, output_attentions=True, **self.how)
        return out.logits, *out.attentions, *(getattr(out, "relations", None) or ())


MAPPED = {
    **{
        kind: (lambda kind=kind: (Maps(causal(kind, n_layers=1, pos_enc_type="RoPE"), use_cache=False), tokens))
        for kind in KINDS
    },
    "masked": lambda: (Maps(masked("position_relative", n_layers=1)), tokens),
    "vision": lambda: (Maps(vision(n_layers=1)), lambda batch, _length: torch.randn(batch, *IMAGES[1:])),
}


def mapped(name: str) -> tuple[nn.Module, Any, tuple[torch.Tensor], dict[str, Any]]:
    """A module that gives maps, its inputs by sizes, those of the program, and which of their sizes are open."""
    module, inputs = MAPPED[name]()
    sizes = open_sizes()["input_ids"]
    return module.eval(), inputs, (inputs(*SIZES[0]),), {"x": {0: sizes[0]} if name == "vision" else sizes}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *(pytest.param(name, "eager", marks=[pytest.mark.slow] * (name != "vision")) for name in MAPPED),
        *((name, "sdpa") for name in (*QUICK, "vision")),
    ],
)
def test_export_of_maps_with_open_sizes(name: str, attention: str):
    """Where gradients are recorded, maps in eager code are a part of them."""
    module, inputs, example, sizes = mapped(name)
    module.model.set_attn_implementation(attention)
    with torch.set_grad_enabled(attention == "eager"):
        program = torch.export.export(module, example, dynamic_shapes=sizes).module()
        for batch, length in SIZES:
            x = inputs(batch, length)
            torch.testing.assert_close(program(x), module(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symbolic_attention", "vision"])
@torch.no_grad()
def test_onnx_of_maps_with_open_sizes(name: str):
    module, inputs, example, sizes = mapped(name)
    program = onnx_program(module, example, outputs=slice(None), dynamic_shapes=sizes)
    for batch, length in SIZES:
        x = inputs(batch, length)
        found = tuple(torch.as_tensor(part) for part in program(x))
        torch.testing.assert_close(found, module(x), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symbolic_attention", "masked"])
@torch.no_grad()
def test_onnx_with_open_sizes(name: str):
    """Relational attention is written out for a format that does not know it."""
    model = MODELS[name]().eval()
    assert_same(onnx_program(model, padded(*SIZES[0]), dynamic_shapes=open_sizes()), model, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@torch.no_grad()
def test_onnx_of_long_sequences():
    """Of sizes that are fixed, and so many that relational attention computes a block at a time."""
    model = causal_logits("position_relative", max_block_size=512, pos_enc_type="RoPE", n_layers=1).eval()
    x, mask = padded(2, 300)
    program = onnx_program(model, (x, mask))
    torch.testing.assert_close(
        torch.as_tensor(program(x, mask))[mask.bool()], model(x, mask)[mask.bool()], atol=1e-4, rtol=1e-4
    )


@pytest.mark.slow
@torch.no_grad()
def test_onnx_of_images():
    model = vision(n_layers=1)
    images = torch.randn(2, 3, 12, 8)
    module = Classes(model)
    program = onnx_program(module, (images,), dynamic_shapes={"pixel_values": {0: torch.export.Dim("batch", max=64)}})
    for batch in (2, 1, 5):
        images = torch.randn(batch, 3, 12, 8)
        torch.testing.assert_close(torch.as_tensor(program(images)), module(images), atol=1e-4, rtol=1e-4)


class Classes(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixel_values).logits


def onnx_program(model: nn.Module, inputs: tuple[torch.Tensor, ...], outputs: int | slice = 0, **more: Any):
    """The model in ONNX, called with tensors; the outputs of these numbers."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    program = torch.onnx.export(model, inputs, dynamo=True, verbose=False, **more)
    return lambda *given: program(*given)[outputs]


@pytest.mark.parametrize(
    "name",
    [
        "position_relative",
        pytest.param("symbolic_attention", marks=pytest.mark.slow),
        pytest.param("transformer", marks=pytest.mark.slow),
        pytest.param("masked", marks=pytest.mark.slow),
    ],
)
@torch.no_grad()
def test_traces(name: str):
    model = MODELS[name]().eval()
    inputs = padded(*SIZES[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a trace is of one length, which torch says of every size it meets
        traced = torch.jit.trace(model, inputs)
    torch.testing.assert_close(traced(*inputs), model(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["position_relative", "transformer", "masked"])
@torch.no_grad()
def test_onnx_from_a_trace(name: str):
    """By the older exporter of torch, of one length."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, inputs, file = MODELS[name]().eval(), padded(*SIZES[0]), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above; and torch calls this exporter deprecated
        torch.onnx.export(model, inputs, file, dynamo=False, input_names=["ids", "mask"])
    session = runtime.InferenceSession(file.getvalue())
    found = session.run(None, {"ids": inputs[0].numpy(), "mask": inputs[1].numpy()})[0]
    torch.testing.assert_close(torch.as_tensor(found), model(*inputs), atol=1e-4, rtol=1e-4)


def by_transformers(kind: str, name: str):
    """A function of tokens and mask from one of transformers' exporters, by its name, with open sizes."""
    exporters = pytest.importorskip("transformers.exporters")
    model = causal(name, n_layers=1)
    x, mask = padded(*SIZES[0])
    exporter, config = getattr(exporters, f"{kind}Exporter"), getattr(exporters, f"{kind}Config")
    made = exporter().export(model, {"input_ids": x, "attention_mask": mask}, config=config(dynamic=True))
    return made, Logits(model, use_cache=False)


@pytest.mark.slow
@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.11", reason="transformers' exporter needs PyTorch 2.11")
@torch.no_grad()
def test_transformers_own_exporter() -> None:
    """One program by transformers' Dynamo exporter, run at batches and lengths other than its first."""
    made, model = by_transformers("Dynamo", "symbolic_attention")
    program = getattr(made, "program", made).module()  # older releases return the program itself

    def logits(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return program(input_ids=x, attention_mask=mask)["logits"]

    assert_same(logits, model, rtol=0.0, atol=1e-5)


@pytest.mark.slow
@torch.no_grad()
def test_transformers_own_exporter_to_onnx() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    made, model = by_transformers("Onnx", "position_relative")

    def logits(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        outputs = made(input_ids=x, attention_mask=mask)
        return outputs[0] if isinstance(outputs, tuple) else outputs["logits"]  # a tuple in older releases

    assert_same(logits, model, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnx", None])
@torch.no_grad()
def test_transformers_exporter_to_onnx_writes_relational_attention_out(backend: str | None) -> None:
    """A program for ONNX has no operation of this library; another may."""
    apply_patches = pytest.importorskip("transformers.exporters.utils").apply_patches
    layer, x, sizes = RelationalAttention(8, 2).eval(), torch.randn(2, 7, 8), open_sizes()["input_ids"]
    with contextlib.nullcontext() if backend is None else apply_patches(backend):
        program = torch.export.export(layer, (x, x), dynamic_shapes=(sizes, sizes), strict=False)
    ours = [node for node in program.graph.nodes if "dual_attention" in str(node.target)]
    assert bool(ours) is (backend is None)
