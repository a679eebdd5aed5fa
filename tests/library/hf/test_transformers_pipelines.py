"""transformers' own tests of pipelines, run with our models; see docs/transformers-tests.md."""

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import pytest

from dual_attention.hf import (
    DualAttnEncoderModel,
    DualAttnForCausalLM,
    DualAttnForMaskedLM,
    DualAttnForSequenceClassification,
    DualAttnLMForSequenceClassification,
    DualAttnModel,
)
from tests.library.hf.models import byte_tokenizer, config, encoder_config
from tests.support.transformers_tests import expect_known_failures, needs, theirs

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
needs("test_pipeline_mixin.py", "pipelines")
LENGTH = 64
NAMES = {"bos_token": "<begin>", "eos_token": "<end>", "pad_token": "<pad>", "mask_token": "<mask>"}


def write_models(folder: Path) -> None:
    """Models with tokenizers where their tests look for them, and the table that says which there are."""
    table = {}
    for causal, kinds in (
        (True, (DualAttnModel, DualAttnForCausalLM, DualAttnLMForSequenceClassification)),
        (False, (DualAttnEncoderModel, DualAttnForMaskedLM, DualAttnForSequenceClassification)),
    ):
        tokens = byte_tokenizer(padding_side="left" if causal else "right", model_max_length=LENGTH, **NAMES)
        special: dict[str, Any] = {f"{n}_token_id": getattr(tokens, f"{n}_token_id") for n in ("bos", "eos", "pad")}
        made = (config if causal else encoder_config)(vocab_size=len(tokens), max_block_size=LENGTH, **special)
        for kind in kinds:
            place = folder / made.model_type / kind.__name__
            kind(made).save_pretrained(place)
            tokens.save_pretrained(place)
            table[kind.__name__] = {"tokenizer_classes": ["PreTrainedTokenizerFast"], "processor_classes": []}
    (folder / "reports").mkdir()
    (folder / "reports/tiny_model_summary.json").write_text(json.dumps(table))


def their_mixin() -> Any:
    """Their tests, which read the folder of models, and the table in it, when they are imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMERS_TINY_MODEL_PATH", FOLDER.name)
        return theirs("test_pipeline_mixin").PipelineTesterMixin


FOLDER = tempfile.TemporaryDirectory()  # for as long as this module
write_models(Path(FOLDER.name))
Mixin = their_mixin()


class TestCausalPipelines(Mixin, unittest.TestCase):
    pipeline_model_mapping = {  # noqa: RUF012 - as they have it
        "feature-extraction": DualAttnModel,
        "text-classification": DualAttnLMForSequenceClassification,
        "text-generation": DualAttnForCausalLM,
        "zero-shot": DualAttnLMForSequenceClassification,
    }


class TestEncoderPipelines(Mixin, unittest.TestCase):
    pipeline_model_mapping = {  # noqa: RUF012 - as they have it
        "feature-extraction": DualAttnEncoderModel,
        "fill-mask": DualAttnForMaskedLM,
        "text-classification": DualAttnForSequenceClassification,
        "zero-shot": DualAttnForSequenceClassification,
    }


expect_known_failures(globals())
