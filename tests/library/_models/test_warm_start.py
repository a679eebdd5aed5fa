"""Dual Attention Transformers that begin with the weights of a Transformer, in every family."""

from typing import Any

import pytest
import torch

from dual_attention import DualAttnTransformerEncoder, VisionDualAttnTransformer, start_from_transformer
from tests.library.model_analysis.models import COMMON, IMAGES, SYMBOLS, call, drawn, encoder, vision
from tests.support import language, seq2seq
from tests.support.refusals import refusals


def beside(heads: int, width: int, **relational: Any) -> dict[str, Any]:
    """Heads of a Transformer, and a relational one beside them."""
    sensory = {"total_n_heads": heads, "add_bias_out": True}
    return {
        "n_heads_sa": heads,
        "n_heads_ra": 1,
        "sa_kwargs": sensory,
        "ra_kwargs": {"total_n_heads": heads, "out_dim": width, **relational},
    }


ENCODER = beside(2, seq2seq.WIDTH, n_relations=3)
DECODER = {**ENCODER, "cross_kwargs": {"add_bias_out": True}}
PAIRS: dict[str, Any] = {
    "language": (lambda: language.lm("transformer"),
        lambda: language.lm("symbolic_attention", **beside(4, 16, add_bias_out=True))),
    "language rotary": (lambda: language.lm("transformer", pos_enc_type="RoPE"),
        lambda: language.lm("positional_symbols", pos_enc_type="RoPE", **beside(4, 16))),
    "encoder": (
        lambda: encoder(dual=False),
        lambda: drawn(
            DualAttnTransformerEncoder(**COMMON, **SYMBOLS, norm_first=True, max_block_size=24, **beside(4, 16))
        ),
    ),
    "vision": (lambda: vision(dual=False),
        lambda: drawn(VisionDualAttnTransformer(**IMAGES, pool="cls", **beside(4, 16)))),
    "seq2seq": (lambda: seq2seq.build(), lambda: seq2seq.build("symbolic_attention", encoder=ENCODER, decoder=DECODER)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_outputs_are_those_of_the_transformer_until_a_step_is_taken(name: str):
    """Biases that only the Dual Attention Transformer has are silent, too; the rest of the relational heads is kept."""
    transformer, model = (make() for make in PAIRS[name])
    before = {key: w.clone() for key, w in model.state_dict().items() if ".relational_attention." in key}
    start_from_transformer(model, transformer)
    torch.manual_seed(0)
    run = call(name, model)
    torch.manual_seed(0)
    expected = call(name, transformer)()
    torch.testing.assert_close(run(), expected, atol=1e-10, rtol=0)
    torch.optim.SGD(model.parameters(), 0.1).zero_grad()
    run().square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    own = {key: w for key, w in model.state_dict().items() if key in before}
    assert before and all(w.any() for key, w in own.items() if key.endswith("wo.weight"))
    assert all(torch.equal(w, before[key]) for key, w in own.items() if ".wo." not in key)


def test_relational_heads_that_are_not_silent_keep_their_weights():
    transformer, model = (make() for make in PAIRS["encoder"])
    before = {key: w.clone() for key, w in model.state_dict().items() if ".relational_attention." in key}
    start_from_transformer(model, transformer, silent=False)
    own = model.state_dict()
    assert all(torch.equal(own[key], w) for key, w in before.items())


@refusals(
    ({"n_heads_sa": 2, "n_heads_ra": 2}, "self_attention.wq.weight"),
    (beside(4, 16) | {"sa_kwargs": {"total_n_heads": 4}}, "self_attention.wo.bias"),
    (beside(4, 16) | {"n_layers": 1}, "layers.blocks.1"),
    (beside(4, 16) | {"n_layers": 3}, "layers.blocks.2"),
    of="options",
)
def test_other_sizes_are_refused_and_change_nothing(options: Any, error, message: str):
    model = language.lm("symbolic_attention", **options)
    before = {key: w.clone() for key, w in model.state_dict().items()}
    with pytest.raises(error, match=rf"transformer: its weights do not match those of model; .*{message}"):
        start_from_transformer(model, language.lm("transformer"))
    assert all(torch.equal(w, before[key]) for key, w in model.state_dict().items())


def test_two_weights_are_not_made_one():
    """An untied Transformer's embedding and output layer, for a model that ties them."""
    untied, model = language.lm("transformer", tie_weights=False), PAIRS["language"][1]()
    before = {key: w.clone() for key, w in model.state_dict().items()}
    names = "layers.token_embedder.weight and layers.final_out.weight"
    with pytest.raises(ValueError, match=f"transformer: its {names} differ, .*; build model with tie_weights=False"):
        start_from_transformer(model, untied)
    assert all(torch.equal(w, before[key]) for key, w in model.state_dict().items())
