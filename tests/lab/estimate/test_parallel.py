"""Costs on several devices, compared with what processes hold and send."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dat.estimate import Estimate, estimate
from dat.estimate.parallel import parallel_estimate
from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.problem import build_language_model, language_loss
from dat.training.configs import OptimConfig, ParallelMachineConfig, StepLoopConfig
from dat.training.distributed import Workers
from dat.training.loop import Trainer
from dat.training.placement import place_model
from dat.training.problem import Problem, TensorExamples
from dat.training.sharding import local
from dual_attention.language_models import LanguageModel
from tests.support.processes import together
from tests.support.refusals import refused

LENGTH, BATCH = 12, 8
MODEL = LanguageModelKeys(
    name="tiny", context=LENGTH, d_model=16, n_layers=3, n_heads_sa=1, n_heads_ra=1, dff=22, n_symbols=5, symbol_heads=2
)
"""Whose widths of 22 and 5 neither 2 nor 4 processes divide evenly."""
COPIED = ParallelMachineConfig()
SHARDED = ParallelMachineConfig(parallel="shard")
CASES = {
    "copied, in passes": (2, COPIED, "ddp", {"micro": 2}),
    "sharded, in passes": (2, SHARDED, "fsdp", {"micro": 2}),
    "sharded, recomputed": (2, SHARDED, "fsdp", {"recompute": True}),
    "sharded in bfloat16": (2, replace(SHARDED, precision="bfloat16"), "fsdp", {}),
    "sharded in twos, in passes": (4, replace(SHARDED, shard_size=2), "hsdp", {"micro": 1}),
}
"""Processes, where the model is, its name in estimates, and what else differs."""
QUICK = ("copied, in passes", "sharded, recomputed")


class Traffic(TorchDispatchMode):
    """Counts what collectives send, by ring algorithms; small ones, of losses and flags, are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("c10d::")
        if name != func.name():
            tensors = args[0] if isinstance(args[0], list | tuple) else [args[0]]
            whole = args[1] if name.startswith("_reduce_scatter") else tensors[0]
            size = self.group_size(args, name)
            factor = (2 if name.startswith("allreduce") else 1) * (size - 1) / size
            nbytes = sum(t.nbytes for t in ([whole] if isinstance(whole, Tensor) else whole))
            if nbytes > 64:
                self.sent[name] += round(factor * nbytes)
        return func(*args, **(kwargs or {}))

    @staticmethod
    def group_size(args: Any, name: str) -> int:
        group = next(arg for arg in args if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()))
        return torch.distributed.ProcessGroup.unbox(group).size()


def build(changes: dict[str, Any]) -> LanguageModel:
    model = build_language_model(MODEL.language_config(257), seed=0)
    model.gradient_checkpointing = changes.get("recompute", False)
    return model


def costs_of(machine: ParallelMachineConfig, changes: dict[str, Any], batch: int) -> Estimate:
    lowered = {"dtype": "bfloat16", "param_dtype": "float32"} if machine.autocast else {}
    return estimate(build(changes), batch=batch, length=LENGTH, device="cpu", **lowered)


def step(workers: Workers, machine: ParallelMachineConfig, changes: dict[str, Any]) -> tuple[Counter[str], list[int]]:
    """What a process sends in the third step of a training, and bytes of parameters, gradients and optimiser."""
    tokens = torch.randint(257, (16, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    examples = TensorExamples(tokens[:, :-1], tokens[:, 1:])
    problem = Problem(build(changes), examples, language_loss(machine.autocast))
    loop = StepLoopConfig(steps=3, batch_size=BATCH, micro_batch_size=changes.get("micro"))
    config: Any = SimpleNamespace(optim=OptimConfig(optimizer="adamw", grad_clip=None), loop=loop, seed=0)
    trainer = Trainer(problem, config, placement=place_model(problem, torch.device("cpu"), machine, workers))
    for _ in range(2):  # after the first one DDP divides gradients anew
        trainer.train_step(torch.arange(BATCH))
    with Traffic() as traffic:
        trainer.train_step(torch.arange(BATCH))
    parameters = list(problem.model.parameters())
    moments = [value for entry in trainer.optimizer.state.values() for value in entry.values()]
    kept = [parameters, [p.grad for p in parameters if p.grad is not None], moments]
    return traffic.sent, [sum(local(tensor).nbytes for tensor in tensors) for tensors in kept]


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CASES])
def test_what_processes_hold_and_send(name):
    size, machine, shard, changes = CASES[name]
    own = BATCH // size
    micro = changes.get("micro", own)
    costs = costs_of(machine, changes, micro)
    placed = {"shard": shard, "devices": size, "shard_size": machine.shard_size, "passes": own // micro}
    expected = parallel_estimate(build(changes), costs, **placed)
    found = together(size, step, machine, changes)
    for sent, _ in found:
        scattered, reduced, gathered = 0, 0, 0
        for kind, number in sent.items():
            gathered += number * ("gather" in kind)
            scattered += number * ("scatter" in kind)
            reduced += number * kind.startswith("allreduce")
        assert gathered == pytest.approx(expected.gather_bytes, rel=1e-3)
        assert scattered == pytest.approx(expected.scatter_bytes, rel=1e-3)
        assert reduced == pytest.approx(expected.reduce_bytes, rel=1e-3)
        assert sum(sent.values()) == pytest.approx(expected.sent_bytes, rel=1e-3) and expected.sent_bytes > 1e4
    most = [max(kept[i] for _, kept in found) for i in range(3)]
    assert most == [expected.parameter_bytes, expected.gradient_bytes, expected.optimizer_bytes]
    assert expected.checkpoint_bytes == costs.parameter_bytes + costs.optimizer_bytes


@pytest.mark.slow
def test_memory_of_a_device():
    """A copy is as large as one device's; parts are halves, besides what is put together."""
    costs = costs_of(COPIED, {}, 4)
    copied = parallel_estimate(build({}), costs, shard="ddp", devices=8)
    assert copied.device_bytes == costs.training_bytes and copied.gathered_bytes == 0
    shared = parallel_estimate(build({}), costs, shard="fsdp", devices=2)
    assert shared.parameter_bytes == pytest.approx(costs.parameter_bytes / 2, rel=0.05)
    assert shared.activation_bytes == copied.activation_bytes and shared.device_bytes > shared.gathered_bytes > 0
    alone = parallel_estimate(build({}), costs, shard="fsdp", devices=1)
    assert alone.sent_bytes == 0 and alone.parameter_bytes == costs.parameter_bytes


test_wrong_sizes = refused(
    ({"shard": "hsdp", "devices": 4}, "shard_size: expected a divisor of the devices, got None"),
    ({"shard": "hsdp", "devices": 4, "shard_size": 3}, "shard_size: expected a divisor of 4 devices, got 3"),
    ({"shard": "fsdp", "devices": 4, "shard_size": 2}, "shard_size: expected None with shard='fsdp', got 2"),
    by=lambda options: parallel_estimate(build({}), costs_of(COPIED, {}, 1), **options),
)


def test_a_forward_pass_is_not_enough():
    costs = estimate(build({}), batch=1, length=LENGTH, device="cpu", training=False)
    with pytest.raises(ValueError, match="costs: expected those of training"):
        parallel_estimate(build({}), costs, shard="ddp", devices=2)
