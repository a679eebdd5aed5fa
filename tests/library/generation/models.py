"""Small language models to generate with, and plain definitions of what generation must return."""

import copy
from functools import cache

import torch
from torch import Tensor, nn

from dual_attention._layers.cache import CacheGroup
from dual_attention.dual_attn_blocks import DualAttnEncoderBlock
from dual_attention.functional import positions_from_padding
from dual_attention.generation import Generates
from dual_attention.positional_encoding import RotaryPositionalEncoding
from dual_attention.symbol_retrieval import SymbolicAttention
from dual_attention.transformer_blocks import EncoderBlock

WIDTH, VOCABULARY, CONTEXT = 8, 13, 8
COMMON = {"dff": 8, "activation": "gelu", "dropout_rate": 0.1, "norm_first": True, "causal": True}


class SmallLM(Generates, nn.Module):
    """Two causal blocks; ``calls`` lists how many tokens each pass read, and ``cached`` whether it was with a cache."""

    def __init__(self, *, dual: bool = True, rope: bool = False, window: int | None = None) -> None:
        super().__init__()
        self.vocab_size, self.block_size = VOCABULARY, CONTEXT
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = None if rope else nn.Embedding(CONTEXT, WIDTH)
        self.rotary = RotaryPositionalEncoding(WIDTH // 4, CONTEXT) if rope else None
        self.retriever = SymbolicAttention(WIDTH, 2, 5) if dual else None
        more = {"window": window}
        self.blocks = nn.ModuleList(
            DualAttnEncoderBlock(WIDTH, 2, 2, **COMMON, sa_kwargs=more, ra_kwargs=more)
            if dual
            else EncoderBlock(WIDTH, 4, **COMMON, attn_kwargs=more)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, VOCABULARY)
        self.calls: list[int] = []
        self.cached: list[bool] = []

    def new_cache(self, max_length: int | None = None) -> CacheGroup:
        caches = {str(i): block.new_cache(max_length) for i, block in enumerate(self.blocks)}
        return CacheGroup(caches if self.retriever is None else caches | {"s": self.retriever.new_cache(max_length)})

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None, cache: CacheGroup | None = None):
        self.calls.append(x.shape[1])
        self.cached.append(cache is not None)
        past = 0 if cache is None else cache.length
        assert past + x.shape[1] <= self.block_size
        assert padding_mask is None or padding_mask.shape == (len(x), past + x.shape[1])
        everything = torch.arange(past + x.shape[1])[None]
        if padding_mask is not None:
            everything = positions_from_padding(padding_mask)
        positions = everything[:, past:]
        part = (lambda name: None) if cache is None else cache.caches.__getitem__
        h = self.embed(x) if self.positions is None else self.embed(x) + self.positions(positions)
        cos, sin = (None, None) if self.rotary is None else self.rotary.tables_at(everything.expand(len(x), -1))
        symbols = []
        for i, block in enumerate(self.blocks):
            if self.retriever is not None and i == 0:
                symbols.append(self.retriever(h, cache=part("s"), positions=positions))
            h = block(h, *symbols, cos, sin, padding_mask=padding_mask, cache=part(str(i)))
        return self.out(self.norm(h[:, -1:])), None


class AllLogits(nn.Module):
    """As the published models: all logits, no cache, no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.vocab_size, self.block_size = VOCABULARY, CONTEXT
        self.inner = SmallLM()

    def forward(self, x: Tensor, targets: Tensor | None = None):
        return torch.cat([self.inner(x[:, : i + 1])[0] for i in range(x.shape[1])], dim=1), None


class Prefixes:
    """A decoder whose logits depend on everything before, drawn at random for each prefix; without a network."""

    def __init__(self, vocab_size: int, seed: int = 0, scale: float = 1.0) -> None:
        self.vocab_size, self.seed, self.scale = vocab_size, seed, scale
        self.tokens: Tensor | None = None

    def logits(self, prefix: list[int]) -> Tensor:
        number = self.seed
        for token in prefix:
            number = (number * 1_000_003 + token + 1) % 2**61
        generator = torch.Generator().manual_seed(number)
        return self.scale * torch.randn(self.vocab_size, generator=generator, dtype=torch.float64)

    def step(self, tokens: Tensor) -> Tensor:
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], dim=1)
        return torch.stack([self.logits(row) for row in self.tokens.tolist()])

    def reorder(self, indices: Tensor) -> None:
        self.tokens = self.tokens[indices]


def small_lm(**arguments) -> SmallLM:
    """In float64 and evaluation mode, and with weights of which the likeliest text is not one token again and again."""
    return copy.deepcopy(_varied(tuple(arguments.items())))


@cache
def _varied(arguments: tuple) -> SmallLM:
    for seed in range(100):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = SmallLM(**dict(arguments)).double().eval()
            for name, parameter in model.named_parameters():
                if "norm" not in name:
                    nn.init.normal_(parameter)
            nn.init.zeros_(model.out.bias)
        if len(set(greedily(model, [4, 1, 7], 20)[CONTEXT:])) > 4:
            model.calls.clear()
            model.cached.clear()
            return model
    raise AssertionError("no weights with varied text")


def seen(text: list[int], stride: int = 1) -> list[int]:
    """The part of a text that a model of context CONTEXT sees, by definition: drop ``stride`` until the rest fits."""
    text = list(text)
    while len(text) > CONTEXT:
        text = text[stride:]
    return text


@torch.no_grad()
def next_logits(model, text: list[int], stride: int = 1) -> Tensor:
    """Logits of the next token of one text, by a pass over all that is seen."""
    return model(torch.tensor([seen(text, stride)]))[0][0, -1]


def greedily(model, text: list[int], n: int, stride: int = 1) -> list[int]:
    """The text and its ``n`` likeliest next tokens, one after another."""
    text = list(text)
    for _ in range(n):
        text.append(int(next_logits(model, text, stride).argmax()))
    return text
