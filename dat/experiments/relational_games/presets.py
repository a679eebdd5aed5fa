"""The models of the paper's comparison: presets, and their names and colours in figures."""

from dataclasses import replace
from typing import Any

from .baseline_config import AbstractorConfig, CoRelNetConfig
from .config import GamesModelConfig


def _transformer(d_model: int, heads: int) -> GamesModelConfig:
    """A standard Transformer; dff is twice the width."""
    return GamesModelConfig(
        name=f"transformer-{d_model}-h{heads}", d_model=d_model, dff=2 * d_model, n_heads_sa=heads, n_heads_ra=0
    )


def dat(sensory: int, relational: int, *, symmetric: bool) -> GamesModelConfig:
    """A DAT as in the published runs: one relation a relational head, each d_model / n_relations wide."""
    return GamesModelConfig(
        name=f"dat-{sensory}+{relational}-{'sym' if symmetric else 'asym'}",
        n_heads_sa=sensory,
        n_heads_ra=relational,
        n_relations=relational,
        rel_proj_dim=128 // relational,
        symmetric_rels=symmetric,
    )


def rca(sensory: int, relational: int) -> GamesModelConfig:
    """A DAT whose relational heads are relational cross-attention."""
    return GamesModelConfig(
        name=f"rca-{sensory}+{relational}", n_heads_sa=sensory, n_heads_ra=relational, ra_type="rca"
    )


def variant(base: GamesModelConfig, suffix: str, **changes: Any) -> GamesModelConfig:
    """``base`` with ``changes``, its name followed by ``suffix``."""
    return replace(base, name=base.name + suffix, **changes)


def small_init_dat(relational: int, relations: int, *, symmetric: bool, symbolic: bool = False) -> GamesModelConfig:
    """A DAT of the later runs, with the package's small initialisation of W_r."""
    kind = "sym" if symmetric else "asym"
    name = f"dat-0+{relational}-nr{relations}-{kind}{'-symbolic' if symbolic else ''}-small-wr"
    return GamesModelConfig(
        name=name,
        n_heads_ra=relational,
        n_relations=relations,
        rel_proj_dim=128 // relations,
        symmetric_rels=symmetric,
        wr_init="published",
        symbols="symbolic_attention" if symbolic else "positional_symbols",
    )


def abstractor(name: str, config: AbstractorConfig) -> GamesModelConfig:
    """An Abstractor of the published size."""
    return GamesModelConfig(
        name=name, architecture="abstractor", activation="relu", dropout_rate=0.0, bias=True, abstractor=config
    )


def baselines() -> list[GamesModelConfig]:
    """The relational architectures before DATs, three of them in the form of the published curves under that name."""
    return [
        abstractor("abstractor", AbstractorConfig(residual="objects")),
        abstractor("abstractor-symbol-stream", AbstractorConfig()),
        GamesModelConfig(name="predinet", architecture="predinet"),
        corelnet("", CoRelNetConfig(activation="identity")),
        corelnet("-softmax", CoRelNetConfig()),
        GamesModelConfig(name="esbn", architecture="esbn"),
    ]


def corelnet(suffix: str, config: CoRelNetConfig) -> GamesModelConfig:
    """A CoRelNet of the published size."""
    return GamesModelConfig(name=f"corelnet{suffix}", architecture="corelnet", corelnet=config)


def _models() -> list[GamesModelConfig]:
    main = dat(0, 2, symmetric=True)
    return [
        *(_transformer(width, heads) for width in (128, 144) for heads in (2, 4, 8)),
        variant(_transformer(128, 2), "-matched", dff=301),
        main,
        dat(1, 1, symmetric=True),
        dat(0, 2, symmetric=False),
        dat(1, 1, symmetric=False),
        rca(0, 2),
        rca(1, 1),
        variant(rca(0, 2), "-matched", dff=299),
        dat(0, 4, symmetric=True),
        dat(0, 8, symmetric=True),
        dat(2, 2, symmetric=True),
        dat(4, 4, symmetric=True),
        variant(main, "-symbolic", symbols="symbolic_attention"),
        variant(main, "-symbolic-frozen", symbols="symbolic_attention", trainable_symbols=False),
        variant(main, "-relative", symbols="position_relative"),
        variant(main, "-relative-2d", symbols="position_relative_2d"),
        variant(main, "-small-wr", wr_init="published"),
        variant(main, "-squared-distance", rel_score="squared_distance"),
        *(
            small_init_dat(2, 8, symmetric=sym, symbolic=symbolic)
            for sym in (True, False)
            for symbolic in (False, True)
        ),
        small_init_dat(4, 8, symmetric=True),
        small_init_dat(8, 16, symmetric=True),
        *baselines(),
    ]


PRESETS: dict[str, GamesModelConfig] = {model.name: model for model in _models()}
"""Every named model."""

LOOKS = {
    "transformer-128-h2": ("Transformer (128, 2 heads)", "#8c8c8c"),
    "transformer-128-h8": ("Transformer (128, 8 heads)", "#4d4d4d"),
    "transformer-144-h2": ("Transformer (144, 2 heads)", "#c49c6b"),
    "transformer-144-h8": ("Transformer (144, 8 heads)", "#7a5c34"),
    "dat-0+2-sym": ("DAT 0+2, symmetric", "#1f6fb4"),
    "dat-1+1-sym": ("DAT 1+1, symmetric", "#d1495b"),
    "dat-0+2-asym": ("DAT 0+2, asymmetric", "#63b0e8"),
    "dat-1+1-asym": ("DAT 1+1, asymmetric", "#eb9aa5"),
    "rca-0+2": ("DAT-RCA 0+2", "#2e8b57"),
    "rca-1+1": ("DAT-RCA 1+1", "#9acd7d"),
    "abstractor": ("Abstractor", "#e0a000"),
    "abstractor-symbol-stream": ("Abstractor, relational bottleneck kept", "#f2cc60"),
    "predinet": ("PrediNet", "#8c564b"),
    "corelnet": ("CoRelNet", "#7b3fa0"),
    "corelnet-softmax": ("CoRelNet, softmax", "#c49be0"),
    "esbn": ("ESBN", "#149a9a"),
}
"""Name in figures and colour of the models of the published figures, in the order of figures and tables."""

LOOKS_OF_OTHERS = {
    "transformer-128-h2-matched": ("Transformer (as many parameters as DAT 0+2)", "#4d4d4d"),
    "rca-0+2-matched": ("symbols only (RCA)", "#2e8b57"),
    "dat-0+2-sym-squared-distance": ("DAT 0+2, squared distances", "#08306b"),
    "dat-0+2-sym-symbolic": ("DAT 0+2, symbolic attention", "#6a51a3"),
    "dat-0+2-sym-symbolic-frozen": ("DAT 0+2, symbolic attention, symbols as drawn", "#9e9ac8"),
    "dat-0+2-sym-relative": ("DAT 0+2, relative symbols", "#d95f02"),
    "dat-0+2-sym-relative-2d": ("DAT 0+2, relative symbols in the grid", "#fdae6b"),
}
"""The same of models that no published figure has."""

ORDER = (*LOOKS, *LOOKS_OF_OTHERS)
"""Models in that order; others come after them."""

BASELINES = tuple(model.name for model in baselines())
"""The relational architectures before DATs."""

COMPARISON = tuple(name for name in LOOKS if name not in BASELINES)
"""The models of the published figures that are DATs or Transformers."""

COLOURS = {name: colour for name, (_, colour) in (LOOKS | LOOKS_OF_OTHERS).items()}

LABELS = {
    **{name: label for name, (label, _) in (LOOKS | LOOKS_OF_OTHERS).items()},
    "transformer-128-h4": "Transformer (128, 4 heads)",
    "transformer-144-h4": "Transformer (144, 4 heads)",
}
"""Names of models in figures; any other goes by its own name."""
