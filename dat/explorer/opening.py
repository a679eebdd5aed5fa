"""Opening a checkpoint as a session: of texts, of images, or of questions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from dual_attention.generation.tokenizer import fingerprint
from dual_attention.language_models import LanguageModel
from dual_attention.model_analysis.dictionaries import weights_digest
from dual_attention.model_analysis.sites import LayerChoice, choose_sites, find_sites
from dual_attention.relational_attention import DisentangledRelationalCrossAttention, RelationalAttention

from ..checkpoints import Checkpoint, open_checkpoint
from ..data.relational_games.tasks import class_names
from .images import GAMES, ImageClassifier, ImageSession, normalisation_of
from .packing import Bits
from .questions import QuestionSession
from .session import Session, TextEncoder, TextSession

Explored = TextSession | ImageSession | QuestionSession
"""A session that pages ask."""


def open_session(
    checkpoint: str,
    *,
    tokenizer: str | None = None,
    bits: Bits | None = None,
    title: str | None = None,
    layers: LayerChoice = None,
) -> Explored:
    """The session of a checkpoint.

    Args:
        tokenizer: of a language model, as of :meth:`~dat.checkpoints.Checkpoint.tokenizer`.
        bits: of factors, see :func:`~dat.explorer.packing.pack`.
        title: of pages; by default the name of the checkpoint.
        layers: those that are recorded, as of :func:`~dual_attention.model_analysis.capture.capture`.

    Raises:
        ValueError: if it reads neither texts, images nor questions of mathematics, or has no such layers; further
            errors as of :func:`~dat.checkpoints.open_checkpoint`.
    """
    found = opened(checkpoint)
    model, questions = found.model, found.kind == "mathematics run"
    if not questions and not isinstance(model, LanguageModel | TextEncoder | ImageClassifier):
        raise ValueError(
            f"{checkpoint}: a {type(model).__name__}; expected a model of texts, an image classifier or a run of "
            "mathematics; explorer.recording.record takes other models"
        )
    choose_sites(model, layers)
    about = {"facts": facts_of(found.model, found.state), "bits": bits, "layers": layers, "checkpoint": found}
    title = title or found.source.rstrip("/\\").rsplit("/", 1)[-1] or found.source
    if isinstance(model, LanguageModel):
        return Session(model, found.tokenizer(tokenizer), title, **about)
    if isinstance(model, TextEncoder):
        return TextSession(model, found.tokenizer(tokenizer), title, **about)
    if tokenizer is not None:
        raise ValueError(f"tokenizer: {checkpoint} reads {'characters' if questions else 'images'}; leave it out")
    if questions:
        config = found.config
        about |= {"module": config.module, "masked": config.data.padding == "masked"}
        return QuestionSession(model, title, **about)
    assert isinstance(model, ImageClassifier)
    mean, std, digits = normalisation_of(found)
    if (task := getattr(found.config, "task", None)) in GAMES:
        about |= {"task": task, "names": class_names(task)}
    elif names := getattr(model, "class_names", ()):  # of a folder of pictures
        about["names"] = names
    return ImageSession(model, title, **about, mean=mean, std=std, digits=digits)


def with_beside(session: Explored, other: Explored) -> TextSession:
    """The session with another beside it, which its pages show for the same text.

    Raises:
        ValueError: if one is not of texts, only one predicts the next token, or tokenizers or vocabularies differ.
    """
    for one in (session, other):
        if not isinstance(one, TextSession):
            raise ValueError(f"beside: expected two models of texts, got {one.title}, a {type(one.model).__name__}")
    assert isinstance(session, TextSession) and isinstance(other, TextSession)
    if isinstance(session, Session) != isinstance(other, Session):
        names = " and ".join(f"{one.title}, a {type(one.model).__name__}" for one in (session, other))
        raise ValueError(f"beside: expected two language models, or none, got {names}")
    if fingerprint(session.tokenizer) != fingerprint(other.tokenizer):
        raise ValueError(f"beside: expected the tokenizer of {session.title}, got another one of {other.title}")
    ours, theirs = (vocabulary_of(one.model) for one in (session, other))
    if ours != theirs:
        raise ValueError(f"beside: expected the vocabulary of {session.title}, {ours:,} tokens, got {theirs:,}")
    return replace(session, beside=other)


def vocabulary_of(model: Any) -> int:
    """Size of a model's vocabulary."""
    return getattr(model, "encoder", model).vocab_size


def opened(name: str) -> Checkpoint:
    """The checkpoint; of a run that is trained meanwhile, the latest that is there when its weights are read."""
    try:
        return open_checkpoint(name)
    except FileNotFoundError:
        return open_checkpoint(name)  # the one that was the latest may just have made way for a later one


def facts_of(model: nn.Module, state: str = "") -> Mapping[str, str]:
    """Facts of a model for the head of its pages; ``state``: of its checkpoint."""
    sites = find_sites(model)
    heads = [f"{site.n_heads} {site.kind}" for site in sites if site.layer == sites[0].layer and site.tap("weights")]
    facts = {
        "": type(model).__name__,
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "layers": f"{len({site.layer.removesuffix('.cross') for site in sites})}",
        "weights": weights_digest(model),
    }
    if heads:
        facts["heads"] = " + ".join(heads)
    relational = RelationalAttention | DisentangledRelationalCrossAttention
    formulas = {relation_formula(site.module) for site in sites if isinstance(site.module, relational)}
    if len(formulas) == 1:
        facts["formula"] = formulas.pop()
    return {**facts, "state": state} if state.startswith("unfinished") else facts


def relation_formula(module: nn.Module) -> str:
    """Relations of a layer of relational attention, as a line of Unicode with indices such as ``r_ij``."""
    score = getattr(module, "rel_score", "dot")
    found = "−b |W_q x_i − W_k x_j|² / √p" if score == "squared_distance" else "⟨W_q x_i, W_k x_j⟩ / √p"
    name = getattr(module, "rel_activation", "identity")
    name = name if isinstance(name, str) else getattr(name, "__name__", "activation")
    return f"r_ij = {found}" if name == "identity" else f"r_ij = {name}({found})"
