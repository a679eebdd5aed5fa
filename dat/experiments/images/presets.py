"""The models of Tables 1, 3 and 4, and small ones for handwritten digits."""

from dataclasses import replace

from .config import ImageModelConfig

VIDAT = ImageModelConfig(
    name="ViDAT",
    d_model=384,
    n_layers=8,
    n_heads_sa=6,
    n_heads_ra=6,
    n_kv_heads=3,
    dff=384,
    patch_size=(4, 4),
    n_relations=6,
    rel_proj_dim=32,
)
"""The paper's, with symmetric relations."""

DIGITS = ImageModelConfig()
"""A small one for digits."""


def _transformer(dat: ImageModelConfig, name: str, *, dff: int | None = None) -> ImageModelConfig:
    """A Vision Transformer with as many heads as a ViDAT has of both kinds."""
    heads = dat.n_heads_sa + dat.n_heads_ra
    return replace(dat, name=name, n_heads_sa=heads, n_heads_ra=0, n_kv_heads=None, dff=dff or dat.dff)


PRESETS: dict[str, ImageModelConfig] = {
    model.name: model
    for model in (
        _transformer(VIDAT, "ViT"),
        VIDAT,
        replace(VIDAT, name="ViDAT-asym", symmetric_rels=False),
        replace(VIDAT, name="ViDAT-ungrouped", n_kv_heads=6),
        _transformer(DIGITS, "ViT-digits", dff=132),  # as large as the ViDAT, within 1 %
        DIGITS,
        replace(DIGITS, name="ViDAT-digits-asym", symmetric_rels=False),
    )
}
"""Every named model."""

LOOKS = {
    "ViT": ("ViT", "#8c8c8c"),
    "ViDAT": ("ViDAT", "#1f6fb4"),
    "ViDAT-asym": ("ViDAT, asymmetric", "#63b0e8"),
    "ViDAT-ungrouped": ("ViDAT, keys not grouped", "#2e8b57"),
    "ViT-digits": ("ViT (d 64)", "#8c8c8c"),
    "ViDAT-digits": ("ViDAT (d 64)", "#1f6fb4"),
    "ViDAT-digits-asym": ("ViDAT (d 64), asymmetric", "#63b0e8"),
}
"""Name in figures and colour, in the order of figures and tables."""

LABELS = {name: label for name, (label, _) in LOOKS.items()}
COLOURS = {name: colour for name, (_, colour) in LOOKS.items()}
