import pytest
import torch
from torch import nn

from dual_attention.mechanisms import (
    Additive,
    AttentionViaAttention,
    HierarchicalAttention,
    KeyOnly,
    MultiRepresentationAttention,
    Sigmoid,
    SocialContextualAttention,
    Sparsemax,
)
from tests.support.refusals import refused
from tests.support.tensors import close, float64, normal

B, N, T, D = 2, 3, 4, 5
TEXT, USER = torch.randn(B, N, T, D), torch.randn(N, 3)


# Hierarchical


def a_text():
    mask = torch.rand(B, N, T) < 0.7
    mask[:, :, 0] = True
    mask[0, 1] = False  # a sentence of padding
    return normal(B, N, T, D), mask


def test_levels():
    m = float64(HierarchicalAttention(D))
    words, mask = a_text()
    output = m(words, mask=mask)
    sentences = torch.stack(
        [m.levels[0](None, words[:, n], padding_mask=mask[:, n]).context[:, 0] for n in range(N)], 1
    )
    assert (sentences[0, 1] == 0).all()
    close(output.context, m.levels[1](None, sentences, padding_mask=mask.any(-1)).context[:, 0])
    assert output.weights[0].shape == (B, N, T) and output.weights[1].shape == (B, N)
    assert output.weights[1][0, 1] == 0 and (output.weights[0][~mask] == 0).all()


def test_padding_encoders_queries_and_levels():
    encoder = nn.Linear(D, D).double()
    m = float64(HierarchicalAttention(D, encoders=[encoder], align=Sparsemax()))
    words, mask = a_text()
    output = m(words, mask=mask)
    longer = torch.cat([words, 9 * normal(B, N, 2, D)], 2)
    longer = torch.cat([longer, 9 * normal(B, 1, T + 2, D)], 1)
    more = torch.zeros(B, N + 1, T + 2, dtype=torch.bool)
    more[:, :N, :T] = mask
    close(m(longer, mask=more).context, output.context)
    assert (m(words[:, :, :0]).context.isfinite()).all() and (m(words[:, :0]).context == 0).all()

    asked = float64(HierarchicalAttention(D, score=[Additive(2, D), Additive(2, D), KeyOnly(D)]))
    deep, query = normal(B, 2, N, T, D), normal(B, 2)
    result = asked(deep, query=query)
    assert [w.shape for w in result.weights] == [(B, 2, N, T), (B, 2, N), (B, 2)]
    alone = asked(deep[1:], query=query[1:])
    close(result.context[1:], alone.context)
    changed = asked(deep, query=query + 1)
    assert not torch.allclose(changed.context, result.context)


test_bad_input = refused(
    (lambda: HierarchicalAttention(D, score=[]), "score"),
    (lambda: HierarchicalAttention(D, encoders=[nn.Identity(), nn.Identity()]), "encoders"),
    (lambda: HierarchicalAttention(D)(torch.randn(B, T, D)), "2 levels"),
    (lambda: HierarchicalAttention(D)(TEXT, mask=torch.ones(B, N, T)), TypeError, "boolean"),
    (lambda: HierarchicalAttention(D)(TEXT, mask=torch.ones(B, N, dtype=torch.bool)), "mask"),
    (lambda: SocialContextualAttention(3, D, ["a", "b"])(USER, {"a": TEXT[0]}), "groups: expected the aspects"),
    (lambda: SocialContextualAttention(3, D, ["a"])(USER, {"a": TEXT[0]}, masks={"b": None}), "masks"),
    *(
        (lambda wrong=wrong: SocialContextualAttention(3, D, ["posts", wrong]), f"^aspects: .* names .* {wrong!r}$")
        for wrong in ("items", "training", "a.b", "")
    ),
    (lambda: SocialContextualAttention(3, D, ["a", "b", "a"]), r"^aspects: .* that differ, got \['a', 'b', 'a'\]$"),
    (lambda: MultiRepresentationAttention([3, 7], D)([TEXT[..., :3]]), "expected 2"),
    (lambda: MultiRepresentationAttention([3, 7], D)([TEXT[..., :3]] * 2), r"representations\[1\]"),
)


# Social


def test_social_contextual():
    m = float64(SocialContextualAttention(3, D, ["uploads", "friends", "owner"]))
    user = normal(B, 3)
    groups = {"uploads": normal(B, 4, D), "friends": normal(B, 2, D), "owner": normal(B, 1, D)}
    masks = {"uploads": torch.tensor([[True, True, False, False], [True] * 4]), "friends": torch.zeros(B, 2).bool()}
    output = m(user, groups, masks=masks)
    assert (output.weights["owner"] == 1).all()
    assert (output.aspect_weights[:, 1] == 0).all() and output.context.shape == (B, D)
    close(output.aspect_weights.sum(-1), torch.ones(B).double())
    uploads = m.elements["uploads"](user[:, None], groups["uploads"], padding_mask=masks["uploads"]).context
    summaries = torch.cat([uploads, torch.zeros_like(uploads), groups["owner"]], 1)
    present = torch.tensor([[True, False, True]]).expand(B, -1)
    close(output.context, m.aspects(user[:, None], summaries, padding_mask=present).context[:, 0])


# Attention via attention


def test_attention_via_attention():
    m = float64(AttentionViaAttention(2, D, 3))
    q, words, characters = normal(B, 1, 2), normal(B, N, D), normal(B, 9, 3)
    word_mask = torch.rand(B, N) < 0.7
    output = m(q, words, characters, upper_mask=word_mask)
    above = m.upper(q, words, padding_mask=word_mask).context
    close(output.context[..., :D], above)
    close(output.context[..., D:], m.lower(torch.cat([q, above], -1), characters).context)
    assert output.upper_weights.shape == (B, 1, N) and output.lower_weights.shape == (B, 1, 9)


# Representations


@pytest.mark.parametrize("align", [None, Sigmoid])
def test_representations(align):
    m = float64(MultiRepresentationAttention([3, 7], D, align=None if align is None else align()))
    first, second = normal(B, N, 3), normal(B, N, 7)
    mask = torch.ones(B, N, 2, dtype=torch.bool)
    mask[0, 0, 1] = mask[1, 1, 0] = False
    mask[1, 2] = False
    output = m([first, second], mask=mask)
    t = torch.stack([m.projections[0](first), m.projections[1](second)], -2)
    close(output.context, (output.weights[..., None] * t).sum(-2))
    assert (output.weights[~mask] == 0).all() and (output.context[1, 2] == 0).all()
    if align is None:
        close(output.context[0, 0], t[0, 0, 0])
        close(m([first, second]).weights, (t @ m.attention.score.weight[0]).softmax(-1))
