"""Write small checkpoints in the hub's format with the published package `dual-attention==0.0.7`, and their logits.

Run as `../make_golden.py` is, see ../README.md:

    python tests/golden/hub/make_hub.py

Each folder is what `save_pretrained` of the published classes writes, without the model card. `expected.safetensors`
holds tokens and, in float64, the logits of the reloaded models for them.
"""

import contextlib
import importlib
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from published import float64_kept, require_published  # noqa: E402

COMMON = {
    "vocab_size": 13,
    "d_model": 8,
    "n_layers": 2,
    "dff": 12,
    "dropout_rate": 0.0,
    "activation": "gelu",
    "norm_first": True,
    "max_block_size": 12,
    "bias": False,
    "pos_enc_type": "RoPE",
}
DAT = {
    **COMMON,
    "n_heads_sa": 2,
    "n_heads_ra": 2,
    "symbol_retrieval": "symbolic_attention",
    "symbol_retrieval_kwargs": {"d_model": 8, "n_heads": 2, "n_symbols": 3, "trainable_symbols": False},
    "sa_kwargs": {"n_kv_heads": 1},
}
RELATIONS = {"n_relations": 4, "rel_proj_dim": 1, "n_kv_heads": 1}

# Folder: class, keyword arguments.
MODELS = {
    # As the paper's: retriever and embedding are shared, and stored once.
    "dat": ("DualAttnTransformerLM_HFHub", {**DAT, "ra_kwargs": {**RELATIONS, "symmetric_rels": False}}),
    # `wk_rel` is `wq_rel`; learned positions; a retriever for each layer with the symbols of the first.
    "dat_symmetric": (
        "DualAttnTransformerLM_HFHub",
        {
            **DAT,
            "pos_enc_type": "pos_emb",
            "ra_kwargs": {**RELATIONS, "symmetric_rels": True},
            "symbol_retriever_config": {"shared_symbol_retriever": False, "weight_tie_symbol_library": True},
        },
    ),
    "transformer": ("TransformerLM_HFHub", {**COMMON, "n_heads": 4}),
}


def main():
    require_published()
    hf = importlib.import_module("dual_attention.hf")
    expected = {}
    for name, (target, arguments) in MODELS.items():
        torch.manual_seed(0)
        folder = HERE / name
        kind = getattr(hf, target)
        with contextlib.redirect_stdout(None):
            model = kind(**arguments)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_((parameter + 0.2 * torch.randn_like(parameter)).half())
            model.save_pretrained(folder)
            (folder / "README.md").unlink()
            model = kind.from_pretrained(folder).double().eval()
        tokens = torch.randint(COMMON["vocab_size"], (2, 9))
        with torch.no_grad(), float64_kept():
            logits, _ = model(tokens, targets=tokens)  # without targets, the published model gives the last alone
        expected[f"{name}/tokens"], expected[f"{name}/logits"] = tokens, logits
    save_file(expected, HERE / "expected.safetensors")


if __name__ == "__main__":
    main()
