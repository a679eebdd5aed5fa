"""Layers over the length: a training step of two, memory of one, and one with position-relative symbols.

All but the last are layers of the paper's language models of 343M and 353M parameters (arXiv 2405.16727, Table 5).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import OURS, Case, Request, SideSpec, Suite, dense_bytes, published_bytes, reference_bytes
from benchmarks.results import Row, growth, growth_exponent
from benchmarks.work import Draw, Work


@dataclass(frozen=True)
class Size:
    """Of a language model's layers.

    Attributes:
        d_model, dff: widths.
        heads: sensory heads, and as many relational ones.
        kv: key/value heads of each kind.
        symbols, symbol_heads: of symbolic attention.
        vocabulary: tokens.
        gated: width of Llama's gated feed-forward block with as many parameters, in steps of 16.
        relations: numbers of relations; all together are as wide as the relational heads.
    """

    d_model: int = 1024
    dff: int = 4096
    heads: int = 8
    kv: int = 4
    symbols: int = 1024
    symbol_heads: int = 8
    vocabulary: int = 50304
    gated: int = 2736
    relations: tuple[int, ...] = (64, 8)

    @property
    def width(self) -> int:
        """Of a head."""
        return self.d_model // (2 * self.heads)

    def relational(self, relations: int) -> dict[str, Any]:
        """Arguments of the relational heads."""
        width = self.width * self.heads // relations
        return {"n_relations": relations, "rel_proj_dim": width, "n_kv_heads": self.kv}

    def block(self, relations: int) -> dict[str, Any]:
        """Arguments of a block with dual attention."""
        return {
            "n_heads_sa": self.heads,
            "n_heads_ra": self.heads,
            "dff": self.dff,
            "activation": "gelu",
            "norm_first": True,
            "sa_kwargs": {"n_kv_heads": self.kv},
            "ra_kwargs": self.relational(relations),
        }

    def plain_block(self) -> dict[str, Any]:
        """Arguments of a standard block of the same width and depth; no biases and no grouping, as in the paper."""
        return {"n_heads": 2 * self.heads, "dff": self.dff, "activation": "gelu", "norm_first": True, "bias": False}

    def retriever(self) -> dict[str, Any]:
        """Arguments of the symbolic attention that all layers share; the library of symbols is not trained."""
        return {
            "d_model": self.d_model,
            "n_heads": self.symbol_heads,
            "n_symbols": self.symbols,
            "trainable_symbols": False,
        }

    def llama(self, layers: int, length: int) -> dict[str, Any]:
        """Configuration of transformers' Llama of the same width and depth."""
        return {
            "hidden_size": self.d_model,
            "intermediate_size": self.gated,
            "num_hidden_layers": layers,
            "num_attention_heads": 2 * self.heads,
            "num_key_value_heads": 2 * self.heads,
            "max_position_embeddings": length,
        }


FULL = Size()
QUICK = Size(d_model=64, dff=128, heads=2, kv=1, symbols=16, symbol_heads=2, vocabulary=61, gated=96, relations=(4,))


def size(quick: bool) -> Size:
    """The paper's, or a small one of the same form."""
    return QUICK if quick else FULL


LAYERS = 2
LONGEST_TIMED = 256
"""Greatest length at which the readable reference is timed; a step at 1,024 takes half a minute."""
LONGEST_REFERENCE = 1024
"""Greatest length at which it checks results; beyond, where it takes too much memory, the dense form does."""


def step_cases(request: Request) -> Iterator[Case]:
    """Two layers for each number of relations and each length; batch 1."""
    for relations in size(request.quick).relations:
        for n in request.lengths:
            yield step_case(relations, n, quick=request.quick)


def step_case(relations: int, n: int, *, quick: bool) -> Case:
    """Causal layers with rotary embedding and symbolic attention."""
    sizes = size(quick)
    inputs = {"x": Draw((1, n, sizes.d_model))}
    layers = {"d_model": sizes.d_model, "n_layers": LAYERS}
    dual = {
        **layers,
        "rotary": n,
        "block": {**sizes.block(relations), "causal": True},
        "symbols": {"kind": "SymbolicAttention", **sizes.retriever()},
    }
    plain = {**layers, "rotary": n, "block": {**sizes.plain_block(), "causal": True}}
    if n <= LONGEST_REFERENCE:
        needs = reference_bytes(1, n, sizes.heads, sizes.width, relations, layers=LAYERS)
        work = Work("dual_layers", dual, inputs, impl="reference")
        check = SideSpec("reference", work, needs=needs, timed=n <= LONGEST_TIMED)
    else:
        needs = dense_bytes(1, n, sizes.heads, layers=LAYERS)
        check = SideSpec("dense", Work("dual_layers", dual, inputs, impl="dense"), needs=needs, timed=False)
    published = published_bytes(1, n, sizes.heads, relations, layers=LAYERS)
    llama = Work("llama_layers", sizes.llama(LAYERS, n), inputs)
    return Case(
        suite="step",
        label=f"{LAYERS} layers, d={sizes.d_model}, R={relations}",
        length=n,
        sides=(
            SideSpec(OURS, Work("dual_layers", dual, inputs)),
            SideSpec("plain", Work("plain_layers", plain, inputs), function="plain"),
            SideSpec("published", Work("dual_layers", dual, inputs), place="published", needs=published),
            check,
            SideSpec("llama", llama, function="llama", package="transformers"),
        ),
    )


STEP = Suite("step", "layers of the 343M language model", step_cases, (256, 1024, 3072, 4096), (16, 32))


def memory_cases(request: Request) -> Iterator[Case]:
    """The relational heads of a 343M layer, beside as many heads of plain attention; causal, batch 1."""
    for relations in size(request.quick).relations:
        for n in request.lengths:
            yield memory_case(relations, n, quick=request.quick)


def memory_case(relations: int, n: int, *, quick: bool) -> Case:
    """Symbols are an input, whose gradient is needed as well."""
    sizes = size(quick)
    heads = {"d_model": sizes.d_model, "n_heads": sizes.heads, "total_n_heads": 2 * sizes.heads}
    dual = {"causal": True, **heads, **sizes.relational(relations)}
    plain = {"causal": True, **heads, "n_kv_heads": sizes.kv}
    x = Draw((1, n, sizes.d_model))
    inputs = {"x": x, "symbols": x}
    if n <= LONGEST_REFERENCE:
        needs = reference_bytes(1, n, sizes.heads, sizes.width, relations)
        check = SideSpec("reference", Work("relational_layer", dual, inputs, impl="reference"), needs=needs)
    else:
        needs = dense_bytes(1, n, sizes.heads)
        check = SideSpec("dense", Work("relational_layer", dual, inputs, impl="dense"), needs=needs)
    published = published_bytes(1, n, sizes.heads, relations)
    return Case(
        suite="memory",
        label=f"one layer, d={sizes.d_model}, {sizes.heads} heads, R={relations}",
        length=n,
        quantities=("step",),
        memory=True,
        sides=(
            SideSpec(OURS, Work("relational_layer", dual, inputs)),
            SideSpec("plain", Work("plain_layer", plain, {"x": x}), function="plain"),
            SideSpec("published", Work("relational_layer", dual, inputs), place="published", needs=published),
            check,
        ),
    )


def conclude_memory(rows: Sequence[Row]) -> list[str]:
    """Growth of each side's memory with the length."""
    points: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in rows:
        for side in row.sides:
            if side.allocated:
                points.setdefault((row.label, side.name), []).append((row.length, side.allocated))
    lines = []
    for (label, name), found in points.items():
        if len({length for length, _ in found}) > 1:
            exponent = growth_exponent(*zip(*found, strict=True))
            lengths = ", ".join(str(length) for length, _ in found)
            lines.append(f"{label}: memory of {name} grows as n^{exponent:.2f} ({growth(exponent)}), n = {lengths}")
    return lines


MEMORY = Suite(
    "memory", "peak memory of one relational layer", memory_cases, (1024, 2048, 4096, 8192), (32, 64), conclude_memory
)


def relative_cases(request: Request) -> Iterator[Case]:
    """Eight heads and relations, width 512, every offset a symbol of its own; no mask, batch 1."""
    d_model, heads = (32, 2) if request.quick else (512, 8)
    for n in request.lengths:
        inputs = {"x": Draw((1, n, d_model))}
        heads_of_both = {"causal": False, "d_model": d_model, "n_heads": heads}
        dual = {
            **heads_of_both,
            "n_relations": heads,
            "use_relative_positional_symbols": True,
            "symbols": {"kind": "PositionRelativeSymbolRetriever", "symbol_dim": d_model, "max_rel_pos": n},
        }
        work = Work("relational_layer", dual, inputs)
        published = published_bytes(1, n, heads, heads, symbols=d_model)
        readable = reference_bytes(1, n, heads, d_model // heads, heads, symbols=d_model)
        yield Case(
            suite="relative",
            label=f"one layer, d={d_model}, position-relative symbols",
            length=n,
            sides=(
                SideSpec(OURS, work),
                SideSpec("published", work, place="published", needs=published),
                SideSpec("reference", Work("relational_layer", dual, inputs, impl="reference"), needs=readable),
                SideSpec("plain", Work("plain_layer", heads_of_both, inputs), function="plain"),
            ),
        )


RELATIVE = Suite("relative", "position-relative symbols", relative_cases, (256, 512, 1024), (16, 32))
