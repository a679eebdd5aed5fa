"""transformers' own tests of a model and of its generation, run on ours; see docs/transformers-tests.md."""

import unittest
from typing import Any

import pytest
import torch

from dual_attention.hf import (
    DualAttnForCausalLM,
    DualAttnForImageClassification,
    DualAttnForMaskedLM,
    DualAttnForSequenceClassification,
)
from tests.library.hf.models import config, encoder_config, tokens, vision_config
from tests.support.transformers_tests import expect_known_failures, needs, theirs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
needs("test_modeling_common.py")
common = theirs("test_modeling_common")


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

    def _check_past_key_values_for_generate(
        self, batch_size: int, past_key_values: Any, seq_length: int, config: Any
    ) -> None:
        """As theirs, which looks for keys and values of each layer: all is in one layer here."""
        self.assertEqual((past_key_values.cache.batch, past_key_values.get_seq_length()), (batch_size, seq_length))


class TestEncoder(_Suite, common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (DualAttnForMaskedLM, DualAttnForSequenceClassification)
    made = staticmethod(lambda: encoder_config(vocab_size=99, max_block_size=64))


def without_gradients(suite: Any, *names: str) -> None:
    """Have tests run so, in which the models return a cache: with gradients, these would skip themselves."""
    for name in names:
        if hasattr(suite, name):
            setattr(suite, name, torch.no_grad()(getattr(suite, name)))


class TestVision(_Suite, common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (DualAttnForImageClassification,)
    made = staticmethod(vision_config)
    sizes = SizesOfImages
    test_resize_embeddings = False


without_gradients(
    TestCausal,
    "test_past_key_values_format",
    "test_generate_continue_from_past_key_values",
    "test_generate_continue_from_inputs_embeds",
)
expect_known_failures(globals())
