"""The optimiser and the learning rate of each step.

**Which parameters Muon trains.** The weights of linear layers in the blocks of a model and in its symbol retrievers:
matrices from one hidden width to another. All else is AdamW's: embeddings and what reads the input, output layers,
vectors, symbol libraries and templates, and W_r, which maps a few relations to the width of a head. A projection is one
matrix, whatever is packed in it: the queries, keys or values of all heads, or the queries or keys of all relations.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dual_attention.symbol_retrieval import RelationalSymbolicAttention, SymbolicAttention
from dual_attention.transformer_blocks import Block

from .average import DECAY
from .configs import OptimConfig
from .sharding import is_sharded, whole_norm


class Factors(NamedTuple):
    """Factors of one parameter, see :mod:`.mup`.

    Attributes:
        initial: of its initial values.
        adam, muon: of its learning rate by optimiser.
        eps: of what Adam's denominator gets added.
    """

    initial: float = 1.0
    adam: float = 1.0
    muon: float = 1.0
    eps: float = 1.0


def build_optimizer(
    model: nn.Module, config: OptimConfig, factors: Mapping[str, Factors] | None = None
) -> torch.optim.Optimizer:
    """The optimiser of all parameters that train.

    Adam and AdamW are one fused kernel, with a group of parameters for each weight decay. With Muon, its groups come
    first. Each group has a ``lr_scale``, its learning rate over that of the schedule.

    Args:
        factors: those of muP by the names of parameters; null: all 1.

    Raises:
        ValueError: naming the key of ``config`` that does not go with the model.
    """
    if factors is None and config.mup_base_width is not None:
        raise ValueError(f"optim.mup_base_width: expected null in this experiment, got {config.mup_base_width}")
    kind = {"adam": Adam, "adamw": AdamW, "muon": AdamW}[config.optimizer]
    matrices = hidden_matrices(model) if config.optimizer == "muon" else set()
    ours, others = (_groups(model, config, factors or {}, matrices, muon=muon) for muon in (True, False))
    of_others = {"lr": config.lr, "betas": config.betas, "fused": True}
    if config.optimizer != "muon":
        return kind(others, **of_others)
    if Muon is None:
        raise ValueError("optim.optimizer: expected adam or adamw with PyTorch before 2.9, got 'muon'")
    if not ours:
        name = type(model).__name__
        raise ValueError(f"optim.optimizer: expected adam or adamw with a {name}, which has no blocks, got 'muon'")
    of_ours = {"lr": config.lr, "momentum": config.muon_momentum, "adjust_lr_fn": "match_rms_adamw"}
    return MuonAndAdamW(Muon(ours, **of_ours), kind(others, **of_others))


def hidden_matrices(model: nn.Module) -> set[Tensor]:
    """Weights of the linear layers in blocks and symbol retrievers, those that train."""
    parts = (
        part for part in model.modules() if isinstance(part, Block | SymbolicAttention | RelationalSymbolicAttention)
    )
    layers = (layer for part in parts for layer in part.modules() if isinstance(layer, nn.Linear))
    return {layer.weight for layer in layers if layer.weight.requires_grad}


def _groups(
    model: nn.Module, config: OptimConfig, factors: Mapping[str, Factors], matrices: set[Tensor], *, muon: bool
) -> list[dict[str, Any]]:
    """Groups of the parameters that are Muon's, or of the others: those with weight decay first, each by its rate.

    Factors of muP leave the product of rate and weight decay as it is.
    """
    own = (config.muon_lr or config.lr) / config.lr if muon else 1.0
    found: dict[tuple[bool, float, float], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and (parameter in matrices) is muon:
            scale = factors.get(name, Factors())
            factor, eps = (scale.muon, 1.0) if muon else (scale.adam, scale.eps)
            found.setdefault((not config.decays(parameter), factor, eps), []).append(parameter)
    return [
        {
            "params": parameters,
            "weight_decay": 0.0 if spared else config.weight_decay / factor,
            "lr_scale": own * factor,
            **({} if muon else {"eps": eps * config.eps}),
            **({} if config.average_decay is None else {DECAY: config.average_decay}),
        }
        for (spared, factor, eps), parameters in sorted(found.items(), key=lambda item: item[0])
    ]


def _eager(kind: Any) -> Any:
    """The optimiser without the wrappers that keep ``torch.compile`` out of it: they import the compiler, for two
    seconds of every start."""
    methods = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in methods}
    return type(kind.__name__, (kind,), {**plain, "step": torch.no_grad()(inspect.unwrap(kind.step))})


Adam = _eager(torch.optim.Adam)
AdamW = _eager(torch.optim.AdamW)
Muon: Any = _eager(torch.optim.Muon) if hasattr(torch.optim, "Muon") else None  # since torch 2.9


class MuonAndAdamW(_eager(torch.optim.Optimizer)):
    """Muon and AdamW as one optimiser: one list of groups, Muon's first, and one state.

    Args:
        muon, adamw: the two, of different parameters of a model.
    """

    def __init__(self, muon: torch.optim.Optimizer, adamw: torch.optim.Optimizer) -> None:
        self.parts = muon, adamw
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Let the two have the groups and the state of this one."""
        first = 0
        for part in self.parts:
            end = first + len(part.param_groups)
            part.param_groups, part.state = self.param_groups[first:end], self.state
            first = end

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step of both; gradients are there already, so there is no ``closure``."""
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of both."""
        super().load_state_dict(state_dict)
        self._share()


def clip_gradients(model: nn.Module, largest: float | None) -> Tensor:
    """Clip the gradients of a model to a norm, of all of them together, unless it is None.

    Returns:
        Their norm before, a scalar that is the same in all processes.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if largest is None:
        return whole_norm(gradients)
    before = whole_norm(gradients) if any(map(is_sharded, gradients)) else None
    norm = nn.utils.clip_grad_norm_(model.parameters(), largest)
    return norm if before is None else before


def learning_rate(config: OptimConfig, step: int, total_steps: int) -> float:
    """Learning rate of optimiser step ``step`` (from 0) of ``total_steps``."""
    step -= step % config.held_steps
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    if config.schedule == "wsd":
        length = config.decay_steps or max(1, min(total_steps // 5, total_steps - config.warmup_steps))
        share = min(1.0, (total_steps - step) / length)
    else:
        length = config.cosine_steps or max(1, total_steps - config.warmup_steps)
        progress = (step - config.warmup_steps) / length
        share = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.lowest_lr + (config.lr - config.lowest_lr) * share
