"""The explorer's page of a model in memory: of this library, or attention of one of transformers."""

import io
import re
import sys
import tempfile
import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dual_attention._base.extras import require
from dual_attention.generation import evaluating
from dual_attention.generation.tokenizer import ByteTokenizer, Tokenizer, characters_of_bytes, load_tokenizer
from dual_attention.language_models import LanguageModel
from dual_attention.model_analysis.sites import find_sites
from dual_attention.model_analysis.views.tokens import token_labels

from .exporting import Exporter
from .factors import ScoreFactors, Visible
from .html import Page, page_html
from .images import ImageClassifier, ImageSession
from .opening import facts_of, vocabulary_of, with_beside
from .packing import pack
from .recording import RecordedHeads, Recording, record
from .session import DEFAULT_TEXT, Session, TextEncoder, TextSession
from .view_state import View


def explore(
    model: nn.Module,
    text_or_image: Any = None,
    tokenizer: Any = None,
    *,
    view: str = "",
    beside: Any = None,
    show: bool = True,
) -> Page:
    """Open the explorer on a model in memory: in a notebook below the cell, elsewhere in a browser.

    The page is one file without a server or a network, so that it also stays in an exported notebook.

    Args:
        model: of texts or images, of this library; or a model of texts of transformers, such as GPT-2 or Llama, of
            which attention is shown.
        text_or_image: a text; or an image: a file, a tensor ``(C, height, width)`` in 0..1, or one of Pillow. By
            default one of the explorer's own.
        tokenizer: of texts: one of this library, its folder, or one of transformers; by default bytes, if the model
            has their vocabulary.
        view: what is shown at first, as ``dat explore --view`` takes it, such as ``"page=attention&layer=1"``.
        beside: a second model of texts of this library, with the same tokenizer, to compare with.
        show: outside a notebook, whether a browser opens the page; false where it is only saved.

    Returns:
        The page. A notebook shows it if it is what a cell ends with; ``page.save("FILE.html")`` writes it.

    Raises:
        TypeError: if it is no model that the explorer knows.
        ValueError: if the text, the image, the tokenizer or the view does not fit the model, or one of the two.

    >>> lm = TransformerLM(vocab_size=257, d_model=32, n_layers=1, n_heads=2, max_block_size=32)
    >>> explore(lm, "a cat", show=False).save("cat.html")
    """
    with evaluating(model), evaluating(beside) if isinstance(beside, nn.Module) else nullcontext():
        page = _page_of(model, text_or_image, tokenizer, view, beside)
    if show and not _in_notebook():
        folder = Path(tempfile.mkdtemp(prefix="dat-explore-"))
        page.save(folder / "index.html")
        print(f"{type(model).__name__}: {folder / 'index.html'}")
        webbrowser.open((folder / "index.html").as_uri())
    return page


def _page_of(model: Any, source: Any, tokenizer: Any, asked: str, beside: Any) -> Page:
    title, view = type(model).__name__, View.of(asked)
    if beside is not None and not all(isinstance(one, LanguageModel | TextEncoder) for one in (model, beside)):
        names = f"{title} and {type(beside).__name__}"
        raise TypeError(f"beside: expected two models of texts of this library, got {names}")
    if isinstance(model, ImageClassifier):
        view = view if asked else View.of("page=vision")
        if tokenizer is not None:
            raise ValueError("tokenizer: expected none, for a model of images")
        names = getattr(model, "class_names", ())
        session = ImageSession(model, title, facts=facts_of(model), names=names)
        if source is None or isinstance(source, str | Path):
            source = session.default if source is None else str(source)
            return Exporter(session, source, view).page
        return page_html(session.packed_file(_png(source)), view=view.fragment)
    config: Any = getattr(model, "config", None)
    ours = isinstance(model, LanguageModel | TextEncoder)
    if not ours and not (isinstance(model, nn.Module) and hasattr(config, "vocab_size")):
        expected = "a model of texts or an image classifier of this library, or one of texts of transformers"
        other = "dat.explorer.recording.record shows a call of any other module with layers of this library"
        raise TypeError(f"model: expected {expected}, got {title}; {other}")
    if source is not None and not isinstance(source, str):
        raise TypeError(f"text_or_image: expected a text for {title}, got {type(source).__name__}")
    if ours:
        text_session = _text_session(model, tokenizer)
        if beside is not None:
            text_session = with_beside(text_session, _text_session(beside, tokenizer))
        source = text_session.default if source is None else source
        text_session.check(source)
        return Exporter(text_session, source, view).page
    text = DEFAULT_TEXT if source is None else source
    found = _foreign(model, text, _tokenizer_of(tokenizer, config.vocab_size))
    if not (asked or any(heads.relations for heads in found.heads)):
        view = View.of("page=attention")
    return page_html({**pack(found).json, "source": text}, view=view.fragment)


def _text_session(model: Any, tokenizer: Any) -> TextSession:
    kind = Session if isinstance(model, LanguageModel) else TextSession
    return kind(model, _tokenizer_of(tokenizer, vocabulary_of(model)), type(model).__name__, facts=facts_of(model))


def _foreign(model: Any, text: str, tokenizer: Tokenizer) -> Recording:
    """A model of transformers on a text: heads of this library in it, or else its attention as it returns it."""
    ids = tokenizer.encode(text)
    if not ids:
        raise ValueError("text_or_image: expected at least one token")
    tokens = torch.tensor([ids], device=next(model.parameters()).device)
    labels = {"tokens": token_labels(tokenizer, ids)}
    if _has_ours(model):
        return record(model, lambda: model(tokens), labels, title=type(model).__name__, facts=facts_of(model))
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # others return no weights
    try:
        maps = model(tokens, output_attentions=True).attentions
    finally:
        model.set_attn_implementation(before)
    if not maps or any(weights is None for weights in maps):
        raise ValueError(f"model: expected one that returns attentions, got none from {type(model).__name__}")
    heads = []
    for number, weights in enumerate(maps):
        kept = weights[0].float().cpu()
        seen = torch.ones_like(kept[0], dtype=torch.bool)
        visible = Visible.of_mask(seen if kept.triu(1).any() else seen.tril())
        factors = ScoreFactors.of_maps(kept)
        heads.append(RecordedHeads(f"blocks.{number}", "sensory", "tokens", "tokens", visible, factors))
    facts = {
        "": type(model).__name__,
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "layers": str(len(heads)),
        "heads": f"{heads[0].n_heads} sensory",
    }
    return Recording(type(model).__name__, facts, labels, heads)


def _has_ours(model: nn.Module) -> bool:
    try:
        return bool(find_sites(model))
    except ValueError:  # it has none
        return False


def _tokenizer_of(given: Any, vocab_size: int) -> Tokenizer:
    if isinstance(given, str | Path):
        return load_tokenizer(given)
    if given is None and vocab_size == ByteTokenizer.vocab_size:
        return ByteTokenizer()
    if given is None:
        raise ValueError(f"tokenizer: expected one for the model's vocabulary of {vocab_size:,}, got none")
    tokenizer = given if isinstance(given, Tokenizer) else _Theirs(given)
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"tokenizer: expected at most {vocab_size:,} tokens, those of the model, got {tokenizer.vocab_size:,}"
        )
    return tokenizer


class _Theirs(Tokenizer):
    """A tokenizer of transformers."""

    kind = "json"

    def __init__(self, tokenizer: Any) -> None:
        if not all(hasattr(tokenizer, name) for name in ("decode", "convert_ids_to_tokens", "eos_token_id")):
            raise TypeError(f"tokenizer: expected one of this library or transformers, got {type(tokenizer).__name__}")
        self.theirs, self.vocab_size = tokenizer, len(tokenizer)
        self.end = -1 if tokenizer.eos_token_id is None else tokenizer.eos_token_id

    @property
    def contents(self) -> Any:
        """Identity of the tokenizer, by which two models are known to have the same."""
        return id(self.theirs)

    def encode(self, text: str) -> list[int]:
        return list(self.theirs(text)["input_ids"])

    def token_bytes(self, token: int) -> bytes:
        if token == self.end:
            return b""
        text, name = self.theirs.decode([token]), str(self.theirs.convert_ids_to_tokens(token))
        if "\ufffd" in text:  # a part of a character, whose bytes the vocabulary names in one of two ways
            if byte := re.fullmatch("<0x([0-9A-F]{2})>", name):
                return bytes.fromhex(byte[1])
            byte_of = {character: byte for byte, character in characters_of_bytes().items()}
            if byte_of.keys() >= set(name):
                return bytes(byte_of[character] for character in name)
        begins = name.startswith("▁") and not text.startswith(" ")
        return (" " * begins + text).encode()


def _png(image: Any) -> bytes:
    """The file of an image in memory."""
    pillow = require("PIL.Image", extra="train")
    if isinstance(image, Tensor):
        if image.dim() != 3 or len(image) not in (1, 3) or not 0 <= float(image.min()) <= float(image.max()) <= 1:
            raise ValueError(
                f"text_or_image: expected an image (1 or 3, height, width) in 0..1, got shape {tuple(image.shape)}"
            )
        pixels = (255 * image.float()).round().to(torch.uint8).permute(1, 2, 0)
        image = pillow.fromarray(pixels.squeeze(-1).cpu().numpy())
    if not hasattr(image, "save"):
        raise TypeError(f"text_or_image: expected an image, or the name of its file, got {type(image).__name__}")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _in_notebook() -> bool:
    python = sys.modules.get("IPython")
    shell = None if python is None else python.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
