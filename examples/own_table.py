"""A DAT and a Transformer on a table with holes: each value that is known is a token, in plain PyTorch.

python examples/own_table.py   # 15 s; the data come with scikit-learn: pip install '.[digits]'
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dual_attention import DualAttnTransformerEncoder


class RowClassifier(nn.Module):
    """Each value of a row becomes a vector of its column plus its amount times another; unknown ones are padding."""

    def __init__(self, n_columns: int, n_classes: int, n_heads_sa: int, n_heads_ra: int, dff: int) -> None:
        super().__init__()
        sizes = {"d_model": 32, "n_layers": 1, "dff": dff, "max_block_size": n_columns, "pos_enc_type": "none"}
        heads = {"n_heads_sa": n_heads_sa, "n_heads_ra": n_heads_ra, "ra_kwargs": {"symmetric_rels": True}}
        self.encoder = DualAttnTransformerEncoder(1, **sizes, **heads)  # symbols are read from a library by attention
        self.column, self.amount = nn.Embedding(n_columns, 32), nn.Embedding(n_columns, 32)
        self.head = nn.Linear(32, n_classes)

    def forward(self, values: Tensor, known: Tensor) -> Tensor:
        """Numbers and booleans (batch, columns) to scores (batch, classes)."""
        tokens = self.column.weight + values[..., None] * self.amount.weight
        hidden = self.encoder(None, embeddings=tokens, padding_mask=known)
        shares = known / known.sum(1, keepdim=True).clamp(min=1)
        return self.head((shares[..., None] * hidden).sum(1))  # the mean of what is known


def split_table(seed: int = 0) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Standardised values, which of them are known, and classes, of rows to train, to validate and to test on."""
    generator = torch.Generator().manual_seed(seed)
    table, answers = map(torch.as_tensor, load_breast_cancer(return_X_y=True))
    rows = torch.randperm(len(table), generator=generator)
    values, classes = table[rows].float(), answers[rows]
    known = torch.rand(values.shape, generator=generator) < 0.3  # as if seven of ten had never been measured
    train, val = slice(340), slice(340, 440)
    values = (values - values[train].mean(0)) / values[train].std(0)  # by what may be looked at
    parts = {"train": train, "val": val, "test": slice(440, None)}
    return {name: (values[part] * known[part], known[part], classes[part]) for name, part in parts.items()}


def accuracy(model: nn.Module, values: Tensor, known: Tensor, classes: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(values, known).argmax(1) == classes).float().mean())


def train(model: nn.Module, data: dict[str, tuple[Tensor, Tensor, Tensor]], epochs: int, lr: float = 3e-3) -> float:
    """Train; the weights of the epoch that is best on the validation set are kept, and measured on the test set."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    best, kept = 0.0, dict(model.state_dict())
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(data["train"][0])).split(34):
            values, known, classes = (part[batch] for part in data["train"])
            optimizer.zero_grad()
            cross_entropy(model(values, known), classes).backward()
            optimizer.step()
        if (found := accuracy(model, *data["val"])) > best:
            best, kept = found, {name: weight.clone() for name, weight in model.state_dict().items()}
    model.load_state_dict(kept)
    return accuracy(model, *data["test"])


MODELS = {"DAT": (2, 2, 64), "Transformer": (4, 0, 112)}
"""Sensory heads, relational heads, and a width of the feed-forward block that makes both as large."""


def main(epochs: int = 8, seeds: int = 3) -> dict[str, list[float]]:
    data = split_table()
    found = {"most frequent class": [float(data["test"][2].float().mean())]}
    for name, (n_heads_sa, n_heads_ra, dff) in MODELS.items():
        found[name] = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = RowClassifier(30, 2, n_heads_sa, n_heads_ra, dff)
            found[name].append(train(model, data, epochs))
        print(f"{name}: {', '.join(f'{share:.3f}' for share in found[name])} of the test rows right")
    print(f"most frequent class: {found['most frequent class'][0]:.3f}")
    return found


if __name__ == "__main__":
    main()
