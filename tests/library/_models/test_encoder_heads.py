"""Bidirectional encoders with a head: masked language modelling, and classification."""

import copy

import pytest
import torch
import torch.nn.functional as F

from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification
from tests.support.encoders import KINDS, LONGEST, VOCABULARY, WIDTH, build, close, create, tokens
from tests.support.refusals import refused
from tests.support.tensors import float64

# ---- Masked language modelling


def masked_lm(kind="plain", **arguments):
    return float64(EncoderForMaskedLM(build(kind), **arguments))


@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_by_hand(kind):
    model, x = masked_lm(kind), tokens()
    hidden = F.gelu(model.transform(model.encoder(x)), approximate="tanh")
    hidden = F.layer_norm(hidden, (WIDTH,), model.transform_norm.weight, model.transform_norm.bias)
    logits, loss = model(x)
    assert loss is None
    close(logits, hidden @ model.encoder.token_embedder.weight.T + model.decoder.bias)
    targets = torch.where(torch.rand(x.shape) < 0.4, x, -100)
    found, loss = model(x, targets)
    close(found, logits)
    close(loss, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


@pytest.mark.parametrize("ignore_index", [-100, -1])
def test_the_loss_alone_is_the_same(ignore_index):
    model, x = masked_lm("symbolic_attention", ignore_index=ignore_index), tokens()
    targets = torch.where(torch.rand(x.shape) < 0.4, x, ignore_index)
    mask = torch.arange(LONGEST) < torch.tensor([[2], [10], [5]])
    computed = []
    model.decoder.register_forward_hook(lambda _m, _i, output: computed.append(output.shape))
    gradients = []
    for loss_only in (False, True):
        model.zero_grad()
        logits, loss = model(x, targets, padding_mask=mask, loss_only=loss_only)
        loss.backward()
        assert (logits is None) is loss_only
        gradients.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    scored = int(((targets != ignore_index) & mask).sum())
    assert computed == [(3, LONGEST, VOCABULARY), (scored, VOCABULARY)]
    close(*gradients)


@pytest.mark.parametrize("loss_only", [True, False])
def test_nothing_masked_costs_nothing(loss_only):
    model, x = masked_lm(), tokens()
    _, loss = model(x, torch.full_like(x, -100), loss_only=loss_only)
    loss.backward()
    assert loss == 0 and not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def test_packed_masked_lm():
    model, x = masked_lm("positional_symbols"), tokens(1)
    targets = torch.where(torch.rand(x.shape) < 0.5, x, -100)
    _, loss = model(x, targets, segments=torch.tensor([[0] * 4 + [1] * 6]))
    parts = [(x[:, place], targets[:, place]) for place in (slice(0, 4), slice(4, None))]
    losses = [model(*part)[1] * (part[1] != -100).sum() for part in parts]
    close(loss, sum(losses) / (targets != -100).sum())


@pytest.mark.slow
def test_learns_what_was_masked():
    """Sequences that repeat one token: any token that is left tells the masked ones."""
    retrieval = {"d_model": 32, "n_heads": 2, "n_symbols": 5}
    sizes = {"vocab_size": 6, "d_model": 32, "n_layers": 1, "symbol_retrieval_kwargs": retrieval}
    model = EncoderForMaskedLM(create("symbolic_attention", **sizes))
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(150):
        x = torch.randint(1, 6, (16, 1), generator=generator).expand(-1, 8)
        chosen = torch.rand(x.shape, generator=generator) < 0.3
        optimiser.zero_grad()
        loss = model.train()(x.masked_fill(chosen, 0), x.masked_fill(~chosen, -100))[1]
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[:5]) / 5 > 1.2 and sum(losses[-10:]) / 10 < 0.4


# ---- Classification


def test_pooling():
    encoder, x = build(), tokens()
    mask = torch.tensor([[1] * 4 + [0] * 6, [0] * 7 + [1] * 3, [1] * 10], dtype=torch.bool)
    for pool in ("cls", "mean"):
        model = float64(EncoderForSequenceClassification(encoder, 2, pool=pool))
        hidden = encoder(x)
        close(model(x).logits, model.classifier(hidden[:, 0] if pool == "cls" else hidden.mean(1)))
        hidden = encoder(x, padding_mask=mask)
        rows = [h[m][0] if pool == "cls" else h[m].mean(0) for h, m in zip(hidden, mask, strict=True)]
        close(model(x, padding_mask=mask).logits, model.classifier(torch.stack(rows)))


@pytest.mark.parametrize(
    "problem, targets, wanted",
    [
        ("single_label", torch.tensor([2, 0, -100]), lambda z, t: F.cross_entropy(z, t)),
        ("multi_label", torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]), F.binary_cross_entropy_with_logits),
        ("multi_label", torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool(), F.binary_cross_entropy_with_logits),
        ("regression", torch.randn(3, 3, dtype=torch.float64), F.mse_loss),
    ],
)
def test_losses_of_classification(problem, targets, wanted):
    model, x = float64(EncoderForSequenceClassification(build(), 3, problem=problem)), tokens()
    logits, loss = model(x, targets)
    assert logits.shape == (3, 3)
    close(loss, wanted(logits, targets if problem == "single_label" else targets.double()))
    assert model(x).loss is None and model(x[:0], targets[:0]).loss == 0


def test_dropout_before_the_classifier():
    encoder = create(dropout_rate=0.25)
    assert EncoderForSequenceClassification(encoder, 2).dropout.p == 0.25
    assert EncoderForSequenceClassification(encoder, 2, dropout_rate=0.5).dropout.p == 0.5


def test_heads_leave_the_encoders_parameters_as_they_are():
    """A pretrained encoder is given another head."""
    encoder = build()
    before = copy.deepcopy(encoder.state_dict())
    EncoderForSequenceClassification(encoder, 2)
    EncoderForMaskedLM(encoder)
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.state_dict().items())


# ---- Bad input


X = torch.zeros(2, 4, dtype=torch.long)


def classifier(n_classes=2, **options):
    return EncoderForSequenceClassification(create(), n_classes, **options)


test_what_is_refused = refused(
    (lambda: classifier(3, problem="single_label")(X, torch.zeros(2, 3)), TypeError, "targets: expected integers"),
    (lambda: classifier(3, problem="single_label")(X, X[:, :3]), "targets: expected shape"),
    (lambda: classifier(3, problem="single_label")(X, torch.tensor([0, 3])), "targets: expected 0 to 2"),
    (lambda: classifier(3, problem="multi_label")(X, torch.zeros(2).long()), "targets: expected shape"),
    (lambda: classifier(3, problem="regression")(X, X[:, :3]), TypeError, "targets: expected a floating-point"),
    (lambda: classifier(3, problem="regression")(X, torch.zeros(2)), "targets: expected shape"),
    (lambda: classifier(problem="binary"), r"problem: .*got 'binary'"),
    (lambda: classifier(pool="max"), r"pool: .*got 'max'"),
    (lambda: classifier(0), r"n_classes: .*got 0"),
    (lambda: classifier(dropout_rate=1.0), r"dropout_rate: .*got 1.0"),
    (lambda: classifier()(X[:, :0]), "x: expected at least one token"),
    (lambda: EncoderForMaskedLM(create())(X, loss_only=True), "loss_only: needs targets"),
    (lambda: EncoderForMaskedLM(create())(X, X[:1]), "targets: expected the shape of x"),
)
