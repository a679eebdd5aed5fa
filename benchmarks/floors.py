"""Fewest multiply-adds of the modules that are measured, in closed form, so that the largest case costs no run.

Only products of matrices are counted: no softmax, normalisation, activation or rotation. Causal attention needs half of
the pairs, and relations take the cheaper of their two exact forms, as :mod:`dual_attention.estimate.flops` has both. A
training step is three times the forward products, less those for gradients that nobody needs; weights that are computed
again in the backward pass are not part of the floor.

Shapes: B batch, n receivers, m senders, d width of the model, H heads, G key/value heads, R relations, p their width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.work import Work
from dual_attention.estimate.flops import pairs, relation_products

Form = Literal["least", "linear", "dense"]


@dataclass(frozen=True)
class Count:
    """Multiply-adds of a forward pass, and of those how many have a second factor that needs no gradient."""

    forward: int
    without_gradient: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.forward + other.forward, self.without_gradient + other.without_gradient)

    def __mul__(self, times: int) -> Count:
        return Count(self.forward * times, self.without_gradient * times)

    @property
    def step(self) -> int:
        """Of a forward and a backward pass."""
        return 3 * self.forward - self.without_gradient


@dataclass(frozen=True)
class Sequence:
    """Of attention: B examples, n receivers of m senders; ``halved`` if no receiver sees later senders.

    ``form`` is how relations are counted: the cheaper way, or one of the two.
    """

    batch: int
    n: int
    m: int
    halved: bool = False
    form: Form = "least"

    @property
    def pairs(self) -> int:
        """Pairs that may be attended, in all examples."""
        return self.batch * pairs(self.n, self.m, causal=self.halved)


def attention(
    s: Sequence, d_model: int, n_heads: int, n_kv_heads: int | None = None, total_n_heads: int | None = None, **_: Any
) -> Count:
    """Multi-head attention with its projections."""
    width = d_model // (total_n_heads or n_heads)
    kv = n_kv_heads or n_heads
    projections = s.n * d_model * n_heads * width + 2 * s.m * d_model * kv * width + s.n * (n_heads * width) ** 2
    return Count(s.batch * projections + s.pairs * n_heads * 2 * width)


def relation_pairs(s: Sequence, heads: int, relations: int, p: int) -> int:
    """Attended relations: the part that grows with pairs, and in the linear form the inner products."""
    forms = relation_products(heads, relations, p)
    return s.pairs * (min(forms) if s.form == "least" else getattr(forms, s.form))


def symbol_pairs(s: Sequence, heads: int, width: int, rows: int | None) -> int:
    """Attended symbols; of a table of relative symbols by pairs, or by rows after sums of weights."""
    by_pairs = s.pairs * heads * width
    if rows is None or s.form == "dense":
        return by_pairs
    by_rows = s.batch * s.n * heads * rows * width
    return by_rows if s.form == "linear" else min(by_pairs, by_rows)


def relational_attention(
    s: Sequence,
    symbols: Mapping[str, Any] | None,
    d_model: int,
    n_heads: int,
    n_relations: int | None = None,
    rel_proj_dim: int | None = None,
    n_kv_heads: int | None = None,
    total_n_heads: int | None = None,
    symmetric_rels: bool = False,
    **_: Any,
) -> Count:
    """Relational attention with its projections, of symbols that are given (None) or retrieved."""
    width, kv = d_model // (total_n_heads or n_heads), n_kv_heads or n_heads
    relations = n_relations or n_heads
    p = rel_proj_dim or width * n_heads // relations
    once = s.n * d_model * n_heads * width + s.m * d_model * kv * width + s.n * (n_heads * width) ** 2
    once += (1 if symmetric_rels else 2) * s.n * d_model * relations * p
    once += s.n * n_heads * relations * width  # W_r
    rows = symbol_rows(s, symbols)
    attended = s.pairs * n_heads * width + relation_pairs(s, n_heads, relations, p)
    table = rows if is_relative(symbols) else None
    return Count(s.batch * once + rows * d_model * kv * width + attended + symbol_pairs(s, n_heads, width, table))


def is_relative(symbols: Mapping[str, Any] | None) -> bool:
    """Whether symbols depend on the offset."""
    return symbols is not None and symbols["kind"] == "PositionRelativeSymbolRetriever"


def symbol_rows(s: Sequence, symbols: Mapping[str, Any] | None) -> int:
    """Rows of symbols that are to be projected: those that are the same in all examples once."""
    if symbols is None or symbols["kind"] == "SymbolicAttention":
        return s.batch * s.m
    if is_relative(symbols):
        return 2 * symbols["max_rel_pos"] + 1
    return s.m


def retrieval(s: Sequence, symbols: Mapping[str, Any]) -> Count:
    """The symbol retriever's own products."""
    if symbols["kind"] != "SymbolicAttention":
        return Count(0)
    d_model, n_symbols = symbols["d_model"], symbols["n_symbols"]
    tokens = s.batch * s.m
    frozen = 0 if symbols.get("trainable_symbols", True) else tokens * n_symbols * d_model
    return Count(tokens * d_model * (d_model + 2 * n_symbols), frozen)


def feed_forward(s: Sequence, d_model: int, dff: int | None, activation: str) -> Count:
    """The feed-forward block."""
    gated = activation == "swiglu"
    within = dff or int(2 / 3 * 4 * d_model if gated else 4 * d_model)
    return Count(s.batch * s.n * d_model * within * (3 if gated else 2))


def dual_block(s: Sequence, d_model: int, block: Mapping[str, Any], symbols: Mapping[str, Any]) -> Count:
    """An encoder block with dual attention, and the retrieval of its symbols."""
    sensory, relational = block["n_heads_sa"], block["n_heads_ra"]
    total = {"d_model": d_model, "total_n_heads": sensory + relational}
    count = feed_forward(s, d_model, block.get("dff"), block["activation"])
    if sensory:
        count += attention(s, n_heads=sensory, **total, **(block.get("sa_kwargs") or {}))
    if relational:
        count += retrieval(s, symbols)
        count += relational_attention(s, symbols, n_heads=relational, **total, **(block.get("ra_kwargs") or {}))
    return count


def plain_block(s: Sequence, d_model: int, block: Mapping[str, Any]) -> Count:
    """A standard encoder block."""
    attended = attention(s, d_model, block["n_heads"], **(block.get("attn_kwargs") or {}))
    return attended + feed_forward(s, d_model, block.get("dff"), block["activation"])


def dual_layers(work: Work, form: Form) -> Count:
    batch, n, d_model = work.inputs["x"].shape
    block = work.kwargs["block"]
    s = Sequence(batch, n, n, block.get("causal", False), form)
    return dual_block(s, d_model, block, work.kwargs["symbols"]) * work.kwargs["n_layers"]


def plain_layers(work: Work, form: Form) -> Count:
    batch, n, d_model = work.inputs["x"].shape
    block = work.kwargs["block"]
    s = Sequence(batch, n, n, block.get("causal", False), form)
    return plain_block(s, d_model, block) * work.kwargs["n_layers"]


def llama_block(s: Sequence, config: Mapping[str, Any]) -> Count:
    d_model = config["hidden_size"]
    attended = attention(s, d_model, config["num_attention_heads"], config.get("num_key_value_heads"))
    return attended + feed_forward(s, d_model, config["intermediate_size"], "swiglu")


def llama_layers(work: Work, form: Form) -> Count:
    batch, n, _ = work.inputs["x"].shape
    return llama_block(Sequence(batch, n, n, True, form), work.kwargs) * work.kwargs["num_hidden_layers"]


def encoder_decoder(work: Work, form: Form) -> Count:
    """Both kinds; the source's blocks do not depend on the target, the target's attend to the encoded source."""
    batch, m, d_model = work.inputs["x"].shape
    n = work.inputs["y"].shape[1]
    encoder, decoder = work.kwargs["encoder"], work.kwargs["decoder"]
    sources = Sequence(batch, m, m, form=form)
    targets = Sequence(batch, n, n, decoder.get("causal", False), form)
    if work.subject == "dual_encoder_decoder":
        symbols = work.kwargs["symbols"]
        count = dual_block(sources, d_model, encoder, symbols) + dual_block(targets, d_model, decoder, symbols)
    else:
        count = plain_block(sources, d_model, encoder) + plain_block(targets, d_model, decoder)
    across = attention(Sequence(batch, n, m, form=form), d_model, decoder["n_heads_cross"])
    return (count + across) * work.kwargs["n_layers"]


def layer(work: Work, form: Form) -> Count:
    batch, n, _ = work.inputs["x"].shape
    arguments = dict(work.kwargs)
    s = Sequence(batch, n, n, arguments.pop("causal"), form)
    if work.subject == "plain_layer":
        return attention(s, **arguments)
    return relational_attention(s, arguments.pop("symbols", None), **arguments)


def operation(work: Work, form: Form) -> Count:
    """Only the operation, with W_r."""
    batch, heads, n, width = work.inputs["q"].shape
    m, relations, p = work.inputs["w"].shape[1:]
    s = Sequence(batch, n, m, work.kwargs["causal"], form)
    rows = work.inputs["symbols"].shape[0] if work.kwargs.get("relative") else None
    head = work.inputs["w_r"].shape[1]
    count = s.pairs * heads * width + relation_pairs(s, heads, relations, p) + symbol_pairs(s, heads, head, rows)
    return Count(count + batch * n * heads * relations * head)


def vision_model(work: Work, form: Form) -> Count:
    arguments = work.kwargs
    batch, channels, height, width = work.inputs["x"].shape
    patch = arguments["patch_size"][0] * arguments["patch_size"][1]
    patches, d_model = height * width // patch, arguments["d_model"]
    s = Sequence(batch, patches + 1, patches + 1, form=form)
    if arguments["kind"].endswith("DualAttnTransformer"):
        symbols = {"kind": RETRIEVERS[arguments["symbol_retrieval"]], **arguments["symbol_retrieval_kwargs"]}
        blocks = dual_block(s, d_model, arguments, symbols) * arguments["n_layers"]
    else:
        blocks = plain_block(s, d_model, arguments) * arguments["n_layers"]
    # Images need no gradient, but the weights of the normalisation before this product do.
    patching = batch * patches * patch * channels * d_model
    return blocks + Count(patching + batch * d_model * arguments["num_classes"])


def language_model(work: Work, form: Form) -> Count:
    """Of generation: each token passes the blocks once, and each new one comes from one product with the vocabulary."""
    assert work.generation is not None
    batch, arguments = work.inputs["x"].shape[0], work.kwargs
    tokens, new = work.generation.start + work.generation.new, work.generation.new
    s = Sequence(batch, tokens, tokens, True, form)
    if work.subject == "llama_model":
        d_model, layers = arguments["hidden_size"], arguments["num_hidden_layers"]
        block = llama_block(s, arguments)
    else:
        d_model, layers = arguments["d_model"], arguments["n_layers"]
        if "n_heads_ra" in arguments:
            symbols = {"kind": RETRIEVERS[arguments["symbol_retrieval"]], **arguments["symbol_retrieval_kwargs"]}
            block = dual_block(s, d_model, arguments, symbols)
        else:
            block = plain_block(s, d_model, arguments)
    return block * layers + Count(batch * new * d_model * arguments["vocab_size"])


def model(work: Work, form: Form) -> Count:
    return vision_model(work, form) if work.generation is None else language_model(work, form)


RETRIEVERS = {
    "symbolic_attention": "SymbolicAttention",
    "positional_symbols": "PositionalSymbolRetriever",
    "position_relative": "PositionRelativeSymbolRetriever",
}

COUNTS: dict[str, Callable[[Work, Form], Count]] = {
    "dual_layers": dual_layers,
    "plain_layers": plain_layers,
    "llama_layers": llama_layers,
    "dual_encoder_decoder": encoder_decoder,
    "plain_encoder_decoder": encoder_decoder,
    "relational_layer": layer,
    "plain_layer": layer,
    "operation": operation,
    "model": model,
    "llama_model": language_model,
}


def multiply_adds(work: Work, quantity: str, form: Form = "least") -> int:
    """Of one call; of generation, for each new token."""
    count = COUNTS[work.subject](work, form)
    if quantity == "generate":
        assert work.generation is not None
        return count.forward // work.generation.new
    return count.step if quantity == "step" else count.forward
