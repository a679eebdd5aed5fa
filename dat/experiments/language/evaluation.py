"""The numbers of any language model on a text, as those of a run on its validation text."""

import tempfile
from dataclasses import replace
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
    read_as: LanguageDataConfig | None = None,
) -> dict[str, Any]:
    """Loss, perplexity and bits per byte of a text, cut into whole sequences of the model's context or, if it has fewer
    tokens than that, of its own length; tokens after the last sequence are not scored.

    Args:
        paths: files of text or tokens, folders and patterns, as ``data.path`` of a run.
        tokens: score the first sequences with at most that many, at least one; None scores all sequences.
        documents: how documents are kept apart, as the model was trained; None: tokens attend to all before them.
        read_as: of a run, whose key of JSON Lines and separator of documents the text has; None takes the defaults.

    Raises:
        FileNotFoundError: if there are no such files.
        ValueError: if the text has no two tokens, or tokens that the model does not have.
    """
    reading = LanguageDataConfig()
    if read_as is not None:
        reading = replace(reading, field=read_as.field, separator=read_as.separator)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        source = tokenize(text_named(paths, "text", reading), tokenizer, Path(cache))
        longest = max((len(array) for array in source.arrays), default=0)
        if longest < 2:
            raise ValueError(f"text: expected a text of at least 2 tokens, got {longest}")
        context = min(model.block_size, longest - 1)
        arrays = source.arrays if tokens is None else first_tokens(source.arrays, tokens, context)
        sequences = TextSequences(arrays, context, vocab_size=model.vocab_size, device=device)
        loss = mean_measures(model, sequences, language_loss(documents=documents), batch_size=batch_size)["loss"]
        return numbers_of_text(loss, len(sequences) * context, count_bytes(sequences, tokenizer))
