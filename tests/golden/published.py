"""The published package `dual-attention==0.0.7`, and what has to be changed in it to be called at all."""

import contextlib
import importlib
import importlib.metadata
import sys
import unittest.mock
from pathlib import Path

import torch

PUBLISHED = "0.0.7"


def require_published():
    """Refuse to run against anything but the published release: goldens of our own code would prove nothing."""
    try:
        distribution = importlib.metadata.distribution("dual-attention")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"dual-attention is not installed here; install dual-attention=={PUBLISHED} (see README.md)")
    if distribution.version != PUBLISHED:
        sys.exit(
            f"the golden files come from dual-attention=={PUBLISHED}, but {distribution.version} is installed here"
        )
    imported = Path(str(importlib.import_module("dual_attention").__file__)).resolve()
    installed = Path(str(distribution.locate_file("dual_attention/__init__.py"))).resolve()
    if imported != installed:
        sys.exit(f"`import dual_attention` finds {imported}, not the installed release {installed}")


def supply_missing_name():
    """Let the two relational cross-attention classes be built at all.

    They call `model_utils.get_activation_function`, but the published module never imports `model_utils`, so their
    constructors raise NameError. With the name present their formulas are what the authors wrote.
    """
    relational = importlib.import_module("dual_attention.relational_attention")
    vars(relational)["model_utils"] = importlib.import_module("dual_attention.model_utils")


@contextlib.contextmanager
def float64_kept():
    """Make `Tensor.float()` leave float64 alone.

    The published rotary embedding and RMSNorm call `.float()`, which is meant to raise half precision to float32 but
    lowers float64 to it. Goldens through them would be good to 1e-7 only.
    """
    original = torch.Tensor.float

    def float_unless_double(self, *args, **kwargs):
        return self if self.dtype == torch.float64 else original(self, *args, **kwargs)

    with unittest.mock.patch.object(torch.Tensor, "float", float_unless_double):
        yield
