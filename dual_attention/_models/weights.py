"""Weights of models: their initial values, and one weight for an embedding and the output layer.

State dicts hold a tied weight under both of its names.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..positional_encoding import RelativePositionalEncoding
from ..relational_attention import RelationalAttention
from ..symbol_retrieval import SymbolicAttention
from ..transformer_blocks import RMSNorm

Model = TypeVar("Model", bound="TiesWeights")


class LoadsTied(nn.Module):
    """A module that takes a tied weight under one of its names only; it ties weights, or owns a model that does."""

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As any module's, but a tied weight may have one name only; unless ``strict``, the other one is told missing.

        ``safetensors.torch.load_model`` expects that. In a module of another kind torch's rules hold: a strict load
        wants both names.
        """
        owners = [module for module in self.modules() if isinstance(module, TiesWeights)]
        for owner in owners:
            owner._tells_missing = not strict
        try:
            return super().load_state_dict(state_dict, strict=strict, assign=assign)
        finally:
            for owner in owners:
                owner._tells_missing = True


class TiesWeights(LoadsTied):
    """A model in which parameters are one, and stay one where torch would make several of them."""

    tied_names: tuple[str, ...] = ()
    """Names of the embedding and the output weight. A state dict may hold either one, or both if they are equal."""
    _tells_missing = True

    @abstractmethod
    def _tie(self) -> None:
        """Let parameters that are one be one object."""

    def _keep_tied(self) -> None:
        """Tie now and after each ``load_state_dict``, which with ``assign=True`` gives each name its own parameter."""
        self._tie()
        self.register_load_state_dict_pre_hook(_before_loading)
        self.register_load_state_dict_post_hook(_tie_again)

    def fill_tied(self, state_dict: dict[str, Any], prefix: str, names: tuple[str, ...], missing: list[str]) -> str:
        """Complete a state dict that has a tied weight under one of its names, as safetensors keeps it.

        A name that holds the model's own parameter says nothing: ``set_model_state_dict`` of torch fills in absent ones
        so. Returns an error message if two others differ. Differing shapes are left for torch to report; sharded or
        quantised tensors and those without values are not compared.
        """
        full = [prefix + name for name in names]
        own = self.get_parameter(names[0])
        absent = [name for name in full if name not in state_dict]
        told = [state_dict[name] for name in full if name not in absent and not _is_of(state_dict[name], own)]
        if len(told) < len(names):
            state_dict.update(dict.fromkeys(full if told else (), *told))
            if self._tells_missing and len(absent) < len(names):
                missing.extend(absent)
            return ""
        first, second = told
        plain = all(type(tensor) in (Tensor, nn.Parameter) and not tensor.is_meta for tensor in told)
        if not plain or first is second or first.shape != second.shape or torch.equal(first, second.to(first)):
            return ""
        both = " and ".join(full)
        return f"{both} differ, which tie_weights=True does not allow: build the model with tie_weights=False."

    def _apply(self: Model, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Model:
        without_values = any(parameter.is_meta for parameter in self.parameters())
        super()._apply(fn, recurse)
        if without_values:  # off the meta device, every name has been given a parameter of its own
            self._tie()
        return self


def _before_loading(model: TiesWeights, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    for names in shared_names(model):  # torch shards the first name only of a module that has several
        values = {prefix + name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
        if sharded := [value for value in values.values() if hasattr(value, "device_mesh")]:
            state_dict.update(dict.fromkeys(values, sharded[0]))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tied = [parameters[name] for name in model.tied_names if name in parameters]
    if len(tied) < len(model.tied_names) or len(set(map(identity_of, tied))) != 1:  # untied, wrapped or quantised
        return
    *_, missing, _, errors = rest
    if problem := model.fill_tied(state_dict, prefix, model.tied_names, missing):
        errors.append(problem)


def _is_of(tensor: Any, parameter: Tensor) -> bool:
    """True if a tensor is the parameter, or its values as a state dict holds them."""
    plain = type(tensor) in (Tensor, nn.Parameter) and not tensor.is_meta and not parameter.is_meta
    return tensor is parameter or (plain and tensor.data_ptr() == parameter.data_ptr())


def identity_of(tensor: Tensor) -> Any:
    """Key that all names of a tensor have in common; accelerate's empty ones share a storage, not a parameter."""
    if not tensor.is_meta:
        return id(tensor)
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def shared_names(model: nn.Module) -> list[list[str]]:
    """Names in the state dict of a model, grouped by tensor."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(identity_of(tensor), []).append(name)
    return list(groups.values())


def _tie_again(model: TiesWeights, incompatible_keys: Any) -> None:
    model._tie()


def move_prefix(state_dict: dict[str, Any], old: str, new: str) -> Mapping[str, Tensor]:
    """Rename what begins with ``old``, unless it is there under the new name already; returns what was found."""
    found = {name: state_dict.pop(name) for name in list(state_dict) if name.startswith(old)}
    for name, tensor in found.items():
        state_dict.setdefault(new + name.removeprefix(old), tensor)
    return found


def ignore_weights(model: Any, *prefixes: str) -> None:
    """Have a model leave out of every state dict that it loads the weights whose names begin so.

    They are those of symbol retrievers that it does not build, since nothing would read their symbols. State dicts of
    the published package and of earlier versions hold them.
    """
    model.ignored_weights = prefixes
    model.register_load_state_dict_pre_hook(_leave_out)


def ignored_weights(model: nn.Module) -> tuple[str, ...]:
    """Prefixes of the names of weights that a model leaves out, see :func:`ignore_weights`."""
    return getattr(model, "ignored_weights", ())


def _leave_out(model: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    starts = tuple(prefix + start for start in ignored_weights(model))
    for name in [name for name in state_dict if name.startswith(starts)]:
        del state_dict[name]


@torch.no_grad()
def init_weights(model: nn.Module, *, n_layers: int | None = None) -> None:
    """Draw the parameters of a model anew, as :meth:`.token_model.TokenModel.init_weights` says.

    Without ``n_layers``, what ends in the residual stream is no exception.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, RelationalAttention):
            module.reset_relations(projection_std=0.02)
            if module.wr_init == "published" and module.rel_init_size is None:
                nn.init.normal_(module.wr, std=0.02)
        elif isinstance(module, nn.LayerNorm | RMSNorm | SymbolicAttention | RelativePositionalEncoding):
            module.reset_parameters()
    if n_layers is not None:
        for name, parameter in model.named_parameters():
            if name.endswith((".wo.weight", ".linear2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layers))
