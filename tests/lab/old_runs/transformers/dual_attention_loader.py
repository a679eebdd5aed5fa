"""The classes of this checkpoint: pip install "dual-attention[hf]"."""

from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM, DualAttnLMForSequenceClassification, DualAttnModel

__all__ = ["DualAttnConfig", "DualAttnForCausalLM", "DualAttnLMForSequenceClassification", "DualAttnModel"]
