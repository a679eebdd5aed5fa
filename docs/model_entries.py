"""What make_models.py tries: layers, mechanisms, baselines and models, how each is made and called."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import dual_attention as da
from dual_attention import baselines, mechanisms
from dual_attention.mechanisms import recipes
from dual_attention.part_trials import LENGTH, WIDTH, Call
from dual_attention.part_trials import TrialEntry as Entry

D, H, N, VOCAB = WIDTH, 2, LENGTH, 11


def tokens(n: int) -> Tensor:
    return torch.randint(VOCAB, (2, n))


def images(n: int) -> Tensor:
    """Images of n patches, one below the other."""
    return torch.randn(2, 3, 2 * n, 2)


def like(x: Tensor) -> Tensor:
    """Symbols of objects."""
    return x.sin().flip(-1)


def other(x: Tensor, n: int = 7) -> Tensor:
    """Another sequence, always the same."""
    return torch.linspace(-1, 9, n * D).view(n, D).sin().expand(2, n, D).to(x.dtype)


def attribute(name: str, *more: Callable[[Tensor], Any], second: str = "padding_mask") -> Call:
    """A call with objects and what is made of them, and the output of that name; ``second`` is its padding mask."""

    def call(module: Any, x: Tensor, **options: Any) -> Tensor:
        if "padding_mask" in options:
            options[second] = options.pop("padding_mask")
        return getattr(module(x, *(make(x) for make in more), **options), name)

    return call


def same(x: Tensor) -> Tensor:
    return x


def first(*more: Callable[[Tensor], Any]) -> Call:
    """A call with objects and what is made of them, and the first of its outputs."""

    def call(module: Any, x: Tensor, **options: Any) -> Tensor:
        found = module(x, *(make(x) for make in more), **options)
        return found if isinstance(found, Tensor) else found[0]

    return call


def other_queries(module: Any, x: Tensor, **options: Any) -> Tensor:
    """Context of queries that are always the same, for heads in which queries see each other."""
    return module(other(x, x.shape[1]), x, **options).context


def of_keys(module: Any, x: Tensor, **options: Any) -> Tensor:
    return module(None, x, **options).context


def of_target(module: Any, y: Tensor, **options: Any) -> Tensor:
    """A sequence-to-sequence model's output for a target, after a source that is always the same."""
    source = other(y) if y.is_floating_point() else torch.arange(2 * N).view(2, N) % VOCAB
    if "padding_mask" in options:
        options["target_padding_mask"] = options.pop("padding_mask")
    return module.decode(y, module.encode(source), **options)


HEADS, WITH_SYMBOLS = attribute("context", same), attribute("context", same, like)
CO = {name: attribute(name, other, second="mask1") for name in ("context1", "context2")}
BLOCK: dict[str, Any] = {"d_model": D, "dff": 8, "dropout_rate": 0.0, "activation": "gelu", "norm_first": True}
BLOCK_OF_WIDTH = {name: value for name, value in BLOCK.items() if name != "d_model"}
CAUSAL: dict[str, Any] = {**BLOCK, "causal": True}
LAYERS: dict[str, Any] = {**BLOCK, "n_layers": 1}
DUAL = {"n_heads_sa": 1, "n_heads_ra": 1}
SYMBOLIC: dict[str, Any] = {"symbol_retrieval_kwargs": {"d_model": D, "n_heads": 2, "n_symbols": 5}}
RETRIEVED: dict[str, Any] = {"symbol_retrieval": "symbolic_attention", **SYMBOLIC}
ABSTRACTOR = {**LAYERS, "n_heads": H, **RETRIEVED}
PATCHES: dict[str, Any] = {"patch_size": (2, 2), "num_classes": 3, "d_model": D}


def text(kind: Any, **own: Any) -> Callable[[int], Any]:
    return lambda n: kind(vocab_size=VOCAB, max_block_size=max(n, N), **LAYERS, **own)


encoder = text(da.TransformerEncoder, n_heads=H)


def pictures(kind: Any, **own: Any) -> Callable[[int], nn.Module]:
    return lambda n: kind(image_shape=(3, 2, 2 * n), **{**PATCHES, **own})


def slot_encoder(n: int) -> baselines.SlotEncoder:
    return baselines.SlotEncoder((3, 2, 2 * n), 3, D, strides=(2,))


def pairs(kind: Any, heads: Mapping[str, Any], **own: Any) -> Callable[[int], nn.Module]:
    """A model from sequences to sequences of tokens."""
    specs = {name: {"type": "token", "vocab_size": VOCAB} for name in ("input_spec", "output_spec")}
    block = {**BLOCK_OF_WIDTH, **heads}
    sides = {"encoder_kwargs": block, "decoder_kwargs": {**block, "n_heads_cross": H}}
    depth = {"d_model": D, "out_dim": VOCAB, "n_layers_enc": 1, "n_layers_dec": 1}
    return lambda n: kind(**specs, **sides, **depth, in_block_size=N, out_block_size=max(n, N), **own)


def recipe(name: str, *sizes: Any, call: Call = HEADS, **own: Any) -> Entry:
    build = getattr(recipes, name)
    return Entry(lambda n: build(*(n if size is N else size for size in sizes), **own), call)


GROUPS: dict[str, dict[str, Entry]] = {
    "Layers": {
        "Attention": Entry(lambda n: da.Attention(D, H), first(same, same)),
        **{
            kind.__name__: Entry(lambda n, kind=kind: kind(D, H), first(like), bare=first())
            for kind in (da.RelationalAttention, da.RelationalCrossAttention, da.DisentangledRelationalCrossAttention)
        },
        "DualAttention": Entry(lambda n: da.DualAttention(D, 1, 1, 0.0), first(like), bare=first()),
        "EncoderBlock": Entry(lambda n: da.EncoderBlock(n_heads=H, **CAUSAL), first()),
        "DualAttnEncoderBlock": Entry(lambda n: da.DualAttnEncoderBlock(**DUAL, **CAUSAL), first(like), bare=first()),
        "DecoderBlock": Entry(lambda n: da.DecoderBlock(n_heads=H, n_heads_cross=H, **CAUSAL), first(other)),
        "DualAttnDecoderBlock": Entry(
            lambda n: da.DualAttnDecoderBlock(**DUAL, n_heads_cross=H, **CAUSAL), first(other, like), bare=first(other)
        ),
    },
    "Heads of the toolbox": {
        "self_attention": recipe("self_attention", D, H),
        "relational_heads": recipe("relational_heads", D, H, call=WITH_SYMBOLS)._replace(bare=HEADS),
        "relational_cross_heads": recipe("relational_cross_heads", D, H, call=WITH_SYMBOLS)._replace(bare=HEADS),
        "hadamard_attention": recipe("hadamard_attention", D, H),
        "gated_self_attention": recipe("gated_self_attention", D, H),
        "sigmoid_self_attention": recipe("sigmoid_self_attention", D, H),
        "stick_breaking_attention": recipe("stick_breaking_attention", D, H),
        "multi_token_attention": recipe("multi_token_attention", D, H, call=other_queries, group=2),
        "tensor_product_attention": recipe("tensor_product_attention", D, H),
        "slot_pair_attention": recipe("slot_pair_attention", D, H),
        "value_residual_attention": recipe("value_residual_attention", D, H),
        "DifferentialAttention": Entry(lambda n: mechanisms.DifferentialAttention(D, H), HEADS),
        "LatentAttention": Entry(lambda n: mechanisms.LatentAttention(D, H, 4), HEADS),
        "SimplicialAttention": Entry(lambda n: mechanisms.SimplicialAttention(D, H), HEADS, lengths=(32, 64)),
    },
    "Mechanisms of one head": {
        **{name: recipe(name, D, D) for name in ("additive_attention", "hard_attention", "luong_general")},
        "scaled_dot_product_attention": recipe("scaled_dot_product_attention"),
        "luong_dot": recipe("luong_dot"),
        **{name: recipe(name, D, D, 2) for name in ("luong_local_m", "luong_local_p")},
        "luong_location": recipe("luong_location", D, N),
        "content_addressing": recipe("content_addressing"),
        "token2token": recipe("token2token", D),
        "dense_synthesizer": recipe("dense_synthesizer", D, N),
        "random_synthesizer": recipe("random_synthesizer", N, call=of_keys),
        "reinforced_self_attention": recipe("reinforced_self_attention", D)._replace(looks=True),
        "attentive_pooling": recipe("attentive_pooling", D, call=of_keys),
        "structured_self_attention": recipe("structured_self_attention", D, 4, 2, call=of_keys),
        "source2token": recipe("source2token", D, call=of_keys),
        "memory_network": recipe("memory_network", 2),
        "product_hops": recipe("product_hops", D, D, 4, 2),
    },
    "Architectures": {
        "MultiHop": Entry(lambda n: mechanisms.MultiHop(recipes.luong_dot(), 2), HEADS),
        "ParallelCoAttention": Entry(lambda n: mechanisms.ParallelCoAttention(D, D), CO["context1"]),
        "AlternatingCoAttention": Entry(lambda n: mechanisms.AlternatingCoAttention(D, D), CO["context1"]),
        "InteractiveCoAttention": Entry(lambda n: mechanisms.InteractiveCoAttention(D, D), CO["context2"]),
    },
    "Baselines": {
        "Abstractor": Entry(lambda n: baselines.Abstractor(**ABSTRACTOR), first()),
        "PrediNet": Entry(lambda n: baselines.PrediNet(D, n, H, 4), first()),
        "CoRelNet": Entry(lambda n: baselines.CoRelNet(D, n, 4), first()),
        "ESBN": Entry(lambda n: baselines.ESBN(D, 4, 8), first()),
        "SlotAttention": Entry(lambda n: baselines.SlotAttention(D, 3), first()),
        "SlotAbstractor": Entry(lambda n: baselines.SlotAbstractor(D, 1, H, 8), first(like)),
        "OCRA": Entry(lambda n: baselines.OCRA(D, 1, H, 8), first(like), lengths=(12, 24)),
        "Seq2SeqAbstractor": Entry(
            pairs(
                baselines.Seq2SeqAbstractor,
                {"n_heads": H},
                **RETRIEVED,
                n_layers_abs=1,
                abstractor_kwargs={"n_heads": H, **BLOCK_OF_WIDTH},
            ),
            of_target,
            tokens,
        ),
        "VisionAbstractor": Entry(pictures(baselines.VisionAbstractor, n_heads=H, **LAYERS), first(), images),
        "VisionPrediNet": Entry(pictures(baselines.VisionPrediNet, n_heads=H, n_relations=4), first(), images),
        "VisionCoRelNet": Entry(pictures(baselines.VisionCoRelNet, dff=4), first(), images),
        "VisionESBN": Entry(pictures(baselines.VisionESBN, key_dim=4, hidden_dim=8), first(), images),
        "SlotDecoder": Entry(lambda n: baselines.SlotDecoder((3, 6, 4), D, patch=2), lambda m, x, **o: m(x, **o).masks),
        "SlotEncoder": Entry(slot_encoder, first(), images),
        "VisionSlots": Entry(
            lambda n: baselines.VisionSlots(slot_encoder(n), baselines.SlotAbstractor(D, 1, H, 8), 3), first(), images
        ),
    },
    "Models": {
        "TransformerLM": Entry(text(da.TransformerLM, n_heads=H), first(), tokens),
        "DualAttnTransformerLM": Entry(text(da.DualAttnTransformerLM, **DUAL, **SYMBOLIC), first(), tokens),
        "TransformerEncoder": Entry(encoder, first(), tokens),
        "DualAttnTransformerEncoder": Entry(text(da.DualAttnTransformerEncoder, **DUAL, **SYMBOLIC), first(), tokens),
        "EncoderForMaskedLM": Entry(lambda n: da.EncoderForMaskedLM(encoder(n)), first(), tokens),
        "EncoderForSequenceClassification": Entry(
            lambda n: da.EncoderForSequenceClassification(encoder(n), 3), first(), tokens
        ),
        "Seq2SeqTransformer": Entry(pairs(da.Seq2SeqTransformer, {"n_heads": H}), of_target, tokens),
        "Seq2SeqDualAttnTransformer": Entry(pairs(da.Seq2SeqDualAttnTransformer, DUAL, **RETRIEVED), of_target, tokens),
        "VisionTransformer": Entry(pictures(da.VisionTransformer, n_heads=H, **LAYERS), first(), images),
        "VisionDualAttnTransformer": Entry(
            pictures(da.VisionDualAttnTransformer, **DUAL, **SYMBOLIC, **LAYERS), first(), images
        ),
    },
}
"""What stands on the page."""

ENTRIES = {name: entry for group in GROUPS.values() for name, entry in group.items()}
