"""The optimiser and the learning rate of each step."""

from __future__ import annotations

import math

import torch
from torch import nn

from .configs import OptimConfig


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """Adam or AdamW over all parameters that train, with weight decay and without, as one fused kernel."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": group, "weight_decay": config.weight_decay if decays else 0.0}
        for decays in (True, False)
        if (group := [parameter for parameter in trained if config.decays(parameter) is decays])
    ]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def learning_rate(config: OptimConfig, step: int, total_steps: int) -> float:
    """Learning rate of optimiser step ``step`` (from 0) of ``total_steps``."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    progress = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    share = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.lowest_lr + (config.lr - config.lowest_lr) * share
