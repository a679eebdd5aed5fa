"""Base of the sequence-to-sequence models: embeddings, positions, output layer, loss, decoding with a cache.

Shapes: B batch, S length of the source, T length of the target, t earlier target positions in a cache, d width of the
model, V classes, or width of a vector output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from .._layers.cache import Cache, CacheGroup
from .._layers.call import cache_parts, shared_pattern, transaction
from .._layers.inputs import check_choice, check_depth, check_dropout, check_padding, check_positive
from .._layers.options import check_complete, checked_options, options_dict
from .._layers.symbols import Symbols
from ..configs import EmbeddingInit, LossType, PairPositions, Seq2SeqConfig
from ..functional import MaskPattern, cross_entropy
from ..functional.checks import MaybeNone, check_same_device
from ..functional.losses import mean_squared_error
from ..generation import GeneratesTargets
from ..positional_encoding import LearnedPositionalEmbeddings, SinusoidalPositionalEncoding
from .flops import PER_PRODUCT, Arithmetic, pair_products, weights_used
from .inputs import check_specified, count_positions
from .stack import apply_blocks, are_causal
from .token_model import rotary_arguments, rotary_encoding
from .weights import TiesWeights, move_prefix

Side = Literal["encoder", "decoder"]

# How the two kinds of input name their size.
_SIZES = {"token": "vocab_size", "vector": "dim"}
_POSITIONS = {"sinusoidal": SinusoidalPositionalEncoding, "learned": LearnedPositionalEmbeddings}

_EMBEDDING, _OUTPUT = "layers.target_embedder.", "layers.final_out."
# The published package makes the output layer a part of the embedding, named `weights`, and so ties nothing.
_PUBLISHED = "layers.target_embedder.weights."


class Seq2SeqModel(GeneratesTargets, TiesWeights, Arithmetic):
    """A sequence-to-sequence model; its subclasses make the blocks and retrieve their symbols.

    Parts are in one ``ModuleDict``, ``layers``, under the names of the published state dicts.

    >>> words, sizes = {"type": "token", "vocab_size": 50}, {"n_heads": 2, "dff": 64}
    >>> decoder = {**sizes, "n_heads_cross": 2}
    >>> model = Seq2SeqTransformer(words, words, 32, 50, 1, 1, sizes, decoder, in_block_size=9, out_block_size=9)
    >>> isinstance(model, Seq2SeqModel), model.get_num_params() > 0
    (True, True)
    """

    gradient_checkpointing: bool = False
    """Whether blocks keep only their inputs for the backward pass, and are computed again there."""

    _kinds: Mapping[Side, Any]
    """Classes of the blocks."""

    update_symbols_each_layer: bool = True
    """Whether symbols are retrieved anew for each block, or on each side once for the first."""

    encoder_is_optional: bool = False
    """Whether a model of this kind may have no encoder blocks."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        width, kind = config.d_model, config.pos_enc
        sizes = ("d_model", "out_dim", "in_block_size", "out_block_size")
        check_positive(**{name: getattr(config, name) for name in sizes})
        check_depth(n_layers_dec=config.n_layers_dec)
        check_depth(0 if self.encoder_is_optional else 1, n_layers_enc=config.n_layers_enc)
        check_choice("pos_enc", kind, PairPositions)
        check_choice("loss_type", config.loss_type, (*get_args(LossType), None))
        check_choice("embedding_init", config.embedding_init, (*get_args(EmbeddingInit), None))
        self.input_spec = _checked_spec("input_spec", config.input_spec)
        self.output_spec = _checked_spec("output_spec", config.output_spec)
        of_tokens = self.output_spec["type"] == "token"
        self.d_model = width
        self.out_dim = config.out_dim
        self.n_layers_enc = config.n_layers_enc
        self.n_layers_dec = config.n_layers_dec
        self.encoder_kwargs = options_dict("encoder_kwargs", config.encoder_kwargs)
        self.decoder_kwargs = options_dict("decoder_kwargs", config.decoder_kwargs)
        self.in_block_size = config.in_block_size
        self.out_block_size = config.out_block_size
        self.loss_ignore_idx = config.loss_ignore_idx
        self.loss_type: LossType = config.loss_type or ("cross_entropy" if of_tokens else "mse")
        self.pos_enc: PairPositions = kind
        self.tie_weights = config.tie_weights and of_tokens

        def positions(longest: int) -> nn.Module:
            if kind == "none":
                return nn.Dropout(check_dropout("embedding_dropout", config.embedding_dropout))
            return _POSITIONS[kind](width, dropout=config.embedding_dropout, max_len=longest)

        encoder_blocks = [self._create_block("encoder", config) for _ in range(config.n_layers_enc)]
        decoder_blocks = [self._create_block("decoder", config) for _ in range(config.n_layers_dec)]
        self.layers = nn.ModuleDict(
            {
                "source_embedder": _embedder(self.input_spec, width),
                "target_embedder": _embedder(self.output_spec, width),
                "source_pos_embedder": positions(config.in_block_size),
                "target_pos_embedder": positions(config.out_block_size),
                "encoder_blocks": nn.ModuleList(encoder_blocks),
                "decoder_blocks": nn.ModuleList(decoder_blocks),
                "final_out": nn.Linear(width, config.out_dim),
            }
        )
        self.scales_embeddings = (config.embedding_init or ("scaled" if self.tie_weights else "")) == "scaled"
        self.scale_embeddings_()
        if self.tie_weights and self.out_dim != self.output_spec["vocab_size"]:
            raise ValueError(f"tie_weights: needs out_dim={self.output_spec['vocab_size']}, got {self.out_dim}")
        self.rope: Any = None if config.rope_theta is None else self._rotary(config, config.rope_theta)
        self.register_load_state_dict_pre_hook(_before_loading)
        self._keep_tied()

    def _create_block(self, side: Side, config: Any) -> nn.Module:
        """One of the encoder's or decoder's blocks; ``config`` is of the subclass."""
        kind, name = self._kinds[side], f"{side}_kwargs"
        options = checked_options(name, getattr(config, name), kind, taken=("d_model",))
        check_complete(name, {"d_model": config.d_model, **options}, kind)
        return kind(config.d_model, **({"causal": True} if side == "decoder" else {}) | options)

    def _rotary(self, config: Seq2SeqConfig, theta: float) -> nn.ModuleDict:
        """RoPE of the self-attention of each side."""
        lengths: dict[Side, int] = {"encoder": config.in_block_size, "decoder": config.out_block_size}
        own = {side: (self._blocks(side)[0].attention, longest) for side, longest in lengths.items()}
        return nn.ModuleDict(
            {side: rotary_encoding(*heads, theta, name=f"{side}_kwargs") for side, heads in own.items()}
        )

    def _tie(self) -> None:
        if self.tie_weights:
            self.layers["final_out"].weight = self.layers["target_embedder"].weight

    def scale_embeddings_(self) -> None:
        """Draw the embeddings of tokens anew from N(0, 1/d) if they begin scaled; others are left."""
        for name in ("source_embedder", "target_embedder") if self.scales_embeddings else ():
            embedding = self.layers[name]
            if isinstance(embedding, nn.Embedding):
                nn.init.normal_(embedding.weight, std=self.d_model**-0.5)

    def untie_weights(self) -> None:
        """Give the output layer a weight of its own, which begins as the embedding's. Build optimisers after this."""
        if self.tie_weights:
            shared = self.layers["target_embedder"].get_parameter("weight")
            own = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)
            self.layers["final_out"].weight = own
            self.tie_weights = False

    @property
    def is_causal(self) -> bool:
        """Whether no target position sees a later one."""
        return are_causal(self._blocks("decoder"))

    @property
    def memory_dim(self) -> int:
        """Width of what the decoder reads of the source."""
        return self.d_model

    def forward(
        self,
        x: Tensor,
        y: Tensor,
        targets: Tensor | None = None,
        *,
        source_padding_mask: Tensor | None = None,
        target_padding_mask: Tensor | None = None,
        loss_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | MaybeNone]:
        """Predict each position of the target from the source and, with a causal decoder, the target up to it.

        Padding may be on the left or on the right. Neither its content nor its length matters.

        Args:
            x: source: token ids ``(B, S)`` or vectors ``(B, S, dim)``.
            y: what the decoder reads, token ids ``(B, T)`` or vectors ``(B, T, dim)``: the target one position late,
                after a start token.
            targets: what to predict: classes, integers ``(B, T)``, or with ``loss_type="mse"`` vectors ``(B, T, V)``.
            source_padding_mask, target_padding_mask: boolean ``(B, S)`` and ``(B, T)``; True = a real position. What
                is padding in ``y`` is not scored.
            loss_mask: boolean ``(B, T)``; True = scored. A class ``loss_ignore_idx`` is not, either.

        Returns:
            With targets ``(logits, loss)``: ``(B, T, V)`` and the mean loss of what is scored, 0 if nothing is. Without
            them the logits ``(B, 1, V)`` of the last real position, and None; :meth:`decode` gives those of all.

        Raises:
            TypeError, ValueError: if a shape, dtype or length is wrong, or a token id is out of range.
        """
        memory = self.encode(x, source_padding_mask=source_padding_mask)
        hidden = self._decode(y, memory, source_padding_mask, target_padding_mask, None)
        check_padding("loss_mask", loss_mask, *hidden.shape[:2])
        final_out = self.layers["final_out"]
        if targets is None:
            return final_out(last_real(hidden, target_padding_mask, "y: expected at least one position")), None
        check_same_device(y=y, targets=targets)
        masks = [mask for mask in (target_padding_mask, loss_mask) if mask is not None]
        scored = torch.stack(masks).all(dim=0) if masks else None
        logits = final_out(hidden)
        if self.loss_type == "mse":
            if not targets.is_floating_point():
                raise TypeError(f"targets: expected floating-point vectors for loss_type='mse', got {targets.dtype}")
            return logits, mean_squared_error(logits, targets, scored)
        if scored is not None and targets.shape == scored.shape:
            targets = targets.masked_fill(~scored, self.loss_ignore_idx)
        return logits, cross_entropy(logits, targets, ignore_index=self.loss_ignore_idx)

    def encode(self, x: Tensor, *, source_padding_mask: Tensor | None = None) -> Tensor:
        """The memory ``(B, S, memory_dim)`` that the decoder attends to; arguments as :meth:`forward`."""
        embedder = self.layers["source_embedder"]
        check_specified("x", x, self.input_spec, "in_block_size", self.in_block_size, layer=embedder)
        check_padding("source_padding_mask", source_padding_mask, *x.shape[:2])
        positions = count_positions(source_padding_mask)
        pattern = shared_pattern(x, x.shape[1], padding=source_padding_mask)
        return self._remember(self._embed("source", x, positions), positions, pattern)

    def _remember(self, source: Tensor, positions: Tensor | None, pattern: MaskPattern) -> Tensor:
        """The memory of the embedded source ``(B, S, d)``; ``pattern``: its pairs that may be attended."""
        return self._apply_blocks("encoder", source, (), positions, None, attn_mask=pattern)

    def decode(
        self,
        y: Tensor,
        memory: Tensor,
        *,
        source_padding_mask: Tensor | None = None,
        target_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Logits ``(B, T, V)`` of all positions of a target, given the memory ``(B, S, memory_dim)`` of :meth:`encode`.

        Args:
            y: target as in :meth:`forward`; with a cache, only the new positions.
            source_padding_mask: boolean ``(B, S)``; True = a real position.
            target_padding_mask: boolean ``(B, t + T)``, of the earlier positions too.
            cache: from ``new_cache``; these positions are appended, unless the call fails. The memory is read by
                the first call; later ones must give one of the same shape.
        """
        with transaction(cache):
            return self.layers["final_out"](self._decode(y, memory, source_padding_mask, target_padding_mask, cache))

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache for :meth:`decode`; ``max_length``: most positions to come, reserved at once."""
        caches: dict[str, Cache] = {}
        for name, path in self._cache_names("decoder").items():
            module: Any = self.get_submodule(path)
            caches[name] = module.new_cache(max_length)
        return CacheGroup(caches)

    def _decode(
        self,
        y: Tensor,
        memory: Tensor,
        source_padding_mask: Tensor | None,
        target_padding_mask: Tensor | None,
        cache: Cache | None,
    ) -> Tensor:
        """Output of the decoder blocks, ``(B, T, d)``."""
        seen = 0 if cache is None else cache.length
        embedder = self.layers["target_embedder"]
        check_specified("y", y, self.output_spec, "out_block_size", self.out_block_size, seen, layer=embedder)
        batch, length = y.shape[:2]
        if memory.dim() != 3 or memory.shape[0] != batch or memory.shape[2] != self.memory_dim:
            raise ValueError(f"memory: expected ({batch}, length, {self.memory_dim}), got {tuple(memory.shape)}")
        check_padding("source_padding_mask", source_padding_mask, *memory.shape[:2])
        check_padding("target_padding_mask", target_padding_mask, batch, seen + length)
        positions = count_positions(target_padding_mask, earlier=seen)
        # Symbols count on by themselves; the embedding has no memory of what it saw.
        places = torch.arange(seen, seen + length, device=y.device)[None] if seen and positions is None else positions
        y = self._embed("target", y, places)
        own = shared_pattern(y, seen + length, padding=target_padding_mask, causal=self.is_causal, earlier=seen)
        cross = shared_pattern(y, memory.shape[1], padding=source_padding_mask)
        return self._apply_blocks("decoder", y, (memory,), positions, cache, attn_mask=own, context_mask=cross)

    def _embed(self, name: str, x: Tensor, positions: Tensor | None) -> Tensor:
        x = self.layers[f"{name}_embedder"](x if x.is_floating_point() else x.long())
        place = self.layers[f"{name}_pos_embedder"]
        return place(x) if self.pos_enc == "none" else place(x, positions)

    def _apply_blocks(
        self,
        side: Side,
        x: Tensor,
        context: tuple[Tensor, ...],
        positions: Tensor | None,
        cache: Cache | None,
        **shared: Any,
    ) -> Tensor:
        caches = cache_parts(cache, tuple(self._cache_names(side)))
        blocks = self._blocks(side)
        if self.rope is not None:
            earlier = 0 if cache is None else cache.length
            shared |= rotary_arguments(self.rope[side], positions, x.shape[1], earlier)

        def step(number: int, x: Tensor, symbols: Symbols | None) -> tuple[Tensor, Symbols | None]:
            if symbols is None:
                symbols = self._retrieve(side, x, positions, caches.get(f"symbols{number}"))
            given = context if symbols is None else (*context, symbols)
            out = blocks[number](x, *given, cache=caches[f"block{number}"], **shared)
            return out, symbols if not self.update_symbols_each_layer else None

        recompute = self.gradient_checkpointing and cache is None
        return apply_blocks(step, len(blocks), x, recompute=recompute)

    def _blocks(self, side: Side) -> list[Any]:
        return list(self.layers[f"{side}_blocks"].children())

    def flops_per_pair(self, source_length: int | None = None, target_length: int | None = None) -> int:
        """Floating-point operations of a training step for one pair of source and target, forward and backward.

        Counted as :meth:`LanguageModel.flops_per_token
        <dual_attention.language_models.LanguageModel.flops_per_token>` does, each weight for the positions that pass
        through it: those of the source in the encoder and in the keys and values of cross-attention, those of the
        target in all else. Lengths are by default the largest.
        """
        s = self.in_block_size if source_length is None else source_length
        t = self.out_block_size if target_length is None else target_length
        encoder, decoder = self._parts_of_encoder(), self._blocks("decoder")
        crosses = [part.cross_attn for block in decoder for part in block.modules() if hasattr(part, "cross_attn")]
        context = [layer for cross in crosses for layer in (cross.wk, cross.wv)]
        ends = self.layers["target_embedder"], self.layers["final_out"]
        for_source = weights_used([self.layers["source_embedder"], *encoder, *context])
        for_target = weights_used([*ends, *decoder, *self._retrievers_used("decoder")]) - weights_used(context)
        cross = sum(pair_products(attention) for attention in crosses)
        own = sum(pair_products(block) for block in decoder) - cross
        pairs = sum(pair_products(block) for block in encoder) * s * s + own * t * t + cross * t * s
        return PER_PRODUCT * (for_source * s + for_target * t + pairs)

    def _flops_per_example(self) -> int:
        return self.flops_per_pair()

    def _parts_of_encoder(self) -> list[nn.Module]:
        """Modules that positions of the source pass through, after their embedding."""
        return [*self._blocks("encoder"), *self._retrievers_used("encoder")]

    def _retrievers_used(self, side: Side) -> list[nn.Module]:
        """Symbol retrievers of one side, as often as it calls them."""
        return []

    def _cache_names(self, side: Side) -> dict[str, str]:
        """Names of the caches that one side needs, and of the modules that they belong to."""
        depth = self.n_layers_enc if side == "encoder" else self.n_layers_dec
        return {f"block{number}": f"layers.{side}_blocks.{number}" for number in range(depth)}

    def _retrieve(self, side: Side, x: Tensor, positions: Tensor | None, cache: Cache | None) -> Symbols | None:
        """Symbols for the positions that enter a block, before its normalisation; None for one that takes none."""
        return None


def _checked_spec(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``input_spec`` or ``output_spec``."""
    if not isinstance(spec, Mapping):
        raise TypeError(f"{name}: expected a mapping such as {{'type': 'token', 'vocab_size': 85}}, got {spec!r}")
    kind = spec.get("type")
    if kind not in _SIZES:
        raise ValueError(f"{name}: expected 'type' to be 'token' or 'vector', got {kind!r}")
    size = spec.get(_SIZES[kind])
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"{name}: expected {_SIZES[kind]!r} of a {kind} to be a positive integer, got {size!r}")
    return dict(spec)


def _embedder(spec: Mapping[str, Any], d_model: int) -> nn.Module:
    if spec["type"] == "token":
        return nn.Embedding(spec["vocab_size"], d_model)
    return nn.Linear(spec["dim"], d_model)


def last_real(hidden: Tensor, padding_mask: Tensor | None, expected: str) -> Tensor:
    """The last real position of each example, the first if there is none: ``(B, T, d) -> (B, 1, d)``."""
    if not hidden.shape[1]:
        raise ValueError(f"{expected}, got none")
    if padding_mask is None:
        return hidden[:, -1:]
    places = torch.arange(hidden.shape[1], device=hidden.device)
    last = (padding_mask.to(hidden.device).bool() * places).amax(dim=1)
    return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))


def _before_loading(model: Seq2SeqModel, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Take a state dict of a model that ties its weights, of one that does not, or of the published package."""
    published = move_prefix(state_dict, prefix + _PUBLISHED, prefix + _OUTPUT)
    *_, missing, _, errors = rest
    names = f"{_EMBEDDING}weight", f"{_OUTPUT}weight"
    problem = model.fill_tied(state_dict, prefix, names, missing) if model.tie_weights else ""
    if problem and published:
        model.untie_weights()
    elif problem:
        errors.append(problem)
