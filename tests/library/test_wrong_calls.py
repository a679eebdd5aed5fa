"""Every layer, model and mechanism with each of its arguments replaced by what it cannot be: an error that names it.

What can be is not refused: an argument may be left out, or hold other numbers.
"""

import pytest
import torch
from torch import Tensor

from dual_attention import baselines, mechanisms
from dual_attention.attention import Attention
from dual_attention.dual_attention import DualAttention
from dual_attention.dual_attn_blocks import DualAttnDecoderBlock, DualAttnEncoderBlock
from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification, TransformerEncoder
from dual_attention.language_models import TransformerLM
from dual_attention.mechanisms import GeneralAttention, recipes
from dual_attention.positional_encoding import (
    LearnedPositionalEmbeddings,
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
from dual_attention.transformer_blocks import DecoderBlock, EncoderBlock, FeedForwardBlock, RMSNorm
from dual_attention.vision_models import VisionTransformer
from tests.support.refusals import refused

B, N, D, V = 2, 4, 8, 7
BLOCK = {"dff": 8, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
SIZES = {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "max_block_size": 9, **BLOCK}
PLACES = {"symbol_dim": D, "max_length": 9}


def seq2seq(end):
    blocks = {"n_heads": 2}, {"n_heads": 2, "n_heads_cross": 2}
    return Seq2SeqTransformer(end, end, D, end.get("vocab_size", D), 1, 1, *blocks, 9, 9)


def objects():
    x, t = torch.randn(B, N, D), torch.ones(B, N, dtype=torch.long)
    encoder = TransformerEncoder(**SIZES)
    return {
        "attention": (Attention(D, 2), x, x, x),
        "relational": (RelationalAttention(D, 2), x, x),
        "relative symbols": (RelationalAttention(D, 2, use_relative_positional_symbols=True), x, torch.randn(N, N, D)),
        "rca": (RelationalCrossAttention(D, 2), x, x),
        "disrca": (DisentangledRelationalCrossAttention(D, 2), x, x),
        "dual": (DualAttention(D, 1, 1), x, x),
        "encoder block": (EncoderBlock(D, 2), x),
        "rms block": (EncoderBlock(D, 2, norm_type="rmsnorm"), x),
        "decoder block": (DecoderBlock(D, 2, 2), x, x),
        "dual encoder block": (DualAttnEncoderBlock(D, 1, 1), x, x),
        "dual decoder block": (DualAttnDecoderBlock(D, 1, 1, 2), x, x, x),
        "feed-forward": (FeedForwardBlock(D), x),
        "norm": (RMSNorm(D), x),
        "symbolic": (SymbolicAttention(D, 2, 5), x),
        "relational symbolic": (RelationalSymbolicAttention(D, 2, 2, 5, 2), x),
        "symbols by position": (PositionalSymbolRetriever(**PLACES), x),
        "symbols by offset": (PositionRelativeSymbolRetriever(D, 2), x, x),
        "symbols by place": (PositionRelativeSymbolRetriever2D(D, 2), x, (1, 3)),
        "sinusoids": (SinusoidalPositionalEncoding(D), x),
        "learned positions": (LearnedPositionalEmbeddings(D), x),
        "rotary positions": (RotaryPositionalEncoding(D, 9), x[:, None]),
        "language model": (TransformerLM(**SIZES), t, t),
        "encoder": (encoder, t),
        "masked language model": (EncoderForMaskedLM(encoder), t, t),
        "classifier": (EncoderForSequenceClassification(encoder, 3), t, t[:, 0]),
        "vision": (VisionTransformer((1, 4, 4), (2, 2), 2, D, 1, 2, **BLOCK), torch.randn(B, 1, 4, 4)),
        "tokens to tokens": (seq2seq({"type": "token", "vocab_size": V}), t, t, t),
        "vectors to vectors": (seq2seq({"type": "vector", "dim": D}), x, x, x),
        "abstractor": (baselines.Abstractor(D, 1, 2, 8, 0.0, "relu", True, "positional_symbols", PLACES), x),
        "corelnet": (baselines.CoRelNet(D, N), x),
        "esbn": (baselines.ESBN(D, 4, 4), x),
        "predinet": (baselines.PrediNet(D, N, 2, 2), x),
        "context norm": (baselines.ContextNorm(D), x),
        "slot attention": (baselines.SlotAttention(D, 3), x, torch.randn(B, 3, D)),
        "slot encoder": (baselines.SlotEncoder((1, 4, 4), 3, D), torch.randn(B, 1, 4, 4)),
        "slot decoder": (baselines.SlotDecoder((1, 4, 4), D), x),
        "slot abstractor": (baselines.SlotAbstractor(D, 1, 2), x, x),
        "ocra": (baselines.OCRA(D, 1, 2), x, x),
        "dot": (GeneralAttention(mechanisms.Dot()), x, x, x),
        "additive": (GeneralAttention(mechanisms.Additive(D, D)), x, x, x),
        "general": (GeneralAttention(mechanisms.General(D, D)), x, x, x),
        "cosine": (GeneralAttention(mechanisms.Cosine()), x, x, x),
        "product": (GeneralAttention(mechanisms.Product(D, D)), x, x, x),
        "trilinear": (GeneralAttention(mechanisms.Trilinear(D)), x, x, x),
        "euclidean": (GeneralAttention(mechanisms.Euclidean()), x, x, x),
        "keys only": (GeneralAttention(mechanisms.KeyOnly(D)), None, x),
        "heads": (recipes.self_attention(D, 2), x, x, x),
        "relational heads": (recipes.relational_heads(D, 2), x, x, x),
        "relation": (mechanisms.Relation(D, 2), x, x),
        "alternating": (mechanisms.AlternatingCoAttention(D, D), x, x),
        "interactive": (mechanisms.InteractiveCoAttention(D, D), x, x),
        "parallel": (mechanisms.ParallelCoAttention(D, D), x, x),
        "learned query": (mechanisms.LearnedQuery(2, D), x),
        "self query": (mechanisms.SelfQuery(D, D), x),
    }


def wrong(x: Tensor):
    """What stands for a tensor, of another kind, number of axes, memory or type."""
    yield from ("abc", x.tolist(), None, x.new_zeros(()), x.flatten(), x[None], x.to_sparse(), x.to("meta"), x > 0)
    yield x.to(torch.complex64)
    yield torch.cat((x, x[:1]))  # one more example, of which there may then be none of something else
    if x.is_floating_point():
        yield from (x.half(), x.double(), x.long(), torch.cat((x, x), dim=-1))
    else:
        yield from (x.float(), x - 5, x + 1000)


@pytest.mark.parametrize("name", objects())
def test_wrong_arguments(name):
    layer, *given = objects()[name]
    layer.eval()(*given)
    refused = 0
    for place, argument in enumerate(given):
        for other in wrong(argument) if isinstance(argument, Tensor) else ():
            fits = isinstance(other, Tensor) and not other.is_sparse and other.dim() >= min(2, argument.dim())
            try:
                layer(*given[:place], other, *given[place + 1 :])
                assert fits or other is None, f"argument {place}: {other}"
            except (TypeError, ValueError) as error:
                assert str(error).split(":")[0].replace("_", "").replace(".", "").replace(", ", "").isalnum(), error
                assert "linear()" not in str(error), error
                refused += 1
    assert refused >= 4


def test_tokens_without_values():
    """Looked up in weights that have values, they would give whatever lies in memory."""
    for name in ("language model", "encoder", "masked language model", "tokens to tokens"):
        layer, *given = objects()[name]
        with pytest.raises(ValueError, match="x: expected token ids with values, on cpu, got a tensor on meta"):
            layer.eval()(*(x.to("meta") for x in given))
    model = objects()["tokens to tokens"][0]
    for generates in (model.generate, lambda *given, **named: model.beam_search(*given, 2, **named)):
        with pytest.raises(TypeError, match="source: expected a tensor, got NoneType"):
            generates(None, 3, start_token=1)


X, T = torch.randn(B, N, D), torch.ones(B, N, dtype=torch.long)

test_calls_of_the_wrong_kind = refused(
    *((lambda name=name: objects()[name][0](X, X, X), TypeError,
       r"objects and symbols, \(x, symbols\), not with \(query, key, value\)")
      for name in ("relational", "rca", "disrca", "dual")),
    *((lambda name=name: getattr(TransformerLM(**SIZES), name)(T, 2, top_q=0.9), TypeError,
       r"^generate\(\) got an unexpected keyword argument 'top_q'") for name in ("generate", "generate_stream")),
    # All activations are listed, that of feed-forward blocks among them, which no other function has.
    *((lambda name=name: FeedForwardBlock(D, activation=name),
       rf"activation: .*swiglu or a function, got '{name}'; did you mean \w*lu\?") for name in ("gleu", "SwiGLU")),
)  # fmt: skip
