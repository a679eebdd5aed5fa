"""The modules that are measured, built from whichever ``dual_attention`` this process imports.

The same file runs in this library's environment and in the published package's: constructors and state dicts of the two
agree, so one description builds both sides and one state dict fills them. Imports of the library are therefore made by
name, when a module is built.

Shapes: B batch, N tokens, M tokens of a source, d width of the model.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def library(module: str) -> Any:
    """A module of the ``dual_attention`` at hand."""
    return importlib.import_module(f"dual_attention.{module}")


def free_workspace() -> None:
    """Give back the memory that the library at hand keeps between calls, if it does."""
    with contextlib.suppress(ModuleNotFoundError):  # the published package has no such module
        library("functional").free_workspace()


def retriever(description: Mapping[str, Any]) -> nn.Module:
    """The symbol retriever of the class ``description["kind"]``; the other entries are its arguments."""
    arguments = dict(description)
    return getattr(library("symbol_retrieval"), arguments.pop("kind"))(**arguments)


class Rotary(nn.Module):
    """Tables of the rotary embedding (arXiv 2104.09864), for both libraries alike: ``(length, width / 2)``."""

    cos: Tensor
    sin: Tensor

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)


class Stacks(nn.Module):
    """Base of what has blocks: of a Dual Attention Transformer, with one retriever that all layers ask, each with its
    own input; or of a standard Transformer, without ``symbols``.

    Args:
        symbols: of :func:`retriever`.
    """

    def __init__(self, symbols: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.retriever = None if symbols is None else retriever(symbols)

    def blocks_of(self, part: str, d_model: int, n_layers: int, arguments: Mapping[str, Any]) -> nn.ModuleList:
        """Blocks of an ``"Encoder"`` or a ``"Decoder"``."""
        module, kind = ("transformer_blocks", "") if self.retriever is None else ("dual_attn_blocks", "DualAttn")
        block = getattr(library(module), f"{kind}{part}Block")
        return nn.ModuleList(block(d_model, dropout_rate=0.0, **arguments) for _ in range(n_layers))

    def symbols(self, x: Tensor) -> tuple[Tensor, ...]:
        """The further argument of a block with dual attention."""
        return () if self.retriever is None else (self.retriever(x),)


class Layers(Stacks):
    """Blocks of an encoder.

    Args:
        d_model, n_layers: of the blocks; block: their other arguments.
        rotary: longest sequence for rotary embedding; None for none.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        block: Mapping[str, Any],
        symbols: Mapping[str, Any] | None = None,
        rotary: int | None = None,
    ) -> None:
        super().__init__(symbols)
        self.blocks = self.blocks_of("Encoder", d_model, n_layers, block)
        heads = block["n_heads"] if symbols is None else block["n_heads_sa"] + block["n_heads_ra"]
        self.rotary = None if rotary is None else Rotary(d_model // heads, rotary)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, N, d) -> (B, N, d)``."""
        tables = (None, None) if self.rotary is None else (self.rotary.cos, self.rotary.sin)
        for block in self.blocks:
            x = block(x, *self.symbols(x), *tables)
        return x


class EncoderDecoder(Stacks):
    """Encoder and decoder blocks of the paper's sequence-to-sequence model.

    Args:
        d_model, n_layers: of both stacks; encoder, decoder: other arguments of their blocks.
    """

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        encoder: Mapping[str, Any],
        decoder: Mapping[str, Any],
        symbols: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(symbols)
        self.encoder = self.blocks_of("Encoder", d_model, n_layers, encoder)
        self.decoder = self.blocks_of("Decoder", d_model, n_layers, decoder)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """A source ``(B, M, d)`` and a target ``(B, N, d)`` to ``(B, N, d)``."""
        for block in self.encoder:
            x = block(x, *self.symbols(x))
        for block in self.decoder:
            y = block(y, x, *self.symbols(y))
        return y


class RelationalLayer(nn.Module):
    """One layer of relational attention by itself.

    Args:
        causal: no token sees a later one.
        symbols: of :func:`retriever`, for position-relative symbols; None if symbols are an input.
        layer: other arguments of ``RelationalAttention``.
    """

    def __init__(self, causal: bool, symbols: Mapping[str, Any] | None = None, **layer: Any) -> None:
        super().__init__()
        self.causal = causal
        self.retriever = None if symbols is None else retriever(symbols)
        self.layer = library("relational_attention").RelationalAttention(**layer)

    def forward(self, x: Tensor, symbols: Tensor | None = None) -> Tensor:
        """``(B, N, d)``, and symbols ``(B, N, d)`` unless there is a retriever, to ``(B, N, width of the heads)``."""
        named = symbols if self.retriever is None else self.retriever(x)
        return self.layer(x, named, is_causal=self.causal)[0]


class PlainLayer(nn.Module):
    """One layer of multi-head attention by itself; arguments as :class:`RelationalLayer`."""

    def __init__(self, causal: bool, **layer: Any) -> None:
        super().__init__()
        self.causal = causal
        self.layer = library("attention").Attention(dropout=0.0, **layer)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, N, d) -> (B, N, width of the heads)``."""
        return self.layer(x, x, x, is_causal=self.causal)[0]


class Operation(nn.Module):
    """The operation on projected tensors, which only this library has."""

    def __init__(self, causal: bool, scale: float, rel_scale: float, relative: bool = False) -> None:
        super().__init__()
        self.causal, self.scales, self.relative = causal, {"scale": scale, "rel_scale": rel_scale}, relative

    def forward(self, q: Tensor, k: Tensor, u: Tensor, w: Tensor, symbols: Tensor, w_r: Tensor) -> Tensor:
        """Arguments of :func:`dual_attention.functional.relational_attention`; relative symbols as their library."""
        functional = library("functional")
        n, m = q.shape[2], k.shape[2]
        pattern = functional.MaskPattern(n, m, causal=self.causal)
        named = library("functional.symbols").OffsetSymbols(symbols, n, m) if self.relative else symbols
        return functional.relational_attention(q, k, u, w, named, w_r, mask=pattern, **self.scales).output


class Model(nn.Module):
    """A whole model: ``kind`` is its class, ``module.Class`` within the package, the rest its arguments."""

    def __init__(self, kind: str, **arguments: Any) -> None:
        super().__init__()
        module, name = kind.rsplit(".", 1)
        self.model = getattr(library(module), name)(**arguments)

    def forward(self, x: Tensor) -> Tensor:
        """The model's scores, without the loss that language models return beside them."""
        output = self.model(x)
        return output[0] if isinstance(output, tuple) else output

    def generate(self, prompt: Tensor, new: int) -> Tensor:
        """Greedy continuation: ``(B, N)`` to ``(B, N + new)``; by the library's function if there is no method."""
        if hasattr(self.model, "generate"):
            return self.model.generate(prompt, new, top_k=1)
        return library("generation").generate(self.model, prompt, new, top_k=1)


class LlamaLayers(nn.Module):
    """Decoder layers of transformers' Llama, with its final normalisation, fed with vectors."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        transformers = importlib.import_module("transformers")
        # Embeddings are not used, so they are small.
        settings = transformers.LlamaConfig(
            vocab_size=8, attn_implementation="sdpa", bos_token_id=None, eos_token_id=None, **config
        )
        self.model = transformers.LlamaModel(settings)

    def forward(self, x: Tensor) -> Tensor:
        """``(B, N, d) -> (B, N, d)``, causal."""
        return self.model(inputs_embeds=x, use_cache=False).last_hidden_state


class TransformersModel(nn.Module):
    """A language model of transformers' kind, with the generation of transformers."""

    model: Any

    def forward(self, x: Tensor) -> Tensor:
        """Tokens ``(B, N)`` to scores ``(B, N, vocabulary)``."""
        return self.model(x, use_cache=False).logits

    def generate(self, prompt: Tensor, new: int) -> Tensor:
        """Greedy continuation: ``(B, N)`` to ``(B, N + new)``."""
        mask = torch.ones_like(prompt)
        return self.model.generate(prompt, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False)


class LlamaModel(TransformersModel):
    """transformers' Llama."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        transformers = importlib.import_module("transformers")
        # No token ends the text: every side generates as many as it is asked for.
        settings = transformers.LlamaConfig(attn_implementation="sdpa", bos_token_id=None, eos_token_id=None, **config)
        self.model = transformers.LlamaForCausalLM(settings)


class DualModelForTransformers(TransformersModel):
    """A Dual Attention Transformer as transformers has it."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        hf = library("hf")
        self.model = hf.DualAttnForCausalLM(hf.DualAttnConfig(**config))


SUBJECTS: dict[str, Callable[..., nn.Module]] = {
    "dual_layers": Layers,
    "plain_layers": Layers,
    "llama_layers": LlamaLayers,
    "dual_encoder_decoder": EncoderDecoder,
    "plain_encoder_decoder": EncoderDecoder,
    "relational_layer": RelationalLayer,
    "plain_layer": PlainLayer,
    "operation": Operation,
    "model": Model,
    "llama_model": LlamaModel,
    "dual_model_for_transformers": DualModelForTransformers,
}


def build(subject: str, kwargs: Mapping[str, Any]) -> nn.Module:
    """The module of that name, with weights from the global generator."""
    return SUBJECTS[subject](**kwargs)
