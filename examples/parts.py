"""Parts of your own for `--model.heads`, `--model.rel_score` and `--model.symbols`, see docs/your-part.md."""

import torch
from torch import Tensor, nn

from dual_attention.mechanisms import Align, Score


class Manhattan(Score):
    """Compare two vectors by the distance that a taxi drives."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1)


class SquaredRelu(Align):
    """Weights that grow with the square of what is positive, and sum to one."""

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        weights = (scores.relu().square() + 1e-3) * mask
        return weights / weights.sum(-1, keepdim=True)


class Averaging(nn.Module):
    """Heads that average what they see, each from its own projection."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.values, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        weights = mask / mask.sum(-1, keepdim=True)
        weights = weights.to(x.dtype).expand(len(x), -1, -1, -1)
        return self.out(weights[:, 0] @ self.values(x)), weights


class SignSymbols(nn.Module):
    """A symbol that tells of a token only where its features are positive."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.features = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(8 * self.features(x))
