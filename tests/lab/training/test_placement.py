"""One process and several train alike: the loss of every step, the gradients, the weights, and what is saved."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.language.problem import build_language_model, language_loss
from dat.training.checkpoint import Checkpoints
from dat.training.configs import LoopConfig, OptimConfig, ParallelMachineConfig, StepLoopConfig
from dat.training.distributed import ALONE, Workers
from dat.training.interrupt import Interrupted
from dat.training.loop import Trainer
from dat.training.metrics import MetricsLog, read_rows
from dat.training.placement import Placement, Replicated, Sharded, check_divisible, place_model
from dat.training.problem import Problem
from dat.training.seeding import derive_seed
from dat.training.sharding import whole_tensor
from dat.training.sharding_groups import sharding_groups
from dual_attention import DualAttnTransformerLM
from tests.support.processes import together
from tests.support.refusals import refused
from tests.support.runs import without_time

CPU = torch.device("cpu")
LENGTH = 12
MODEL = LanguageModelKeys(
    name="tiny",
    context=LENGTH,
    d_model=16,
    n_layers=2,
    n_heads_sa=1,
    n_heads_ra=1,
    dff=24,
    n_relations=2,
    n_symbols=5,
    symbol_heads=2,
    shared_symbol_retriever=False,
    weight_tie_symbol_library=True,
    trainable_symbols=True,
)
"""With tied embeddings, and with libraries of symbols that are tied across the retrievers of all layers."""
LOOP = LoopConfig(epochs=2, batch_size=8, eval_batch_size=5, eval_every=1, checkpoint_every=1)
OPTIM = OptimConfig(optimizer="adamw", lr=0.01, weight_decay=0.1, grad_clip=0.1)
SHARDED = ParallelMachineConfig(parallel="shard")
HYBRID = ParallelMachineConfig(parallel="shard", shard_size=2)
COPIED = ParallelMachineConfig()
SHARING = ParallelMachineConfig(context_parallel=2)
SHARED_TWICE = ParallelMachineConfig(parallel="shard", context_parallel=2)


class Texts:
    """Sequences of tokens; of each, another number is scored if ``uneven``. Notes the indices that are taken."""

    def __init__(self, n: int, seed: int, uneven: bool = False) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(257, (n, LENGTH + 1), generator=generator)
        self.targets = self.tokens[:, 1:].clone()
        if uneven:
            scored = torch.randint(1, LENGTH + 1, (n, 1), generator=generator)
            self.targets[torch.arange(LENGTH) >= scored] = -1
        self.taken: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, indices):
        self.taken += indices.tolist()
        return self.tokens[indices, :-1], self.targets[indices]


def weigh(batch):
    return (batch[1] != -1).sum()


def make_trainer(workers: Workers = ALONE, machine: ParallelMachineConfig = COPIED, **changes: Any) -> Trainer:
    """Of 21 sequences, which batches of 8, and their halves and quarters, do not divide."""
    settings: dict[str, Any] = {"optim": OPTIM, "loop": LOOP, "model": MODEL, "dtype": torch.float64, **changes}
    uneven = settings.get("uneven", False)
    model = build_language_model(settings["model"].language_config(257), seed=4).to(settings["dtype"])
    model.gradient_checkpointing = settings.get("recompute", False)
    sets = settings.get("sets", {"val": Texts(13, 1), "test": Texts(3, 2)})
    problem = Problem(model, Texts(21, 0, uneven), language_loss(), sets, weigh=weigh if uneven else None)
    config: Any = SimpleNamespace(optim=settings["optim"], loop=settings["loop"], seed=3)
    folder = settings.get("folder")
    checkpoints = None if folder is None else Checkpoints(folder)
    return Trainer(problem, config, placement=place_model(problem, CPU, machine, workers), checkpoints=checkpoints)


def train(workers: Workers = ALONE, machine: ParallelMachineConfig = COPIED, **changes: Any) -> dict[str, Any]:
    """Losses of all steps, metrics at the end, and the weights, which only the first process has."""
    trainer = make_trainer(workers, machine, **changes)
    losses: list[float] = []
    step = trainer.train_step

    def noted(indices):
        before = float(trainer._running.sums.get("loss", torch.zeros(())))
        step(indices)
        losses.append((float(trainer._running.sums["loss"]) - before) / len(indices))

    trainer.train_step = noted
    final = trainer.fit()
    weights = {name: tensor.clone() for name, tensor in trainer.placement.weights().items()}
    return {"losses": losses, "final": final, "weights": weights}


def assert_alike(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-11) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], rel=tolerance)
    assert found["final"] == pytest.approx(expected["final"], rel=tolerance)
    torch.testing.assert_close(found["weights"], expected["weights"], rtol=tolerance * 100, atol=tolerance * 100)


OWN_LIBRARY = {"weight_tie_symbol_library": False}
CASES = {
    "copies": (2, COPIED, {}),
    "sharded": (2, SHARDED, {}),
    "copies in a torchrun of one": (1, COPIED, {}),
    "sharded in a torchrun of one": (1, SHARDED, {}),
    "sharded in twos": (4, HYBRID, {"loop": StepLoopConfig(steps=5, batch_size=8, micro_batch_size=1)}),
    "three, more than the last batch divides by": (3, SHARDED, {"loop": replace(LOOP, batch_size=6)}),
    "more processes than examples in the last batch": (4, COPIED, {"loop": replace(LOOP, batch_size=20)}),
    "copies, in parts": (2, COPIED, {"loop": StepLoopConfig(steps=5, batch_size=8, micro_batch_size=3)}),
    "sharded, in parts": (2, SHARDED, {"loop": StepLoopConfig(steps=5, batch_size=8, micro_batch_size=3)}),
    "copies, recomputed": (2, COPIED, {"recompute": True}),
    "sharded, recomputed": (2, SHARDED, {"recompute": True}),
    "sharded, one retriever, recomputed": (2, SHARDED,
        {"recompute": True, "model": replace(MODEL, shared_symbol_retriever=True, weight_tie_symbol_library=False)}),
    "sequences shared by two": (2, SHARING, {}),
    "sequences shared by two of four, sharded, in parts, recomputed": (4, replace(SHARED_TWICE, shard_size=2),
        {"loop": StepLoopConfig(steps=4, batch_size=8, micro_batch_size=3), "recompute": True}),
    "sequences shared by two, sharded": (2, SHARED_TWICE, {"loop": replace(LOOP, batch_size=5)}),
    "copies, uneven": (2, COPIED, {"uneven": True}),
    "sharded, uneven, in parts": (2, SHARDED,
        {"uneven": True, "loop": StepLoopConfig(steps=4, batch_size=8, micro_batch_size=3)}),
    "copies, muon": (2, COPIED, {"optim": replace(OPTIM, optimizer="muon")}),
    "sharded, muon": (2, SHARDED, {"optim": replace(OPTIM, optimizer="muon"), "dtype": torch.float32}),
    "copies, averaged": (2, COPIED, {"optim": replace(OPTIM, average_decay=0.8)}),
    "sharded, averaged": (2, SHARDED, {"optim": replace(OPTIM, average_decay=0.8)}),
    "a Transformer": (2, SHARDED, {"model": replace(MODEL, n_heads_ra=0, n_heads_sa=2)}),
    "relative symbols": (2, SHARDED, {"model": replace(MODEL, symbols="position_relative", **OWN_LIBRARY)}),
    "frozen symbols, nothing tied": (2, SHARDED,
        {"model": replace(MODEL, trainable_symbols=False, tie_weights=False, ra_type="rca", **OWN_LIBRARY)}),
}  # fmt: skip
"""Number of processes, where the model is, and what else differs."""


class Endless(Texts):
    """Sequences whose indices go on."""

    def batch(self, indices):
        return super().batch(indices % len(self))


QUICK = ("copies", "sharded in a torchrun of one", "sharded, in parts", "sequences shared by two", "copies, uneven")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in CASES])
def test_several_processes_train_as_one_does(name, monkeypatch):
    """Every step, the evaluations and the weights, to rounding; clipping is by the norm of the whole gradient."""
    size, machine, changes = CASES[name]
    if isinstance(changes.get("loop"), StepLoopConfig):
        monkeypatch.setitem(globals(), "Texts", Endless)
    tolerance = 1e-11 if changes.get("dtype", torch.float64) == torch.float64 else 2e-5
    if changes.get("optim", OPTIM).optimizer == "muon":
        tolerance = max(tolerance, 2e-3)  # which orthogonalises in bfloat16
    expected = train(**changes)
    found = together(size, lambda workers: train(workers, machine, **changes))
    assert_alike(found[0], expected, tolerance)
    for other in found[1:]:
        assert other["losses"] == found[0]["losses"] and other["final"] == found[0]["final"]
        assert other["weights"] == {}


# ---- checkpoints: written by some processes, read by others


def stopped_and_resumed(folder: Path, *stages: tuple[int, ParallelMachineConfig, int | None], **changes: Any):
    """Train in stages, each in another number of processes until some step (None: the end); what each process took."""
    taken: list[list[list[int]]] = []
    result: dict[str, Any] = {}
    for size, machine, last in stages:

        def stage(workers: Workers, machine=machine, last=last):
            trainer = make_trainer(workers, machine, folder=folder / "checkpoints", **changes)
            trainer.resume()
            trainer.stop = lambda: last is not None and trainer.step >= last
            log = None
            if workers.first:
                log = MetricsLog(folder / "log.jsonl", epochs_done=trainer.epoch, mark=trainer.metrics_mark)
            try:
                final = trainer.fit(log)
            except Interrupted:
                final = None
            weights = trainer.placement.weights()
            return {"final": final, "weights": weights, "taken": trainer.problem.train.taken}

        found = together(size, stage)
        taken.append([each["taken"] for each in found])
        result = found[0]
    return {**result, "rows": without_time(read_rows(folder / "log.jsonl")), "taken": taken}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process gives that is not stopped."""
    return stopped_and_resumed(tmp_path_factory.mktemp("whole"), (1, COPIED, None))


STAGES = {
    "sharded in two, one": ((2, SHARDED, 2), (1, COPIED, None)),
    "sharded in one, two, four": ((1, SHARDED, 2), (2, SHARDED, 4), (4, SHARDED, None)),
    "sharded in four, two, one": ((4, HYBRID, 2), (2, SHARDED, 4), (1, COPIED, None)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * ("four" in n)) for n in STAGES])
def test_training_goes_on_in_any_number_of_processes(name, tmp_path, whole):
    """Each example is taken once in each epoch, whoever takes it, and the numbers are those of one process."""
    parts = stopped_and_resumed(tmp_path, *STAGES[name])
    assert len(parts["rows"]) == len(whole["rows"]) == LOOP.epochs
    for found, expected in zip(parts["rows"], whole["rows"], strict=True):
        assert found == pytest.approx(expected, rel=1e-11)
    torch.testing.assert_close(parts["weights"], whole["weights"], rtol=1e-9, atol=1e-9)
    counts = Counter(index for stage in parts["taken"] for process in stage for index in process)
    assert counts == Counter(list(range(21)) * LOOP.epochs)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [COPIED, pytest.param(SHARDED, marks=pytest.mark.slow)], ids=["copies", "sharded"])
def test_the_same_number_of_processes_gives_the_same_bits(machine, tmp_path):
    """Dropout included, whose masks follow from seed, step and process, and the average of the weights."""
    changes: dict[str, Any] = {"model": replace(MODEL, dropout_rate=0.2), "dtype": torch.float32}
    changes["optim"] = replace(OPTIM, average_decay=0.8)
    (tmp_path / "whole").mkdir()
    whole = stopped_and_resumed(tmp_path / "whole", (2, machine, None), **changes)
    parts = stopped_and_resumed(tmp_path, (2, machine, 4), (2, machine, None), **changes)
    assert parts["rows"] == whole["rows"] and parts["final"] == whole["final"]
    assert all(torch.equal(parts["weights"][name], tensor) for name, tensor in whole["weights"].items())


def test_processes_drop_differently():
    changes: dict[str, Any] = {"model": replace(MODEL, dropout_rate=0.5)}

    def first_loss(workers: Workers):
        trainer = make_trainer(workers, **changes)
        trainer.problem.model.train()
        losses = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Placement, "backward", lambda self, loss, share: losses.append(float(loss)))
            trainer._add_gradients(torch.tensor([3, 3]))  # the same example in each process
            torch.manual_seed(derive_seed(3, "dropout", workers.rank, 0))
            trainer._add_gradients(torch.tensor([3, 3]))
        return losses

    first, second = together(2, first_loss)
    assert first[0] == second[0] and first[1] != second[1]


# ---- what PyTorch's engines are relied on for


class Two(nn.Module):
    """Something that FSDP shards, without blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0, dtype=torch.float64).view(3, 2))

    def forward(self, x):
        return (self.weight * x).sum()


@pytest.mark.parametrize(("size", "kind"), [(1, Sharded), (2, Replicated), (3, Sharded)])
def test_gradients_are_means_over_processes(size, kind):
    """A known fault of some versions on gloo, and in a world of one."""

    def gradient(workers: Workers):
        model = Two()
        placement = Sharded(model, workers, CPU) if kind is Sharded else Replicated(model, workers)
        placement.called(torch.tensor([1.0, 10.0], dtype=torch.float64) * 3**workers.rank).backward()
        assert isinstance(model.weight.grad, Tensor)
        return whole_tensor(model.weight.grad)

    expected = torch.tensor([1.0, 10.0], dtype=torch.float64).expand(3, 2) * sum(3**r for r in range(size)) / size
    for found in together(size, gradient):
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "backend"), [(COPIED, "eager"), (SHARDED, "aot_eager")], ids=["copies", "sharded"])
def test_blocks_that_are_compiled(machine, backend, monkeypatch):
    """By parts of the compiler that need no C++; what they keep for the backward pass matters to sharded weights.

    Batches are of one size, for which a graph is captured to train and, of copies, another to evaluate.
    """
    torch.compile(nn.Linear(2, 2), backend=backend)(torch.ones(2)).sum().backward()  # loads the compiler, once for both
    compile = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self: compile(self, backend=backend))
    loop = StepLoopConfig(steps=2, batch_size=8, eval_batch_size=8, eval_every=2 * (machine is COPIED))
    sets = {"val": Texts(8, 1)} if machine is COPIED else {}
    changes = {"loop": loop, "sets": sets, "model": replace(MODEL, n_layers=1)}
    found = together(2, lambda workers: train(workers, replace(machine, compile=True), **changes))
    assert_alike(found[0], train(**changes), 1e-9)


@pytest.mark.slow
def test_weights_gathered_in_bfloat16():
    """Nearly what autocast gives in one process, with weights, gradients and the optimiser in float32."""
    machine = replace(SHARDED, precision="bfloat16")

    def losses(workers: Workers = ALONE):
        trainer = make_trainer(workers, machine, dtype=torch.float32)
        object.__setattr__(trainer.problem, "loss", language_loss(torch.bfloat16))
        trainer.fit()
        dtypes = {tensor.dtype for tensor in trainer.placement.weights().values()}
        gathered = {p.dtype for p in trainer.problem.model.parameters()}
        return trainer.watched[-1]["val_loss"], dtypes, gathered

    alone, shared = losses(), together(2, losses)
    exact = train(dtype=torch.float32)["final"]["val_loss"]
    assert shared[0][0] == pytest.approx(alone[0], rel=2e-3) and shared[0][0] != exact
    assert shared[0][1:] == ({torch.float32}, {torch.float32})


@pytest.mark.slow
def test_a_process_holds_its_part_only():
    def sizes(workers: Workers):
        trainer = make_trainer(workers, SHARDED)
        trainer._train_epoch()
        state = trainer.optimizer.state
        here = [p.to_local().numel() for p in trainer.problem.model.parameters()]
        moments = [entry["exp_avg"].to_local().numel() for entry in state.values()]
        return sum(here), sum(moments), sum(p.numel() for p in trainer.problem.model.parameters())

    parts = together(2, sizes)
    total = parts[0][2]
    assert sum(part[0] for part in parts) == sum(part[1] for part in parts) == total
    assert max(part[0] for part in parts) < 0.6 * total


# ---- what cannot be divided


test_sizes_that_do_not_divide = refused(
    (3, LOOP, COPIED, "loop.batch_size: expected a multiple of the 3 processes, got 8"),
    (4, LOOP, replace(SHARDED, shard_size=3), "machine.shard_size: expected null or a divisor of the 4 processes"),
    (3, LOOP, SHARING, "machine.context_parallel: expected a divisor of the 3 processes, got 2"),
    (1, LOOP, SHARING, "machine.context_parallel: expected a divisor of the 1 processes, got 2"),
    (6, LOOP, SHARING, "loop.batch_size: expected a multiple of the 3 groups of 2 processes, got 8"),
    by=lambda size, loop, machine: check_divisible(loop, machine, Workers(0, size)),
)


test_options_that_need_others = refused(
    (lambda: replace(SHARING, compile=True), "machine.compile: expected false with context_parallel, got True"),
    (lambda: ParallelMachineConfig(shard_size=2), "machine.shard_size: .* null with machine.parallel=replicate, got 2"),
)


def test_norms_that_retrieval_calls_before_the_block_are_gathered_apart():
    """FSDP gathers a block when it is called, and its first normalisation is needed before that."""
    for normalized in (False, True):
        retrieval = {"normalized_input": normalized}
        model = DualAttnTransformerLM(9, 8, 1, 1, 1, max_block_size=4, symbol_retriever_config=retrieval)
        first = sharding_groups(model, lowered=False)[0]
        assert (model.layers.blocks[0].norm1 in first.modules) == normalized
