"""Language models whose heads are rivals of relational attention."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from dual_attention._layers.cache import Cache
from dual_attention._models.config import DecoderLanguageConfig
from dual_attention._models.stack import BlockInputs
from dual_attention.language_models import LanguageModel
from dual_attention.language_presets import LanguageModelConfig

from ..heads import HeadsBlock, RivalName, multiplied_projections, rival_heads


@dataclass(frozen=True, kw_only=True)
class HeadsModelConfig(LanguageModelConfig):
    """All that builds a language model with heads of a rival: the arguments of a Transformer, and their name."""

    heads: RivalName
    """Heads of a rival in place of self-attention."""

    def build(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
        return HeadsLM(self, device=device, dtype=dtype)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "heads": self.heads}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HeadsModelConfig:
        rest = {name: value for name, value in values.items() if name != "heads"}
        return cls(heads=values["heads"], **vars(LanguageModelConfig.from_dict({"model": "transformer", **rest})))


class HeadsLM(LanguageModel):
    """A Transformer language model with other heads. Rotary positions and caches are for the library's heads only.

    Args:
        config: the heads, and the arguments of a :class:`~dual_attention.language_models.TransformerLM`.
        device, dtype: as there.

    Raises:
        ValueError: if ``pos_enc_type`` is ``"RoPE"``.
    """

    def __init__(
        self, config: HeadsModelConfig, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        self.kind: RivalName = config.heads
        if config.pos_enc_type == "RoPE":
            raise ValueError(f"pos_enc_type: expected 'pos_emb' or 'none' with {config.heads} heads, got 'RoPE'")
        with nullcontext() if device is None else torch.device(device):
            super().__init__(config)
        self.update_symbols_each_layer = self.kind != "value_residual"
        self._finish(dtype)

    def _create_block(self, config: DecoderLanguageConfig, layer: int) -> HeadsBlock:
        heads = rival_heads(self.kind, config.d_model, config.n_heads or 0, layer, config.dropout_rate)
        takes_values = self.kind == "value_residual" and layer > 1
        return HeadsBlock(heads, config, takes_symbols=takes_values, causal=True)

    def init_weights(self) -> None:
        """Draw all parameters anew, as of other language models; maps that are multiplied are PyTorch's."""
        super().init_weights()
        for projection in multiplied_projections(self):
            projection.reset_parameters()

    def _retrieve(self, number: int, x: Tensor, inputs: BlockInputs, cache: Cache | None) -> Tensor | None:
        return self.layers.blocks[0].values(x) if self.kind == "value_residual" else None

    def new_cache(self, max_length: int | None = None) -> NoReturn:
        """Refuse: heads of the toolbox keep nothing of earlier tokens."""
        raise ValueError(f"cache: {self.kind} heads keep none; decode with use_cache=False")

    def flops_per_token(self, length: int | None = None) -> NoReturn:
        """Refuse: only the library's own heads are counted."""
        raise ValueError(f"flops_per_token: {self.kind} heads are not counted; dat.estimate counts their operations")
