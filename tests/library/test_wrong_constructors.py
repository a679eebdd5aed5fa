"""Every public module, and every recipe, with each argument of its constructor replaced by what it cannot be.

What can be is not refused: a number may be another, and what is optional may be None.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dual_attention import baselines, mechanisms
from dual_attention.encoder_models import TransformerEncoder
from dual_attention.mechanisms import recipes
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer

ROOMS = (
    "attention",
    "relational_attention",
    "dual_attention",
    "dual_attn_blocks",
    "transformer_blocks",
    "symbol_retrieval",
    "positional_encoding",
    "language_models",
    "encoder_models",
    "seq2seq_models",
    "vision_models",
    "baselines",
    "mechanisms",
)
SIZES = {
    **dict.fromkeys(("d", "d_model", "d_q", "d_k", "d_value", "d_user", "d1", "d2", "d_upper", "d_lower", "dim"), 8),
    **dict.fromkeys(
        ("embed_dim", "d_v", "symbol_dim", "hidden_size", "head_dim", "dff", "d_w", "d_a", "value_dim", "d_in"), 8
    ),
    **dict.fromkeys(("n_heads", "heads", "n_heads_sa", "n_heads_ra", "n_heads_cross", "n_relations", "hops"), 2),
    **dict.fromkeys(("rel_n_heads", "symbolic_attn_n_heads", "nbhd_delta", "half_width", "n_queries", "r", "rank"), 2),
    **dict.fromkeys(("max_rel_pos", "num_classes", "key_dim", "n_classes", "n_slots", "d_latent"), 2),
    **dict.fromkeys(("n_layers", "n_layers_enc", "n_layers_abs", "n_layers_dec"), 1),
    **dict.fromkeys(("max_length", "max_len", "max_block_size", "length", "n_symbols", "n_objects", "vocab_size"), 9),
    **dict.fromkeys(("in_block_size", "out_block_size", "out_dim"), 9),
}
SYMBOLS = {"symbol_retrieval": "positional_symbols", "symbol_retrieval_kwargs": {"symbol_dim": 8, "max_length": 9}}
PARTS: dict[str, Callable[[], Any]] = {
    "dropout_rate": lambda: 0.0,
    "activation": lambda: "relu",
    "norm_first": lambda: True,
    "image_shape": lambda: (1, 4, 4),
    "patch_size": lambda: (2, 2),
    "pool": lambda: "mean",
    **{name: lambda value=value: value for name, value in SYMBOLS.items()},
    "widths": lambda: [8, 8],
    "aspects": lambda: ["one"],
    "score": mechanisms.Dot,
    "attention": lambda: mechanisms.GeneralAttention(mechanisms.Dot()),
    "relation": lambda: mechanisms.Relation(8, 2),
    "encoder_kwargs": lambda: {"n_heads": 2},
    "abstractor_kwargs": lambda: dict(n_heads=2, dff=8, dropout_rate=0.0, activation="relu", norm_first=True),
    "decoder_kwargs": lambda: {"n_heads": 2, "n_heads_cross": 2},
    "input_spec": lambda: {"type": "token", "vocab_size": 9},
    "output_spec": lambda: {"type": "token", "vocab_size": 9},
    "encoder": lambda: TransformerEncoder(9, 8, 1, 2, 8, 0.0, "relu", True, 9),
    "queries": lambda: torch.zeros(2, 8),
    "slots": lambda: baselines.SlotEncoder((1, 4, 4), 2, 8),
    "model": lambda: baselines.OCRA(8, 1, 2),
    "keys": lambda: mechanisms.SubsetSampler(8),
}
WRONG = ("", "text", -1, 0, 2.5, -0.5, float("nan"), float("inf"), 10**9, 10**30, True, None, [], (1,), {}, object())
TENSORS = (torch.tensor(1.0), torch.tensor([1, 2]), torch.zeros(2, 2))


OTHERS = {"EncoderModel", "LanguageModel", "Seq2SeqModel", "VisionModel"}
OTHERS |= {"Align", "Message", "Score", "Select", "PairwiseMessage", "ValueMessage"}
"""Bases of others, and what takes no arguments."""


def constructors() -> dict[str, Any]:
    modules = [vars(importlib.import_module(f"dual_attention.{room}")) for room in ROOMS]
    classes = {
        name: found
        for module in modules
        for name, found in module.items()
        if name in module.get("__all__", ()) and inspect.isclass(found) and issubclass(found, nn.Module)
    }
    functions = {n: f for n, f in vars(recipes).items() if inspect.isfunction(f) and f.__module__ == recipes.__name__}
    return {name: found for name, found in {**classes, **functions}.items() if name not in OTHERS}


def parameters(build: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(build).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def right(build: Any) -> dict[str, Any]:
    """The arguments that must be given, and those that they need."""
    asked = ("symbol_retrieval", "hops", "max_rel_pos")
    needed = [p.name for p in parameters(build) if p.default is p.empty or p.name in asked]
    given = {name: PARTS[name]() if name in PARTS else SIZES[name] for name in needed}
    if build is Seq2SeqDualAttnTransformer:
        heads = {"n_heads_sa": 2, "n_heads_ra": 2}
        given |= {"encoder_kwargs": heads, "decoder_kwargs": {**heads, "n_heads_cross": 2}}
    if build is baselines.VisionSlots:
        given |= {"num_classes": 2}  # which its model, OCRA, needs
    return given


@pytest.mark.parametrize("name", constructors())
def test_wrong_arguments_of_constructors(name):
    build = constructors()[name]
    given = right(build)
    build(**given)
    for argument, hint in ((p.name, str(p.annotation)) for p in parameters(build)):
        for value in () if argument in ("device", "dtype") else (*WRONG, *TENSORS):
            try:
                build(**{**given, argument: value})
            except (TypeError, ValueError) as error:
                named = re.match(r"[\w., \[\]]+: ", str(error)) or argument in str(error)
                assert named, f"{argument}={value!r}: {error}"
            else:
                flag = value is None and hint == "bool | None"
                assert flag or isinstance(value, bool) or not hint.startswith("bool"), f"{argument}={value!r}: taken"
