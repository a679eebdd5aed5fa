"""Registration of our model types with the Auto classes of transformers."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from .causal_lm import DualAttnForCausalLM
from .configuration import DualAttnConfig
from .encoders import DualAttnEncoderModel, DualAttnForMaskedLM, DualAttnForSequenceClassification
from .language import DualAttnLMForSequenceClassification, DualAttnModel
from .vision import DualAttnForImageClassification, DualAttnVisionBackbone, DualAttnVisionModel


def register_auto_classes() -> None:
    """Let ``AutoConfig``, ``AutoModelForCausalLM`` and the others know the models of this library.

    >>> from transformers import AutoConfig
    >>> register_auto_classes()
    >>> type(AutoConfig.for_model("dual_attn", vocab_size=50)).__name__
    'DualAttnConfig'
    """
    language = DualAttnModel, DualAttnForCausalLM, DualAttnLMForSequenceClassification
    encoders = DualAttnEncoderModel, DualAttnForMaskedLM, DualAttnForSequenceClassification
    vision = DualAttnVisionModel, DualAttnVisionBackbone, DualAttnForImageClassification
    for model in (*language, *encoders, *vision):
        config: Any = model.config_class
        transformers.AutoConfig.register(config.model_type, config, exist_ok=True)
        getattr(transformers, model.default_auto_class).register(config, model, exist_ok=True)
    # From this table, not from the registration, the Trainer knows to shift labels under label smoothing, and the
    # pipeline of text generation knows which models it supports.
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[DualAttnConfig.model_type] = DualAttnForCausalLM.__name__
    _register_with_exporter()


@cache
def _register_with_exporter() -> None:
    """Have transformers' exporter to ONNX write relational attention out, once: ONNX does not know the operation.

    It traces with ``torch.export`` first and converts the program afterwards, so that only it knows where it goes.
    """
    asking = "dual_attention.functional.relational.choice", "dual_attention.functional.relational.whole"
    with suppress(ImportError):  # of another version of transformers
        from transformers.exporters.utils import register_patch

        register_patch("onnx", *(f"{module}.leaves_pytorch" for module in asking))(lambda original: lambda: True)
