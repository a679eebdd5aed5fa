"""Answer questions about pictures: by co-attention, words say which cell to look at, and cells which words matter.

python examples/co_attention.py

A picture has nine cells, three of them with a shape in one of four colours; no colour or shape is there twice. "What
colour is the circle" and "what shape is the red one" need both inputs.
"""

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dual_attention.mechanisms import ParallelCoAttention

COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
SHAPES = {
    "square": "##### ##### ##### ##### #####",
    "frame": "##### #...# #...# #...# #####",
    "cross": "..#.. ..#.. ##### ..#.. ..#..",
    "circle": ".###. ##### ##### ##### .###.",
}
ANSWERS = [*COLOURS, *SHAPES]
QUESTIONS = [f"what shape is the {colour} one" for colour in COLOURS] + [f"what colour is the {s}" for s in SHAPES]
WORDS = ["", *sorted({word for question in QUESTIONS for word in question.split()})]  # the first is padding
TOKENS = torch.tensor([[WORDS.index(word) for word in [*question.split(), ""][:6]] for question in QUESTIONS])

INK = torch.tensor([[float(pixel == "#") for pixel in shape.replace(" ", "")] for shape in SHAPES.values()])
DRAWN = torch.einsum("sp,cr->cspr", INK, torch.tensor([*COLOURS.values()], dtype=torch.float32)).flatten(2)
THREE_OF_FOUR = torch.tensor([*itertools.permutations(range(4), 3)])


def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cells of pictures ``(n, 9, 75)``; words of questions ``(n, 6)``; answers and the cells asked about ``(n,)``."""
    colours, shapes = (THREE_OF_FOUR[torch.randint(24, (n,), generator=generator)] for _ in range(2))
    cells = torch.rand(n, 9, generator=generator).argsort(-1)[:, :3]
    pictures, rows = torch.zeros(n, 9, DRAWN.shape[-1]), torch.arange(n)
    pictures[rows[:, None], cells] = DRAWN[colours, shapes]
    asked, by_colour = torch.randint(3, (n,), generator=generator), torch.rand(n, generator=generator) < 0.5
    colour, shape, cell = (of[rows, asked] for of in (colours, 4 + shapes, cells))
    return pictures, TOKENS[torch.where(by_colour, colour, shape)], torch.where(by_colour, shape, colour), cell


class Answer(nn.Module):
    """Scores of the answers ``(n, 8)``, and the weights of the cells ``(n, 9)``."""

    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.see = nn.Sequential(nn.Linear(DRAWN.shape[-1], d), nn.ReLU(), nn.Linear(d, d), nn.LayerNorm(d))
        self.word = nn.Embedding(len(WORDS), d)
        self.attend = ParallelCoAttention(d, d)
        self.say = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, len(ANSWERS)))

    def forward(self, pictures: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        output = self.attend(self.see(pictures), self.word(words), mask2=words != 0)
        return self.say(output.concatenated()), output.weights1


def main(steps: int = 500, seed: int = 0) -> dict[str, float]:
    torch.manual_seed(seed)
    model, generator = Answer(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(steps):
        pictures, words, answers, _ = draw(64, generator)
        loss = F.cross_entropy(model(pictures, words)[0], answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    pictures, words, answers, cell = draw(2000, generator)
    with torch.no_grad():
        scores, on_cells = model(pictures, words)
        of_another = model(pictures.roll(1, 0), words)[0]
    right, guessed = ((s.argmax(-1) == answers).float().mean().item() for s in (scores, of_another))
    looked = on_cells[torch.arange(len(cell)), cell].mean().item()
    print(f"right on new pictures: {right:.1%}; shown another picture: {guessed:.1%} (chance 25%)")
    print(f"attention to the cell asked about: {looked:.0%} (even weights: 11%)")
    for tokens, answer in zip(words[:3], scores[:3].argmax(-1), strict=True):
        print(" ".join(WORDS[token] for token in tokens).strip() + "?", ANSWERS[answer])
    return {"right": right, "another picture": guessed, "looked": looked}


if __name__ == "__main__":
    main()
