"""Causal models of synthetic sequence tasks: a language model's keys, small."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dual_attention.language_models import LanguageModel
from dual_attention.parts import own_parts
from dual_attention.relational_attention import RelationalAttention
from dual_attention.symbol_retrieval import PositionalSymbolRetriever

from ...training.configs import check, check_positive_numbers
from ...training.experiment import without_values
from ...training.seeding import derive_seed
from ..language.model_keys import LanguageModelKeys


@dataclass(frozen=True, kw_only=True)
class SequenceModelKeys(LanguageModelKeys):
    """A causal Dual Attention Transformer, or a Transformer when it has no relational heads."""

    name: str = "DAT-symbolic"
    vocab_size: int | None = None
    """Size of the vocabulary; null takes the task's."""
    context: int = 128
    """Most tokens of a sequence."""
    n_heads_sa: int = 1
    n_heads_ra: int = 1
    n_kv_heads: int | None = None
    n_relations: int | None = 4
    symbol_heads: int = 2
    trainable_symbols: bool = False
    """Train the symbols of symbolic attention, as of the paper's models, or of positions; otherwise they stay as they
    are drawn, from N(0, 1). Relative symbols are always trained."""
    initial_scale: float = 4.0
    """Factor of the library's initial weights, N(0, 0.02), which are small for so small a width: 0.02 * sqrt(768 / 64)
    is 0.07. With 1, attention stays even for thousands of steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive_numbers(self, "model", "initial_scale")

    def build(self, vocab_size: int, *, seed: int) -> LanguageModel:
        """The model with initial weights that depend on ``seed`` only; the global generators are left seeded by it."""
        torch.manual_seed(derive_seed(seed, "weights"))
        model = self._build(vocab_size)
        scale_weights(model, self.initial_scale)
        if not self.trainable_symbols:
            for symbols in positional_symbols(model):  # from N(0, 1), as symbolic attention's are
                nn.init.normal_(symbols)
        return model

    def empty(self, vocab_size: int) -> LanguageModel:
        """The model on the meta device; random generators are left as they are."""
        with without_values():
            return self._build(vocab_size)

    def _build(self, vocab_size: int) -> LanguageModel:
        model = self.language_config(vocab_size).build()
        for symbols in positional_symbols(model):
            symbols.requires_grad_(self.trainable_symbols)
        return model

    def check_length(self, length: int) -> None:
        """Raise ``ValueError`` if sequences are longer than the context."""
        check(self.context >= length, "model.context", f"at least {length}, the tokens of a sequence", self.context)


@torch.no_grad()
def scale_weights(model: nn.Module, factor: float) -> None:
    """Multiply linear weights, embeddings and W_r by a factor, each once under however many names."""
    own = {module for part in own_parts(model) for module in part.modules()}  # which draw their weights themselves
    linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Embedding) and m not in own]
    relations = [module.wr for module in model.modules() if isinstance(module, RelationalAttention)]
    for weight in {id(weight): weight for weight in (*linear, *relations)}.values():
        weight.mul_(factor)


def positional_symbols(model: nn.Module) -> Iterator[Tensor]:
    """The learned symbols of positions in a model."""
    for module in model.modules():
        if isinstance(module, PositionalSymbolRetriever) and not module.sinusoidal:
            yield module.symbol_library.weight
