"""The device and number of threads that a configuration asks for."""

import os
import sys

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


def check_memory(argument: str, what: str, size: int, device: torch.device | str = "cpu") -> None:
    """Raise ``ValueError`` if something cannot be held, whatever else is there.

    Args:
        what: it takes that memory, in words.
        size: bytes.
    """
    held = memory_of(torch.device(device))
    if held is not None and size > held:
        gib = 1 << 30
        raise ValueError(
            f"{argument}: {what} take {size / gib:,.1f} GiB, more than the {held / gib:,.1f} GiB of this "
            f"{'GPU' if torch.device(device).type == 'cuda' else 'machine'}"
        )


def peak_memory(device: torch.device) -> int | None:
    """Most bytes that this process has held: in tensors on a GPU, otherwise resident; None where that is not known."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return None
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory of a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
