"""Labels of tokens: words at their last tokens, whatever the tokenizer makes of them."""

import torch

from dual_attention.generation.tokenizer import BytePairTokenizer, ByteTokenizer
from dual_attention.model_analysis.labels import LabelledText, label_same_words, label_tokens, near, same_token
from tests.support.refusals import refused


def test_words_stand_at_their_last_bytes():
    texts = [label_same_words("né a né"), label_same_words("b b")]
    found = label_tokens(texts, "same word", ByteTokenizer(), 12)
    assert found.lengths.tolist() == [9, 3]
    assert found.tokens[1].tolist() == [98, 32, 98] + [256] * 9
    assert found.labels[0].nonzero().tolist() == [[8, 2]]  # "é" has two bytes
    assert found.mask[0].nonzero().tolist() == [[4, 2], [8, 2], [8, 4]]
    assert found.labels[1].nonzero().tolist() == found.mask[1].nonzero().tolist() == [[2, 0]]
    both = label_tokens(texts, "same word", ByteTokenizer(), 12, causal=False)
    assert both.labels[0].nonzero().tolist() == [[2, 8], [8, 2]]
    assert torch.equal(both.mask, both.mask.mT)


def test_tokens_of_several_bytes_and_texts_that_are_cut():
    merges = {bytes((n,)): n for n in range(256)} | {b" c": 256, b" ca": 257, b"t ": 258}
    tokenizer = BytePairTokenizer.of_ranks(merges)
    text = label_same_words("a cat cat a")
    ids = tokenizer.encode(text.text)
    ends = [len(tokenizer.decode(ids[: n + 1])) for n in range(len(ids))]
    found = label_tokens([text], "same word", tokenizer, len(ids))
    (i, j), (k, m) = found.labels[0].nonzero().tolist()
    assert [ends[n] for n in (j, i)] == [5, 9] and [ends[n] for n in (m, k)] == [1, 11]
    cut = label_tokens([text], "same word", tokenizer, i)
    assert not cut.labels.any() and cut.lengths.tolist() == [i]


def test_words_of_no_group_do_not_count():
    text = LabelledText("a b c d", ((0, 1), (2, 3), (4, 5), (6, 7)), {"k": frozenset({(3, 2)})}, {"k": (0, -1, 1, 1)})
    found = label_tokens([text], "k", ByteTokenizer(), 7)
    assert found.mask[0].nonzero().tolist() == found.labels[0].nonzero().tolist() == [[6, 4]]


def test_same_and_near():
    assert same_token(torch.tensor([[3, 1, 3]])).nonzero().tolist() == [[0, 0, 2], [0, 2, 0]]
    assert near(4, 1).int().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert near(4, 9).sum() == 12


test_bad_input = refused(
    (lambda: label_tokens([label_same_words("a")], "synset", ByteTokenizer(), 4),
     "label: expected one of same word, got 'synset'"),
    (lambda: label_tokens([], "synset", ByteTokenizer(), 4), "texts: expected at least one"),
    (lambda: near(4, 0), "k: expected at least 1, got 0"),
)  # fmt: skip
