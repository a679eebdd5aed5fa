"""Base of the models for transformers, which own a model of this library as ``self.model``."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.initialization import guard_torch_init_functions
from transformers.utils import GENERATION_CONFIG_NAME

from .._base.files import read_json_object
from .._layers.calls import TypedModule
from .._models.weights import LoadsTied, ignored_weights, shared_names
from ..checkpoints.files import CONFIG, folder_of
from ..checkpoints.weights import read_index, read_weights
from ..dual_attention import DualAttentionOutput
from ..functional.checks import MaybeNone
from ..positional_encoding import RotaryPositionalEncoding
from ..symbol_retrieval import PositionalSymbolRetriever
from ..transformer_blocks import EncoderSteps
from .configuration import ModelConfig
from .remote import WritesLoader

if TYPE_CHECKING:
    from transformers.utils.generic import ModelOutput
    from typing_extensions import Self

    class TypedOutput(ModelOutput):
        """Outputs of transformers, as type checkers see them."""

        loss: Tensor | MaybeNone
        logits: Tensor | MaybeNone
        last_hidden_state: Tensor | MaybeNone
        feature_maps: tuple[Tensor, ...] | MaybeNone
        hidden_states: tuple[Tensor, ...] | MaybeNone
        attentions: tuple[Tensor, ...] | MaybeNone


class OwnsModel(WritesLoader, LoadsTied, TypedModule, PreTrainedModel):
    """A model of this library for transformers.

    ``attn_implementation="sdpa"``, the default, computes attention as this library does: fused, or by the
    fastest form for the sizes at hand. ``"eager"`` builds attention weights and relations as well.

    Args:
        config: its ``build`` makes the model.
        model: an existing one of that configuration, used as it is.
    """

    config: ModelConfig
    config_class = ModelConfig
    base_model_prefix = "backbone"  # not "model", which is no model of transformers
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    default_auto_class = "AutoModel"

    def __init__(self, config: ModelConfig, model: nn.Module | None = None) -> None:
        super().__init__(config)
        self._skip_keys_device_placement = {"cache", "past_key_values"}
        self.model: Any = self._build() if model is None else model
        # FSDP of accelerate and PEFT demands that every class it is told of occurs.
        self._no_split_modules = {
            type(part).__name__ for part in self.model.modules() if isinstance(part, EncoderSteps)
        }
        self._keys_to_ignore_on_load_unexpected = {
            *(self._keys_to_ignore_on_load_unexpected or ()),
            *(re.escape(f"model.{start}") for start in ignored_weights(self.model)),
        }
        self._add_head()
        self._drawn = not any(parameter.is_meta for parameter in self.model.parameters())
        # Of a tensor with several names safetensors keeps one; loading ties the others to it. An embedding comes first,
        # since it is the embedding that is resized.
        self._tied_weights_keys = {}
        for names in shared_names(self.model):
            kept, *others = sorted(names, key=lambda name: "embedder" not in name)
            self._tied_weights_keys |= {f"model.{name}": f"model.{kept}" for name in others}
        self.post_init()
        # Under accelerate's init_empty_weights a name that is assigned gets a parameter of its own: tie past that.
        for other, kept in self._tied_weights_keys.items():
            parent, _, name = other.rpartition(".")
            if name in self.get_submodule(parent)._parameters:
                self.get_submodule(parent)._parameters[name] = self.get_parameter(kept)

    def _build(self) -> nn.Module:
        return self.config.build()

    def _add_head(self) -> None:
        """Add the modules beside ``model``, with freshly drawn weights."""

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Name of a tied parameter -> the one it is tied to; not only embeddings, and whatever the config says."""
        return dict(self._tied_weights_keys or {})

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """``nn.Module.named_modules``; adapters call it first, when added or merged, so tied layers are untied."""
        if "model" in self._modules:
            self._untie_adapted(self.get_input_embeddings(), self.get_output_embeddings())
        return super().named_modules(*args, **kwargs)

    def _untie_adapted(self, *layers: Any) -> None:
        """Give embedding and output layer a matrix each, if they share one and an adapter of PEFT is around either.

        Merged into a matrix of both, an adapter would change both.
        """
        embedding, out = (getattr(layer, "base_layer", layer) for layer in layers)
        shared = getattr(embedding, "weight", None)
        if (embedding, out) == layers or shared is None or getattr(out, "weight", None) is not shared:
            return
        out.weight = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)
        self.config.tie_weights = self.model.tie_weights = False
        self._tied_weights_keys = {n: kept for n, kept in self._tied_weights_keys.items() if "token_emb" not in kept}
        self.all_tied_weights_keys = self.get_expanded_tied_weights_keys()
        warnings.warn(
            "an adapter is around the token embedding or the output layer, which were one matrix: they are two now, so "
            "that merging it changes only what it adapts",
            stacklevel=3,
        )

    def mark_tied_weights_as_initialized(self, loading_info: Any) -> None:
        """Called while a checkpoint is loaded: a tensor that it has under none of its names is missing, and is drawn.

        transformers marks tied parameters as loaded, and then takes those that are marked for present. Here all names
        of a tensor may be one parameter, so that none would be missing. Weights of parts of one's own, which no
        configuration tells of, are a ``ValueError``.
        """
        for name in sorted(loading_info.unexpected_keys):
            if ".part." in name:
                raise ValueError(
                    f"{name}: is of a part of your own, which has no such form; give a model its parts by with_parts, "
                    "then the state dict"
                )
        names: dict[str, list[str]] = {}
        for other, kept in self.all_tied_weights_keys.items():
            names.setdefault(kept, [kept]).append(other)
        absent = {name for group in names.values() if loading_info.missing_keys.issuperset(group) for name in group}
        super().mark_tied_weights_as_initialized(loading_info)
        for name in absent:
            parameter: Any = self.get_parameter(name)
            parameter._is_hf_initialized = False
        loading_info.missing_keys |= absent

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Draw initial weights as the model itself does, where no checkpoint gave any."""
        if self._drawn:  # by the constructor of the model
            return
        with guard_torch_init_functions():
            self._draw()
        for module in self.model.modules():  # tables are in no state dict, so loading gives them no values
            if isinstance(module, RotaryPositionalEncoding | PositionalSymbolRetriever):
                module.fill_tables()

    def _draw(self) -> None:
        self.model.init_weights()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Self:
        """As the method of transformers; a ``ValueError`` names a damaged file, and a ``RuntimeError`` a folder whose
        weights are of other sizes than its configuration's.
        """
        folder = folder_of(pretrained_model_name_or_path, **kwargs)
        if folder is not None:
            for path in folder.glob("*.index.json"):
                read_index(path)
            if (folder / GENERATION_CONFIG_NAME).is_file():
                read_json_object(folder / GENERATION_CONFIG_NAME)
            if kwargs.get("config") is None and (folder / CONFIG).is_file():
                kind: Any = cls.config_class
                kind.check_type(read_json_object(folder / CONFIG), folder / CONFIG)
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except SafetensorError as error:
            for path in () if folder is None else folder.glob("*.safetensors"):
                read_weights(path, meta=True)  # which names it
            raise ValueError(f"{pretrained_model_name_or_path}: damaged or incomplete weights ({error})") from error
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise RuntimeError(
                f"{pretrained_model_name_or_path}: weights of other sizes than the configuration's ({error})"
            ) from error

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        """Whether the layers call the attention functions of transformers, which are of queries, keys and values."""
        return False

    def set_attn_implementation(
        self, attn_implementation: str | Mapping[str, Any] | None, allow_all_kernels: bool = False
    ) -> None:
        """Set ``"eager"`` or ``"sdpa"``; others are a ``ValueError``. The second argument has no effect."""
        if isinstance(attn_implementation, Mapping):
            attn_implementation = attn_implementation.get("", self.config._attn_implementation)
        self.config._attn_implementation_internal = self._check_and_adjust_attn_implementation(attn_implementation)

    def _check_and_adjust_attn_implementation(self, attn_implementation: Any, *_: Any, **__: Any) -> str:
        if attn_implementation not in (None, "eager", "sdpa"):
            raise ValueError(
                "attn_implementation: expected 'eager' or 'sdpa', since these layers compute attention themselves, "
                f"got {attn_implementation!r}"
            )
        return attn_implementation or "sdpa"

    @property
    def eager(self) -> bool:
        """Whether attention weights and relations are built."""
        return self.config._attn_implementation == "eager"

    def _traced(self, output_attentions: bool | None, output_hidden_states: bool | None) -> tuple[bool, bool, bool]:
        """Whether to return maps, whether to return states, and whether to build maps."""
        maps = bool(self.config.output_attentions if output_attentions is None else output_attentions)
        states = bool(self.config.output_hidden_states if output_hidden_states is None else output_hidden_states)
        traced = maps or states or self.eager
        checkpointed = getattr(self._body, "gradient_checkpointing", False)
        if traced and checkpointed and self.training and torch.is_grad_enabled():
            raise ValueError(
                "gradient checkpointing keeps no attention weights or hidden states: in training it needs "
                "attn_implementation='sdpa', output_attentions=False and output_hidden_states=False"
            )
        return maps, states, traced

    @property
    def _body(self) -> Any:
        """The module with the blocks."""
        return self.model

    def _classified(
        self, output: Callable[..., Any], logits: Tensor, labels: Tensor | None, traced: dict[str, Any]
    ) -> Any:
        """The output of a classifier, with transformers' loss for ``config.problem_type`` if there are labels."""
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return output(loss=loss, logits=logits, **traced)


def backbone_of(owner: Any, kind: type[Any], model: nn.Module | None = None) -> Any:
    """A model of this kind that shares the blocks and the configuration of another, in the same mode; ``model`` is what
    it owns, by default what the other does."""
    found = owner.__dict__.get("_backbone")
    if found is None or found._body is not owner._body or found.config is not owner.config:
        found = kind(owner.config, owner.model if model is None else model)
        owner.__dict__["_backbone"] = found  # no submodule: everything in it is in this model already
    found.training = owner.training
    return found


def one_input(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """The token ids ``(B, N)`` or the embeddings ``(B, N, d)``; a ``ValueError`` if there are both or neither."""
    if (input_ids is None) == (inputs_embeds is None):
        got = "neither" if input_ids is None else "both"
        raise ValueError(f"input_ids, inputs_embeds: expected one of them, got {got}")
    tokens = inputs_embeds if input_ids is None else input_ids
    assert tokens is not None
    dims = 3 if input_ids is None else 2
    if tokens.dim() != dims:
        name, axes = ("inputs_embeds", "batch, length, width") if dims == 3 else ("input_ids", "batch, length")
        raise ValueError(f"{name}: expected shape ({axes}), got {tuple(tokens.shape)}")
    return tokens


@contextmanager
def fetched(module: nn.Module) -> Iterator[None]:
    """Context with a module's own parameters in memory: accelerate loads offloaded ones only for its ``forward``."""
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        yield
        return
    hook.pre_forward(module)
    try:
        yield
    finally:
        hook.post_forward(module, None)


def padding_mask_from(attention_mask: Tensor | None, x: Tensor, earlier: int = 0) -> Tensor | None:
    """Padding mask of this library, boolean ``(B, t + N)``, for tokens ``(B, N, ...)`` after t earlier ones; None if
    nothing is padding.
    """
    if attention_mask is None:
        return None
    expected = (x.shape[0], earlier + x.shape[1])
    if tuple(attention_mask.shape) != expected:
        raise ValueError(
            f"attention_mask: expected shape (batch, length) = {expected}, 1 = a real token, "
            f"got {tuple(attention_mask.shape)}"
        )
    padding_mask = attention_mask.bool()
    if torch.compiler.is_compiling() or not bool(padding_mask.all()):
        return padding_mask
    return None


def relations_of(maps: tuple[Tensor | DualAttentionOutput, ...]) -> tuple[Tensor, ...] | None:
    """Relations of each block, ``(B, N, M, R)`` (disentangled heads ``(B, H, N, M)``), or None if blocks have none."""
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
        weights = (block if isinstance(block, Tensor) else block.weights for block in trace.maps)
        found["attentions"] = tuple(of_block for of_block in weights if of_block is not None)
    return found


def output_of(output: Any, return_dict: bool | None, config: Mapping[str, Any] | ModelConfig) -> Any:
    """The output itself, or as a tuple if requested."""
    wanted = getattr(config, "return_dict", True) if return_dict is None else return_dict
    return output if wanted else output.to_tuple()
