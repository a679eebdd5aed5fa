"""The device and number of threads that a configuration asks for."""

from __future__ import annotations

import torch

from .configs import MachineConfig


def prepare_device(config: MachineConfig) -> torch.device:
    """Set the number of threads and return the device."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise ValueError("machine.device: cuda was asked for, but PyTorch finds no CUDA GPU here")
    return torch.device("cuda" if available and config.device != "cpu" else "cpu")
