"""The models of the paper's comparison by name, and what the paper calls them."""

from __future__ import annotations

from .baseline_config import AbstractorConfig, CoRelNetConfig
from .config import ModelConfig


def transformer(d_model: int, heads: int) -> ModelConfig:
    """A standard Transformer; dff is twice the width."""
    return ModelConfig(
        name=f"transformer-{d_model}-h{heads}", d_model=d_model, dff=2 * d_model, n_heads_sa=heads, n_heads_ra=0
    )


def dat(sensory: int, relational: int, *, symmetric: bool) -> ModelConfig:
    """A DAT as in the published runs: one relation a relational head, each d_model / n_relations wide."""
    return ModelConfig(
        name=f"dat-{sensory}+{relational}-{'sym' if symmetric else 'asym'}",
        n_heads_sa=sensory,
        n_heads_ra=relational,
        n_relations=relational,
        rel_proj_dim=128 // relational,
        symmetric_rels=symmetric,
    )


def rca(sensory: int, relational: int) -> ModelConfig:
    """A DAT whose relational heads are relational cross-attention."""
    return ModelConfig(name=f"rca-{sensory}+{relational}", n_heads_sa=sensory, n_heads_ra=relational, ra_type="rca")


def vary(base: ModelConfig, suffix: str, **changes: object) -> ModelConfig:
    """``base`` with ``changes``, its name followed by ``suffix``."""
    return type(base)(**{**vars(base), **changes, "name": base.name + suffix})


def later(relational: int, relations: int, *, symmetric: bool, symbolic: bool = False) -> ModelConfig:
    """A DAT of the later runs, with the package's small initialisation of W_r."""
    kind = "sym" if symmetric else "asym"
    name = f"dat-0+{relational}-nr{relations}-{kind}{'-symbolic' if symbolic else ''}-small-wr"
    return ModelConfig(
        name=name,
        n_heads_ra=relational,
        n_relations=relations,
        rel_proj_dim=128 // relations,
        symmetric_rels=symmetric,
        wr_init="published",
        symbols="symbolic_attention" if symbolic else "positional_symbols",
    )


def abstractor(name: str, config: AbstractorConfig) -> ModelConfig:
    """An Abstractor of the published size."""
    return ModelConfig(
        name=name, architecture="abstractor", activation="relu", dropout_rate=0.0, bias=True, abstractor=config
    )


def baselines() -> list[ModelConfig]:
    """The relational architectures before DATs, three of them in the form of the published curves under that name."""
    return [
        abstractor("abstractor", AbstractorConfig(residual="objects")),
        abstractor("abstractor-symbol-stream", AbstractorConfig()),
        ModelConfig(name="predinet", architecture="predinet"),
        ModelConfig(name="corelnet", architecture="corelnet", corelnet=CoRelNetConfig(activation="identity")),
        ModelConfig(name="corelnet-softmax", architecture="corelnet"),
        ModelConfig(name="esbn", architecture="esbn"),
    ]


def _models() -> list[ModelConfig]:
    main = dat(0, 2, symmetric=True)
    return [
        *(transformer(width, heads) for width in (128, 144) for heads in (2, 4, 8)),
        vary(transformer(128, 2), "-matched", dff=301),
        main,
        dat(1, 1, symmetric=True),
        dat(0, 2, symmetric=False),
        dat(1, 1, symmetric=False),
        rca(0, 2),
        rca(1, 1),
        dat(0, 4, symmetric=True),
        dat(0, 8, symmetric=True),
        dat(2, 2, symmetric=True),
        dat(4, 4, symmetric=True),
        vary(main, "-symbolic", symbols="symbolic_attention"),
        vary(main, "-relative", symbols="position_relative"),
        vary(main, "-relative-2d", symbols="position_relative_2d"),
        vary(main, "-small-wr", wr_init="published"),
        *(later(2, 8, symmetric=sym, symbolic=symbolic) for sym in (True, False) for symbolic in (False, True)),
        later(4, 8, symmetric=True),
        later(8, 16, symmetric=True),
        *baselines(),
    ]


PRESETS: dict[str, ModelConfig] = {model.name: model for model in _models()}
"""Every named model."""

COMPARISON = (
    "transformer-128-h2",
    "transformer-128-h8",
    "transformer-144-h2",
    "transformer-144-h8",
    "dat-0+2-sym",
    "dat-1+1-sym",
    "dat-0+2-asym",
    "dat-1+1-asym",
    "rca-0+2",
    "rca-1+1",
)
"""The models of the published figures that are DATs or Transformers."""

BASELINES = tuple(model.name for model in baselines())
"""The relational architectures before DATs."""

ORDER = (*COMPARISON, *BASELINES)
"""Models in the order of figures and tables; others come after them."""

LABELS: dict[str, str] = {
    "transformer-128-h2": "Transformer (128, 2 heads)",
    "transformer-128-h4": "Transformer (128, 4 heads)",
    "transformer-128-h8": "Transformer (128, 8 heads)",
    "transformer-128-h2-matched": "Transformer (as many parameters as DAT 0+2)",
    "transformer-144-h2": "Transformer (144, 2 heads)",
    "transformer-144-h4": "Transformer (144, 4 heads)",
    "transformer-144-h8": "Transformer (144, 8 heads)",
    "dat-0+2-sym": "DAT 0+2, symmetric",
    "dat-1+1-sym": "DAT 1+1, symmetric",
    "dat-0+2-asym": "DAT 0+2, asymmetric",
    "dat-1+1-asym": "DAT 1+1, asymmetric",
    "rca-0+2": "DAT-RCA 0+2",
    "rca-1+1": "DAT-RCA 1+1",
    "abstractor": "Abstractor",
    "abstractor-symbol-stream": "Abstractor, relational bottleneck kept",
    "predinet": "PrediNet",
    "corelnet": "CoRelNet",
    "corelnet-softmax": "CoRelNet, softmax",
    "esbn": "ESBN",
}
"""What figures call a model; any other goes by its name."""


def preset(name: str) -> ModelConfig:
    """The model of that name.

    Raises:
        ValueError: naming the known ones, if there is none.
    """
    if name not in PRESETS:
        raise ValueError(f"preset: expected one of {', '.join(PRESETS)}; received {name!r}")
    return PRESETS[name]
