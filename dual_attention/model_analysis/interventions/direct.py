"""Direct effects: the path of an intervention through the residual stream, past all later layers.

The layers after one that is intervened on compute as if nothing had happened, and so do those before. Only the change
of its output is added to the residual stream at the end, before the last normalisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..._models.encoder import EncoderModel
from ..._models.language import LanguageModel
from ..._models.seq2seq import Seq2SeqModel
from ..._models.vision import VisionModel
from ...dual_attention import DualAttention
from ..capture import computing_again, uncompiled
from ..maps import CallMaps, Maps
from ..sites import Site, place_of
from .applying import edited, hook
from .edits import Edit
from .kinds import Intervention


@contextmanager
def intervene_directly(
    model: nn.Module, interventions: Intervention | Sequence[Intervention], *, source: Maps | CallMaps | None = None
) -> Iterator[None]:
    """As :func:`.applying.intervene`, but only the direct effects of interventions show in the output of the model.

    For language models, encoders, image classifiers and the decoders of sequence-to-sequence models, with normalisation
    before each sublayer; others are refused, and so is training with dropout of what blocks add to the stream. Layers
    that are intervened on compute twice, with the same dropout, and captures keep what they compute without
    interventions.

    >>> lm = DualAttnTransformerLM(50, d_model=32, n_layers=1, n_heads_sa=1, n_heads_ra=1, max_block_size=16)
    >>> with torch.no_grad(), intervene_directly(lm, Ablate(Target("relation", layers=0))):
    ...     lm(torch.randint(50, (2, 9))).logits.shape
    torch.Size([2, 9, 50])
    """
    with edited(model, interventions, source) as (edits, stack):
        end = _end_of_stream(model)
        path = _DirectPath()
        for layer in _layers_of(model, edits):
            stack.enter_context(layer.register_forward_pre_hook(path.remember, with_kwargs=True))
            stack.enter_context(layer.register_forward_hook(path.compute_again, with_kwargs=True))
        stack.enter_context(end.register_forward_pre_hook(path.add_changes))
        for handle in hook(edits, when=lambda: path.is_active):
            stack.enter_context(handle)
        stack.enter_context(uncompiled())
        yield


class _DirectPath:
    """Changes of layers on their way to the end of the residual stream."""

    def __init__(self) -> None:
        self.is_active = False
        self.changes: dict[nn.Module, Tensor] = {}
        self.states: dict[nn.Module, Any] = {}

    def remember(self, layer: nn.Module, _args: Any, kwargs: dict[str, Any]) -> None:
        """Remember the layer's cache and the generators of random numbers before it computes the first time."""
        cache = kwargs.get("cache")
        devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self.states[layer] = None if cache is None else cache._state(), torch.get_rng_state(), devices

    def compute_again(self, layer: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """Compute a layer a second time, with interventions, and remember how its output differs."""
        cache, (state, cpu, devices) = kwargs.get("cache"), self.states.pop(layer)
        if cache is not None:  # the second time appends the same
            cache._restore(state)
        self.is_active = True
        try:
            with computing_again(), torch.random.fork_rng(range(len(devices))):
                torch.set_rng_state(cpu)
                torch.cuda.set_rng_state_all(devices)
                changed = layer.forward(*args, **kwargs)
        finally:
            self.is_active = False
        self.changes[layer] = changed[0] - output[0]

    def add_changes(self, _end: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Add all changes to the residual stream."""
        x, *rest = args
        for change in self.changes.values():
            if change.shape[1] != x.shape[1]:
                raise ValueError(
                    f"model: expected a call with targets, whose logits are of all {change.shape[1]} places, got one "
                    f"that computes {x.shape[1]}; direct effects are of all"
                )
            x = x + change
        self.changes.clear()
        return x, *rest


def _end_of_stream(model: nn.Module) -> nn.Module:
    """The module that reads the residual stream after the last block."""
    for module in model.modules():
        if isinstance(module, LanguageModel):
            return module.layers.norm
        if isinstance(module, EncoderModel | VisionModel):
            return module.norm
        if isinstance(module, Seq2SeqModel):
            return module.layers["final_out"]
    raise ValueError(f"model: direct effects need a model of this library, got {type(model).__name__}")


def _layers_of(model: nn.Module, edits: Sequence[Edit]) -> list[nn.Module]:
    """The modules whose output is added to the residual stream, each once."""
    found: dict[nn.Module, None] = {}
    for edit in edits:
        site: Site = edit.choice.site
        place = place_of(site.path)
        layer, parent = model.get_submodule(place), place.rpartition(".")[0]
        if isinstance(model.get_submodule(parent), DualAttention):
            layer, parent = model.get_submodule(parent), parent.rpartition(".")[0]
        block: Any = model.get_submodule(parent)
        if getattr(block, "norm_first", None) is not True:
            raise ValueError(f"norm_first: expected True in the blocks of direct effects, got False in {site.layer}")
        if block.dropout.training and block.dropout.p:
            raise ValueError(f"model: direct effects need evaluation, or no residual dropout; got it in {site.layer}")
        if site.layer.startswith(("encoder.", "abstractor.")):
            raise ValueError(f"target: {site.layer} reaches the output through the decoder only, so not directly")
        found[layer] = None
    return list(found)
