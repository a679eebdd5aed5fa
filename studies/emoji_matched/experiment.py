"""Games between emoji that pixels do not tell apart: grey, of equal mean and spread, beside others as far away."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from dat.data.relational_games.dataset import GameImages
from dat.data.relational_games.render import render_tiles
from dat.data.relational_games.tasks import ObjectSource, get_task
from dat.experiments.relational_games.image_games import prepare_images
from dat.training.experiment import Prepared
from dual_attention._base.digests import stream_seed
from studies.digit_games.digits import featureless_objects
from studies.emoji_games.experiment import EmojiDataConfig, EmojiGames, EmojiGamesConfig, EmojiGamesGrid, drawings

MatchedTask = Literal["same", "occurs"]
MEAN, SPREAD = 128.0, 40.0
"""Mean and standard deviation of the grey values of every drawing, before it is cut to 1 to 255."""
OTHERS = 3
"""Partners of an emoji: others that may stand beside it."""
TOLERANCE = 0.05
"""Most by which the distance of an emoji from a partner differs from that to itself by the other vendor, as a share."""
FORBIDDEN = 1e3


@dataclass(frozen=True, kw_only=True)
class EmojiMatchedConfig(EmojiGamesConfig):
    """One run: train a model on one task between emoji that pixels do not tell apart."""

    experiment: str = "emoji-matched"
    """Experiment of the run."""

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or super().run_name.replace("emoji", "emoji-matched", 1)


@dataclass(frozen=True)
class EmojiMatchedGrid(EmojiGamesGrid):
    """Every model on every task, from several seeds."""

    out: str = "runs/emoji-matched"
    tasks: tuple[MatchedTask, ...] = ("same", "occurs")
    """Tasks."""

    run = EmojiMatchedConfig


def levelled(cells: Tensor) -> Tensor:
    """Drawings, (..., 3, 12, 12) uint8, in grey, with equal mean and spread; no pixel is as black as empty cells."""
    grey = cells.double().mean(-3, keepdim=True)
    centred = grey - grey.mean((-2, -1), keepdim=True)
    scale = grey.std((-2, -1), correction=0, keepdim=True).clamp(min=1e-6)
    return (MEAN + SPREAD * centred / scale).round().clamp(1, 255).to(torch.uint8).expand_as(cells).contiguous()


def partners(drawn: Tensor, again: Tensor, identities: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The emoji that have partners, (k,), and these, (k, OTHERS).

    From a drawing of an emoji, its partners by the other vendor are as far as it is itself by the other vendor, within
    the tolerance. Each emoji is the partner of as many as have it as a twin, so how often it is seen tells nothing.
    Emoji without such partners are left out.

    Args:
        drawn, again: the emoji by one vendor and by the other, (m, 3, 12, 12).
    """
    distances = torch.cdist(drawn.double().flatten(1), again.double().flatten(1)).numpy()
    names, keep = np.array(identities), np.arange(len(identities))
    while True:
        own = distances[keep, keep].clip(min=1e-6)
        gaps = abs(distances[np.ix_(keep, keep)] / own[:, None] - 1)
        gaps[names[keep, None] == names[None, keep]] = FORBIDDEN
        worst, chosen = np.zeros(len(keep)), []
        for _ in range(OTHERS):
            rows, columns = linear_sum_assignment(gaps)
            worst = np.maximum(worst, gaps[rows, columns])
            gaps[rows, columns] = FORBIDDEN
            chosen.append(keep[columns])
        bad = worst > TOLERANCE
        if not bad.any():
            return torch.from_numpy(keep), torch.from_numpy(np.stack(chosen, 1))
        keep = keep[worst < max(TOLERANCE, np.median(worst[bad]))]


@lru_cache(maxsize=4)
def matched(folder: str, seed: int) -> dict[bool, tuple[Tensor, list[tuple[Tensor, Tensor]]]]:
    """Drawings and partners in both directions: of the half of identities trained on (False), and of the other."""
    cells, identities = drawings(folder)
    cells, order = levelled(cells), sorted({*identities})
    generator = torch.Generator().manual_seed(stream_seed("emoji-matched", seed))
    held = {order[i] for i in torch.randperm(len(order), generator=generator)[: len(order) // 2].tolist()}
    found = {}
    for unseen in (False, True):
        own = torch.tensor([(identity in held) == unseen for identity in identities])
        names = [identity for identity in identities if (identity in held) == unseen]
        found[unseen] = cells[:, own], [partners(cells[v, own], cells[1 - v, own], names) for v in (0, 1)]
    return found


def matched_scenes(task: str, n: int, cells: Tensor, pairs: Sequence[tuple[Tensor, Tensor]], seed: int) -> GameImages:
    """Images of a task: where a rule has another object than the first, a partner of the first stands.

    Args:
        cells: drawings by vendor and emoji, (2, m, 3, 12, 12).
        pairs: by the vendor of the first object, what :func:`partners` finds.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(n, generator=generator) % 2
    asked = torch.zeros_like(labels)
    layout = get_task(task).rule(labels, asked, ObjectSource(featureless_objects(9), generator, 1.0, False))
    there = layout > 0
    place = there.cumsum(1)
    copy = there & (layout == layout[there & (place == 1)].unsqueeze(1))
    slot = (there & ~copy).cumsum(1).sub(1).clamp(min=0)
    vendor = torch.randint(2, (n, 1), generator=generator)
    share, order = (torch.rand(n, k, generator=generator) for k in (1, OTHERS))
    drawn = torch.empty_like(layout)
    for v, (members, others) in enumerate(pairs):
        row = (share * len(members)).long()
        beside = others[row.squeeze(1)].gather(1, order.argsort(1)).gather(1, slot)
        drawn = torch.where(vendor == v, torch.where(copy, members[row], beside), drawn)
    tiles = torch.cat([torch.zeros_like(cells[0, :1]), *cells])
    scenes = 1 + (vendor ^ (place > 1)) * cells.shape[1] + drawn
    return GameImages(render_tiles(torch.where(there, scenes, 0), tiles), labels, asked)


@lru_cache(maxsize=2)  # for the models of a sweep that come next on the same task, size and seed
def matched_splits(task: str, data: EmojiDataConfig, seed: int) -> dict[str, GameImages]:
    """The splits of a run; half of the identities, which a seed draws, are never trained on."""
    sizes = {"train": data.n_train, "val": data.n_val, "test": data.n_test, "unseen": data.n_unseen}
    found = matched(data.folder, seed)
    return {
        name: matched_scenes(task, n, *found[name == "unseen"], stream_seed("emoji-matched", name, seed, task))
        for name, n in sizes.items()
    }


class EmojiMatched(EmojiGames):
    """Tasks of Relational Games between things that two hands drew, and that pixels do not tell apart."""

    name = "emoji-matched"
    title = "Relational Games with matched emoji"
    Config = EmojiMatchedConfig
    Grid = EmojiMatchedGrid

    def prepare(self, config: EmojiGamesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        return prepare_images(config, lambda: matched_splits(config.task, config.data, config.data_seed))
