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


class TiesWeights(nn.Module):
    """A model in which parameters are one, and stay one where torch would make several of them."""

    tied_names: tuple[str, ...] = ()
    """Names of the embedding and the output weight. A state dict may hold either one, or both if they are equal."""

    @abstractmethod
    def _tie(self) -> None:
        """Let parameters that are one be one object."""

    def _keep_tied(self) -> None:
        """Tie now and after each ``load_state_dict``, which with ``assign=True`` gives each name its own parameter."""
        self._tie()
        self.register_load_state_dict_pre_hook(_before_loading)
        self.register_load_state_dict_post_hook(_tie_again)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As any module's, but a tied weight may have one name only; unless ``strict``, the other one is told missing.

        ``safetensors.torch.load_model`` expects that.
        """
        keys = super().load_state_dict(state_dict, strict=strict, assign=assign)
        if not strict:
            tied = [name for every in shared_names(self) if any(n in state_dict for n in every) for name in every]
            keys.missing_keys.extend(n for n in tied if n not in state_dict and n not in keys.missing_keys)
        return keys

    def _apply(self: Model, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Model:
        without_values = any(parameter.is_meta for parameter in self.parameters())
        super()._apply(fn, recurse)
        if without_values:  # off the meta device, every name has been given a parameter of its own
            self._tie()
        return self


def _before_loading(model: TiesWeights, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tied = [parameters[name] for name in model.tied_names if name in parameters]
    if len(tied) < len(model.tied_names) or len(set(map(identity_of, tied))) != 1:  # untied, wrapped or quantised
        return
    if problem := fill_tied(state_dict, *(prefix + name for name in model.tied_names)):
        rest[-1].append(problem)


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


def fill_tied(state_dict: dict[str, Any], *names: str) -> str | None:
    """Complete a state dict that has a tied weight under one of its two names, as safetensors keeps it.

    Returns an error message if both are there and differ. Differing shapes are left for torch to report; sharded or
    quantised tensors and those without values are not compared.
    """
    found = [state_dict[name] for name in names if name in state_dict]
    if len(found) == 1:
        state_dict.update(dict.fromkeys(names, found[0]))
    if len(found) < 2 or found[0] is found[1] or found[0].shape != found[1].shape:
        return None
    plain = all(type(tensor) in (Tensor, nn.Parameter) and not tensor.is_meta for tensor in found)
    if not plain or torch.equal(found[0], found[1].to(found[0])):
        return None
    both = " and ".join(names)
    return f"{both} differ, which tie_weights=True does not allow: build the model with tie_weights=False."


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
