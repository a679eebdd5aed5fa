"""The numbers of any language model on a text, as those of a run on its validation text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from dual_attention.generation.tokenizer import Tokenizer
from dual_attention.language_models import LanguageModel

from ...data.text.tokens import tokenize
from ...training.measuring import mean_measures
from .config import LanguageDataConfig
from .data import TextSequences, count_bytes, first_tokens, text_named
from .problem import DocumentMask, language_loss, numbers_of_text


def evaluate_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    paths: tuple[str, ...],
    *,
    device: torch.device | str = "cpu",
    tokens: int | None = None,
    batch_size: int = 16,
    documents: DocumentMask | None = None,
) -> dict[str, Any]:
    """Loss, perplexity and bits per byte of a text, cut into sequences of the model's context or, if it has fewer
    tokens than that, of its own length.

    Args:
        paths: files of text or tokens, folders and patterns, as ``data.path`` of a run.
        tokens: score that many, the first ones; None scores all.
        documents: how documents are kept apart, as the model was trained; None: tokens attend to all before them.

    Raises:
        FileNotFoundError: if there are no such files.
        ValueError: if the text has no two tokens, or tokens that the model does not have.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        source = tokenize(text_named(paths, "text", LanguageDataConfig()), tokenizer, Path(cache))
        longest = max((len(array) for array in source.arrays), default=0)
        if longest < 2:
            raise ValueError(f"text: expected a text of at least 2 tokens, got {longest}")
        context = min(model.block_size, longest - 1)
        arrays = source.arrays if tokens is None else first_tokens(source.arrays, tokens, context)
        sequences = TextSequences(arrays, context, vocab_size=model.vocab_size, device=device)
        loss = mean_measures(model, sequences, language_loss(documents=documents), batch_size=batch_size)["loss"]
        return numbers_of_text(loss, len(sequences) * context, count_bytes(sequences, tokenizer))
