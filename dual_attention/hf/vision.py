"""Vision models for transformers: image classifiers, and the same without a classifier, as backbones too.

Shapes: B batch, T tokens (a class token, registers if there are any, and the patches), d width of the model, K classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers.backbone_utils import BackboneMixin
from transformers.modeling_outputs import BackboneOutput, BaseModelOutputWithPooling, ImageClassifierOutput

from .._models.vision import OWN_TOKENS, PROJECTION
from ..relational_attention import RelationalAttention
from .configuration import DualAttnVisionConfig
from .modeling import OwnsModel, backbone_of, fetched, output_of, traced_fields

if TYPE_CHECKING:
    from .modeling import TypedOutput


class _Vision(OwnsModel):
    """A Vision Dual Attention Transformer (ViDAT), or a Vision Transformer.

    ``model`` is the one of :mod:`dual_attention.vision_models` itself.
    """

    config: DualAttnVisionConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = DualAttnVisionConfig
    main_input_name = "pixel_values"
    input_modalities = "image"

    def _draw(self) -> None:
        for module in self.model.modules():
            if isinstance(module, RelationalAttention):
                module.reset_relations()
            elif hasattr(module, "reset_parameters"):
                module.reset_parameters()
        for name in OWN_TOKENS:
            if getattr(self.model, name) is not None:
                nn.init.normal_(getattr(self.model, name))

    def set_input_size(
        self, img_size: int | tuple[int, int] | None = None, patch_size: int | tuple[int, int] | None = None
    ) -> None:
        """As :meth:`.VisionModel.set_input_size`; the configuration says the new sizes, so that it can be saved."""
        self.model.set_input_size(img_size, patch_size)
        (rows, columns), width, height = self.model.grid_size, self.model.patch_width, self.model.patch_height
        self.config.image_shape = (self.config.num_channels, columns * width, rows * height)
        self.config.patch_size = (width, height)
        retriever = getattr(self.model, "symbol_retriever", None)
        sizes = {name: getattr(retriever, name, None) for name in ("max_rel_pos", "max_length")}
        sizes = {name: size for name, size in sizes.items() if size is not None}
        if sizes:
            self.config.symbol_retrieval_kwargs = {**(self.config.symbol_retrieval_kwargs or {}), **sizes}

    def get_input_embeddings(self) -> nn.Module:
        """The projection of patches, through which images enter the residual stream."""
        return self.model.to_patch_embedding[PROJECTION]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the projection of patches."""
        self.model.to_patch_embedding[PROJECTION] = value


class _Headless(_Vision):
    _keys_to_ignore_on_load_unexpected: Any = (r"\.final_out\.",)

    def _build(self) -> nn.Module:
        model: Any = self.config.build()
        model.reset_classifier(0)
        return model


class DualAttnVisionModel(_Headless):
    """A vision model without its classifier: the base of the other, and what ``AutoModel`` loads.

    Of a model with a classifier it is the attribute ``backbone``, which shares its ``model``.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1}
    >>> model = DualAttnVisionModel(DualAttnVisionConfig(image_shape=(1, 16, 16), patch_size=(4, 4), **sizes))
    >>> model(torch.randn(2, 1, 16, 16)).last_hidden_state.shape
    torch.Size([2, 17, 32])
    """

    default_auto_class = "AutoModel"

    def forward(
        self,
        pixel_values: Tensor,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutputWithPooling | tuple[Any, ...]:
        """Represent patches in the light of each other; arguments and errors as those of the classifier.

        Returns:
            The tokens ``(B, T, d)``, the class token first, and what they are pooled to, ``(B, d)``.
        """
        maps, states, traced = self._traced(output_attentions, output_hidden_states)
        with fetched(self.model):
            trace = self.model.trace(pixel_values) if traced else None
            hidden = self.model.hidden(pixel_values) if trace is None else trace.hidden
        more = traced_fields(trace, maps, states)
        output = BaseModelOutputWithPooling(last_hidden_state=hidden, pooler_output=self.model.pooled(hidden), **more)
        return output_of(output, return_dict, self.config)


class DualAttnVisionBackbone(BackboneMixin, _Headless):
    """A vision model that puts out feature maps, for detectors and others that take a backbone of transformers.

    Its stages are ``"stem"``, what enters the first block, and ``"stage1"`` to ``"stageL"``, what blocks put out; the
    configuration's ``out_features`` or ``out_indices`` select some, by default the last.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1}
    >>> model = DualAttnVisionBackbone(DualAttnVisionConfig(image_shape=(1, 16, 16), patch_size=(4, 4), **sizes))
    >>> model(torch.randn(2, 1, 16, 16)).feature_maps[0].shape
    torch.Size([2, 32, 4, 4])
    """

    default_auto_class = "AutoBackbone"

    def __init__(self, config: DualAttnVisionConfig, model: nn.Module | None = None) -> None:
        super().__init__(config, model)
        if config.out_features is None:
            config.out_indices = [config.n_layers]
        self.num_features = [config.d_model] * len(config.stage_names)

    def forward(
        self,
        pixel_values: Tensor,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> TypedOutput:
        """Feature maps of images; arguments and errors as those of the classifier.

        Returns:
            A map ``(B, d, rows, columns)`` of the patches for each stage, after the last normalisation if there is one.
        """
        maps, states, traced = self._traced(output_attentions, output_hidden_states)
        numbers = [self.stage_names.index(name) for name in self.out_features]
        trace = None
        with fetched(self.model):
            if traced:
                trace = self.model.trace(pixel_values)
                found = [trace.states[number] for number in numbers]
            else:
                _, found, _ = self.model.selected_states(pixel_values, numbers)
            grid = (pixel_values.shape[2] // self.model.patch_height, pixel_values.shape[3] // self.model.patch_width)
            features = tuple(self.model.as_map(self.model.norm(state), grid) for state in found)
        output = BackboneOutput(feature_maps=features, **traced_fields(trace, maps, states))
        return output_of(output, return_dict, self.config)


class DualAttnForImageClassification(_Vision):
    """A vision model that classifies images.

    The loss is the one of transformers for ``config.problem_type``, which by default follows from the labels.

    >>> sizes = {"d_model": 32, "n_layers": 1, "n_heads_sa": 1, "n_heads_ra": 1, "num_labels": 10}
    >>> config = DualAttnVisionConfig(image_shape=(1, 16, 16), patch_size=(4, 4), **sizes)
    >>> DualAttnForImageClassification(config)(torch.randn(2, 1, 16, 16)).logits.shape
    torch.Size([2, 10])
    """

    accepts_loss_kwargs = False
    default_auto_class = "AutoModelForImageClassification"

    @property
    def backbone(self) -> DualAttnVisionModel:
        """The same model without its classifier, of the same parameters; transformers' ``base_model``."""
        return backbone_of(self, DualAttnVisionModel)

    def forward(
        self,
        pixel_values: Tensor,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> TypedOutput:
        """Classify images.

        Args:
            pixel_values: ``(B, channels, height, width)``.
            labels: classes, integers ``(B,)``; for several at once 0 or 1, floating point ``(B, K)``; for regression
                numbers, floating point.
            output_attentions: return attention weights, of sensory heads, then of relational ones; of the class token
                and the patches.
            output_hidden_states: return the inputs of the blocks, and that of the pooling.
            return_dict: False returns a tuple.

        Returns:
            Logits ``(B, K)``, and with labels the mean loss.

        Raises:
            ValueError: if the images have another shape than the model takes.
        """
        maps, states, traced = self._traced(output_attentions, output_hidden_states)
        trace = None
        if traced:
            with fetched(self.model):
                trace = self.model.trace(pixel_values)
        logits = self.model(pixel_values) if trace is None else trace.scores
        output = self._classified(ImageClassifierOutput, logits, labels, traced_fields(trace, maps, states))
        return output_of(output, return_dict, self.config)
