"""Parts of your own: what a model does with them, and what check_part finds in them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dual_attention import (
    DualAttnTransformerLM,
    RelationalAttention,
    Seq2SeqTransformer,
    TransformerLM,
    VisionTransformer,
    check_part,
    mechanisms,
    with_parts,
)
from dual_attention._layers.fixed import after_prompt
from dual_attention.attention import Attention
from dual_attention.mechanisms import Align, Dot, GeneralAttention, Score, Softmax
from dual_attention.parts import OwnRelations, own_parts
from examples.parts import Manhattan
from tests.support.tensors import close

TOKENS = torch.randint(20, (2, 7), generator=torch.Generator().manual_seed(0))


class Heads(nn.Module):
    """Self-attention with the natural signature."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.n_heads = n_heads

    def weights(self, q, k, mask):
        return (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1)

    def forward(self, x, mask):
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        weights = self.weights(q, k, mask)
        return (weights @ v).transpose(1, 2).flatten(2), weights


class TwoHops(Heads):
    """Heads that attend a second time, to what earlier tokens attended."""

    def forward(self, x, mask):
        return super().forward(super().forward(x, mask)[0], mask)


class Natural(Align):
    def forward(self, e, mask=None):
        return e.masked_fill(~mask, -torch.inf).softmax(-1)


class PerToken(nn.Linear):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, d_model)


def transformer(**parts):
    torch.manual_seed(0)
    return with_parts(TransformerLM(20, 16, 2, 2, max_block_size=16), **parts)


def dat(kind="symbolic_attention", **parts):
    torch.manual_seed(0)
    own = {"ra_kwargs": {"use_relative_positional_symbols": True}} if kind == "position_relative" else {}
    lm = DualAttnTransformerLM(20, 16, 2, 1, 1, max_block_size=16, symbol_retrieval=kind, **own)
    return with_parts(lm, **parts)


MODELS = {
    "heads": lambda: transformer(heads=Heads),
    "align": lambda: transformer(heads=Natural),
    "score": lambda: transformer(heads=Manhattan),
    "features": lambda: transformer(heads=mechanisms.BoundedAdditive),
    "toolbox": lambda: transformer(heads=mechanisms.DifferentialAttention),
    "relation": lambda: dat(relation=Manhattan),
    "pairs": lambda: dat("position_relative", relation=Manhattan),
    "symbols": lambda: dat("positional_symbols", relation=mechanisms.Cosine),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_parts_is_causal_padded_packed_decoded_and_trained(name):
    model = MODELS[name]().double().eval()
    assert len(own_parts(model)) == 2
    logits = model(TOKENS).logits
    changed = TOKENS.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 20
    close(model(changed).logits[:, :4], logits[:, :4])
    packed = model(TOKENS.view(1, -1), segments=torch.arange(2).repeat_interleave(7)[None]).logits
    close(packed.view(2, 7, -1), logits)
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[:, :2] = False
    close(model(nn.functional.pad(TOKENS, (2, 0)), padding_mask=padding).logits[:, 2:], logits)
    with torch.no_grad():
        cache = model.new_cache()
        close(torch.cat([model(part, cache=cache).logits for part in TOKENS.split([3, 1, 3], 1)], 1), logits)
    maps = model.trace(TOKENS).maps[0]
    weights = maps if torch.is_tensor(maps) else maps.ra_maps[0]
    close(weights.sum(-1), torch.ones(weights.shape[:3]).double()) if name != "toolbox" else None
    gradients = torch.autograd.grad(model.loss(TOKENS[:, :-1], TOKENS[:, 1:]), [*model.train().parameters()][1:])
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients[:-2])
    with pytest.raises(ValueError, match=r"^flops_per_token: parts of your own are not counted"):
        model.flops_per_token()


@pytest.mark.parametrize("name", MODELS)
def test_parts_refuse_caches_of_a_fixed_size(name):
    model = MODELS[name]().eval()
    cache = model.new_cache()
    with torch.no_grad():
        model(TOKENS, cache=cache)
        cache = after_prompt(cache, 16, TOKENS, None)
        with pytest.raises(ValueError, match="a part of your own, knows none of a fixed size; expected one that grows"):
            model(TOKENS[:, :1], cache=cache)


def test_heads_that_read_earlier_queries_are_decoded_without_a_cache():
    mixing = GeneralAttention(Dot(), mechanisms.MultiToken(2))
    model = transformer(heads=lambda d_model: mechanisms.MultiHead(mixing, d_model, 2))
    with pytest.raises(ValueError, match="cache: MultiHead reads earlier queries, which no cache keeps; expected use"):
        model.generate(TOKENS, 2)
    assert model.generate(TOKENS, 2, use_cache=False).shape == (2, 9)


@pytest.mark.parametrize("options", [{}, {"n_kv_heads": 1, "key_dim": 2}, {"attn_scale": 1.0}, {"add_bias_kv": True}])
def test_softmax_in_place_of_softmax_keeps_the_options_of_a_layer(options):
    lm = TransformerLM(20, 16, 1, 2, dropout_rate=0.3, block_kwargs={"attn_kwargs": options}).eval()
    (layer,) = (module for module in lm.modules() if isinstance(module, Attention))
    for _ in range(2):  # the second time in place of the first
        (own,) = own_parts(with_parts(lm, heads=Softmax))
    own.part.load_state_dict({name.replace("wv", "features.wv"): x for name, x in layer.state_dict().items()})
    close(own(x := torch.randn(2, 7, 16), x, x)[0], layer(x, x, x)[0])
    assert (own.part.out_dropout.p, own.part.attention.dropout) == (0.3, 0.3)


def test_an_own_relation_keeps_the_options_of_a_layer():
    sizes = {}
    for options in ({}, {"rel_init_size": 2.0}, {"wr_init": "large"}):
        layer = RelationalAttention(16, 2, 2, 0.3, add_bias_kv=True, add_bias_out=True, **options)
        own = OwnRelations(Dot(), layer)
        assert sum(x.numel() for x in own.parameters()) == sum(x.numel() for x in layer.parameters())
        assert own.part.out_dropout.p == 0.3
        sizes[(*options,)] = own.part.message.wr.abs().max()
    assert sizes["rel_init_size",] > sizes["wr_init",] > 1.5 * sizes[()]


def test_own_heads_keep_a_dropout_of_their_own():
    model = transformer(heads=lambda d_model: mechanisms.MultiHead(GeneralAttention(Dot(), dropout=0.4), d_model, 2))
    assert [own.part.attention.dropout for own in own_parts(model)] == [0.4, 0.4]


def test_a_model_keeps_its_mode_and_after_a_refusal_its_parts():
    model = TransformerLM(20, 16, 1, 2, dropout_rate=0.5).eval()
    assert not any(module.training for module in with_parts(model, heads=Heads).modules())
    assert own_parts(with_parts(model, heads=Manhattan)) != []  # in place of the first
    model = DualAttnTransformerLM(20, 16, 1, 1, 1)
    with pytest.raises(ValueError, match="symbols"):
        with_parts(model, relation=Manhattan, symbols=lambda d_model: nn.Linear(d_model, 3))
    assert own_parts(model) == []


def test_a_trial_leaves_the_part_and_the_generator_as_they_were():
    part = mechanisms.MultiHead(GeneralAttention(Dot(), dropout=0.3), 16, 2)
    state = torch.get_rng_state()
    check_part(part)
    assert part.attention.dropout == 0.3 and torch.equal(torch.get_rng_state(), state)


def test_own_symbols_take_the_place_of_those_of_all_layers():
    model = dat(symbols=PerToken)
    (own,) = own_parts(model)
    x = torch.randn(2, 7, 16)
    close(own(x), own.part(x))
    assert not [name for name in model.state_dict() if "symbol_library" in name]
    assert model.generate(TOKENS, 2).shape == (2, 9)


def test_an_alignment_with_the_natural_signature_is_softmax():
    q, k = torch.randn(2, 4, 8).double(), torch.randn(2, 4, 8).double()
    mask = torch.rand(2, 4, 4) > 0.4
    mask[0, 1] = False
    for score in (Dot(), mechanisms.General(8, 8, d_out=8)):
        own, ours = (GeneralAttention(score, align()).double() for align in (Natural, Softmax))
        bias = torch.randn(2, 4, 4).double().masked_fill(torch.rand(2, 4, 4) > 0.8, -torch.inf)
        for options in ({"attn_mask": mask}, {"attn_mask": mask, "attn_bias": bias}, {}):
            close(own(q, k, **options).context, ours(q, k, **options).context)
    assert not own(q, k, attn_mask=mask).context[0, 1].any()


def test_parts_stand_in_models_of_images_and_pairs():
    images = with_parts(VisionTransformer((3, 4, 4), (2, 2), 3, d_model=16, n_heads=2, n_layers=1), heads=Heads)
    assert images(torch.randn(2, 3, 4, 4)).shape == (2, 3)
    spec = {"type": "token", "vocab_size": 20}
    sides = {"encoder_kwargs": {"n_heads": 2}, "decoder_kwargs": {"n_heads": 2, "n_heads_cross": 2}}
    pairs = Seq2SeqTransformer(spec, spec, d_model=16, out_dim=20, n_layers_enc=1, n_layers_dec=1, **sides)
    assert len(own_parts(with_parts(pairs, heads=Heads))) == 2
    assert pairs(TOKENS, TOKENS[:, :3])[0].shape == (2, 1, 20)


class Wide(Heads):
    def forward(self, x, mask):
        return torch.cat([x, x], -1)


class Wordy(Heads):
    def forward(self, x):
        return x


def needy(d_model: int, colour: str) -> nn.Module:
    raise AssertionError


def windowed(**parts):
    return with_parts(TransformerLM(20, 16, 1, 2, block_kwargs={"attn_kwargs": {"window": 2}}), **parts)


def biased(**parts):
    options = {"attn_kwargs": {"add_bias_q": True, "attn_scale": 1.0}}
    return with_parts(TransformerLM(20, 16, 1, 2, block_kwargs=options), **parts)


def sharing(**parts):
    return with_parts(DualAttnTransformerLM(20, 16, 1, 1, 1, share_attn_params=True), **parts)


BAD = [
    (windowed, {"heads": Heads}, "heads: expected attention without window, which it would drop"),
    (biased, {"heads": Manhattan}, "heads: expected attention without add_bias_q, attn_scale, which it would drop"),
    (biased, {"heads": Natural}, "heads: expected attention without add_bias_q, which it would drop"),
    (sharing, {"relation": Manhattan}, "relation: expected attention without share_attn_params, which it would drop"),
    (transformer, {"heads": Wide}, r"heads: expected Wide to give the context \(B, N, d\) = \(2, 3, 16\), got .*32\)"),
    (transformer, {"heads": Wordy}, r"heads: tried on inputs \(2, 3, 16\): .*forward\(\) takes 2 positional arguments"),
    (transformer, {"heads": needy}, "heads: expected needy to need no arguments other than d_model, .*, got colour"),
    (transformer, {"heads": lambda d_model: d_model}, "heads: expected <lambda> to be a module, got int"),
    (transformer, {"relation": Manhattan}, "relation: expected a Dual Attention Transformer .*, got a model without"),
    (dat, {"relation": PerToken}, "relation: expected PerToken to need no arguments other than"),
    (dat, {"heads": Heads}, "heads: expected a Transformer, without relational heads"),
    (transformer, {"symbols": PerToken}, "symbols: expected a Dual Attention Transformer with symbols"),
]


@pytest.mark.parametrize(("model", "parts", "message"), BAD)
def test_parts_that_do_not_fit_are_named(model, parts, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model(**parts)


# check_part -----------------------------------------------------------------------------------------------------------


class Leaky(Heads):
    """The mean of all tokens, later ones among them."""

    def forward(self, x, mask):
        return super().forward(x, mask)[0] + x.mean(1, keepdim=True)


class AllSeeing(Heads):
    """Deaf to all that a mask hides, except for order."""

    def weights(self, q, k, mask):
        return super().weights(q, k, torch.ones_like(mask[0, 0]).tril())


class Mixing(Heads):
    def forward(self, x, mask):
        return super().forward(x - x.mean(0), mask)


class Float32Only(Heads):
    def forward(self, x, mask):
        return super().forward(x, mask)[0].to(torch.promote_types(x.dtype, torch.float32))


class Detached(Heads):
    def weights(self, q, k, mask):
        return super().weights(q, k.detach(), mask)


class Unused(Heads):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__(d_model, n_heads)
        self.gain = nn.Parameter(torch.ones(3))


class WrongShape(Score):
    def forward(self, query, key):
        return (query * key).sum(-1)


class DeafAlign(Align):
    def forward(self, e, mask=None):
        return e.softmax(-1)


class LateSymbols(PerToken):
    def forward(self, x):
        return super().forward(x) + x.mean(1, keepdim=True)


FAULTS = [
    (Leaky, {"pairs", "padding", "order", "packing", "cache"}),
    (AllSeeing, {"pairs", "padding", "packing"}),
    (Mixing, {"examples"}),
    (Float32Only, {"bfloat16"}),
    (Detached, {"gradients"}),
    (Unused, {"gradients"}),
    (Wide, {"shape"}),
    (WrongShape, {"shape"}),
    (DeafAlign, {"pairs", "padding", "order", "packing", "cache"}),
    (LateSymbols, {"order", "cache"}),
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("part", "wrong"), FAULTS)
def test_each_planted_fault_is_found(part, wrong):
    report = check_part(part)
    assert {*report.wrong} == wrong
    assert all(f"{name:10} NO" in str(report) for name in wrong)


def test_what_is_no_part_is_named():
    with pytest.raises(TypeError, match="part: expected a module or its class, got 'x'"):
        check_part("x")


@pytest.mark.parametrize("part", [Heads, TwoHops, Natural, Manhattan, PerToken, mechanisms.LatentAttention])
def test_sound_parts_are_found_sound(part):
    made = part(16, 2, 4) if part is mechanisms.LatentAttention else part
    report = check_part(made)
    assert report.wrong == [] and report.holds["compile"] and report.holds["export"]
    assert report.holds["padding"] is (None if part is PerToken else True)
