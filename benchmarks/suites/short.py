"""The paper's small tasks: Relational Games, mathematics and CIFAR, at their own lengths and batches; no dropout."""

from collections.abc import Iterator
from typing import Any

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite, reference_bytes
from benchmarks.work import Draw, Work

QUICK_BATCH = 2


def cases(request: Request) -> Iterator[Case]:
    """Games with heads of one kind and of both, the mathematics encoder by itself and with its decoder, and CIFAR."""
    yield games(0, 2, request)
    yield games(1, 1, request)
    yield mathematics_encoder(request)
    yield mathematics(request)
    yield cifar(request)


def compared(label: str, length: int, dual: Work, plain: Work, *, heads: int, width: int, layers: int) -> Case:
    """Ours, published, readable and plain; relational heads, their width, and layers that have them."""
    needs = reference_bytes(dual.inputs["x"].shape[0], length, heads, width, heads, layers=layers)
    return Case(
        suite="short",
        label=label,
        length=length,
        sides=(
            SideSpec(OURS, dual),
            SideSpec("published", dual, place="published"),
            SideSpec("reference", Work(dual.subject, dual.kwargs, dual.inputs, impl="reference"), needs=needs),
            SideSpec("plain", plain, function="plain"),
        ),
    )


def vision(images: Draw, common: dict[str, Any], heads: int, dual: dict[str, Any]) -> tuple[Work, Work]:
    """A vision model with dual attention, and one without."""
    inputs = {"x": images}
    classes = {name: {"kind": f"vision_models.Vision{name}Transformer", **common} for name in ("DualAttn", "")}
    return (
        Work("model", {**classes["DualAttn"], **dual}, inputs),
        Work("model", {**classes[""], "n_heads": heads}, inputs),
    )


def games(sensory: int, relational: int, request: Request) -> Case:
    """Relational Games: nine objects and a class token, width 128, two layers, batch 512; symmetric relations."""
    batch, width = QUICK_BATCH if request.quick else 512, 64
    common = {
        "image_shape": [3, 36, 36],
        "patch_size": [12, 12],
        "num_classes": 2,
        "d_model": 128,
        "n_layers": 2,
        "dff": 256,
        "dropout_rate": 0.0,
        "activation": "swiglu",
        "norm_first": True,
        "bias": False,
        "pool": "mean",
    }
    dual = {
        "n_heads_sa": sensory,
        "n_heads_ra": relational,
        "symbol_retrieval": "positional_symbols",
        "symbol_retrieval_kwargs": {"symbol_dim": 128, "max_length": 10},
        "ra_kwargs": {"n_relations": relational, "rel_proj_dim": width, "symmetric_rels": True},
    }
    images = Draw((batch, 3, 36, 36), gradient=False)
    dual_model, plain = vision(images, common, sensory + relational, dual)
    label = f"games {sensory}+{relational}, batch {batch}"
    return compared(label, 10, dual_model, plain, heads=relational, width=width, layers=2)


def cifar(request: Request) -> Case:
    """CIFAR: 64 patches and a class token, width 384, eight layers, 6+6 heads, batch 128; symmetric relations."""
    batch, layers = (QUICK_BATCH, 1) if request.quick else (128, 8)
    common = {
        "image_shape": [3, 32, 32],
        "patch_size": [4, 4],
        "num_classes": 10,
        "d_model": 384,
        "n_layers": layers,
        "dff": 384,
        "dropout_rate": 0.0,
        "activation": "gelu",
        "norm_first": True,
        "bias": True,
        "pool": "mean",
    }
    dual = {
        "n_heads_sa": 6,
        "n_heads_ra": 6,
        "symbol_retrieval": "position_relative",
        "symbol_retrieval_kwargs": {"symbol_dim": 384, "max_rel_pos": 65},
        "sa_kwargs": {"n_kv_heads": 3},
        "ra_kwargs": {
            "n_relations": 6,
            "rel_proj_dim": 32,
            "n_kv_heads": 3,
            "symmetric_rels": True,
            "use_relative_positional_symbols": True,
        },
    }
    images = Draw((batch, 3, 32, 32), gradient=False)
    dual_model, plain = vision(images, common, 12, dual)
    label = f"CIFAR 6+6, {layers} layers, batch {batch}"
    return compared(label, 65, dual_model, plain, heads=6, width=32, layers=layers)


MATHEMATICS = {"dff": 256, "activation": "gelu", "norm_first": False}
"""The paper's models have relu here. Its derivative jumps: where two sides round differently, some gradients would
differ by as much as the jump, and could not be compared closely."""
RELATIVE = {"kind": "PositionRelativeSymbolRetriever", "symbol_dim": 128, "max_rel_pos": 161}
ENCODER = {
    **MATHEMATICS,
    "n_heads_sa": 4,
    "n_heads_ra": 4,
    "ra_kwargs": {"n_relations": 4, "rel_proj_dim": 16, "use_relative_positional_symbols": True},
}


def mathematics_encoder(request: Request) -> Case:
    """The question's part of the mathematics model: 160 characters, width 128, two layers, 4+4 heads, batch 128."""
    batch = QUICK_BATCH if request.quick else 128
    inputs = {"x": Draw((batch, 160, 128))}
    layers = {"d_model": 128, "n_layers": 2}
    dual = Work("dual_layers", {**layers, "block": ENCODER, "symbols": RELATIVE}, inputs)
    plain = Work("plain_layers", {**layers, "block": {**MATHEMATICS, "n_heads": 8}}, inputs)
    return compared(f"mathematics encoder 4+4, batch {batch}", 160, dual, plain, heads=4, width=16, layers=2)


def mathematics(request: Request) -> Case:
    """All layers of the mathematics model: questions of 160 characters, answers of 30, decoder 8+0, batch 128."""
    batch = QUICK_BATCH if request.quick else 128
    inputs = {"x": Draw((batch, 160, 128)), "y": Draw((batch, 30, 128))}
    layers = {"d_model": 128, "n_layers": 2}
    cross = {"n_heads_cross": 8, "causal": True}
    decoder = {**MATHEMATICS, **cross, "n_heads_sa": 8, "n_heads_ra": 0}
    dual = {**layers, "encoder": ENCODER, "decoder": decoder, "symbols": RELATIVE}
    plain = {**layers, "encoder": {**MATHEMATICS, "n_heads": 8}, "decoder": {**MATHEMATICS, **cross, "n_heads": 8}}
    return compared(
        f"mathematics 4+4 / 8+0, batch {batch}",
        160,
        Work("dual_encoder_decoder", dual, inputs),
        Work("plain_encoder_decoder", plain, inputs),
        heads=4,
        width=16,
        layers=2,
    )


SUITE = Suite("short", "the paper's small tasks", cases)
