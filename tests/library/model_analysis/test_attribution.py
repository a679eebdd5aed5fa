"""Logit attribution: parts add up to the logits, and each is what taking it away changes while scales are held."""

import pytest
import torch

from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
from dual_attention.model_analysis.attribution import LogitPart, attribute_logits
from dual_attention.model_analysis.interventions import Ablate, Target, intervene, intervene_directly
from tests.library.model_analysis.models import FAMILIES, WITH_PARTS, encoder, hooks
from tests.support.language import close, lm, tokens
from tests.support.refusals import refusals


class Adapted(torch.nn.Linear):
    """A projection that computes more than its weights say, as adapters do."""

    def forward(self, input):
        return super().forward(input) + 0.5 * input.flip(-1)[..., :1]


class Quantised(torch.nn.Module):
    """A projection whose weights are no parameters, and which takes rows, as some quantised ones."""

    def __init__(self, in_features, out_features, dtype):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=dtype))
        self.register_buffer("bias", torch.zeros(out_features, dtype=dtype))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight.T).unflatten(0, x.shape[:-1])


def adapted(kind=Adapted):
    model = lm("symbolic_attention", output_bias=True, ra_kwargs={"add_bias_out": True})
    for module in (model.layers, model.layers.blocks[0].dual_attn.relational_attention):
        name = "final_out" if module is model.layers else "wo"
        old = getattr(module, name)
        new = kind(old.in_features, old.out_features, dtype=torch.float64)
        new.load_state_dict(old.state_dict())
        setattr(module, name, new)
    return model


LANGUAGE = {name: make for name, make in FAMILIES.items() if name.startswith("language")}
LANGUAGE |= WITH_PARTS | {
    "post-norm": lambda: lm("symbolic_attention", norm_first=False, output_bias=True),
    "rmsnorm": lambda: lm("symbolic_attention", norm_type="rmsnorm", ra_kwargs={"add_bias_out": True}),
    "no norm": lambda: lm("symbolic_attention", norm_type="none"),
    "kinds of other widths": lambda: lm("symbolic_attention", sa_kwargs={"out_dim": 12}, ra_kwargs={"out_dim": 4}),
    "adapted": adapted,
    "quantised": lambda: adapted(Quantised),
    "transformer post-norm": lambda: lm("transformer", norm_first=False, norm_type="rmsnorm"),
}


@pytest.mark.parametrize("name", LANGUAGE)
def test_parts_add_up_to_the_logits(name):
    model, x = LANGUAGE[name](), tokens(3, 9)
    wanted = model(x).logits.detach()
    for place in (0, 5, -1):
        found = attribute_logits(model, x, place)
        assert len(set(found.parts)) == len(found.parts) == found.vectors.shape[1]
        for one in (found, found.merged("head"), found.merged("relation")):
            assert not one.logits().requires_grad
            close(one.logits().sum(1), wanted[:, place], 1e-10)
        target, foil = torch.tensor([3, 1, 4]), 2
        difference = wanted[:, place].gather(1, target[:, None])[:, 0]
        close(found.effects(target, foil).sum(1), difference - wanted[:, place, foil], 1e-10)
        close(found.effects(target).sum(1), difference - wanted[:, place].mean(-1), 1e-10)
    assert not hooks(model)
    assert torch.equal(model(x).logits, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])  # in which dot products are wider than weights
@pytest.mark.parametrize("score", ["dot", "squared_distance"])  # those of the second are in float32
def test_models_in_half_precision(score, dtype):
    model = lm("symbolic_attention", ra_kwargs={"rel_score": score, "symmetric_rels": True}).to(dtype)
    x = tokens(3, 9)
    found, wanted = attribute_logits(model, x), model(x).logits[:, -1].detach().float()
    assert found.vectors.dtype == torch.float32
    close(found.logits().sum(1), wanted, 0.02 * wanted.abs().max())


def test_a_part_is_what_its_removal_changes_directly():
    """The model has no last norm, so its logits are linear in the stream."""
    own, x = {"out_dim": 16}, tokens(3, 9)
    model = lm("symbolic_attention", final_norm=False, sa_kwargs=own, ra_kwargs=own)
    found, place = attribute_logits(model, x, 6), 6
    before = model(x).logits[:, place]
    heads = found.merged("head")
    cases = [
        (
            found.merged("relation"),
            LogitPart("relation", "blocks.0", "relational", None, 1),
            Target("relation", layers=0, relations=1),
        )
    ]
    cases += [
        (heads, LogitPart("head", "blocks.0", kind, 1), Target("head", layers=0, heads={kind: 1}))
        for kind in ("sensory", "relational")
    ]
    cases += [(found, LogitPart("symbol", "blocks.1", "relational", 0), Target("symbol", layers=1, heads=0))]
    for attribution, part, target in cases:
        with torch.no_grad(), intervene_directly(model, Ablate(target)):
            without = model(x).logits[:, place]
        close(attribution.logits(attribution.parts.index(part))[:, 0], before - without, 1e-10)


def test_interventions_before_are_seen():
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with intervene(model, Ablate(Target("relation", layers=0, relations=0))):
        found, wanted = attribute_logits(model, x), model(x).logits[:, -1].detach()
    close(found.logits().sum(1), wanted, 1e-10)
    parts = [number for number, part in enumerate(found.parts) if (part.layer, part.relation) == ("blocks.0", 0)]
    assert len(parts) == 2 and not found.logits(parts).any()


def test_models_for_transformers():
    config = DualAttnConfig(vocab_size=20, d_model=16, n_layers=2, n_heads_sa=2, n_heads_ra=2, max_block_size=16)
    model, x = DualAttnForCausalLM(config).double().train(), torch.randint(20, (2, 7))
    found = attribute_logits(model, x)
    assert model.training
    close(found.logits().sum(1), model.eval()(x).logits[:, -1].detach(), 1e-10)


@refusals(
    (lambda model, x: attribute_logits(encoder(), x), TypeError, "model: logits are attributed in language models"),
    (lambda model, x: attribute_logits(model, x[0]), r"tokens: expected token ids \(B, N\)"),
    (lambda model, x: attribute_logits(model, x, 9), "place: expected a number from -9 to 8, got 9"),
    (lambda model, x: attribute_logits(model, x).effects(11), "token: expected token ids from 0 to 10, got 11"),
    (lambda model, x: attribute_logits(model, x).effects(0, 1.5), TypeError, "foil: expected a token id"),
    (lambda model, x: attribute_logits(model, x).merged("layer"), "by: expected 'head' or 'relation', got 'layer'"),
    (lambda model,
     x: (model.layers.add_module("norm", torch.nn.GroupNorm(1, 9).double()) or attribute_logits(model, x)), TypeError,
     "model: expected LayerNorm, RMSNorm or no normalisation of the stream"),
)  # fmt: skip
def test_what_is_refused(call, error, message):
    model, x = lm("symbolic_attention"), tokens(2, 9)
    with pytest.raises(error, match=message):
        call(model, x)
    assert not hooks(model)
