"""Message share, rank, asymmetry and contributions of relations, against numpy and against loops."""

import numpy as np
import pytest
import torch

from dual_attention.model_analysis.measures import (
    message_share,
    relation_asymmetry,
    relation_contributions,
    relation_rank,
)


def test_message_share_is_a_ratio_of_norms():
    relational = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]])
    symbolic = torch.tensor([[0.0, 5.0], [1.0, 0.0], [0, 0]])
    share = message_share(relational, symbolic)
    torch.testing.assert_close(share[:2], torch.tensor([0.5, 0.0], dtype=torch.float64))
    assert share[2].isnan()


def test_rank_counts_directions():
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(4, 30, 30, 1, generator=generator)
    assert relation_rank(torch.cat([one, 2 * one, -one], -1)).item() == pytest.approx(1.0)
    independent = torch.randn(4, 50, 50, 5, generator=generator)
    assert relation_rank(independent).item() == pytest.approx(5.0, abs=0.02)
    assert relation_rank(torch.ones(1, 3, 3, 4)).item() == 0.0


def test_rank_agrees_with_numpy_under_a_mask():
    relations, mask = torch.randn(2, 5, 7, 4) @ torch.randn(4, 4), torch.rand(2, 5, 7) < 0.5
    values = np.linalg.eigvalsh(np.cov(relations[mask].numpy().T.astype(float), bias=True))
    assert relation_rank(relations, mask).item() == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_asymmetry_of_symmetric_antisymmetric_and_unrelated_relations():
    r = torch.randn(3, 40, 40, generator=torch.Generator().manual_seed(0))
    relations = torch.stack([r + r.mT, r - r.mT, r, torch.zeros_like(r)], -1)
    found = relation_asymmetry(relations)
    assert found[0] == 0 and found[1] == float("inf") and found[3].isnan()
    assert found[2].item() == pytest.approx(1.0, abs=0.05)
    # Wherever one direction of a pair does not count, neither does the other.
    mask = torch.rand(3, 40, 40) < 0.8
    both = (mask & mask.mT).numpy()
    values = r.double().numpy()
    wanted = np.linalg.norm((values - values.transpose(0, 2, 1))[both])
    wanted /= np.linalg.norm((values + values.transpose(0, 2, 1))[both])
    assert relation_asymmetry(relations, mask)[2].item() == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_contributions_are_norms_of_what_is_written(dtype):
    """Also where weights are narrower than relations, as in a model in float16."""
    b, h, n, m, r, w, d = 2, 3, 4, 5, 2, 6, 7
    relations, attention = torch.randn(b, n, m, r).double(), torch.rand(b, h, n, m).to(dtype)
    wr, wo = torch.randn(h, w, r).double(), torch.randn(d, h * w).double()
    written = torch.stack([(wo[:, k * w : (k + 1) * w] @ wr[k]).T for k in range(h)])
    found = relation_contributions(relations, attention, written)
    wanted = torch.zeros(b, n, m, r).double()
    for index in np.ndindex(b, n, m, r):
        example, i, j, relation = index
        heads = [attention[example, k, i, j] * relations[index] * wr[k, :, relation] for k in range(h)]
        wanted[index] = (wo @ torch.cat(heads)).norm()
    torch.testing.assert_close(found, wanted)
