"""Base of the models for transformers, which own a model of this library as ``self.model``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.initialization import guard_torch_init_functions

from ..dual_attention import DualAttentionOutput
from ..functional.rotary import rotary_tables
from ..positional_encoding import RotaryPositionalEncoding, sinusoidal_table
from ..symbol_retrieval import PositionalSymbolRetriever
from .configuration import ModelConfig
from .remote import WritesLoader
from .weights import shared_names

__all__ = ["OwnsModel", "padding_mask_from", "relations_of", "token_ids", "traced_fields"]


class OwnsModel(WritesLoader, PreTrainedModel):
    """A model of this library for transformers.

    ``attn_implementation="sdpa"``, the default, computes attention as this library does: fused, or by the
    fastest form for the sizes at hand. ``"eager"`` builds attention weights and relations as well.

    Args:
        config: its ``build`` makes the model.
        model: an existing one of that configuration, used as it is.
    """

    config: ModelConfig
    config_class = ModelConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    default_auto_class = "AutoModel"

    def __init__(self, config: ModelConfig, model: nn.Module | None = None) -> None:
        super().__init__(config)
        self._no_split_modules = {"EncoderBlock", "DualAttnEncoderBlock"}
        self._skip_keys_device_placement = {"past_key_values"}
        self.model: Any = self._build() if model is None else model
        self._drawn = not any(parameter.is_meta for parameter in self.model.parameters())
        # Of a tensor with several names safetensors keeps one; loading ties the others to it. An embedding comes first,
        # since it is the embedding that is resized.
        self._tied_weights_keys = {}
        for names in shared_names(self.model):
            kept, *others = sorted(names, key=lambda name: "embedder" not in name)
            self._tied_weights_keys |= {f"model.{name}": f"model.{kept}" for name in others}
        self.post_init()

    def _build(self) -> nn.Module:
        return self.config.build()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Name of a tied parameter -> the one it is tied to; not only embeddings, and whatever the config says."""
        return dict(self._tied_weights_keys or {})

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Draw initial weights as the model itself does, where no checkpoint gave any."""
        if self._drawn:  # by the constructor of the model
            return
        with guard_torch_init_functions():
            self._draw()
        fill_tables(self.model)

    def _draw(self) -> None:
        self.model.init_weights()

    @property
    def eager(self) -> bool:
        """Whether attention weights and relations are built."""
        return self.config._attn_implementation == "eager"

    def _traced(self, output_attentions: bool | None, output_hidden_states: bool | None) -> tuple[bool, bool, bool]:
        """Whether to return maps, whether to return states, and whether to build maps."""
        maps = bool(self.config.output_attentions if output_attentions is None else output_attentions)
        states = bool(self.config.output_hidden_states if output_hidden_states is None else output_hidden_states)
        traced = maps or states or self.eager
        if (
            traced
            and self.training
            and torch.is_grad_enabled()
            and getattr(self._body, "gradient_checkpointing", False)
        ):
            raise ValueError(
                "gradient checkpointing keeps no attention weights or hidden states: in training it needs "
                "attn_implementation='sdpa', output_attentions=False and output_hidden_states=False"
            )
        return maps, states, traced

    @property
    def _body(self) -> Any:
        """The module with the blocks."""
        return self.model


def token_ids(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """The token ids; a ``ValueError`` if embeddings are given, or neither."""
    if inputs_embeds is not None:
        raise ValueError("inputs_embeds: this model takes only token ids, as input_ids")
    if input_ids is None:
        raise ValueError("input_ids: expected token ids, got None")
    return input_ids


@torch.no_grad()
def fill_tables(model: nn.Module) -> None:
    """Compute the tables that no state dict holds, which loading leaves without values."""
    for module in model.modules():
        if isinstance(module, RotaryPositionalEncoding):
            device = module.freqs_cos.device
            tables = rotary_tables(module.dim, module.max_len, theta=module.theta, device=device)
            module.freqs_cos, module.freqs_sin = tables
        elif isinstance(module, PositionalSymbolRetriever) and module.sinusoidal:
            module.get_buffer("sinusoids").copy_(sinusoidal_table(module.max_length, module.symbol_dim))


def padding_mask_from(attention_mask: Tensor | None, x: Tensor | None, earlier: int = 0) -> Tensor | None:
    """Padding mask of this library, boolean ``(B, t + N)``, for tokens ``(B, N)`` after t earlier ones; None if nothing
    is padding.
    """
    if attention_mask is None or x is None:
        return None
    expected = (x.shape[0], earlier + x.shape[-1])
    if tuple(attention_mask.shape) != expected:
        raise ValueError(
            f"attention_mask: expected shape (batch, length) = {expected}, 1 = a real token, "
            f"got {tuple(attention_mask.shape)}"
        )
    padding_mask = attention_mask.bool()
    if torch.compiler.is_compiling() or not bool(padding_mask.all()):
        return padding_mask
    return None


def attentions_of(maps: tuple[Tensor | DualAttentionOutput, ...]) -> tuple[Tensor, ...]:
    """Attention weights of each block, ``(B, H, N, M)``; sensory heads first, then relational ones."""

    def weights(found: Tensor | DualAttentionOutput) -> Tensor:
        if isinstance(found, Tensor):
            return found
        kinds = [found.sa_weights, None if found.ra_maps is None else found.ra_maps[0]]
        return torch.cat([kind for kind in kinds if kind is not None], dim=1)

    return tuple(map(weights, maps))


def relations_of(maps: tuple[Tensor | DualAttentionOutput, ...]) -> tuple[Tensor, ...] | None:
    """Relations of each block, ``(B, N, M, R)``, or None if blocks have none."""
    found = [maps_of for maps_of in maps if isinstance(maps_of, DualAttentionOutput)]
    if not found or any(block.ra_maps is None or len(block.ra_maps) < 2 for block in found):
        return None
    return tuple(block.ra_maps[1] for block in found if block.ra_maps is not None)


def traced_fields(trace: Any, maps: bool, states: bool) -> dict[str, Any]:
    """Attention weights and hidden states of an output, as far as they are wanted.

    States are inputs of the blocks and, last, as transformers has it, the output of the model's last normalisation.
    """
    found: dict[str, Any] = {}
    if states:
        found["hidden_states"] = (*trace.states[:-1], trace.hidden)
    if maps:
        found["attentions"] = attentions_of(trace.maps)
    return found


def output_of(output: Any, return_dict: bool | None, config: Mapping[str, Any] | ModelConfig) -> Any:
    """The output itself, or as a tuple if requested."""
    wanted = getattr(config, "return_dict", True) if return_dict is None else return_dict
    return output if wanted else output.to_tuple()
