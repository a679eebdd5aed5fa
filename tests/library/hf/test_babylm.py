"""Checkpoints of abrsvn/babylm_dat_2026: random weights under their names give the logits of their equations.

The equations stand here in float64, from the paper (arXiv 2609.20530) and from arXiv 2405.16727, which it follows.
"""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from dual_attention.hf import load_language_model
from tests.support.refusals import refusals

pytestmark = pytest.mark.sweep(4)

VOCAB, LENGTH, END, PAD = 31, 12, 2, 3
BASE: dict[str, Any] = {
    "model_type": "dat",
    "architectures": ["DatModel", "DatForCausalLM", "DatForSequenceClassification"],
    "transformers_version": "5.24.0",
    "vocab_size": VOCAB,
    "max_seq_len": LENGTH,
    "hidden_dim": 24,
    "n_heads_sa": 2,
    "n_heads_ra": 2,
    "n_layers": 2,
    "dropout": 0.1,
    "bos_token_id": 1,
    "eos_token_id": END,
    "pad_token_id": PAD,
}
SYMBOLS: dict[str, dict[str, Any]] = {
    "symbolic": {"symbol_retrieval": "symbolic", "n_symbols": 7},
    "symbolic, biased": {"symbol_retrieval": "symbolic", "symbolic_use_bias": True, "symbolic_attn_n_heads": 3},
    "positional": {"symbol_retrieval": "positional"},
    "sinusoidal": {"symbol_retrieval": "positional", "positional_symbols_sinusoidal": True},
    "relative": {"symbol_retrieval": "relative"},
    "relative, clipped": {"symbol_retrieval": "relative", "max_rel_pos": 3},
    "RoPE": {"symbol_retrieval": "relative", "relative_symbols_rope": True, "max_rel_pos": 512},
    "RoPE, clipped": dict(symbol_retrieval="relative", relative_symbols_rope=True, max_rel_pos=4, rope_theta=50.0),
    "relsymbolic": {"symbol_retrieval": "relsymbolic", "relsymbolic_rel_n_heads": 3, "n_symbols": 5},
    "relsymbolic, wide": {"symbol_retrieval": "relsymbolic", "relsymbolic_neighborhood_size": 3,
        "relsymbolic_include_self": True, "relsymbolic_normalize_rels": False, "relsymbolic_use_bias": True,
        "relsymbolic_symbolic_attn_scale": 0.7},
    "relsymbolic, scaled": {"symbol_retrieval": "relsymbolic", "relsymbolic_rel_scale": 0.3, "n_symbols": 5},
}  # fmt: skip
HEADS: dict[str, dict[str, Any]] = {
    "RA": {"ra_type": "ra"},
    "RA, other relations": {"ra_type": "ra", "ra_n_relations": 4, "ra_rel_activation": "tanh"},
    "RA, symmetric": {"ra_type": "ra", "ra_symmetric_rels": True, "ra_rel_activation": "softmax"},
    "RCA": {"ra_type": "rca"},
    "RCA, sigmoid": {"ra_type": "rca", "ra_rel_activation": "sigmoid"},
    "RCA, softmax": {"ra_type": "rca", "ra_rel_activation": "softmax"},
    "DisRCA": {"ra_type": "disrca"},
    "DisRCA, softmax": {"ra_type": "disrca", "ra_rel_activation": "softmax"},
}
BLOCKS: dict[str, dict[str, Any]] = {
    "as submitted": {"norm_type": "layernorm", "ffn_activation": "swiglu", "use_bias_out": False, "tie_lm_head": False},
    "post-norm, all biases": {"norm_first": False, "use_bias_qkv": True, "tie_lm_head": True},
    "no biases": {"use_bias_out": False, "use_bias_ffn": False, "n_heads_sa": 3, "n_heads_ra": 1, "dff_factor": 3},
}


def value(config: dict[str, Any], name: str) -> Any:
    """A field, or what their configuration class has where it is left out."""
    defaults = {
        "dff_factor": 4, "ffn_activation": "gelu", "norm_type": "rmsnorm", "norm_first": True, "use_bias_qkv": False,
        "use_bias_out": True, "use_bias_ffn": True, "tie_lm_head": True, "rope_theta": 10000.0, "ra_type": "ra",
        "ra_rel_activation": "identity", "symbol_retrieval": "symbolic",
        "relsymbolic_rel_n_heads": 4, "relsymbolic_symbolic_attn_n_heads": 4,
        "relsymbolic_neighborhood_size": 2, "relsymbolic_normalize_rels": True,
    }  # fmt: skip
    return config.get(name, defaults.get(name))


class RandomWeights:
    """Weights under the names that their class writes; tied ones once."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.made, self.width = config, {}, config["hidden_dim"]
        self.linear("token_embeddings", self.get("vocab_size"), self.width)
        if not self.get("tie_lm_head"):
            self.linear("lm_head", self.get("vocab_size"), self.width)
        self.norm("final_norm")
        for number in range(config["n_layers"]):
            self.layer(f"layers.{number}.")
        if self.get("n_heads_ra"):
            self.symbols("symbol_retriever.")

    def get(self, name: str) -> Any:
        return value(self.config, name)

    def add(self, name: str, *shape: int) -> None:
        self.made["model." + name] = 0.4 * torch.randn(*shape, dtype=torch.float64)

    def linear(self, name: str, out: int, into: int, bias: bool | None = False) -> None:
        self.add(name + ".weight", out, into)
        if bias:
            self.add(name + ".bias", out)

    def norm(self, name: str) -> None:
        self.add(name + ".weight", self.width)
        if self.get("norm_type") == "layernorm":
            self.add(name + ".bias", self.width)

    def layer(self, own: str) -> None:
        d, sa, ra = self.width, self.get("n_heads_sa") or self.get("n_heads"), self.get("n_heads_ra") or 0
        width, bias = d // (sa + ra), self.get("use_bias_qkv")
        kinds = {own + ("sensory_attention" if ra else "self_attn"): sa, own + "relational_attention": ra}
        for name, heads in kinds.items():
            for part in "qkv" if heads else "":
                self.linear(f"{name}.{part}_proj", heads * width, d, bias)
            if heads:
                self.linear(f"{name}.o_proj", heads * width, heads * width, self.get("use_bias_out"))
        kind = self.get("ra_type") if ra else None
        if kind in ("ra", "disrca"):
            for name in ("wk_rel",) if self.get("ra_symmetric_rels") else ("wk_rel", "wq_rel"):
                self.linear(f"{own}relational_attention.{name}", ra * width, d)
        if kind == "ra":
            self.add(own + "relational_attention.wr_proj", ra, width, self.get("ra_n_relations") or ra)
        gated, hidden = self.get("ffn_activation") == "swiglu", d * self.get("dff_factor")
        for name in ("w_gate", "w_up") if gated else ("linear1",):
            self.linear(f"{own}feed_forward.{name}", hidden, d, self.get("use_bias_ffn"))
        self.linear(f"{own}feed_forward.{'w_down' if gated else 'linear2'}", d, hidden, self.get("use_bias_ffn"))
        self.norm(own + "norm1")
        self.norm(own + "norm2")

    def symbols(self, own: str) -> None:
        kind, d = self.get("symbol_retrieval"), self.width
        if kind == "symbolic":
            self.library(own, self.get("symbolic_use_bias"))
        elif kind == "positional" and not self.get("positional_symbols_sinusoidal"):
            self.linear(own + "position_encoder.position_embeddings", self.get("max_seq_len"), d)
        elif kind == "relative" and not self.get("relative_symbols_rope"):
            reach = self.get("max_rel_pos") or self.get("max_seq_len") // 2
            self.linear(own + "position_encoder.rel_pos_embeddings_table", 2 * reach + 1, d)
        elif kind == "relsymbolic":
            bias = self.get("relsymbolic_use_bias")
            self.linear(own + "q_proj", d, d, bias)
            self.linear(own + "k_proj", d, d, bias)
            nearby = self.get("relsymbolic_neighborhood_size") + bool(self.get("relsymbolic_include_self"))
            self.linear(own + "rel_to_hidden", d, nearby * self.get("relsymbolic_rel_n_heads"), True)
            self.library(own + "symbolic_attention.", bias)

    def library(self, own: str, bias: bool | None) -> None:
        self.linear(own + "q_proj", self.width, self.width, bias)
        for name in ("template_features", "symbol_library"):
            self.add(own + name, self.get("n_symbols") or self.get("max_seq_len"), self.width)


class Equations:
    """Their model as equations."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.config, self.weights = config, weights

    def get(self, name: str) -> Any:
        return value(self.config, name)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"model.{name}.weight"], self.weights.get(f"model.{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight = self.weights[f"model.{name}.weight"]
        if self.get("norm_type") == "layernorm":
            return F.layer_norm(x, x.shape[-1:], weight, self.weights[f"model.{name}.bias"], 1e-5)
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    def heads(self, name: str, x: Tensor, width: int) -> Tensor:
        return self.linear(name, x).unflatten(-1, (-1, width)).transpose(1, 2)

    def rotated(self, x: Tensor) -> Tensor:
        """Neighbouring features as complex numbers, turned by the position's angle; the angles are float32."""
        length, width = x.shape[-2:]
        frequencies = 1 / self.get("rope_theta") ** (torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        turn = torch.complex(angles.cos().double(), angles.sin().double())
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)

    def weighed(self, name: str, x: Tensor, seen: Tensor, width: int, activation: str = "softmax") -> Tensor:
        q, k = (self.rotated(self.heads(f"{name}.{part}_proj", x, width)) for part in "qk")
        return self.activated(q @ k.mT / math.sqrt(width), seen, activation)

    def activated(self, scores: Tensor, seen: Tensor, activation: str) -> Tensor:
        if activation == "softmax":
            scores = scores.masked_fill(~seen, -1e300).softmax(-1)
        elif activation != "identity":
            scores = getattr(torch, activation)(scores)
        return scores * seen

    def symbols(self, x: Tensor) -> Tensor:
        """Symbols of senders ``(B, M, d)``, or of pairs ``(N, M, d)``."""
        kind, length, d = self.get("symbol_retrieval"), x.shape[1], x.shape[-1]
        if kind == "symbolic":
            heads = self.get("symbolic_attn_n_heads") or self.get("n_heads_sa") + self.get("n_heads_ra")
            return self.library("symbol_retriever.", x, heads, 1 / math.sqrt(d // heads))
        if kind == "relsymbolic":
            return self.of_neighbours(x)
        there = torch.arange(length)
        if kind == "positional":
            if not self.get("positional_symbols_sinusoidal"):
                return self.weights["model.symbol_retriever.position_encoder.position_embeddings.weight"][None, :length]
            frequencies = 1 / 10000 ** (torch.arange(0, d, 2).float() / d)
            angles = there[:, None].float() * frequencies
            return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2).double()[None]
        reach = self.get("max_rel_pos") or max(1, LENGTH // 2)
        offsets = (there[None] - there[:, None]).clamp(-reach, reach)
        if not self.get("relative_symbols_rope"):
            table = "model.symbol_retriever.position_encoder.rel_pos_embeddings_table.weight"
            return self.weights[table][offsets + reach]
        angles = offsets[..., None] / self.get("rope_theta") ** (torch.arange(0, d, 2).double() / d)
        return torch.stack((angles.cos(), angles.sin()), -1).flatten(-2)

    def library(self, name: str, x: Tensor, heads: int, scale: float) -> Tensor:
        templates, rows = (self.weights[f"model.{name}{w}"] for w in ("template_features", "symbol_library"))
        q = self.linear(name + "q_proj", x).unflatten(-1, (heads, -1))
        match = torch.einsum("bihc,nhc->bihn", q, templates.unflatten(-1, (heads, -1)))
        return torch.einsum("bihn,nhc->bihc", (scale * match).softmax(-1), rows.unflatten(-1, (heads, -1))).flatten(2)

    def of_neighbours(self, x: Tensor) -> Tensor:
        heads, d = self.get("relsymbolic_rel_n_heads"), x.shape[-1]
        q, k = (self.linear(f"symbol_retriever.{part}_proj", x).unflatten(-1, (heads, -1)) for part in "qk")
        first = 0 if self.get("relsymbolic_include_self") else 1
        found = []
        for i in range(x.shape[1]):
            near = [max(i - step, 0) for step in range(first, self.get("relsymbolic_neighborhood_size") + 1)]
            relations = (q[:, i, None] * k[:, near]).sum(-1)  # (B, neighbours, heads)
            if self.get("relsymbolic_normalize_rels"):
                scale = self.get("relsymbolic_rel_scale") or 1 / math.sqrt(d // heads)
                relations = (scale * relations).softmax(1)
            found.append(relations.flatten(1))
        features = self.linear("symbol_retriever.rel_to_hidden", torch.stack(found, 1))
        heads = self.get("relsymbolic_symbolic_attn_n_heads")
        scale = self.get("relsymbolic_symbolic_attn_scale") or 1 / math.sqrt(d // heads)
        return self.library("symbol_retriever.symbolic_attention.", features, heads, scale)

    def relational(self, name: str, x: Tensor, seen: Tensor, width: int) -> Tensor:
        """Messages ``(B, N, H, width)``, before the output projection."""
        kind, activation = self.get("ra_type"), self.get("ra_rel_activation")
        symbols = self.linear(f"{name}.v_proj", self.symbols(x)).unflatten(-1, (-1, width))
        carried = "ijhc" if self.get("symbol_retrieval") == "relative" else "bjhc"
        if carried == "bjhc":
            symbols = symbols.expand(len(x), -1, -1, -1)
        alpha = self.weighed(name, x, seen, width, activation if kind == "rca" else "softmax")
        if kind == "rca":
            return torch.einsum(f"bhij,{carried}->bihc", alpha, symbols)
        keys = self.heads(f"{name}.wk_rel", x, self.relation_width(width))
        tied = "wk_rel" if self.get("ra_symmetric_rels") else "wq_rel"
        queries = self.heads(f"{name}.{tied}", x, self.relation_width(width))
        relations = self.activated(queries @ keys.mT / math.sqrt(keys.shape[-1]), seen, activation)
        if kind == "disrca":
            return torch.einsum(f"bhij,{carried}->bihc", alpha * relations, symbols)
        message = torch.einsum(f"bhij,{carried}->bihc", alpha, symbols)
        return message + torch.einsum("bhij,brij,hcr->bihc", alpha, relations, self.weights[f"model.{name}.wr_proj"])

    def relation_width(self, width: int) -> int:
        heads = self.get("n_heads_ra")
        return heads * width // (heads if self.get("ra_type") == "disrca" else self.get("ra_n_relations") or heads)

    def attended(self, own: str, x: Tensor, seen: Tensor) -> Tensor:
        ra = self.get("n_heads_ra") or 0
        width = x.shape[-1] // ((self.get("n_heads_sa") or self.get("n_heads")) + ra)
        name = own + ("sensory_attention" if ra else "self_attn")
        values = self.heads(f"{name}.v_proj", x, width)
        sensory = (self.weighed(name, x, seen, width) @ values).transpose(1, 2).flatten(2)
        parts = [self.linear(f"{name}.o_proj", sensory)]
        if ra:
            name = own + "relational_attention"
            parts.append(self.linear(f"{name}.o_proj", self.relational(name, x, seen, width).flatten(2)))
        return torch.cat(parts, -1)

    def fed_forward(self, own: str, x: Tensor) -> Tensor:
        if self.get("ffn_activation") == "swiglu":
            return self.linear(own + "w_down", F.silu(self.linear(own + "w_gate", x)) * self.linear(own + "w_up", x))
        x = self.linear(own + "linear1", x)
        return self.linear(own + "linear2", x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))

    def logits(self, ids: Tensor) -> Tensor:
        """An end token begins the next document; what fills a row is seen by nobody."""
        document, real, length = (ids == END).cumsum(1), ids != PAD, ids.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool).tril() & (document[:, :, None] == document[:, None])
        seen = (seen & real[:, :, None] & real[:, None])[:, None]
        x = self.weights["model.token_embeddings.weight"][ids]
        for number in range(self.get("n_layers")):
            own = f"layers.{number}."
            if self.get("norm_first"):
                x = x + self.attended(own, self.norm(own + "norm1", x), seen)
                x = x + self.fed_forward(own + "feed_forward.", self.norm(own + "norm2", x))
            else:
                x = self.norm(own + "norm1", x + self.attended(own, x, seen))
                x = self.norm(own + "norm2", x + self.fed_forward(own + "feed_forward.", x))
        out = "token_embeddings" if self.get("tie_lm_head") else "lm_head"
        return self.norm("final_norm", x) @ self.weights[f"model.{out}.weight"].T


def written(folder: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    weights = RandomWeights(config).made
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return weights


def documents(ids: Tensor) -> dict[str, Tensor]:
    positions = torch.arange(ids.shape[1])[None]
    return {"segments": (ids == END).cumsum(1), "positions": positions, "padding_mask": ids != PAD}


# Every kind of symbols with every kind of heads; blocks change along.
MATRIX = [(s, h, list(BLOCKS)[n % 3]) for n, (s, h) in enumerate(product(SYMBOLS, HEADS))]


@pytest.mark.sweep(8)
@pytest.mark.parametrize(("symbols", "heads", "block"), MATRIX)
@torch.no_grad()
def test_logits_are_those_of_their_equations(symbols: str, heads: str, block: str, tmp_path: Path):
    config = {**BASE, **SYMBOLS[symbols], **HEADS[heads], **BLOCKS[block]}
    if "other relations" in heads and config["n_heads_ra"] == 1:
        config["ra_n_relations"] = 3
    weights = written(tmp_path, config)
    ids = torch.randint(4, VOCAB, (3, LENGTH))
    ids[0, 5] = ids[1, 0] = ids[1, 7] = ids[1, 8] = END
    ids[2, 9:] = PAD
    expected = Equations(config, weights).logits(ids)
    model = load_language_model(tmp_path, dtype=torch.float64).model
    found = model(ids, **documents(ids)).logits
    real, scale = ids != PAD, float(expected.abs().max())
    close = 1e-6 if symbols == "sinusoidal" else 1e-10  # tables in float32, which are rounded otherwise
    torch.testing.assert_close(found[real], expected[real], atol=close * scale, rtol=0)
    one = ids[2:, :9]  # one document needs nothing, and may come token by token
    cache = model.new_cache()
    steps = torch.cat([model(one[:, i : i + 1], cache=cache).logits for i in range(one.shape[1])], 1)
    torch.testing.assert_close(steps, expected[2:, :9], atol=close * scale, rtol=0)


@pytest.mark.parametrize("block", BLOCKS)
@torch.no_grad()
def test_their_baseline_of_self_attention(block: str, tmp_path: Path):
    config = {**BASE, **BLOCKS[block], "model_type": "transformer", "n_heads": 4}
    for name in ("n_heads_sa", "n_heads_ra", "ffn_activation"):
        config.pop(name, None)
    weights = written(tmp_path, config)
    ids = torch.randint(VOCAB, (2, LENGTH))
    found = load_language_model(tmp_path, dtype=torch.float64).model(ids, **documents(ids)).logits
    expected, real = Equations(config, weights).logits(ids), ids != PAD
    torch.testing.assert_close(found[real], expected[real], atol=1e-10 * float(expected.abs().max()), rtol=0)


@refusals(
    ({"pe_type": "learned"}, "pe_type: expected 'rope', got 'learned'"),
    ({"symbol_dim": 12}, "symbol_dim: expected null or hidden_dim=24"),
    ({"ra_type": "abstractor"}, "ra_type: expected 'ra' or 'rca' or 'disrca', got 'abstractor'"),
    ({"symbol_retrieval": "token"}, "symbol_retrieval: expected 'symbolic'"),
    ({"ffn_activation": "relu"}, "ffn_activation: expected 'gelu' or 'swiglu', got 'relu'"),
    ({"ffn_hidden_dim_mode": "other"}, "ffn_hidden_dim_mode: expected 'dff_factor'"),
    ({"ra_rel_activation": "exp"}, "ra_rel_activation: expected"),
    ({"sequence_boundary_policy": "none"}, "sequence_boundary_policy: expected 'eos_document'"),
    ({"n_layers": "two"}, TypeError, "n_layers: expected int"),
    ({"hidden_dim": 25}, "d_model: 25 is not divisible"),
    of="fields",
)
def test_what_has_no_counterpart_is_refused(fields: dict[str, Any], error, message: str, tmp_path: Path):
    written(tmp_path, BASE)
    (tmp_path / "config.json").write_text(json.dumps({**BASE, **fields}))
    with pytest.raises(error, match=message):
        load_language_model(tmp_path)


def test_weights_that_do_not_fit_are_named(tmp_path: Path):
    weights = written(tmp_path, BASE)
    del weights["model.layers.1.relational_attention.wr_proj"]
    weights["model.latent_head.weight"] = torch.zeros(2)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"missing: layers.blocks.1.*\.wr; unexpected: latent_head.weight"):
        load_language_model(tmp_path)
