"""transformers' own tests of a model, run on ours.

They are in the source distribution of the pinned version, and nowhere in the installed package::

    pip download --no-binary transformers --no-deps transformers==5.23.0 && tar xzf transformers-5.23.0.tar.gz
    TRANSFORMERS_SOURCE=$PWD/transformers-5.23.0 make pytest ARGS=tests/hf/test_transformers_suite.py

docs/transformers-tests.md says what is left out, and why.
"""

from __future__ import annotations

import importlib
import os
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dual_attention.hf import (
    DualAttnForCausalLM,
    DualAttnForImageClassification,
    DualAttnForMaskedLM,
    DualAttnForSequenceClassification,
)
from tests.hf.models import config, encoder_config, tokens, vision_config
from tests.support.documents import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SOURCE = Path(os.environ.get("TRANSFORMERS_SOURCE", "")) / "tests"
if "TRANSFORMERS_SOURCE" not in os.environ:
    pytest.skip("TRANSFORMERS_SOURCE names no unpacked source distribution", allow_module_level=True)
pytest.importorskip("parameterized", reason="parameterized is not installed")


def known_failures() -> dict[str, str]:
    """Names of tests that fail, ``class.test``, with their reasons, from the page about them."""
    page = (ROOT / "docs/transformers-tests.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ", 2) for line in page.splitlines() if line.startswith("| `")]
    return {f"{kind}.{name.strip('`')}": reason for name, kinds, reason in rows for kind in kinds.split(", ")}


def their_tests() -> Any:
    """The module of their common tests. What it imports beside itself is not distributed, and stands empty here."""
    package = "transformers_tests"
    empty = {
        "exporters": {},
        "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
        "generation": {},
        "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    }
    parent = ModuleType(package)
    parent.__path__ = [str(SOURCE)]
    sys.modules[package] = parent
    for name, contents in empty.items():
        module = sys.modules[f"{package}.{name}"] = ModuleType(f"{package}.{name}")
        vars(module).update(contents)
    return importlib.import_module(f"{package}.test_modeling_common")


common = their_tests()


class Sizes:
    """Sizes and inputs of a model, as their tests ask for them."""

    batch_size, seq_length, num_hidden_layers, num_attention_heads, hidden_size = 3, 7, 2, 4, 16
    is_training = True

    def __init__(self, made: Any) -> None:
        self.made = made

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, torch.Tensor]]:
        made = self.made()
        if hasattr(made, "image_shape"):
            return made, {"pixel_values": torch.rand(3, 3, 12, 8)}
        x = tokens(self.batch_size, self.seq_length)
        return made, {"input_ids": x, "attention_mask": torch.ones_like(x)}


class SizesOfImages(Sizes):
    seq_length = 7  # a class token and six patches


class _Suite:
    test_resize_embeddings = True
    has_attentions = True
    made: Any = None
    sizes = Sizes

    def setUp(self) -> None:
        self.model_tester = self.sizes(type(self).made)
        # Their tests make labels for the classes that these tables name; our classes are registered with others.
        for table, kind in (
            (common.MODEL_FOR_MASKED_LM_MAPPING_NAMES, DualAttnForMaskedLM),
            (common.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, DualAttnForSequenceClassification),
            (common.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, DualAttnForImageClassification),
        ):
            table[kind.config_class.model_type] = kind.__name__


class TestCausal(_Suite, common.ModelTesterMixin, common.GenerationTesterMixin, unittest.TestCase):
    all_model_classes = (DualAttnForCausalLM,)
    made = staticmethod(lambda: config(vocab_size=99, max_block_size=64))


class TestEncoder(_Suite, common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (DualAttnForMaskedLM, DualAttnForSequenceClassification)
    made = staticmethod(lambda: encoder_config(vocab_size=99, max_block_size=64))


class TestVision(_Suite, common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (DualAttnForImageClassification,)
    made = staticmethod(vision_config)
    sizes = SizesOfImages
    test_resize_embeddings = False


def expect_known_failures() -> None:
    """Skip them: whoever repairs one takes it off the page."""
    for place, reason in known_failures().items():
        suite, name = place.split(".")
        setattr(globals()[suite], name, pytest.mark.skip(reason=reason)(getattr(globals()[suite], name)))


expect_known_failures()
