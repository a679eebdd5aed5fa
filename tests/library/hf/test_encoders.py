"""Encoders and image classifiers for transformers."""

import pytest
import torch
from transformers.loss.loss_utils import ForMaskedLMLoss, ForSequenceClassificationLoss

from dual_attention.encoder_models import EncoderForMaskedLM, EncoderForSequenceClassification
from dual_attention.hf import DualAttnEncoderConfig, DualAttnForImageClassification, DualAttnVisionConfig
from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer
from tests.library.hf.models import KINDS, classifier, masked, tokens, vision, vision_config
from tests.support.language import LAYERS, VOCAB, WIDTH
from tests.support.refusals import refused

MASK = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1] * 7])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_masked_language_model(kind: str, implementation: str):
    model = masked(kind, attn_implementation=implementation)
    assert isinstance(model.model, EncoderForMaskedLM)
    x, labels, types = tokens(2, 7), tokens(2, 7), torch.randint(2, (2, 7))
    labels[:, ::2] = labels[0, 5:] = -100
    ours = model.model(x, labels, padding_mask=MASK.bool(), token_types=types)
    output = model(x, MASK, types, labels=labels, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(output.logits, ours.logits)
    torch.testing.assert_close(output.loss, ours.loss)
    torch.testing.assert_close(model(x, MASK, types, labels=labels).loss, ours.loss)
    given = model(x, MASK, types, labels=labels, num_items_in_batch=3).loss
    torch.testing.assert_close(given, ForMaskedLMLoss(ours.logits, labels, VOCAB, num_items_in_batch=3))
    view = labels.T.contiguous().T
    assert torch.equal(model(x, MASK, types, labels=view).loss, model(x, MASK, types, labels=labels).loss)
    assert model(x, labels=torch.full_like(x, -100)).loss == 0
    assert len(output.hidden_states) == LAYERS + 1 and output.hidden_states[0].shape == (2, 7, WIDTH)
    assert [weights.shape for weights in output.attentions] == [(2, 4, 7, 7)] * LAYERS
    assert not output.attentions[0][0, :, :, 5:].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_sequence_classification(kind: str, pool: str):
    model = classifier(kind, classifier_pool=pool, num_labels=3)
    assert isinstance(model.model, EncoderForSequenceClassification)
    x, labels = tokens(2, 7), torch.tensor([2, 0])
    ours = model.model(x, labels, padding_mask=MASK.bool())
    output = model(x, MASK, labels=labels)
    torch.testing.assert_close(output.logits, ours.logits)
    torch.testing.assert_close(output.loss, ours.loss)
    alone = model(x[:1, :5]).logits
    torch.testing.assert_close(alone, output.logits[:1])


@pytest.mark.parametrize(
    ("classes", "labels"), [(1, torch.tensor([0.5, -1.0])), (3, torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]))]
)
def test_other_problems(classes: int, labels: torch.Tensor):
    """Regression and several labels at once follow from the labels, as in transformers."""
    model = classifier(num_labels=classes)
    output = model(tokens(2, 7), labels=labels)
    torch.testing.assert_close(output.loss, ForSequenceClassificationLoss(labels, output.logits, model.config))
    assert model.config.problem_type == ("regression" if classes == 1 else "multi_label_classification")


def test_token_types_that_there_are_not():
    """Zeros, which tokenizers give to any model, mean nothing."""
    model = masked(n_token_types=0)
    x = tokens(2, 7)
    torch.testing.assert_close(model(x, token_type_ids=torch.zeros_like(x)).logits, model(x).logits)


@pytest.mark.parametrize("kind", ["dat", "transformer"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_image_classification(kind: str, implementation: str):
    model = vision(kind, attn_implementation=implementation)
    assert type(model.model) is {"dat": VisionDualAttnTransformer, "transformer": VisionTransformer}[kind]
    images, labels = torch.randn(2, 3, 12, 8), torch.tensor([4, 1])
    output = model(images, labels=labels, output_attentions=True, output_hidden_states=True)
    scores = model.model(images)
    torch.testing.assert_close(output.logits, scores)
    torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(scores, labels))
    torch.testing.assert_close(model(images).logits, scores)
    assert [weights.shape for weights in output.attentions] == [(2, 4, 7, 7)] * 2
    torch.testing.assert_close(model.model.final_out(output.hidden_states[-1].mean(dim=1)), scores)


def test_symbols_of_images():
    model = vision(symbol_retrieval="symbolic_attention", update_symbols_each_layer=False)
    symbols = {"d_model": WIDTH, "n_heads": 8, "n_symbols": 1024, "trainable_symbols": False}
    assert model.config.symbol_retrieval_kwargs == symbols and model.config.ra_kwargs is None
    images = torch.randn(2, 3, 12, 8)
    torch.testing.assert_close(model(images, output_attentions=True).logits, model(images).logits)


def test_default_configurations():
    """The sizes of BERT base, and of the paper's models of CIFAR images."""
    encoder, images = DualAttnEncoderConfig(), DualAttnVisionConfig(num_labels=10)
    assert (encoder.hidden_size, encoder.num_attention_heads, encoder.type_vocab_size) == (768, 12, 2)
    assert (images.image_size, images.num_channels, images.num_attention_heads) == ((32, 32), 3, 12)
    with torch.device("meta"):
        assert DualAttnForImageClassification(images)(torch.zeros(2, 3, 32, 32)).logits.shape == (2, 10)
        baseline = DualAttnForImageClassification(DualAttnVisionConfig(model="transformer", num_labels=10))
    assert sum(parameter.numel() for parameter in baseline.parameters()) == 7_149_034  # the paper's ViT


test_bad_input = refused(
    (lambda: masked()(tokens(1, 2), inputs_embeds=torch.zeros(1, 2, WIDTH)), "expected one of them, got both"),
    (lambda: masked()(inputs_embeds=torch.zeros(1, 2, WIDTH + 1)), "embeddings: expected shape"),
    (lambda: masked()(tokens(1, 2), labels=tokens(2)), r"labels: expected the shape of x, \(1, 2\), got \(2,\)"),
    (lambda: vision()(torch.zeros(1, 3, 8, 12)), "x: expected a grid of .* patches, or pos_enc='interpolated'"),
    (lambda: classifier(norm_type="batchnorm"), "norm_type"),
    (lambda: masked(n_token_types=0)(tokens(2, 7), token_type_ids=torch.ones(2, 7).long()), "token_types"),
    (lambda: vision_config("dat", out_features=["stage3"]), "stage3"),
    (lambda: vision_config("transformer", out_features=["stage3"]), "stage3"),
)
