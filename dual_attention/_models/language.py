"""Base of the language models: everything except the blocks.

Shapes: B batch, N length (of the new tokens, with a cache), t earlier tokens, d width of the model, V size of the
vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._base.words import repr_of_shapes
from .._layers.cache import Cache, CacheGroup
from .._layers.call import cache_parts, transaction
from .._layers.calls import takes
from .._layers.inputs import is_offloaded
from .._layers.options import checked_options, options_dict
from ..configs import DecoderLanguageConfig
from ..functional import cross_entropy, linear_cross_entropy
from ..functional.checks import MaybeNone
from ..generation import Generates
from ..positional_encoding import RotaryPositionalEncoding
from ..transformer_blocks import create_norm
from .flops import PER_PRODUCT, Arithmetic, BesidePlain, beside_plain, pair_products, weights_used
from .inputs import IGNORED, check_targets
from .stack import BlockInputs, Trace
from .token_model import TokenModel
from .weights import TiesWeights


class LanguageModelOutput(NamedTuple):
    """Output of a language model.

    Attributes:
        logits: ``(B, N, V)``; ``(B, 1, V)`` or None if asked for less.
        loss: mean cross-entropy of the targets in nats, a scalar; None without targets.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> logits, loss = lm(torch.randint(50, (2, 9)))
    >>> logits.shape, loss
    (torch.Size([2, 9, 50]), None)
    """

    logits: Tensor | MaybeNone
    loss: Tensor | MaybeNone = None

    __repr__ = repr_of_shapes


class Layers(nn.ModuleDict):
    """The layers under the names of published state dicts."""

    token_embedder: nn.Embedding
    positional_embedder: nn.Embedding
    dropout: nn.Dropout
    symbol_retrievers: Any  # as the blocks an nn.ModuleList, of which a type checker knows no item
    blocks: Any
    norm: nn.Module
    final_out: nn.Linear


class LanguageModel(Generates, TiesWeights, Arithmetic, TokenModel):
    """A decoder-only language model; its subclasses make the blocks, and symbol retrievers if they have any.

    >>> lm = TransformerLM(vocab_size=50, d_model=32, n_layers=1, n_heads=2, max_block_size=16)
    >>> isinstance(lm, LanguageModel), lm.loss(torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]])).shape
    (True, torch.Size([]))
    """

    _block_kind: Any
    """Class of the blocks."""
    takes_fixed_caches = True
    """Whether a step may be recorded, as ``generate(graph=True)`` does."""
    tied_names = ("layers.token_embedder.weight", "layers.final_out.weight")

    def __init__(self, config: DecoderLanguageConfig) -> None:
        super().__init__(config)
        self.given = config  # for whoever saves it
        self.tie_weights = config.tie_weights
        self.dff = config.dff
        self.activation = config.activation
        self.norm_first = config.norm_first
        self.bias = config.bias
        self.block_kwargs = options_dict("block_kwargs", config.block_kwargs)

        width, vocab_size = config.d_model, config.vocab_size
        symbol_retrievers = self._create_retrievers(config)
        blocks: list[Any] = [self._create_block(config, layer) for layer in range(1, config.n_layers + 1)]
        layers: dict[str, nn.Module] = {
            "token_embedder": nn.Embedding(vocab_size, width),
            "dropout": nn.Dropout(config.dropout_rate),
            "blocks": nn.ModuleList(blocks),
            "norm": create_norm(width, config.norm_type if config.final_norm else "none"),
            "final_out": nn.Linear(width, vocab_size, bias=config.output_bias),
        }
        if symbol_retrievers:
            layers["symbol_retrievers"] = nn.ModuleList(symbol_retrievers)
        if config.pos_enc_type == "pos_emb":
            layers["positional_embedder"] = nn.Embedding(config.max_block_size, width)
        self.layers = Layers(layers)
        self.rope = self._rotary_encoding(blocks[0].attention, config)

    def _create_block(self, config: DecoderLanguageConfig, layer: int) -> nn.Module:
        """The block of a layer, from 1 on; causal."""
        kind = self._block_kind
        fields = config.arguments_for(kind)
        own = checked_options("block_kwargs", config.block_kwargs, kind, taken=("causal", *fields))
        return kind(**fields, causal=True, **own)

    def _create_retrievers(self, config: DecoderLanguageConfig) -> Sequence[nn.Module]:
        """A symbol retriever for each block, or none at all."""
        return ()

    def _finish(self, dtype: torch.dtype | None) -> None:
        """The last step of every constructor."""
        self._keep_tied()
        if not self.layers.final_out.weight.is_meta:  # which could not hold what is drawn
            self.init_weights()
        if dtype is not None:  # fake tensors cannot be converted
            self.to(dtype=dtype)

    def _tie(self) -> None:
        embedder, out = self.layers.token_embedder, self.layers.final_out
        if self.tie_weights and isinstance(embedder, nn.Embedding) and isinstance(out, nn.Linear):  # not wrapped
            embedder.weight = out.weight

    @property
    def freqs_cos(self) -> Tensor:
        """RoPE's cosines, ``(max_block_size, width / 2)``."""
        return self._rotary().freqs_cos

    @property
    def freqs_sin(self) -> Tensor:
        """RoPE's sines, ``(max_block_size, width / 2)``."""
        return self._rotary().freqs_sin

    def _rotary(self) -> RotaryPositionalEncoding:
        if self.rope is None:
            raise AttributeError(f"there are no rotary tables with pos_enc_type={self.pos_enc_type!r}")
        return self.rope

    def forward(
        self,
        x: Tensor | None,
        targets: Tensor | None = None,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        embeddings: Tensor | None = None,
        all_logits: bool = True,
        loss_only: bool = False,
    ) -> LanguageModelOutput:
        """Predict the next token at every position.

        Args:
            x: token ids, integers ``(B, N)``; with a cache from ``new_cache`` the new ones only. None if
                ``embeddings`` are given.
            targets: integers ``(B, N)``: the token after each, or -1 where there is nothing to predict. Nothing is
                shifted here. Padding is not scored.
            padding_mask: boolean, ``(B, t + N)``; True = a real token. Padding may be on either side.
            segments: integers ``(B or 1, N)``: sequences packed into one, end to end, do not see each other, and
                positions begin again with each. A row may be longer than the context then, its sequences may not. Of
                rows that processes share (context parallel), ``(B or 1, t + N)``.
            positions: integers ``(B or 1, N)``, if they are not to be counted from the real tokens of each sequence.
            cache: of t earlier tokens; these are appended.
            embeddings: vectors ``(B, N, d)`` in the place of those that the token ids are embedded as, such as learned
                prompts; learned positions are added to them.
            all_logits: otherwise only those of the last position, ``(B, 1, V)``.
            loss_only: no logits at all. Whenever the loss is not computed from returned logits, it is computed without
                holding all of them, see :func:`~dual_attention.functional.linear_cross_entropy`.

        Raises:
            TypeError, ValueError: if an argument is of the wrong dtype or shape, the sequence is longer than the
                context, or a token on the CPU is out of range. A cache is then as it was.
        """
        with transaction(cache):
            if loss_only and targets is None:
                raise ValueError("loss_only: needs targets")
            start = 0 if cache is None else cache.length
            embedded, inputs = self._enter(
                x, padding_mask=padding_mask, segments=segments, positions=positions, cache=cache, embeddings=embeddings
            )
            hidden = self.layers.norm(self._pass(embedded, inputs))
            if targets is not None:
                check_targets(targets, hidden)
            logits = loss = None
            if not loss_only:
                logits = self.layers.final_out(hidden if all_logits else hidden[:, -1:])
            if targets is not None:
                if padding_mask is not None:
                    targets = targets.masked_fill(~padding_mask[:, start:], IGNORED)
                loss = self.loss_from_hidden(hidden, targets, logits if all_logits else None)
            return LanguageModelOutput(logits, loss)

    def loss(self, x: Tensor, targets: Tensor, **arguments: Any) -> Tensor:
        """Mean cross-entropy in nats, without logits.

        A wrapper that compiles or distributes a model knows only its call: ``wrapped(x, targets, loss_only=True)``.
        """
        loss = self(x, targets, loss_only=True, **arguments)[1]
        assert loss is not None
        return loss

    def _enter(
        self,
        x: Tensor | None,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        embeddings: Tensor | None = None,
    ) -> tuple[Tensor, BlockInputs]:
        """Embedded tokens with their positions, and the inputs of every block; arguments as :meth:`forward`."""
        caches = [] if cache is None else self._caches(cache)
        seen = None if cache is None else cache.length
        embedded = self._embed(self.layers.token_embedder, x, embeddings)
        gathered = cache is not None and cache.gathers
        if cache is not None and cache.steps is not None:
            if not (padding_mask is None and positions is None):
                raise ValueError("padding_mask, positions: a cache of a fixed size knows them, expected None")
            positions = cache.steps.positions(embedded.shape[1])
        positions, arguments = self._place(embedded, padding_mask, segments, positions, seen, gathered)
        if self.pos_enc_type == "pos_emb":
            here = torch.arange(embedded.shape[1], device=embedded.device)
            places = here + (seen or 0) if positions is None else positions
            embedded = embedded + self.layers.positional_embedder(places)
        return self.layers.dropout(embedded), BlockInputs(arguments, positions, caches)

    @takes(_enter)
    def hidden(self, *args: Any, **kwargs: Any) -> Tensor:
        """Input of the output layer, ``(B, N, d)``; arguments as :meth:`forward`."""
        with transaction(kwargs.get("cache")):
            return self.layers.norm(self._pass(*self._enter(*args, **kwargs)))

    @takes(_enter)
    def trace(self, *args: Any, **kwargs: Any) -> Trace:
        """All hidden states, and the maps of all blocks, which are built for this; arguments as :meth:`forward`."""
        with transaction(kwargs.get("cache")):
            states, maps = self._record(*self._enter(*args, **kwargs))
            return Trace(self.layers.norm(states[-1]), states, maps)

    def _stack(self) -> nn.ModuleList:
        return self.layers.blocks

    def _retrievers_used(self) -> Sequence[nn.Module]:
        """Symbol retrievers, as often as a forward pass calls them."""
        return ()

    def get_num_params(self, non_embedding: bool = True, *, trainable_only: bool = False) -> int:
        """Number of parameters, each counted once under however many names.

        Args:
            non_embedding: leave out tables that are only looked up: learned positions, and the token embedding unless
                it is the output matrix, too.
            trainable_only: leave out what is frozen, as the parameter counts of the paper do with symbol libraries.
        """
        left_out: list[nn.Module] = []
        if non_embedding and self.pos_enc_type == "pos_emb":
            left_out.append(self.layers.positional_embedder)
        if non_embedding and self.layers.token_embedder.weight is not getattr(self.layers.final_out, "weight", None):
            left_out.append(self.layers.token_embedder)
        skipped = {id(parameter) for module in left_out for parameter in module.parameters()}
        return sum(
            parameter.numel()
            for parameter in self.parameters()
            if id(parameter) not in skipped and (parameter.requires_grad or not trainable_only)
        )

    def flops_per_token(self, length: int | None = None) -> int:
        """Floating-point operations of a training step for one token of a sequence, forward and backward.

        The convention is that of PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B). A weight counts as
        often as it is used, so the weights of a shared symbol retriever count for every layer. The length of the
        sequence is by default that of the context.
        """
        weights = weights_used([*self.layers.blocks, *self._retrievers_used(), self.layers.final_out])
        pairs = sum(pair_products(block) for block in self.layers.blocks)
        return PER_PRODUCT * (weights + pairs * (self.block_size if length is None else length))

    def least_beside_plain(self, length: int | None = None) -> BesidePlain | None:
        """Least arithmetic of the layers, as multiples of a plain Transformer's; None without relational attention.

        The length is by default that of the context.
        """
        length = self.block_size if length is None else length
        return beside_plain(self.layers.blocks, self._retrievers_used(), self.d_model, length)

    def _flops_per_example(self) -> int:
        return self.flops_per_token() * self.block_size

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        """An empty cache, to decode token by token or in chunks; ``max_length``: most tokens, reserved at once."""
        kinds: dict[str, Sequence[Any]] = {"blocks": list(self.layers.blocks), "symbols": self._retrievers_used()}
        return CacheGroup(
            {
                kind: CacheGroup({str(layer): part.new_cache(max_length) for layer, part in enumerate(modules)})
                for kind, modules in kinds.items()
                if modules
            }
        )

    def _caches(self, cache: Cache) -> list[dict[str, Cache]]:
        """The caches of each layer, see :class:`.stack.BlockInputs`."""
        counts = {"blocks": self.n_layers, "symbols": len(self._retrievers_used())}
        caches: list[dict[str, Cache]] = [{} for _ in range(self.n_layers)]
        for name, group in cache_parts(cache, tuple(name for name, count in counts.items() if count)).items():
            for layer, part in cache_parts(group, tuple(map(str, range(counts[name])))).items():
                if part is not None:
                    caches[int(layer)][name] = part
        return caches

    def loss_from_hidden(self, hidden: Tensor, targets: Tensor, logits: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of targets in nats, from what :meth:`hidden` returns.

        Args:
            hidden: ``(B, N, d)``.
            targets: integers ``(B, N)``; -1 is not scored.
            logits: ``(B, N, V)`` of all positions if they are there; otherwise not all are held at once.
        """
        if logits is not None:
            return cross_entropy(logits, targets, ignore_index=IGNORED)
        out = self.layers.final_out
        # Of an adapter or a quantised layer, say, what it computes counts, and an offloaded one must be called.
        if type(out) is not nn.Linear or is_offloaded(out.weight, hidden):
            return cross_entropy(out(hidden), targets, ignore_index=IGNORED)
        return linear_cross_entropy(hidden, out.weight, targets, out.bias, ignore_index=IGNORED)
