"""Wrong arguments of every layer and block: an error that names the argument, never a number or a distant failure."""

from functools import partial

import pytest
import torch
from torch import nn

from dual_attention import functional, mechanisms
from dual_attention.attention import Attention
from dual_attention.baselines import Abstractor, ContextNorm, VisionPrediNet
from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.functional import RelativeSymbols
from dual_attention.language_models import TransformerLM
from dual_attention.positional_encoding import (
    LearnedPositionalEmbeddings,
    RelativePositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from dual_attention.relational_attention import (
    DisentangledRelationalCrossAttention,
    RelationalAttention,
    RelationalCrossAttention,
)
from dual_attention.seq2seq_models import Seq2SeqTransformer
from dual_attention.symbol_retrieval import (
    PositionalSymbolRetriever,
    PositionRelativeSymbolRetriever,
    PositionRelativeSymbolRetriever2D,
    RelationalSymbolicAttention,
    SymbolicAttention,
)
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock, FeedForwardBlock, RMSNorm, create_norm
from dual_attention.vision_models import VisionTransformer
from tests.support.refusals import refusals, refused

B, N, D = 4, 4, 8  # batch and length are equal: nothing may be told from a shape
BLOCK = {"dff": 6, "activation": "relu", "dropout_rate": 0.0, "causal": False}
RELATIONAL = {
    "relational": RelationalAttention,
    "rca": RelationalCrossAttention,
    "disrca": DisentangledRelationalCrossAttention,
}
LAYERS = {
    "attention": lambda: Attention(D, 2),
    **{name: lambda cls=cls: cls(D, 2) for name, cls in RELATIONAL.items()},
    "dual": lambda: DualAttention(D, 2, 2),
    "encoder": lambda: EncoderBlock(D, 2, **BLOCK, norm_first=True),
    "rms encoder": lambda: EncoderBlock(D, 2, **BLOCK, norm_first=True, norm_type="rmsnorm"),
    "post-norm encoder": lambda: EncoderBlock(D, 2, **BLOCK, norm_first=False),
    "decoder": lambda: DecoderBlock(D, 2, 2, **BLOCK, norm_first=True),
    "dual encoder": lambda: DualAttnEncoderBlock(D, 2, 2, **BLOCK, norm_first=True),
    "dual decoder": lambda: DualAttnDecoderBlock(D, 2, 2, 2, **BLOCK, norm_first=True),
}
WITH_SYMBOLS = [name for name in LAYERS if name in RELATIONAL or "dual" in name]
RETRIEVERS = {
    "symbolic": lambda: SymbolicAttention(D, 2, 5),
    "relational symbolic": lambda: RelationalSymbolicAttention(D, 2, 2, 5, 2),
}


def call(name, layer, x=None, symbols=None, **arguments):
    x = torch.zeros(B, N, D) if x is None else x
    given = [x, *[x] * (2 if name == "attention" else "decoder" in name)]
    if name in WITH_SYMBOLS:
        given.append(torch.zeros(B, N, D) if symbols is None else symbols)
    return layer(*given, **arguments)


def boolean(*shape, device=None):
    return torch.ones(shape, dtype=torch.bool, device=device)


ARGUMENTS = [
    ({"attn_mask": torch.zeros(N, N)}, TypeError, "^attn_mask: expected a boolean tensor"),
    ({"attn_mask": [[True] * N] * N}, TypeError, "^attn_mask: expected a boolean tensor .*got list"),
    ({"attn_mask": boolean(N, N + 1)}, ValueError, "^attn_mask: expected shape"),
    ({"attn_mask": boolean(B, N, N)}, ValueError, "^attn_mask: expected shape"),
    ({"attn_mask": boolean(N, N, device="meta")}, ValueError, "^attn_mask: expected a tensor on cpu as the receivers"),
    ({"padding_mask": torch.ones(B, N)}, TypeError, "^padding_mask: expected a boolean tensor"),
    ({"padding_mask": boolean(B, N + 1)}, ValueError, "^padding_mask: expected shape"),
    (
        {"padding_mask": boolean(B, N, device="meta")},
        ValueError,
        "^padding_mask: expected a tensor on cpu as the receivers",
    ),
    ({"attn_bias": boolean(N, N)}, TypeError, "^attn_bias: expected a floating-point tensor"),
    ({"attn_bias": [[0.0] * N] * N}, TypeError, "^attn_bias: expected a tensor, got list"),
    ({"attn_bias": torch.zeros(N, N).to_sparse()}, TypeError, "^attn_bias: expected a dense tensor, got one of layout"),
    ({"attn_bias": torch.zeros(())}, ValueError, "^attn_bias: expected shape"),
    ({"attn_bias": torch.zeros(N, N + 1)}, ValueError, "^attn_bias: expected shape"),
    ({"attn_bias": torch.zeros(N, N, device="meta")}, ValueError, "^attn_bias: expected a tensor on cpu"),
    ({"segments": torch.zeros(B, N)}, ValueError, "^segments: expected integers"),
    ({"segments": torch.zeros(B, N + 1, dtype=torch.long)}, ValueError, "^segments: expected integers"),
    ({"segments": [0] * N}, TypeError, "^segments: expected a tensor"),
    ({"segments": (torch.zeros(1, N, dtype=torch.long),)}, TypeError, "^segments: expected a tensor, or one for"),
    (
        {"segments": torch.zeros(1, N, dtype=torch.long, device="meta")},
        ValueError,
        "^segments: expected a tensor on cpu as the receivers",
    ),
    ({"freqs_cos": [[1.0]], "freqs_sin": [[0.0]]}, TypeError, "^freqs_cos: expected a tensor, got list"),
    ({"freqs_cos": torch.zeros(N, 1)}, ValueError, "^freqs_cos, freqs_sin: expected both"),
    ({"freqs_cos": torch.zeros(N, 9), "freqs_sin": torch.zeros(N, 9)}, ValueError, "^freqs_cos, freqs_sin: expected"),
    (dict.fromkeys(("freqs_cos", "freqs_sin"), torch.zeros(N, 2, device="meta")), ValueError, "^freqs_cos: .*on cpu"),
]


test_masks_biases_and_tables = pytest.mark.parametrize("name", LAYERS)(
    refused(*ARGUMENTS, by=lambda arguments, *, name: call(name, LAYERS[name](), **arguments))
)


OBJECTS = [
    (torch.zeros(N, D), ValueError, "expected shape"),
    (torch.zeros(B, N, D + 1), ValueError, "expected shape"),
    (torch.zeros(B, N, D, dtype=torch.float64), TypeError, "expected dtype torch.float32 as the parameters"),
    (torch.zeros(B, N, D, dtype=torch.long), TypeError, "expected dtype torch.float32 as the parameters"),
    (torch.zeros(B, N, D, device="meta"), ValueError, "expected a tensor on cpu as the parameters"),
    ([[0.0] * D] * N, TypeError, "expected a tensor, got list"),
    (torch.tensor(0.0), ValueError, "expected shape"),
    (torch.zeros(B, N, D).to_sparse(), TypeError, "expected a dense tensor, got one of layout torch.sparse_coo"),
    (torch.zeros(B, N, D, dtype=torch.float16), TypeError, "expected dtype torch.float32 as the parameters"),
    (torch.zeros(B, N, D, dtype=torch.complex64), TypeError, "expected dtype torch.float32 as the parameters"),
]


@pytest.mark.parametrize("name", [*LAYERS, *RETRIEVERS])
@pytest.mark.parametrize("x, error, message", OBJECTS, ids=lambda value: "")
def test_objects(name, x, error, message):
    with pytest.raises(error, match=f"^(x|query): {message}"):
        call(name, {**LAYERS, **RETRIEVERS}[name](), x)


@pytest.mark.parametrize("name", WITH_SYMBOLS)
@refusals(
    *OBJECTS[:1],
    *OBJECTS[2:5],
    (torch.zeros(B, N, D + 1), "expected shape"),
    (torch.zeros(B - 1, N, D), "expected shape"),
    (torch.zeros(B, N - 1, D), "expected one for each of 4 senders, got 3"),
    (torch.zeros(B, N, N, D), "expected shape"),
    ([0.0], TypeError, "expected a tensor or RelativeSymbols, got list"),
    (RelativeSymbols(torch.zeros(5, D), torch.zeros(N, N, dtype=torch.long)), TypeError, "got position-relative"),
    of="symbols",
)
def test_symbols(name, symbols, error, message):
    with pytest.raises(error, match=f"^symbols: {message}"):
        call(name, LAYERS[name](), symbols=symbols)


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_layer_of_relative_symbols_takes_pairs_alone(name):
    layer = RELATIONAL[name](D, 2, use_relative_positional_symbols=True)
    for symbols in (torch.zeros(B + 1, N, D), torch.zeros(1, N, D), torch.zeros(N, N, D + 1)):
        with pytest.raises(ValueError, match=r"^symbols: expected relative ones"):
            layer(torch.zeros(len(symbols), N, D), symbols)
    with pytest.raises(ValueError, match=r"^symbols: expected relative ones"):
        layer(torch.zeros(B, N, D), RelativeSymbols(torch.zeros(5, D), torch.zeros(N, N + 1, dtype=torch.long)))


HEADS = (Attention, *RELATIONAL.values())
RATES = (-0.1, 1.0, float("nan"))
RATE = r"dropout: expected a rate in \[0, 1\)"


def test_autocast_takes_other_types_than_the_parameters():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call("dual encoder", LAYERS["dual encoder"](), torch.zeros(B, N, D).bfloat16()).shape == (B, N, D)


SQUARE, RELATIONS = torch.zeros(1, 1, 2, 2), torch.zeros(1, 2, 1, 2)
OTHER = (torch.zeros(2, 2).to_sparse(), torch.zeros(1, 1, 2, 2).long())
X, IMAGE = torch.zeros(B, N, D), torch.zeros(2, 1, 4, 4)
WRONG = (TypeError, ValueError)


test_numbers_tensors_and_types = pytest.mark.sweep(3)(refused(
    *((lambda n, cls=cls: cls(D, 2, window=n), n, "^window: expected a positive number")
      for cls in HEADS for n in (0, -1, 1.5)),
    *((lambda rate, cls=cls, name=name: cls(D, 2, **{name: rate}), rate, RATE)
      for cls in HEADS for name in ("dropout", "out_dropout") for rate in RATES),
    *((lambda rate: SymbolicAttention(D, 2, 5, dropout=rate), rate, RATE) for rate in RATES),
    *((lambda x: PositionalSymbolRetriever(D, 9)(torch.zeros(B, N), positions=x), x, TypeError, "^positions: expected")
      for x in ([[0.0] * N] * B, torch.zeros(B, N).to_sparse())),
    (lambda name: call(name, Attention(D, 2).to("meta")), "attention", "^query: the parameters on meta have no values"),
    *((build, size, WRONG, f"^{name}: expected a positive number")
      for size in (0, -3, 1.5, "4", True) for build, name in (
        (lambda size: PositionalSymbolRetriever(size, 9), "symbol_dim"),
        (lambda size: PositionalSymbolRetriever(D, size), "max_length"),
        (lambda size: PositionRelativeSymbolRetriever(size, 2), "symbol_dim"),
        (lambda size: PositionRelativeSymbolRetriever2D(size, 2), "symbol_dim"),
        (lambda size: RelativePositionalEncoding(size, 2), "dim"),
        (lambda size: RotaryPositionalEncoding(size, 9), "dim"),
        (lambda size: RotaryPositionalEncoding(4, size), "max_len"),
        (lambda size: SinusoidalPositionalEncoding(size), "d_model"),
        (lambda size: LearnedPositionalEmbeddings(D, max_len=size), "max_len"),
        (lambda size: SymbolicAttention(D, 2, size), "n_symbols"),
        (lambda size: Attention(size, 2), "d_model"),
        (lambda size: Attention(D, size), "n_heads"),
        (lambda size: Attention(D, 2, key_dim=size), "key_dim"),
        (lambda size: RelationalAttention(D, 2, rel_proj_dim=size), "rel_proj_dim"),
        (lambda size: RelationalAttention(D, 2, size), "n_relations"),
        (lambda size: DualAttention(size, 1, 1), "d_model"),
        (lambda size: FeedForwardBlock(size), "embed_dim"),
        (lambda size: FeedForwardBlock(D, size), "dff"),
        (lambda size: EncoderBlock(D, 2, size), "dff"),
        (lambda size: RMSNorm(size), "dim"),
        (lambda size: create_norm(size), "d_model"),
        (lambda size: VisionTransformer((size, 4, 4), (2, 2), 2, D, 1, 2, 8, 0.0, "relu", True), "image_shape"),
        (lambda size: VisionTransformer((1, 4, 4), (2, size), 2, D, 1, 2, 8, 0.0, "relu", True), "patch_size"),
        (lambda size: VisionTransformer((1, 4, 4), (2, 2), size, D, 1, 2, 8, 0.0, "relu", True), "num_classes"),
        (lambda size: vision(n_layers=size), "n_layers"),
        (lambda size: language(n_layers=size), "n_layers"),
        (lambda size: language(vocab_size=size), "vocab_size"),
      )),
    *((build, number, WRONG, f"^{name}: expected a")
      for number in (float("inf"), float("nan"), "1") for build, name in (
        (lambda number: Attention(D, 2, attn_scale=number), "attn_scale"),
        (lambda number: SymbolicAttention(D, 2, 5, scale=number), "scale"),
        (lambda number: RotaryPositionalEncoding(4, 9, theta=number), "theta"),
        (lambda number: EncoderBlock(D, 2, dropout_rate=number), "dropout_rate"),
        (lambda number: mechanisms.Softmax(number), "temperature"),
        (lambda number: mechanisms.Cosine(number), "beta"),
      )),
    *((lambda images: vision()(images), IMAGE.to(of), TypeError, "^x: expected dtype torch.float32 as the parameters")
      for of in (torch.uint8, torch.float16)),
    (lambda images: vision()(images), IMAGE.to("meta"), "^x: expected a tensor on cpu as the parameters"),
    *((lambda name: language()(torch.ones(1, 2).long(), **{name: [[1, 2]]}), name, TypeError,
       f"^{name}: expected a(?: boolean)? tensor.*got list")
      for name in ("targets", "segments", "positions", "padding_mask")),
    *((lambda pair, layer=layer: layer(*pair), pair, WRONG, r"^(q|k|x|key|query|weight): expected")
      for pair in ((X, X.double()), (X.double(), X), (X, X.long()), ([0.0], X), (X, X.to_sparse())) for layer in (
        mechanisms.GeneralAttention(mechanisms.Dot()),
        mechanisms.GeneralAttention(mechanisms.General(D, D)),
        mechanisms.GeneralAttention(mechanisms.Additive(D, D)),
        mechanisms.GeneralAttention(mechanisms.Product(D, D)),
        mechanisms.GeneralAttention(mechanisms.Trilinear(D)),
        lambda query, key: mechanisms.recipes.relational_heads(D, 2)(query, key, X),
      )),
    (lambda wide: mechanisms.recipes.self_attention(D, 2)(X, X, wide), X.double(), TypeError,
     r"^value: expected dtype torch.float32"),
    *((function, wrong, WRONG, r"^\w+: expected|^\w+: widths")
      for wrong in ([0.0], torch.tensor(0.0), *OTHER) for function in (
        lambda x: functional.attention(x, SQUARE, SQUARE, scale=1.0),
        lambda x: functional.attention(SQUARE, x, SQUARE, scale=1.0),
        lambda x: functional.attention(SQUARE, SQUARE, SQUARE, scale=1.0, bias=x),
        lambda x: functional.relational_attention(
            x, SQUARE, RELATIONS, RELATIONS, SQUARE, torch.zeros(1, 2, 1), scale=1.0, rel_scale=1.0
        ),
        lambda x: functional.relational_cross_attention(x, SQUARE, SQUARE, scale=1.0),
        lambda x: functional.apply_rotary(x, torch.ones(2, 1), torch.ones(2, 1)),
        lambda x: functional.dot_score(x, SQUARE),
        lambda x: functional.masked_softmax(x, SQUARE),
        lambda x: functional.combine(x, SQUARE),
        lambda x: functional.cross_entropy(x, torch.zeros(2, 3).long()),
      )),
    by=lambda call, wrong: call(wrong),
))  # fmt: skip


def language(**arguments):
    sizes = {"vocab_size": 7, "d_model": D, "n_layers": 1, "n_heads": 2, "max_block_size": 9}
    others = {"dff": 8, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
    return TransformerLM(**{**sizes, **others, **arguments})


def vision(**arguments):
    sizes = {"image_shape": (1, 4, 4), "patch_size": (2, 2), "num_classes": 2, "d_model": D, "n_layers": 1}
    others = {"n_heads": 2, "dff": 8, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
    return VisionTransformer(**{**sizes, **others, **arguments})


def test_absurd_depths_are_refused_before_anything_is_built():
    many = 1_000_000_000
    ends = {"input_spec": {"type": "token", "vocab_size": 5}, "output_spec": {"type": "token", "vocab_size": 5}}
    blocks = {"encoder_kwargs": {"n_heads": 2}, "decoder_kwargs": {"n_heads": 2, "n_heads_cross": 2}}
    sizes = {"d_model": D, "out_dim": 5, "in_block_size": 9, "out_block_size": 9}

    def seq2seq(**depths):
        return Seq2SeqTransformer(**ends, **sizes, **blocks, **{"n_layers_enc": 1, "n_layers_dec": 1, **depths})

    symbols = {"symbol_retrieval": "positional_symbols", "symbol_retrieval_kwargs": {"symbol_dim": D, "max_length": 9}}
    for build in (
        lambda: language(n_layers=many),
        lambda: vision(n_layers=many),
        lambda: seq2seq(n_layers_enc=many),
        lambda: seq2seq(n_layers_dec=many),
        lambda: Abstractor(D, many, 2, 8, 0.0, "relu", True, **symbols),
    ):
        with pytest.raises(ValueError, match=r"^n_layers(_enc|_dec)?: expected at most 10000 layers, got 1000000000"):
            build()
    assert len(seq2seq().layers["encoder_blocks"]) == 1


def test_parameters_without_values():
    with torch.device("meta"):
        model, layer = language(), Attention(D, 2)
    assert model(torch.ones(1, 2, dtype=torch.long, device="meta")).logits.shape == (1, 2, 7)
    ready, x = Attention(D, 2), torch.ones(B, N, D)
    for name in ("wq", "wk", "wv", "wo"):
        layer.get_submodule(name).register_forward_pre_hook(partial(fetch, name, ready))
    assert torch.equal(layer(x, x, x).output, ready(x, x, x).output)


def fetch(name, source, module, args):
    """As offloading does: parameters come when a layer is called."""
    module.weight = nn.Parameter(source.get_submodule(name).weight.detach())


IMAGES = {"image_shape": (1, 4, 4), "patch_size": (2, 2)}
SIZED = {
    Attention: {"d_model": D, "n_heads": 2, "n_kv_heads": 1, "window": 3, "key_dim": 4},
    RelationalAttention: {"d_model": D, "n_heads": 2, "n_relations": 3, "rel_proj_dim": 2},
    DualAttention: {"d_model": D, "n_heads_sa": 1, "n_heads_ra": 1},
    FeedForwardBlock: {"embed_dim": D, "dff": 6},
    RMSNorm: {"dim": D},
    SymbolicAttention: {"d_model": D, "n_heads": 2, "n_symbols": 5},
    PositionalSymbolRetriever: {"symbol_dim": D, "max_length": 9},
    PositionRelativeSymbolRetriever: {"symbol_dim": D, "max_rel_pos": 2},
    SinusoidalPositionalEncoding: {"d_model": D, "max_len": 9},
    LearnedPositionalEmbeddings: {"d_model": D, "max_len": 9},
    RelativePositionalEncoding: {"dim": D, "max_rel_pos": 2},
    RotaryPositionalEncoding: {"dim": D, "max_len": 9},
    VisionPrediNet: {"num_classes": 2, "d_model": D, "n_heads": 2, "n_relations": 2, **IMAGES},
    ContextNorm: {"d_model": D},
    mechanisms.MonotonicWindow: {"half_width": 2, "offset": 1},
    mechanisms.PredictiveWindow: {"d_q": D, "half_width": 2},
    mechanisms.KeyOnly: {"d_k": D, "d_w": 3, "heads": 2},
    mechanisms.Euclidean: {"heads": 2},
    mechanisms.Entmax: {"heads": 2},
    mechanisms.FeatureMessage: {"d_value": D, "heads": 2, "head_dim": 4, "n_kv_heads": 1},
}


@pytest.mark.parametrize("kind", SIZED, ids=lambda kind: kind.__name__)
def test_sizes_beyond_64_bits(kind):
    """They are refused by name, not by PyTorch or after other arithmetic with them."""
    sizes = SIZED[kind]
    kind(**sizes)
    for name in sizes.keys() - IMAGES.keys():
        for size in (10**30, 2**63):
            with pytest.raises(ValueError, match=f"^{name}: "):
                kind(**{**sizes, name: size})
    with pytest.raises(ValueError, match=r"^ignore_index: "):
        functional.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), ignore_index=10**30)
