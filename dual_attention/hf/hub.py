"""Language models loaded from the Hugging Face hub and saved for it, in the published package's format.

A folder, or a repository on the hub, holds ``config.json`` with the constructor's arguments and ``model.safetensors``
with the state dict, tensors of several names once. This needs only huggingface_hub and safetensors; for transformers,
see :mod:`dual_attention.hf.causal_lm`.
"""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
from huggingface_hub import PyTorchModelHubMixin
from torch import nn

from .._layers.options import as_dicts, parameters_of
from .._models.retrievers import symbol_sizes, with_sizes
from ..checkpoints.files import CheckpointFiles
from ..checkpoints.weights import checkpoint_weights, filled
from ..language_models import DualAttnTransformerLM, TransformerLM
from ..language_presets import LanguageModelConfig, as_json

if TYPE_CHECKING:
    from typing_extensions import Self

Model = TypeVar("Model", bound="HubLanguageModel")

_CARD = """---
{{ card_data }}
---

# {{ name }}

This repository holds a `{{ name }}` of the package `dual_attention` ([paper]({{ paper_url }})). With the package
installed (`pip install '.[hf]'` in a clone of relational-attention, which is not on the package index yet), this loads
it:

```python
from dual_attention.hf import {{ name }}

model = {{ name }}.from_pretrained("path/to/this/folder")
```
"""


class HubLanguageModel(
    PyTorchModelHubMixin,
    library_name="relational-attention",
    model_card_template=_CARD,
    paper_url="https://arxiv.org/abs/2405.16727",
    pipeline_tag="text-generation",
    tags=["relational-attention"],
):
    """A language model with ``from_pretrained``, ``save_pretrained`` and ``push_to_hub``.

    >>> issubclass(TransformerLM_HFHub, HubLanguageModel), issubclass(TransformerLM_HFHub, TransformerLM)
    (True, True)
    """

    _kind: Literal["dat", "transformer"]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        model = super().__new__(cls, *args, **kwargs)
        try:
            given = inspect.signature(cls.__init__).bind(model, *args, **kwargs).arguments
        except TypeError:  # the constructor reports it; copies are made without arguments, and copy this attribute
            return model
        given = {name: value for name, value in given.items() if name not in ("self", "device", "dtype")}
        model._hub_mixin_config = as_dicts(copy.deepcopy(given))  # copied now: the caller's dicts may change
        return model

    @property
    def hub_config(self) -> dict[str, Any]:
        """Contents of ``config.json``: the published class's arguments, and ours that are not at their default.

        The published package can read it as long as none of ours do. What JSON cannot hold is a ``TypeError``.
        """
        given: dict[str, Any] = dict(cast(Any, self._hub_mixin_config) or {})
        written: dict[str, Any] = {}
        parameters = parameters_of(type(self).__init__)
        if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters.values()):  # a subclass's
            parameters = parameters_of(DualAttnTransformerLM if self._kind == "dat" else TransformerLM)
            given = vars(cast(Any, self).given)
        for name, parameter in parameters.items():
            value = given.get(name, parameter.default)
            ours = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            if name not in ("self", "device", "dtype") and not (ours and value == parameter.default):
                written[name] = value
        if self._kind == "dat":  # the published package has no defaults of these
            sizes = symbol_sizes(*(written[name] for name in ("d_model", "n_heads_sa", "n_heads_ra", "max_block_size")))
            symbols = with_sizes(written["symbol_retrieval"], written["symbol_retrieval_kwargs"], sizes)
            written["symbol_retrieval_kwargs"] = symbols
        return as_json(written)

    @property
    def language_config(self) -> LanguageModelConfig:
        """The same as a configuration of this library."""
        return LanguageModelConfig.from_dict({"model": self._kind, **self.hub_config})

    def save_pretrained(self, save_directory: str | Path, *, config: Any = None, **arguments: Any) -> str | None:
        """Write ``config.json``, ``model.safetensors`` and a model card into a folder.

        Args:
            config: a dict, by default :attr:`hub_config`.
            arguments: ``repo_id``, ``push_to_hub``, ``model_card_kwargs`` and arguments of ``push_to_hub``, as
                ``huggingface_hub.PyTorchModelHubMixin.save_pretrained`` has them.

        Raises:
            TypeError: if an argument of the model cannot be written as JSON; nothing is written then.
        """
        config = self.hub_config if config is None else config
        return super().save_pretrained(save_directory, config=config, **arguments)

    def generate_model_card(self, **arguments: Any) -> Any:
        """The card, which says how to load the model; ``arguments`` as ``model_card_kwargs`` has them."""
        return super().generate_model_card(**{"name": type(self).__name__, **arguments})

    @classmethod
    def from_pretrained(
        cls: type[Model],
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        map_location: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        strict: bool = True,
        **arguments: Any,
    ) -> Model:
        """Load a model from a folder or the hub, in evaluation mode.

        Args:
            pretrained_model_name_or_path: a folder, or a name such as
                ``"awni00/DAT-sa8-ra8-nr64-ns1024-sh8-nkvh4-343M"``.
            map_location: device of the model.
            dtype: of the parameters; by default torch's default, whatever the file has.
            strict: False allows weights that are missing, which are then freshly drawn, and those that the model does
                not have.
            arguments: of the constructor, instead of those in ``config.json``.
            force_download, token, cache_dir, local_files_only, revision: of the download, see
                ``huggingface_hub.hf_hub_download``.

        Raises:
            OSError: if there is no such checkpoint, or the hub cannot be reached.
            TypeError, ValueError: if the arguments do not suit the class.
            ValueError: if weights are missing, unexpected or of another shape, or are in a pickle that runs code.
        """
        files = CheckpointFiles(
            pretrained_model_name_or_path,
            force_download=force_download,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            revision=revision,
        )
        saved = files.config()
        if "model_type" in saved:
            raise ValueError(
                f"{files.name}: is in the format of transformers (model_type={saved['model_type']!r}); load it with "
                "AutoModelForCausalLM (after `import dual_attention.hf`), or convert it with "
                "dual_attention.hf.convert_checkpoint"
            )
        try:
            config = LanguageModelConfig.from_dict({**saved, **arguments, "model": cls._kind})
        except (TypeError, ValueError) as error:
            message = f"{files.name}: config.json does not hold arguments of {cls.__name__} ({error})"
            raise type(error)(message) from error
        weights = checkpoint_weights(files)
        with torch.device("meta" if strict else map_location):
            model = cls(**config.arguments(), dtype=dtype)
        filled(cast(nn.Module, model), weights, source=files.name, device=map_location, strict=strict).eval()
        return model


class DualAttnTransformerLM_HFHub(HubLanguageModel, DualAttnTransformerLM):
    """A :class:`~dual_attention.language_models.DualAttnTransformerLM` of the hub; its arguments are the same.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "max_block_size": 16}
    >>> lm = DualAttnTransformerLM_HFHub(vocab_size=50, **sizes)
    >>> lm.save_pretrained("folder")
    >>> DualAttnTransformerLM_HFHub.from_pretrained("folder")(torch.tensor([[5, 17, 3]])).logits.shape
    torch.Size([1, 3, 50])
    """

    _kind = "dat"


class TransformerLM_HFHub(HubLanguageModel, TransformerLM):
    """A :class:`~dual_attention.language_models.TransformerLM` of the hub; its arguments are the same.

    >>> lm = TransformerLM_HFHub(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> lm.save_pretrained("folder")
    >>> TransformerLM_HFHub.from_pretrained("folder")(torch.tensor([[5, 17, 3]])).logits.shape
    torch.Size([1, 3, 50])
    """

    _kind = "transformer"
