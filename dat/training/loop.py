"""The training loop: plain PyTorch, the same for every experiment, and resumed to the same numbers after any stop."""

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .average import averaged, exchange_average, update_average
from .branch import rate_jump, rebase
from .callbacks import Callbacks
from .checkpoint import Checkpoints, PartsWriter, random_state, restore_random_state
from .configs import RunConfig
from .device import peak_memory
from .interrupt import Interrupted
from .measuring import RunningMeans, mean_measures, never, stream_sizes
from .metrics import MetricsLog, MetricsMark, Row
from .optim import build_optimizer, clip_gradients, learning_rate
from .placement import Placement
from .plan import make_plan, start_of
from .problem import Batch, Problem
from .progress import Progress
from .saved_state import check_state, names_of, optimizer_state
from .seeding import derive_seed
from .sharding import local
from .warm_start import take_weights, weights_named

NORM = "grad_norm"
"""Key of the gradient's norm before clipping, in rows: the mean over the steps of a span, by their examples."""
CHECK_LOSS_EVERY = 16
"""Steps between looks at the running loss; each look waits for the device."""


class Diverged(RuntimeError):
    """The loss is no longer a finite number, or a weight."""


class _Pass(NamedTuple):
    """A forward and backward pass.

    Attributes:
        means: of the loss and the metrics.
        examples: how many of them they are over.
        share: of its loss in that of the step.
    """

    means: dict[str, Tensor]
    examples: int
    share: float | Tensor


class Trainer:
    """Trains ``problem.model`` from a seed; holds everything that a checkpoint must hold.

    Args:
        problem: model, data and loss; the model is on its device already.
        config: its optimiser, its loop, and the seed of the order of the examples and of dropout.
        placement: of the model in the processes that train it; None: whole in this one.
        checkpoints: where checkpoints go; None writes none.
        progress: what is shown.
        stop: looked at between steps; when true in any process, a checkpoint is written and :class:`Interrupted`
            raised.

    Attributes:
        epoch: spans of the plan that are done, epochs or stretches of steps, see :mod:`.plan`.
        step: optimiser steps that are done.
        measured: rows of the spans after which all sets were measured: ``epoch``, ``step`` and ``<set>_<metric>``.
        watched: likewise, of those after which the watched sets were evaluated, before a branch too.
        jump: sentence on the learning rate, if it does not go on as in the run whose checkpoint this one goes on from.
        metrics_mark: length and checksum of the log at the checkpoint that training continues from, None without one.
    """

    def __init__(
        self,
        problem: Problem,
        config: RunConfig,
        *,
        placement: Placement | None = None,
        checkpoints: Checkpoints | None = None,
        progress: Progress | None = None,
        stop: Callable[[], bool] = never,
    ) -> None:
        self.problem, self.config = problem, config
        self.placement = placement or Placement(problem.model)
        self.workers = self.placement.workers
        self.device = next(problem.model.parameters()).device
        self.checkpoints = checkpoints
        self.stop = lambda: self.workers.any(stop())
        self.progress = progress or Progress()
        self.optimizer = build_optimizer(problem.model, config.optim, problem.factors)
        self.plan = make_plan(config, problem)
        self.epoch = self.step = 0
        self.seconds = 0.0
        self.metrics_mark: MetricsMark | None = None
        self.jump: str | None = None
        self.measured: list[dict[str, float]] = []
        self.watched: list[dict[str, float]] = []
        self._running = RunningMeans()
        self._log: MetricsLog | None = None
        self._callbacks: Callbacks | None = None
        self._parts: PartsWriter | None = None
        self._resumed = self._borrowed = False

    def resume(self) -> bool:
        """Continue from the newest checkpoint, or else that of another run which is to go on; False without either.

        Raises:
            ValueError, FileNotFoundError: naming the file and the way out, if it is damaged or of another run; nothing
                is changed then.
        """
        if self.checkpoints is None:
            return False
        given = self.config.loop.continue_from
        source = Path(given) if given is not None and self.checkpoints.latest() is None else None

        def fit(state: dict[str, Any]) -> None:
            if source is not None:
                rebase(state, self.plan, self.optimizer)
            check_state(state, self.plan, self.optimizer, self.device, own=source is None)

        how = {"optimizer": self.optimizer, "workers": self.workers, "source": source}
        state = self.checkpoints.load(self.problem.model, fit, **how)
        if state is None:
            return False
        self._load_state(state)
        self._resumed, self._borrowed = True, source is not None
        self.jump = rate_jump(state, self.config.optim, self.plan) if self._borrowed else None
        return True

    def fit(self, log: MetricsLog | None = None, callbacks: Callbacks | None = None) -> dict[str, float]:
        """Train to the end, then evaluate every set. One row a span of the plan goes to ``log``, and ``callbacks``
        are told.

        Afterwards the model has the average of its weights, if there is one.

        Returns:
            ``{"<set>_<metric>": mean}`` for every evaluation set.

        Raises:
            Interrupted: after a checkpoint, if ``stop()`` became true.
            Diverged: if the loss, a weight or the loss of an evaluation set is no longer finite.
        """
        self._log, self._callbacks = log, callbacks
        if not self._resumed and (given := self.config.loop.weights_from) is not None:
            with self.workers.first_first():  # which may download them
                weights = weights_named(given)
            take_weights(self.problem.model, weights)
            self._borrowed = True
        if self.step == 0:
            torch.manual_seed(derive_seed(self.config.seed, "dropout"))
        self.progress.start(self.plan, self.step)
        final = None
        try:
            if self._borrowed:  # what it came from may go away
                self._save()
                self._finish_saving()
            while self.epoch < self.plan.spans and not self.ended_early:
                self._train_epoch()
                self._end_epoch()
            self.progress.close()
            self._check_weights()
            self._finish_saving()
            final = self._checked(self.evaluate(tuple(self.problem.evaluation)))
            exchange_average(self.optimizer)
            return final
        except Interrupted:
            self._save()
            self._finish_saving()
            raise
        except Diverged:
            self._finish_saving()  # what was right when it was begun
            raise
        finally:
            self.progress.close()
            self._tell("on_end", final)

    def _tell(self, method: str, argument: Any) -> None:
        """Call a method of all callbacks."""
        if self._callbacks:
            view = self._callbacks.view
            view.step, view.total_steps, view.means = self.step, self.plan.total_steps, self._running.means
            view.model = None if self.placement.is_shared else self.problem.model
            self._callbacks.call(method, argument)

    def evaluate(self, names: tuple[str, ...]) -> dict[str, float]:
        """Means over the evaluation sets ``names``, as ``{"<set>_<metric>": mean}``, of the average of the weights."""
        problem, results = self.problem, {}
        how = {"batch_size": self.config.loop.eval_batch_size, "stop": self.stop, "placement": self.placement}
        with averaged(self.optimizer):
            for name in names:
                examples = problem.evaluation[name]
                means = mean_measures(problem.model, examples, problem.loss, weights=problem.weights, **how)
                results.update({f"{name}_{metric}": value for metric, value in means.items()})
        return results

    def _train_epoch(self) -> None:
        """Take the steps of this epoch that are left."""
        self.problem.model.train()
        batches = self.plan.batches(self.epoch)
        for indices in batches[self.step - self.plan.first_step(self.epoch) :]:
            if self.stop():
                raise Interrupted
            started = time.perf_counter()
            self.train_step(indices)
            self.seconds += time.perf_counter() - started
            self.progress.step(epoch=self.epoch, numbers=self._means)
            if self.step < self.plan.first_step(self.epoch + 1):  # the last one has a row, which is yet to come
                self._tell("on_step", None)
            if self._parts is not None:
                self._parts.look()
            if self.step % CHECK_LOSS_EVERY == 0:
                self._check_loss()

    def train_step(self, indices: Tensor) -> None:
        """One optimiser step on the examples at ``indices``; its gradient is added up over micro-batches and processes.

        Several processes have masks of dropout that follow from seed, step and process, so no state of theirs is saved.
        """
        if self.workers.size > 1:
            torch.manual_seed(derive_seed(self.config.seed, "dropout", self.workers.rank, self.step))
        rate = learning_rate(self.config.optim, self.step, self.plan.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr_scale"] * rate
        self.optimizer.zero_grad(set_to_none=True)
        passes = self._add_gradients(indices)
        norm = clip_gradients(self.problem.model, self.config.optim.grad_clip)
        self.optimizer.step()
        self.step += 1
        update_average(self.optimizer, self.step)
        self._note(passes, len(indices))
        self._running.add_sums({NORM: norm.double() * len(indices)}, 0)

    def _add_gradients(self, indices: Tensor) -> list[_Pass]:
        """Add the gradients of the mean loss of a step, in the passes of this process."""
        problem, placement = self.problem, self.placement
        parts = placement.parts(indices, self.plan.micro_batch_size)
        batches: Iterable[Batch] = (problem.train.batch(part.indices) for part in parts)
        shares: list[Any] = [part.examples / len(indices) / placement.sharing for part in parts]
        if problem.weigh is not None and len(parts) * self.workers.size > 1:
            batches = list(batches)
            weights = [problem.weigh(batch) * bool(part.examples) for batch, part in zip(batches, parts, strict=True)]
            total = self.workers.sum(torch.stack(weights).double().sum())
            shares = [weight / total.where(total != 0, 1.0) for weight in weights]  # 0 if nothing is scored
        passes = []
        for part, batch, share in zip(parts, batches, shares, strict=True):
            with placement.passing(last=len(passes) == len(parts) - 1):
                loss, metrics = problem.step_loss(placement.called, batch)
                placement.backward(loss, share)
            passes.append(_Pass({"loss": loss.detach(), **metrics}, part.examples, share))
        return passes

    def _note(self, passes: list[_Pass], n: int) -> None:
        """Add the loss and the metrics of a step of ``n`` examples to the running means, the same in all processes."""
        if self.workers.size == 1 and (self.problem.weigh is None or len(passes) == 1):
            for done in passes:
                self._running.add(done.means, done.examples)
            return
        step = RunningMeans()
        for done in passes:
            metrics = dict(done.means)
            loss = metrics.pop("loss").double()
            step.add_sums({"loss": loss * done.share * n}, 0)
            step.add(metrics, done.examples)
        self._running.add_sums(step.gathered(self.workers, n).sums, n)

    def _end_epoch(self) -> None:
        """Evaluate if it is time, write the row, move on to the next epoch and save if it is time.

        The position moves on only after the row is written: a stop during the evaluation repeats the evaluation.
        """
        self._check_loss()
        span, plan = self.epoch, self.plan
        rate = learning_rate(self.config.optim, self.step - 1, plan.total_steps)
        row: Row = {plan.unit: span + 1, "step": self.step, "lr": rate}
        means = self._means()
        norm = {NORM: means.pop(NORM)} if NORM in means else {}
        row.update({f"train_{name}": value for name, value in means.items()} | norm)
        if self.config.loop.activation_stats:
            row.update(self._stream_sizes())
        if plan.measures(span):
            means = self.evaluate(tuple(self.problem.evaluation))
            self.measured.append({plan.unit: span + 1, "step": self.step, **means})
            row.update(means)
        elif plan.evaluates(span):
            means = self.evaluate(self.problem.watched)
            self.watched.append({plan.unit: span + 1, "step": self.step, **means})
            row.update(means)
        row["seconds"] = self.seconds
        row["peak_memory_bytes"] = max(self.workers.gather(peak_memory(self.device) or 0)) or None
        row.update(self.problem.derive({**row, "processes": self.workers.size}))
        if self._log is not None:
            self._log.log(row)
        self.progress.row(row)
        self._tell("on_step", row)
        if self._callbacks and (plan.measures(span) or plan.evaluates(span)):
            with averaged(self.optimizer):
                self._tell("on_evaluation", row)
        self.epoch = span + 1
        self._running = RunningMeans()
        if plan.saves(span) or (self.best is not None and self.best["step"] == self.step):
            self._save()

    def _stream_sizes(self) -> dict[str, float]:
        """Sizes of the residual stream, by block, in the first pass of the last step."""
        indices = self.plan.batches(self.epoch)[-1]
        part = self.placement.parts(indices, self.plan.micro_batch_size)[0]
        problem = self.problem
        return stream_sizes(problem.model, problem.train.batch(part.indices), problem.loss, self.placement)

    @property
    def best(self) -> dict[str, float] | None:
        """The evaluation with the lowest loss so far, a number if any is, if ``loop.stop_patience`` asks for it."""
        evaluations = self._evaluations()
        loss = lambda row: row[f"{self.problem.watched[0]}_loss"]  # noqa: E731
        return min(evaluations, key=lambda row: (math.isnan(loss(row)), loss(row)), default=None)

    @property
    def ended_early(self) -> bool:
        """Whether so many evaluations as ``loop.stop_patience`` says have brought no lower loss."""
        evaluations = self._evaluations()
        since = len(evaluations) - evaluations.index(self.best) - 1 if self.best is not None else 0
        return since >= (self.config.loop.stop_patience or math.inf)

    def _evaluations(self) -> list[dict[str, float]]:
        if self.config.loop.stop_patience is None:
            return []
        own = [row for row in (*self.watched, *self.measured) if row["step"] > start_of(self.config.loop.continue_from)]
        return sorted(own, key=lambda row: row["step"])

    def _means(self) -> dict[str, float]:
        """This epoch's means so far; waiting for the device, which steps may not have done, is part of training."""
        started = time.perf_counter()
        means = self._running.means()
        self.seconds += time.perf_counter() - started
        return means

    def _check_loss(self) -> None:
        loss = self._means().get("loss", 0.0)
        if not math.isfinite(loss):
            raise self._diverged(f"the loss became {loss}")

    def _check_weights(self) -> None:
        """Those of this process; a step whose loss was finite may have spoilt them."""
        parameters = (local(parameter.detach()) for parameter in self.problem.model.parameters())
        if self.workers.any(not all(bool(parameter.isfinite().all()) for parameter in parameters)):
            raise self._diverged("weights became infinite or NaN")

    def _checked(self, means: dict[str, float]) -> dict[str, float]:
        """Means over evaluation sets, whose losses are finite: weights may be so large that no output is."""
        for name in self.problem.evaluation:
            if not math.isfinite(loss := means[f"{name}_loss"]):
                raise self._diverged(f"the loss on {name} became {loss}")
        return means

    def _diverged(self, what: str) -> Diverged:
        epoch = self.epoch + (self.step > self.plan.first_step(self.epoch))  # that of the last step
        place = f"epoch {epoch} (step {self.step})" if self.plan.unit == "epoch" else f"step {self.step}"
        return Diverged(f"{what} in {place}: try a smaller optim.lr (now {self.config.optim.lr}) or optim.grad_clip")

    def _save(self) -> None:
        """Write a checkpoint, in the first process; all put together what they have parts of."""
        if self.checkpoints is None:
            return
        self._check_loss()
        self._check_weights()
        self.checkpoints.milestones = self.plan.milestones | ({int(self.best["step"])} if self.best else set())
        if self.placement.saves_parts:
            if self._parts is None:
                self._parts = PartsWriter(self.checkpoints, self.workers)
            position = (self.epoch, self.step, self.plan.unit)
            self._parts.begin(position, self.problem.model, self.optimizer, self._state)
            return
        weights, optimizer = self.placement.weights(), self.placement.values(self.optimizer.state_dict())
        if self.workers.first:
            state = self._state(optimizer)
            self.checkpoints.save(self.epoch, self.step, weights, state, unit=self.plan.unit)
        self.workers.barrier()

    def _finish_saving(self) -> None:
        """Wait until a checkpoint that was begun is there."""
        if self._parts is not None:
            self._parts.finish()

    def _state(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        """Everything that a checkpoint holds beside weights."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "seconds": self.seconds,
            "sums": {name: total.cpu() for name, total in self._running.sums.items()},
            "count": self._running.count,
            "optimizer": optimizer,
            "names": names_of(self.problem.model, self.optimizer),
            "random": random_state(self.device),
            "metrics": None if self._log is None else self._log.mark(),
            "measured": list(self.measured),
            "watched": list(self.watched),
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        self.epoch, self.step, self.seconds = state["epoch"], state["step"], state["seconds"]
        self._running = RunningMeans()
        self._running.sums = {name: total.detach().to(self.device) for name, total in state["sums"].items()}
        self._running.count = state["count"]
        if self._running.count:  # older versions kept no norm: it is not known of the whole span
            self._running.sums.setdefault(NORM, torch.tensor(math.nan, dtype=torch.float64, device=self.device))
        self.metrics_mark = state.get("metrics")
        self.measured = list(state.get("measured", []))
        self.watched = list(state.get("watched", []))
        self.optimizer.load_state_dict(optimizer_state(state["optimizer"], self.optimizer))
        restore_random_state(state["random"], self.device)
