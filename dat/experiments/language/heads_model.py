"""Language models whose heads are rivals of relational attention."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn

from dual_attention.checkpoints.language import language_config
from dual_attention.language_models import LanguageModel
from dual_attention.language_presets import LanguageModelConfig
from dual_attention.transformer_blocks import EncoderBlock

from ..heads import RIVALS, HeadsOfTokens, RivalName, multiplied_projections


@dataclass(frozen=True, kw_only=True)
class HeadsModelConfig(LanguageModelConfig):
    """All that builds a language model with heads of a rival: the arguments of a Transformer, and their name."""

    heads: RivalName
    """Heads of a rival in place of self-attention."""

    def build(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
        return HeadsLM(self, device=device, dtype=dtype)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "heads": self.heads}


def saved_config(saved: Mapping[str, Any], *, source: str) -> LanguageModelConfig:
    """The configuration of a language model that a run wrote; errors as ``language_config``."""
    rest = {name: value for name, value in saved.items() if name != "heads"}
    config = language_config(rest, source=source)
    return HeadsModelConfig(heads=saved["heads"], **vars(config)) if "heads" in saved else config


class HeadsLM(LanguageModel):
    """A Transformer language model with other heads. Rotary positions and caches are for the library's heads only.

    Args:
        config: the heads, and the arguments of a :class:`~dual_attention.language_models.TransformerLM`.
        device, dtype: as there.

    Raises:
        ValueError: if ``pos_enc_type`` is ``"RoPE"``.
    """

    _block_kind = EncoderBlock

    def __init__(
        self, config: HeadsModelConfig, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        self.rival: RivalName = config.heads
        if config.pos_enc_type == "RoPE":
            raise ValueError(f"pos_enc_type: expected 'pos_emb' or 'none' with {config.heads} heads, got 'RoPE'")
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config)
        self._finish(dtype)

    def _create_block(self, config: Any, layer: int) -> nn.Module:
        block: Any = super()._create_block(config, layer)
        heads = RIVALS[self.rival](config.d_model, config.n_heads, layer)
        block.self_attn = HeadsOfTokens(self.rival, heads, config.dropout_rate)
        return block

    def init_weights(self) -> None:
        """Draw all parameters anew, as of other language models; maps that are multiplied are PyTorch's."""
        super().init_weights()
        for projection in multiplied_projections(self):
            projection.reset_parameters()

    def flops_per_token(self, length: int | None = None) -> NoReturn:
        """Refuse: only the library's own heads are counted."""
        raise ValueError(f"flops_per_token: {self.rival} heads are not counted; dat.estimate counts their operations")
