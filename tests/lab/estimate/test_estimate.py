"""Reports and errors of estimates, any module as input, and that the model is left as it was."""

import json
import resource
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dat.estimate import estimate
from dat.estimate.units import aligned, count, duration, flops, nbytes
from dual_attention import EncoderBlock, RelationalAttention, RelativeSymbols, TransformerLM, VisionTransformer
from tests.lab.estimate.measuring import measure
from tests.support.refusals import refused

pytestmark = pytest.mark.sweep(6)


def language_model(**changes: Any) -> TransformerLM:
    arguments = (50, 32, 2, 4, None, 0.0, "gelu", True, 40)
    return TransformerLM(*arguments, **changes)


def vision_model() -> VisionTransformer:
    return VisionTransformer((3, 8, 12), (4, 4), 5, 16, 1, 2, None, 0.1, "relu", True)


class Bilinear(nn.Module):
    """A module that the library does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(16, 16, bias=False)
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        return self.map(x) @ x.transpose(-2, -1)


class Reader(nn.Module):
    """A module whose shapes depend on values."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


def test_registers_are_tokens():
    for registers in (0, 3):
        model = VisionTransformer((3, 8, 12), (4, 4), 5, 16, 1, 2, n_registers=registers)
        assert estimate(model).tokens == 1 + registers + 6


def test_a_module_of_ones_own():
    found = estimate(nn.Sequential(Bilinear()), inputs=torch.randn(2, 5, 16, requires_grad=True), device="cpu")
    assert {p.name: p.forward_flops for p in found.parts} == {"Bilinear": 100 * 16, "linear maps": 20 * 16 * 16}
    assert found.parameters == 16 + 256
    assert found.backward_flops == 2 * found.forward_flops == 2 * found.least_step_flops // 3
    # Kept: the argument, the scaled, what is mapped, and both factors laid out for the product.
    assert found.activation_bytes >= 4 * 2 * 5 * 16 * 3


def test_the_model_is_left_as_it_was():
    model = language_model().train()
    model.layers.blocks[0].register_forward_hook(lambda *_: pytest.fail("a hook of the model's owner ran"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.random.get_rng_state()
    estimate(model, batch=2, length=8, checkpointing=True)
    assert model.training
    assert all(parameter.device.type == "cpu" and parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(random, torch.random.get_rng_state())
    assert not model.layers.final_out._forward_hooks


def test_per_token_and_per_batch():
    model = language_model()
    one, two = estimate(model, batch=1, length=16), estimate(model, batch=2, length=16)
    assert one.tokens == 16 and two.tokens == 32
    assert two.forward_flops == 2 * one.forward_flops
    assert two.forward_flops_per_token == one.forward_flops_per_token
    assert two.backward_flops_per_token == one.backward_flops_per_token
    assert one.step_flops == one.forward_flops + one.backward_flops
    assert sum(part.forward_flops for part in one.parts) == one.forward_flops
    assert one.least_step_flops < one.step_flops  # the mask of a causal model


def test_without_training():
    model = language_model()
    trained, evaluated = estimate(model, batch=2), estimate(model, batch=2, training=False)
    assert evaluated.forward_flops == trained.forward_flops
    assert evaluated.inference_bytes == trained.inference_bytes > 0
    for name in ("backward_flops", "activation_bytes", "gradient_bytes", "optimizer_bytes", "transient_bytes"):
        assert getattr(evaluated, name) == 0 < getattr(trained, name)


def test_the_context_is_the_default_length():
    assert estimate(language_model(), training=False).length == 40
    found = estimate(vision_model())
    assert (found.batch, found.length) == (1, 7)
    assert not found.cached  # it has no order to decode in


def test_times():
    found = estimate(language_model(), batch=2, length=16)
    assert found.time(1e9) == found.step_flops / 1e9
    assert found.time(1e9, 0.5, devices=4) == pytest.approx(found.time(1e9) / 2)
    assert found.time(1e9, tokens=320) == pytest.approx(10 * found.time(1e9))


PAIRS = (torch.ones(2, 5, 16),) * 2
DENSE = (PAIRS[0], RelativeSymbols.from_dense(torch.ones(5, 5, 16)))


test_what_is_wrong_is_named = refused(
    (lambda: estimate("DAT-2B"), "model: expected one of T-tiny, .*got 'DAT-2B'"),
    (lambda: estimate({"model": "ResNet"}),
     "model: expected the name of a class, one of VisionTransformer, .*got 'ResNet'"),
    (lambda: estimate({"model": "TransformerLM", "depth": 3}), "TransformerLM: .*depth"),
    (lambda: estimate({"model": "dat", "width": 3}), "unknown keys: 'width'"),
    (lambda: estimate("T-tiny", batch=0), "batch: expected a positive integer, got 0"),
    (lambda: estimate("T-tiny", batch=1.5), "batch: expected a positive integer, got 1.5"),
    (lambda: estimate("T-tiny", length=True), "length: expected a positive integer, got True"),
    (lambda: estimate("T-tiny", length=10_000), "longer than the context"),
    (lambda: estimate("T-tiny", dtype="int8"), "dtype: expected one of float64, .*got 'int8'"),
    (lambda: estimate("T-tiny", param_dtype=torch.int8), "param_dtype: expected one of"),
    (lambda: estimate("T-tiny", dtype="fp64", param_dtype="fp32"), "dtype: expected bfloat16 or float16 or float32"),
    (lambda: estimate("T-tiny", device="tpu"), "device: expected one of cpu, cuda, got 'tpu'"),
    (lambda: estimate("T-tiny", impl="magic"), "impl: expected one of auto, dense, linear, triton, got 'magic'"),
    (lambda: estimate(nn.Linear(3, 3)), "inputs: expected the arguments of a call, since those of Linear are unknown"),
    (lambda: estimate(nn.Linear(3, 3), inputs=torch.ones(3)),
     r"inputs: expected a tensor of shape \(batch, length, ...\)"),
    (lambda: estimate(vision_model(), length=9), "length: images of this model have 7 tokens, got 9"),
    (lambda: estimate(vision_model(), fused_loss=True), "fused_loss: VisionTransformer has none"),
    (lambda: estimate(3), TypeError, "model: expected a module, a name, a configuration or a mapping, got int"),
    (lambda: estimate(Reader(), inputs=PAIRS[0]), "model: its forward pass depends on the values of tensors"),
    (lambda: estimate(RelationalAttention(16, 4, rel_activation="relu"), inputs=PAIRS, impl="triton"),
     "impl='triton' cannot compute this: relations must have the activation"),
    (lambda: estimate(RelationalAttention(16, 4, use_relative_positional_symbols=True), inputs=DENSE, impl="linear"),
     "impl='linear' needs a library of relative symbols"),
    (lambda: estimate(language_model(), length=4).time(rate=0), "rate: expected a positive number, got 0"),
    (lambda: estimate(language_model(), length=4).time(rate=float("nan")), "rate"),
    (lambda: estimate(language_model(), length=4).time(rate=1, utilisation=1.5),
     r"utilisation: expected a number in \(0, 1\], got 1\.5"),
    (lambda: estimate(language_model(), length=4).time(rate=1, tokens=-1), "tokens"),
    (lambda: estimate(language_model(), length=4).time(rate=1, devices=0), "devices"),
)  # fmt: skip


def test_a_block():
    block = EncoderBlock(16, 2, None, 0.0, "relu", True)
    found = estimate(block, inputs=(torch.randn(3, 7, 16),), name="a block")
    assert (found.model, found.batch, found.length) == ("a block", 3, 7)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is traced where there is one")
def test_cuda_without_a_gpu():
    """Figures are those of a CPU, and the estimate says so."""
    model = language_model()
    cpu, cuda = (estimate(model, batch=2, device=device) for device in ("cpu", "cuda"))
    assert (cpu.traced_on, cuda.traced_on, cpu.notes) == ("cpu", "cpu", ())
    assert "No GPU here" in str(cuda) and "No GPU" not in str(cpu)
    assert cuda.to_dict()["notes"] == list(cuda.notes) != []
    assert cuda.parts == cpu.parts


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_with_a_gpu():
    """Kept tensors and arithmetic are those of a real step on the GPU."""
    model = language_model(pos_enc_type="RoPE").cuda().to(torch.bfloat16)
    x = torch.randint(50, (3, 20), device="cuda")
    real = measure(model, lambda model: model(x, x, loss_only=True).loss)
    found = estimate(model, batch=3, length=20, device="cuda")
    assert (found.traced_on, found.notes) == ("cuda", ())
    assert (found.forward_flops, found.backward_flops) == (real.forward, real.backward)
    assert found.activation_bytes == pytest.approx(real.saved, rel=0.01)


@pytest.mark.parametrize("impl", ["dense", "linear"])
def test_an_implementation_may_be_asked_for(impl: str):
    layer = RelationalAttention(64, 4, 4)
    x = torch.randn(2, 40, 64, requires_grad=True)
    found = {name: estimate(layer, inputs=(x, x), impl=name) for name in ("dense", "linear")}
    chosen = estimate(layer, inputs=(x, x), impl=impl)
    assert chosen == found[impl]
    assert len({other.backward_flops for other in found.values()}) == 2
    assert len({other.least_step_flops for other in found.values()}) == 1


@pytest.mark.slow
def test_dtypes():
    model = language_model()
    for arguments, products, stored in (
        ({}, torch.float32, torch.float32),
        ({"dtype": "bf16"}, torch.bfloat16, torch.bfloat16),
        ({"param_dtype": "bf16"}, torch.bfloat16, torch.bfloat16),
        ({"dtype": "bf16", "param_dtype": "fp32"}, torch.bfloat16, torch.float32),
    ):
        found = estimate(model, length=4, **arguments)
        assert (found.dtype, found.param_dtype) == (products, stored)


@pytest.mark.slow
def test_large_batches_and_models_take_no_memory():
    assert estimate(language_model(), batch=10**6, fused_loss=False).activation_bytes > 1e11
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = estimate("T-1.31B", length=64, training=False)  # 4.9 GiB of parameters
    assert found.parameter_bytes > 5 * 10**9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


@pytest.mark.slow
def test_json_and_text():
    found = estimate("DAT-tiny", batch=2, length=16, dtype="bf16", param_dtype="fp32")
    written = json.loads(json.dumps(found.to_dict()))
    assert written["dtype"] == "bfloat16" and written["param_dtype"] == "float32"
    assert written["parameters"] == found.parameters
    assert written["parts"]["relational attention"]["forward_flops"] > 0
    text = str(found)
    for words in (
        "DAT-tiny: 2 x 16 tokens, training, bfloat16 (autocast; parameters in float32), cuda",
        "relational attention",
        "2,048",  # frozen symbols
        "parameters, cast",
        "Not counted: elementwise work, norms, softmax, and what an allocator adds.",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 100


def test_numbers_in_words():
    assert [count(n) for n in (0, 7, 999, 1000, 12_345, 344_026_112, 1.27e9)] == [
        "0", "7", "999", "1.00 k", "12.3 k", "344 M", "1.27 B",
    ]  # fmt: skip
    assert [flops(n) for n in (0, 12, 2.5e9, 1e15)] == ["0", "12 FLOP", "2.50 GFLOP", "1.00 PFLOP"]
    assert [nbytes(n) for n in (0, 1023, 1024, 3 * 2**30)] == ["0", "1023 B", "1.00 KiB", "3.00 GiB"]
    assert [duration(s) for s in (0.0123, 5, 119, 600, 3 * 3600, 1e6)] == [
        "12.3 ms", "5.0 s", "119 s", "10.0 min", "3.0 h", "11.6 days",
    ]  # fmt: skip


def test_columns():
    assert aligned([("a", "10", "x"), ("bcd", "5", "")], right=[1]) == ["a    10  x", "bcd   5"]


def test_what_the_loss_keeps():
    found = estimate(vision_model(), batch=3, device="cpu")
    (loss,) = (part for part in found.parts if part.name == "loss")
    scores, targets = torch.randn(3, 5, requires_grad=True), torch.randint(5, (3,))
    real = measure(nn.Identity(), lambda model: F.cross_entropy(model(scores), targets))
    assert loss.activation_bytes == real.saved
