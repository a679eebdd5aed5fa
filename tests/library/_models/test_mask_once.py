"""A forward pass builds its visibility once, and means by it what layers mean by plain masks.

Symbols are those of positions: symbolic attention is an attention of its own, to a library.
"""

from collections import Counter

import pytest
import torch

from dual_attention.baselines import Abstractor
from dual_attention.functional import MaskPattern
from tests.support import encoders, families, language, seq2seq
from tests.support.tensors import float64, normal

ABSTRACTOR = {"symbol_retrieval": "positional_symbols", "symbol_retrieval_kwargs": {"symbol_dim": 8, "max_length": 12}}


@pytest.fixture
def counted(monkeypatch):
    """Numbers of patterns, and of whole masks, built since."""
    counts = Counter()
    create, block = MaskPattern.__init__, MaskPattern.block

    def counting_create(self, *args, **kwargs):
        counts["patterns"] += 1
        create(self, *args, **kwargs)

    def counting_block(self, rows, columns, device):
        mask = block(self, rows, columns, device)
        counts["masks"] += mask is not None
        return mask

    monkeypatch.setattr(MaskPattern, "__init__", counting_create)
    monkeypatch.setattr(MaskPattern, "block", counting_block)
    return counts


def numbers(counts, run):
    counts.clear()
    run()
    return counts["patterns"], counts["masks"]


@pytest.mark.parametrize("kind", ["transformer", "positional_symbols"])
def test_of_a_language_model(counted, kind):
    model, x = language.lm(kind, n_layers=3), language.tokens(2, 6)
    real = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    # Library attention knows order without a mask; relational attention in one piece does not.
    assert numbers(counted, lambda: model(x)) == (1, int(kind != "transformer"))
    assert numbers(counted, lambda: model(x, padding_mask=real)) == (1, 1)
    assert numbers(counted, lambda: model(x, segments=torch.tensor([[0, 0, 1, 1, 1, 2]]))) == (1, 1)
    assert numbers(counted, lambda: model.trace(x)) == (1, 1)
    model.train().gradient_checkpointing = True
    assert numbers(counted, lambda: model.loss(x, x, padding_mask=real).backward()) == (1, 1)


@pytest.mark.parametrize("kind", ["transformer", "positional_symbols"])
def test_of_decoding_with_a_cache(counted, kind):
    model, x, cache = language.lm(kind, n_layers=3), language.tokens(2, 6), None
    real = torch.tensor([[False, False, True, True, True, True], [True] * 6])
    with torch.no_grad():
        cache = model.new_cache()
        assert numbers(counted, lambda: model(x[:, :4], cache=cache, padding_mask=real[:, :4])) == (1, 1)
        assert numbers(counted, lambda: model(x[:, 4:5], cache=cache, padding_mask=real[:, :5])) == (1, 1)
        found = model(x[:, 5:], cache=cache, padding_mask=real).logits
    language.close(found, model(x, padding_mask=real).logits[:, 5:])


@pytest.mark.parametrize("window", [2, 4])
def test_a_window_narrows_it_once_for_all_layers(counted, window):
    model = language.lm("positional_symbols", **language.with_attention("positional_symbols", window=window))
    x = language.tokens(2, 6)
    assert numbers(counted, lambda: model(x)) == (2, 1)
    with torch.no_grad():
        cache = model.new_cache()
        model(x, cache=cache)
        # By the window, then to the senders that are held; one new token sees all of them.
        patterns, masks = numbers(counted, lambda: model(x[:, :1], cache=cache))
    assert patterns <= 3 and masks <= 1


@pytest.mark.parametrize("kind", ["plain", "positional_symbols"])
def test_of_an_encoder(counted, kind):
    model, x = encoders.build(kind), encoders.tokens(3, 6)
    real = torch.arange(6) < torch.tensor([[6], [4], [2]])
    assert numbers(counted, lambda: model(x)) == (1, 0)
    assert numbers(counted, lambda: model(x, padding_mask=real)) == (1, 1)
    assert numbers(counted, lambda: model.trace(x, padding_mask=real)) == (1, 1)


@pytest.mark.parametrize("kind", ["plain", "positional_symbols"])
def test_of_a_model_from_sequence_to_sequence(counted, kind):
    """One among the source's positions, one among the target's, and one of the target with the source."""
    model = seq2seq.build(kind)
    x, y = seq2seq.words()
    source, target = torch.rand(x.shape) < 0.7, torch.rand(y.shape) < 0.7
    masks = {"source_padding_mask": source, "target_padding_mask": target}
    assert numbers(counted, lambda: model(x, y, **masks)) == (3, 3)
    with torch.no_grad():
        memory = model.encode(x)
        cache = model.new_cache()
        assert numbers(counted, lambda: model.decode(y[:, :4], memory, cache=cache))[0] == 2
        assert numbers(counted, lambda: model.decode(y[:, 4:5], memory, cache=cache)) == (2, 0)


@pytest.mark.parametrize("kind", ["plain", "positional_symbols"])
def test_of_an_image_model(counted, kind):
    model, (images,), _ = families.build("images", kind)
    assert numbers(counted, lambda: model(images)) == numbers(counted, lambda: model.trace(images)) == (1, 0)


def test_of_abstractors(counted):
    layers = {"n_heads": 2, "dff": 12, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
    x, real = normal(2, 5, 8), torch.rand(2, 5) < 0.7
    abstractor = float64(Abstractor(8, 3, **layers, **ABSTRACTOR))
    assert numbers(counted, lambda: abstractor(x, padding_mask=real)) == (1, 1)
    model = seq2seq.build("encoder, both", **ABSTRACTOR)
    source, target = seq2seq.words(2)
    real = torch.arange(source.shape[1]) < torch.tensor([[9], [5]])
    assert numbers(counted, lambda: model(source, target, source_padding_mask=real)) == (3, 2)


@pytest.mark.parametrize("pos_enc_type", ["RoPE", "none"])
def test_layers_one_by_one_with_plain_masks_are_the_model(pos_enc_type):
    model, x = language.lm("positional_symbols", pos_enc_type=pos_enc_type), language.tokens(2, 6)
    segments, real = torch.tensor([[0, 0, 1, 1, 1, 2]]), torch.arange(6) < torch.tensor([[6], [5]])
    positions = torch.tensor([[0, 1, 0, 1, 2, 0]]).expand(2, 6)
    tables = {}
    if model.rope is not None:
        tables = dict(zip(("freqs_cos", "freqs_sin"), model.rope.tables_at(positions), strict=True))
    hidden = model.layers.token_embedder(x)
    for block, retriever in zip(model.layers.blocks, model.layers.symbol_retrievers, strict=True):
        symbols = retriever(hidden, positions=positions)
        hidden = block(hidden, symbols, **tables, padding_mask=real, segments=segments)
    wanted = model.layers.final_out(model.layers.norm(hidden))
    found = model(x, padding_mask=real, segments=segments).logits
    language.close(found[real], wanted[real], 1e-12)


def test_a_block_that_is_made_to_look_ahead_does():
    """Models say only that what all of their blocks hide is hidden."""
    model, x = language.lm("transformer"), language.tokens(2, 6)
    before = model(x).logits
    for block in model.layers.blocks:
        block.causal = False
    changed = torch.cat([x[:, :-1], (x[:, -1:] + 1) % language.VOCAB], dim=1)
    assert (model(x).logits[:, 0] - before[:, 0]).abs().max() > 1e-6
    assert (model(changed).logits[:, 0] - model(x).logits[:, 0]).abs().max() > 1e-6
