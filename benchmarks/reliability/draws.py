"""Wrong configurations of ``dat train``, and wrong calls of layers and models."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from tests.library.test_wrong_calls import objects, wrong

from .kills import SIZES, training
from .trials import Trial, broken, dat, shortened

VALUES = ("text", "-1", "1.5", "[]", "{}", "[1, x]", "{a: 1}", "nan", "inf", "-inf", "1" + 30 * "0", "true", "''", "\0")
"""Wrong for most keys; where a value is right, a tiny model is trained."""
UNKNOWN = ("model.d_modell", "optim.learning_rate", "lr", "loop.", "data", "a.b.c")
MORE_KEYS = ("seed", "optim.lr", "optim.betas", "optim.weight_decay", "optim.grad_clip", "optim.schedule")
MORE_MODEL_KEYS = ("model.ra_type", "model.n_kv_heads", "model.symbols", "model.pos_enc_type", "model.activation")
KEYS = (*SIZES, *MORE_KEYS, *MORE_MODEL_KEYS, "data.tokenizer", "data.order", "output.name", *UNKNOWN)


def configurations(folder: Path, rng: random.Random) -> Iterator[Trial]:
    """One wrong key in a configuration that is right."""
    while True:
        key, value = rng.choice(KEYS), rng.choice(VALUES)
        words = training(folder / f"run-{rng.randrange(2**32)}", **{"loop.steps": 1, key: value})

        def trial(words=words, key=key) -> str | None:
            called = dat(*words)
            names = (key, key.rpartition(".")[2] or key)
            return broken(called, names) or ("refused" if called.status else "taken")

        yield f"`--{key} {value!r}`", trial


CONSTRUCTED = ("", -1, 0, 2.5, "text", [], {}, float("nan"), 10**30, True, None)


def constructors() -> dict[type, dict[str, object]]:
    """Classes with arguments that are right."""
    from dual_attention import DualAttention, RelationalAttention
    from dual_attention.attention import Attention
    from dual_attention.dual_attn_blocks import DualAttnEncoderBlock
    from dual_attention.language_models import TransformerLM
    from dual_attention.positional_encoding import RotaryPositionalEncoding
    from dual_attention.symbol_retrieval import PositionalSymbolRetriever, SymbolicAttention

    block = {"dff": 8, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
    sizes = {"vocab_size": 7, "d_model": 8, "n_layers": 1, "n_heads": 2, "max_block_size": 9}
    return {
        Attention: {"d_model": 8, "n_heads": 2},
        RelationalAttention: {"d_model": 8, "n_heads": 2},
        DualAttention: {"d_model": 8, "n_heads_sa": 1, "n_heads_ra": 1},
        DualAttnEncoderBlock: {"d_model": 8, "n_heads_sa": 1, "n_heads_ra": 1},
        SymbolicAttention: {"d_model": 8, "n_heads": 2, "n_symbols": 5},
        PositionalSymbolRetriever: {"symbol_dim": 8, "max_length": 9},
        RotaryPositionalEncoding: {"dim": 8, "max_len": 9},
        TransformerLM: {**sizes, **block},
    }


def clear(error: Exception, argument: str = "") -> str | None:
    """What is wrong with a refusal, if anything."""
    text = str(error)
    if not isinstance(error, TypeError | ValueError):
        return f"finding: raw error: {type(error).__name__}: {shortened(text)}"
    named = re.match(r"[\w., \[\]]+:", text) or (argument and argument in text)
    return None if named else f"finding: no name of the argument: {type(error).__name__}: {shortened(text)}"


def call(name: str, place: int, choice: int, seed: int) -> str | None:
    """One call with one wrong tensor; a call that works is one that is allowed."""
    torch.manual_seed(seed)
    layer, *given = objects()[name]
    tensors = [n for n, value in enumerate(given) if isinstance(value, Tensor)]
    place = tensors[place % len(tensors)]
    others = list(wrong(given[place]))
    given[place] = others[choice % len(others)]
    try:
        layer.eval()(*given)
    except Exception as error:
        return clear(error) or "refused"
    return "taken"


def construct(kind: type, argument: str, value: object) -> str | None:
    """One constructor with one wrong argument."""
    try:
        kind(**{**constructors()[kind], argument: value})
    except Exception as error:
        return clear(error, argument) or "refused"
    return "taken"


def calls(rng: random.Random) -> Iterator[Trial]:
    """Batches of wrong calls, for a process each would take longer than the call."""
    names, kinds = list(objects()), constructors()

    def batch(seed: int) -> list[tuple[str, str | None]]:
        draw = random.Random(seed)
        found = []
        for _ in range(20):
            if draw.random() < 0.7:
                numbers = draw.choice(names), draw.randrange(4), draw.randrange(20), draw.randrange(2**32)
                found.append((f"{numbers[0]}, wrong tensor {numbers[2]} at {numbers[1]}", call(*numbers)))
            else:
                kind = draw.choice(list(kinds))
                argument, value = draw.choice(list(kinds[kind])), draw.choice(CONSTRUCTED)
                found.append((f"`{kind.__name__}({argument}={value!r})`", construct(kind, argument, value)))
        return found

    while True:
        seed = rng.randrange(2**32)
        yield f"batch of calls, seed {seed}", lambda seed=seed: batch(seed)
