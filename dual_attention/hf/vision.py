"""Image classifiers for transformers. Shapes: B batch, K classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from transformers.modeling_outputs import ImageClassifierOutput

from .._models.vision import PROJECTION
from ..relational_attention import RelationalAttention
from .configuration import DualAttnVisionConfig
from .modeling import OwnsModel, fetched, output_of, traced_fields

if TYPE_CHECKING:
    from .modeling import TypedOutput

__all__ = ["DualAttnForImageClassification"]


class DualAttnForImageClassification(OwnsModel):
    """A Vision Dual Attention Transformer (ViDAT), or a Vision Transformer.

    ``model`` is the one of :mod:`dual_attention.vision_models` itself. The loss is the one of transformers for
    ``config.problem_type``, which by default follows from the labels.
    """

    config: DualAttnVisionConfig  # pyright: ignore[reportIncompatibleVariableOverride]
    config_class = DualAttnVisionConfig
    main_input_name = "pixel_values"
    input_modalities = "image"
    accepts_loss_kwargs = False
    default_auto_class = "AutoModelForImageClassification"

    def _draw(self) -> None:
        for module in self.model.modules():
            if isinstance(module, RelationalAttention):
                module.reset_relations()
            elif hasattr(module, "reset_parameters"):
                module.reset_parameters()
        nn.init.normal_(self.model.cls_token)
        if self.model.pos_embedding is not None:
            nn.init.normal_(self.model.pos_embedding)

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

    def get_input_embeddings(self) -> nn.Module:
        """The projection of patches, through which images enter the residual stream."""
        return self.model.to_patch_embedding[PROJECTION]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the projection of patches."""
        self.model.to_patch_embedding[PROJECTION] = value
