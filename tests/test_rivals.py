"""The models of studies/rivals: they train in each family, and tokens see none after them."""

from dataclasses import replace

import pytest
import torch

from dat.experiments.language.model_keys import LanguageModelKeys
from dat.experiments.sequences.config import RecallConfig, RecallDataConfig, in_batches
from dat.experiments.sequences.experiment import Recall
from dat.experiments.sequences.model import SequenceModelKeys
from dat.training.configs import OutputConfig
from dat.training.run_folder import RunFolder
from dat.training.runs import start_run
from studies.rivals.models import RIVALS, multiplied_projections, rival
from tests.support.tensors import close

PLAIN = {"n_heads_ra": 0, "n_kv_heads": None, "pos_enc_type": "pos_emb"}
SEQUENCES = SequenceModelKeys(n_heads_sa=4, context=16, d_model=32, **PLAIN)
LANGUAGE = LanguageModelKeys(n_heads_sa=2, n_layers=3, context=16, d_model=16, **PLAIN)
TOKENS = torch.randint(20, (3, 9), generator=torch.Generator().manual_seed(0))


def sequence_model(name):
    return rival(SEQUENCES, name, 16).build(20, seed=0)


def language_model(name):
    torch.manual_seed(0)
    return rival(LANGUAGE, name, 16).language_config(20).build()


def check_trains(model, loss):
    """All parameters get a gradient, and a step along it makes the loss smaller."""
    before = loss()
    parameters = dict(model.named_parameters())
    gradients = dict(zip(parameters, torch.autograd.grad(before, parameters.values()), strict=True))
    assert not [name for name, gradient in gradients.items() if not gradient.any()]
    norm = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter -= 0.01 / norm * gradients[name]
        assert loss() < before


@pytest.mark.parametrize("build", [sequence_model, language_model])
@pytest.mark.parametrize("name", RIVALS)
def test_tokens_see_none_after_them(name, build):
    model = build(name).double().eval()
    logits = model(TOKENS).logits
    for at in (1, 5, 8):
        changed = TOKENS.clone()
        changed[:, at:] = (changed[:, at:] + 1) % 20
        other = model(changed).logits
        close(other[:, :at], logits[:, :at])
        assert not torch.isclose(other[:, at:], logits[:, at:]).all(-1).any()
    packed = model(TOKENS.view(1, -1), segments=torch.arange(3).repeat_interleave(9)[None]).logits
    close(packed.view(3, 9, -1), logits)
    padding = torch.ones(3, 11, dtype=torch.bool)
    padding[:, :2] = False
    padded = model(torch.nn.functional.pad(TOKENS, (2, 0)), padding_mask=padding).logits
    close(padded[:, 2:], logits)


@pytest.mark.parametrize("build", [sequence_model, language_model])
@pytest.mark.parametrize("name", RIVALS)
def test_causal_models_train(name, build):
    model = build(name)
    check_trains(model, lambda: model.loss(TOKENS[:, :-1], TOKENS[:, 1:]))
    maps = model.trace(TOKENS).maps
    assert {weights.shape[0::2] for weights in maps} == {(3, 9)} and len(maps) == model.n_layers
    again = build(name)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(TOKENS).logits, model(TOKENS).logits)
    model.gradient_checkpointing = True
    close(model.loss(TOKENS, TOKENS), again.loss(TOKENS, TOKENS))


def test_products_of_projections_begin_as_large_as_pytorch_makes_them():
    for name in ("simplicial", "tensor_product"):
        for model in (sequence_model(name), language_model(name)):
            width = model.d_model
            found = [p.weight for p in multiplied_projections(model)]
            assert len(found) == 3 * model.n_layers
            assert all(w.abs().max().item() == pytest.approx(width**-0.5, rel=0.05) for w in found)
    compress = sequence_model("latent").layers.blocks[0].self_attn.heads.compress
    assert compress.weight.std().item() == pytest.approx(0.08, rel=0.1)


def test_models_refuse_by_name():
    model = language_model("latent")
    with pytest.raises(ValueError, match=r"^cache: latent heads keep none; decode with use_cache=False"):
        model.generate(TOKENS, 1)
    with pytest.raises(ValueError, match=r"^flops_per_token: latent heads are not counted"):
        model.flops_per_token()
    assert model.generate(TOKENS, 2, use_cache=False).shape == (3, 11)


def test_heads_of_pairs_are_watched_in_a_run_of_sequences(tmp_path):
    config = RecallConfig(
        task="mqar",
        data=RecallDataConfig(size=2, n_val=4, n_test=4),
        model=rival(SEQUENCES, "simplicial", 16),
        loop=replace(in_batches(2, 4, eval_every=1), batch_size=4),
        output=OutputConfig(folder=str(tmp_path), name="run", tensorboard=False, progress=False),
    )
    result = RunFolder(start_run(Recall(), config).path).read_result()
    assert 0 < result["matching"]["test"] < 1 and result["parameters"] == result["trained_parameters"]
