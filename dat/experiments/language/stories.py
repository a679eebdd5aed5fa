"""The models of the paper's Figure 12: small ones on Tiny Stories, with relational heads, with RCA heads, and without.

They are of the first runs: SwiGLU, dropout, an output layer with a matrix of its own and a bias, and no last
normalisation. All relations together are as wide as the model, not as the relational heads.
"""

from __future__ import annotations

from dataclasses import replace

from .model_keys import LanguageModelKeys

VOCABULARY = 32_000
"""Tokens, as many as Llama 2's tokenizer has, which the published runs read."""

TRANSFORMER = LanguageModelKeys(
    name="T-stories",
    vocab_size=VOCABULARY,
    context=512,
    d_model=64,
    n_layers=4,
    n_heads_sa=8,
    n_heads_ra=0,
    n_kv_heads=None,
    dff=256,
    activation="swiglu",
    dropout_rate=0.1,
    tie_weights=False,
    final_norm=False,
    output_bias=True,
)
DAT = replace(
    TRANSFORMER,
    name="DAT-4+4-stories",
    n_heads_sa=4,
    n_heads_ra=4,
    n_relations=4,
    rel_proj_dim=16,
    n_symbols=512,
    trainable_symbols=True,
)
RCA = replace(DAT, name="RCA-4+4-stories", ra_type="rca")

STORIES = {
    model.name: model
    for model in (TRANSFORMER, DAT, RCA, replace(RCA, name="RCA-6+2-stories", n_heads_sa=6, n_heads_ra=2))
}
"""All of them by name."""
