"""Base of the image classifiers: patches, class token and positions before the blocks, the classifier after them.

Beside the methods of the other models it has those that timm's models have, by their names.

Shapes: B batch, C channels, height and width of the image in pixels, T tokens (a class token, registers if there are
any, and the patches), d width of the model.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, get_args

import torch
import torch.nn.functional as F
from einops.layers.torch import Rearrange
from torch import Tensor, nn

from .._layers.inputs import check_choice, check_depth, check_dropout, check_not_negative, check_positive
from ..configs import ImagePool, PatchPositions, VisionConfig
from ..dual_attention import DualAttentionOutput
from ..functional import MaskPattern
from ..functional.checks import check_like, check_tensor
from ..functional.rotary import axial_rotary_tables
from ..positional_encoding import RelativePositionalEncoding
from ..symbol_retrieval import PositionalSymbolRetriever, PositionRelativeSymbolRetriever2D
from ..transformer_blocks import create_norm
from .features import FeatureFormat, VisionFeatures, taken_blocks
from .image_size import check_resizable, like, resize_patches, resize_symbols, resized_rows
from .stack import BlockInputs, StackModel
from .token_model import rotary_width

PROJECTION = 2
"""Place of the linear layer among the parts of :func:`patch_embedding`."""


def patch_embedding(height: int, width: int, channels: int, d_model: int) -> nn.Sequential:
    """Patches of images as vectors: ``(B, C, rows * height, columns * width) -> (B, rows * columns, d_model)``."""
    patch_dim = height * width * channels
    return nn.Sequential(
        Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=height, p2=width),
        nn.LayerNorm(patch_dim),
        nn.Linear(patch_dim, d_model),
        nn.LayerNorm(d_model),
    )


def patch_grid(height: int, width: int, patch_height: int, patch_width: int) -> tuple[int, int]:
    """Rows and columns of patches; ``ValueError`` if they do not tile the image."""
    if height % patch_height or width % patch_width or not height or not width:
        raise ValueError(
            f"image: patches of height {patch_height} and width {patch_width} do not tile one of {height} x {width}"
        )
    return height // patch_height, width // patch_width


def checked_sizes(name: str, given: Iterable[int], number: int) -> tuple[int, ...]:
    """So many positive sizes; ``TypeError`` or ``ValueError`` for others."""
    sizes = tuple(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else ()
    if len(sizes) != number:
        raise ValueError(f"{name}: expected {number} sizes, got {given!r}")
    for size in sizes:
        check_positive(**{name: size})
    return sizes


def check_images(x: Tensor, channels: int, width: int, height: int, layer: Any) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless ``x`` is images of these sizes that suit ``layer``."""
    check_tensor("x", x)
    expected = channels, height, width
    if x.dim() != 4 or tuple(x.shape[1:]) != expected:
        raise ValueError(f"x: expected shape (batch, {', '.join(map(str, expected))}), got {tuple(x.shape)}")
    check_like("x", x, layer)


OWN_TOKENS = ("cls_token", "registers", "pos_embedding")
"""Parameters of the model itself."""

POOLS_OF_TIMM = {"token": "cls", "avg": "patches"}
"""timm's names of kinds of pooling -> ours."""

PLACES = {"norm": -2, "final_out": -1}
"""Parts behind the blocks -> their groups among those of :meth:`VisionModel.layer_groups`."""


def pair(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width, also where one number stands for both; errors as :func:`checked_sizes`."""
    height, width = checked_sizes(name, (size, size) if isinstance(size, int) else size, 2)
    return height, width


class VisionTrace(NamedTuple):
    """Everything that passed through the L blocks of an image classifier.

    Attributes:
        scores: of the classes, ``(B, num_classes)``.
        hidden: ``(B, T, d)``, the tokens that are pooled.
        states, maps: as :class:`~dual_attention.language_models.Trace`.

    >>> model = VisionTransformer((1, 16, 16), (4, 4), num_classes=10, d_model=32, n_layers=1, n_heads=2)
    >>> trace = model.trace(torch.randn(2, 1, 16, 16))
    >>> trace.scores.shape, len(trace.states), trace.maps[0].shape
    (torch.Size([2, 10]), 2, torch.Size([2, 2, 17, 17]))
    """

    scores: Tensor
    hidden: Tensor
    states: tuple[Tensor, ...]
    maps: tuple[Tensor | DualAttentionOutput, ...]


class VisionModel(StackModel):
    """An image classifier; its subclasses fill ``encoder_blocks``.

    >>> model = VisionTransformer((1, 16, 16), (4, 4), num_classes=10, d_model=32, n_layers=1, n_heads=2)
    >>> isinstance(model, VisionModel), model.forward_features(torch.randn(2, 1, 16, 16)).shape
    (True, torch.Size([2, 17, 32]))
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        width, pool, pos_enc = config.d_model, config.pool, config.pos_enc
        check_depth(n_layers=config.n_layers)
        check_positive(d_model=width, num_classes=config.num_classes)
        self.image_channels, image_width, image_height = checked_sizes("image_shape", config.image_shape, 3)
        self.patch_width, self.patch_height = checked_sizes("patch_size", config.patch_size, 2)
        check_not_negative(n_registers=config.n_registers)
        check_choice("pool", pool, ImagePool)
        check_choice("pos_enc", pos_enc, PatchPositions)
        self.pool: str = pool
        self.num_classes = config.num_classes
        self.pos_enc = pos_enc
        self.d_model = width
        self.grid_size = patch_grid(image_height, image_width, self.patch_height, self.patch_width)
        self.to_patch_embedding = patch_embedding(
            self.patch_height, self.patch_width, channels=self.image_channels, d_model=width
        )
        self.pos_embedding = None
        if pos_enc in ("learned", "interpolated"):
            self.pos_embedding = nn.Parameter(torch.randn(1, self.grid_size[0] * self.grid_size[1] + 1, width))
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.n_registers = config.n_registers
        self.registers = nn.Parameter(torch.randn(1, config.n_registers, width)) if config.n_registers else None
        self.dropout = nn.Dropout(check_dropout("dropout_rate", config.dropout_rate))
        self.encoder_blocks: Any = nn.ModuleList()
        self.norm = create_norm(width, config.norm_type if config.final_norm else "none")
        self.final_out = nn.Linear(width, config.num_classes)

    def _stack(self) -> nn.ModuleList:
        return self.encoder_blocks

    def _add_blocks(self, blocks: Iterable[Any]) -> None:
        """Take the blocks; ``ValueError`` if rotary positions do not fit their heads."""
        self.encoder_blocks.extend(blocks)
        if self.pos_enc == "RoPE":
            self._rotary_width = rotary_width(self.encoder_blocks[0].attention, "sa_kwargs, ra_kwargs", 4)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores ``(B, num_classes)`` of images ``(B, C, height, width)``, floating point.

        ``ValueError`` if the patches do not tile the image, or the positions of the model do not allow its size.
        """
        return self.forward_head(self.hidden(x))

    def hidden(self, x: Tensor) -> Tensor:
        """Tokens ``(B, T, d)`` that are pooled, the class token first; ``x`` as :meth:`forward`."""
        return self.norm(self._pass(*self._enter(x)))

    def trace(self, x: Tensor) -> VisionTrace:
        """Scores, all hidden states, and the maps of all blocks, which are built for this; ``x`` as :meth:`forward`."""
        states, maps = self._record(*self._enter(x))
        hidden = self.norm(states[-1])
        return VisionTrace(self.forward_head(hidden), hidden, states, maps)

    def _enter(self, x: Tensor) -> tuple[Tensor, BlockInputs]:
        """Images as tokens with positions, and the inputs of every block."""
        check_tensor("x", x)
        if x.dim() != 4 or x.shape[1] != self.image_channels:
            raise ValueError(f"x: expected shape (batch, {self.image_channels}, height, width), got {tuple(x.shape)}")
        check_like("x", x, self.to_patch_embedding[1])
        grid_size = patch_grid(x.shape[2], x.shape[3], self.patch_height, self.patch_width)
        x = self.to_patch_embedding(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self._add_positions(x, grid_size)
        if grid_size != self.grid_size:
            check_resizable(self, self.grid_size, grid_size, self.num_prefix_tokens, resized=False)
        if self.registers is not None:
            x = torch.cat((x[:, :1], self.registers.expand(x.shape[0], -1, -1), x[:, 1:]), dim=1)
        arguments: dict[str, Any] = {"attn_mask": MaskPattern(x.shape[1], x.shape[1])}
        if self.pos_enc == "RoPE":  # tokens before the patches are not turned
            cos, sin = axial_rotary_tables(self._rotary_width, *grid_size, device=x.device)
            before = (0, 0, self.num_prefix_tokens, 0)
            arguments |= {"freqs_cos": F.pad(cos, before, value=1.0), "freqs_sin": F.pad(sin, before, value=0.0)}
        return self.dropout(x), BlockInputs(arguments, grid_size=grid_size)

    def pooled(self, hidden: Tensor) -> Tensor:
        """Tokens as one vector: ``(B, T, d) -> (B, d)``, without the registers; as they are without pooling."""
        if self.pool == "":
            return hidden
        if self.pool == "cls":
            return hidden[:, 0]
        if self.pool == "patches":
            hidden = hidden[:, self.num_prefix_tokens :]
        elif self.n_registers:
            hidden = torch.cat((hidden[:, :1], hidden[:, self.num_prefix_tokens :]), dim=1)
        return hidden.mean(dim=1)

    def _add_positions(self, x: Tensor, grid_size: tuple[int, int]) -> Tensor:
        if self.pos_embedding is None:
            return x
        positions = self.pos_embedding
        if grid_size != self.grid_size:
            if self.pos_enc != "interpolated":
                raise ValueError(
                    f"x: expected a grid of {self.grid_size} patches, or pos_enc='interpolated', got {grid_size}"
                )
            positions = self._positions(positions, grid_size)
        return x + positions

    def _positions(self, positions: Tensor, grid_size: tuple[int, int]) -> Tensor:
        """Positions of the class token and of the patches of another grid."""
        return torch.cat((positions[:, :1], resized_rows(positions[:, 1:], self.grid_size, grid_size)), dim=1)

    @property
    def num_features(self) -> int:
        """Width of the tokens and of what is classified, d."""
        return self.d_model

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches: the class token and the registers."""
        return 1 + self.n_registers

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """timm's table of features: the name of each block, its channels, and the longer side of a patch in pixels."""
        reduction = max(self.patch_height, self.patch_width)
        blocks = range(len(self.encoder_blocks))
        return [{"module": f"encoder_blocks.{n}", "num_chs": self.d_model, "reduction": reduction} for n in blocks]

    def forward_features(self, x: Tensor) -> Tensor:
        """:meth:`hidden` by timm's name."""
        return self.hidden(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Class scores ``(B, num_classes)`` of the tokens ``(B, T, d)``, or what is classified, ``(B, d)``."""
        x = self.pooled(x)
        return x if pre_logits else self.final_out(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Iterable[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: FeatureFormat = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Outputs of single blocks beside that of :meth:`hidden`; arguments in timm's order.

        Args:
            x: as :meth:`forward`.
            indices: of the blocks, from 0 or, negative, from the last; a number for so many last ones; by default all.
                They come by depth, in whatever order they are asked for.
            return_prefix_tokens: pairs of the patches and the tokens in front of them, ``(B, prefix tokens, d)``.
            norm: apply the last normalisation, if the model has any.
            stop_early: leave out the blocks behind the last of these; the first of the pair is theirs then.
            output_fmt: patches ``"NCHW"``, as ``(B, d, rows, columns)``, or ``"NLC"``, ``(B, rows * columns, d)``.
            intermediates_only: only the list.

        Returns:
            The tokens ``(B, T, d)`` and a list with an entry a block; only the list with ``intermediates_only``.

        Raises:
            ValueError: for an index without a block or given twice, or another ``output_fmt``.
        """
        check_choice("output_fmt", output_fmt, FeatureFormat)
        taken = taken_blocks(len(self.encoder_blocks), indices)
        last, states, grid_size = self.selected_states(x, [n + 1 for n in taken], taken[-1] + 1 if stop_early else None)
        found: list[Any] = []
        for state in states:
            state = self.norm(state) if norm else state
            patches = state[:, self.num_prefix_tokens :] if output_fmt == "NLC" else self.as_map(state, grid_size)
            found.append((patches, state[:, : self.num_prefix_tokens]) if return_prefix_tokens else patches)
        return found if intermediates_only else (self.norm(last), found)

    def selected_states(
        self, x: Tensor, numbers: Collection[int], n_blocks: int | None = None
    ) -> tuple[Tensor, list[Tensor], tuple[int, int]]:
        """Tokens behind all blocks, or the first ``n_blocks``; the states of a trace with these numbers; and the grid.

        ``x`` as :meth:`forward`; state 0 is what enters the first block.
        """
        x, inputs = self._enter(x)
        found = [x] if 0 in numbers else []

        def seen(number: int, x: Tensor) -> None:
            if number + 1 in numbers:
                found.append(x)

        return self._pass(x, inputs, n_blocks, seen), found, inputs.grid_size

    def as_map(self, tokens: Tensor, grid_size: tuple[int, int]) -> Tensor:
        """The patches of ``(B, T, d)`` as an image: ``(B, d, rows, columns)``."""
        patches = tokens[:, self.num_prefix_tokens :]
        return patches.unflatten(1, grid_size).permute(0, 3, 1, 2).contiguous()

    def prune_intermediate_layers(
        self, indices: int | Iterable[int] | None = None, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove the blocks behind the last of these, the last normalisation and the classifier; the numbers that stay.

        ``indices`` as :meth:`forward_intermediates`.
        """
        taken = taken_blocks(len(self.encoder_blocks), indices)
        self.encoder_blocks = self.encoder_blocks[: taken[-1] + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return taken

    def features_only(
        self, indices: int | Iterable[int] | None = None, *, norm: bool = False, output_fmt: FeatureFormat = "NCHW"
    ) -> VisionFeatures:
        """A module of this model's parameters, ``x -> list``, without those that these features do not need.

        Arguments and errors as :meth:`forward_intermediates`. The model itself stays as it is.
        """
        check_choice("output_fmt", output_fmt, FeatureFormat)
        twin = copy.copy(self)
        vars(twin).update({name: copy.copy(x) for name, x in vars(self).items() if isinstance(x, dict | set)})
        taken = twin.prune_intermediate_layers(indices, prune_norm=not norm)
        return VisionFeatures(twin, taken, norm=norm, output_fmt=output_fmt)

    @torch.no_grad()
    def set_input_size(
        self, img_size: int | tuple[int, int] | None = None, patch_size: int | tuple[int, int] | None = None
    ) -> None:
        """Take images of another size, or other patches, from now on; with the same sizes everything stays as it is.

        Learned positions, and symbols by position, are resized (bicubic). Two-dimensional relative symbols name the
        same distances in the image, linear between those that there were. A patch embedding is resized as
        ``resize_patches`` says. All these become new parameters, which an optimizer has to be told of, and models of
        :meth:`features_only` that were made before keep the old ones.

        Args:
            img_size: (height, width), as timm has it, and in the other order than ``image_shape``; or one number for
                both; by default the size stays.
            patch_size: likewise (height, width).

        Raises:
            ValueError: if patches do not tile the image; or another number of columns would move the tokens of a part
                that tells them by their place in one row, such as the symbols ``"position_relative"``. The model is
                then as it was.
        """
        old, old_patch = self.grid_size, (self.patch_height, self.patch_width)
        size = (old[0] * old_patch[0], old[1] * old_patch[1]) if img_size is None else pair("img_size", img_size)
        patch = old_patch if patch_size is None else pair("patch_size", patch_size)
        new = patch_grid(*size, *patch)
        if new != old:
            check_resizable(self, old, new, self.num_prefix_tokens)
        if patch != old_patch:
            resized = patch_embedding(*patch, channels=self.image_channels, d_model=self.d_model)
            resize_patches(self.to_patch_embedding, old_patch, resized, patch)
            self.to_patch_embedding = resized.train(self.training)
            self.patch_height, self.patch_width = patch
        if new != old:
            if self.pos_embedding is not None:
                self.pos_embedding = like(self.pos_embedding, self._positions(self.pos_embedding, new))
            resize_symbols(self, old, new, self.num_prefix_tokens)
            self.grid_size = new

    def get_classifier(self) -> nn.Module:
        """The linear layer behind the pooling, or an identity where there is none."""
        return self.final_out

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Put a freshly drawn classifier in the place of the one that is there.

        Args:
            num_classes: 0 for no classifier.
            global_pool: what is classified from now on: as ``pool`` of the constructor, or ``""``, each of the tokens.
                timm's ``"token"`` and ``"avg"`` are ``"cls"`` and ``"patches"``.
        """
        check_not_negative(num_classes=num_classes)
        if global_pool is not None:
            check_choice("global_pool", global_pool, (*get_args(ImagePool), "", *POOLS_OF_TIMM))
            self.pool = POOLS_OF_TIMM.get(global_pool, global_pool)
        like = self.to_patch_embedding[PROJECTION].weight
        self.num_classes = num_classes
        self.final_out = nn.Identity()
        if num_classes:
            self.final_out = nn.Linear(self.d_model, num_classes, device=like.device, dtype=like.dtype)
        self.final_out.train(self.training)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Set ``gradient_checkpointing``."""
        self.gradient_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that are no weights: its own, and symbols and keys by position."""
        names = {name for name in OWN_TOKENS if getattr(self, name) is not None}
        by_position = (RelativePositionalEncoding, PositionRelativeSymbolRetriever2D, PositionalSymbolRetriever)
        for start, module in self.named_modules():
            if isinstance(module, by_position):
                names.update(f"{start}.{name}" for name, _ in module.named_parameters())
        return names

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Patterns of names for timm's layer-wise rates; the groups are those of :meth:`layer_groups`."""
        blocks = r"^encoder_blocks" if coarse else [(r"^encoder_blocks\.(\d+)", None), (r"^norm", (99999,))]
        stem = "|".join((*OWN_TOKENS, "to_patch_embedding", "symbol_retriever"))
        return {"stem": f"^(?:{stem})", "blocks": blocks}

    def layer_groups(self) -> list[dict[str, nn.Parameter]]:
        """Parameters by depth and name, for layer-wise rates: L + 2 groups.

        The first holds what comes before the blocks, and the symbol retriever, which all blocks read; then follows a
        group for each block, the last with the last normalisation; then the classifier.
        """
        groups: list[dict[str, nn.Parameter]] = [{} for _ in range(len(self.encoder_blocks) + 2)]
        for name, parameter in self.named_parameters():
            part, _, rest = name.partition(".")
            places = {"encoder_blocks": int(rest.split(".")[0]) + 1} if part == "encoder_blocks" else PLACES
            groups[places.get(part, 0)][name] = parameter
        return groups
