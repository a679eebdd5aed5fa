"""Relational Games between emoji as an experiment: the same is the same emoji, drawn by another vendor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from dat.data.images.folders import read_picture
from dat.data.relational_games.dataset import GameImages
from dat.data.relational_games.render import CELL_SIZE, render_tiles
from dat.data.relational_games.tasks import ObjectSource, get_task
from dat.experiments.relational_games.config import GamesRunConfig
from dat.experiments.relational_games.image_games import ImageGames, images_table, prepare_images
from dat.sweeps.table import CurvesFigure
from dat.training.experiment import Prepared
from dual_attention._base.digests import stream_seed
from studies._lib.unseen import Sets, TrainedSets, UnseenGrid
from studies.digit_games.digits import featureless_objects
from studies.emoji.experiment import check_identities
from studies.emoji.pictures import HELD_OUT, Emoji

EmojiTask = Literal["same", "occurs", "xoccurs"]
"""Tasks in which only the first object is compared with others, so that one vendor draws it and the other the rest."""
TASKS: tuple[EmojiTask, ...] = ("same", "occurs", "xoccurs")
TEST_SETS = {"test": "emoji trained on", "unseen": "emoji never trained on"}


@dataclass(frozen=True)
class EmojiSets(Sets):
    """Images that are measured, and the pictures of which they are made."""

    folder: str = "runs/emoji/category"
    """Folder that ``python -m studies.emoji.pictures`` wrote."""


@dataclass(frozen=True)
class EmojiDataConfig(TrainedSets, EmojiSets):
    """The images of a run."""


@dataclass(frozen=True, kw_only=True)
class EmojiGamesConfig(GamesRunConfig):
    """One run: train a model on one task between emoji and measure it on these and on emoji that it never saw."""

    experiment: str = "emoji-games"
    """Experiment of the run."""
    task: EmojiTask = "occurs"
    """Task: the relation that the model must recognise."""
    data: EmojiDataConfig = field(default_factory=EmojiDataConfig)
    """Images."""

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return self.output.name or f"emoji-{super().run_name}"


@dataclass(frozen=True)
class EmojiGamesGrid(UnseenGrid):
    """Every model on every task, from several seeds."""

    out: str = "runs/emoji-games"
    tasks: tuple[EmojiTask, ...] = TASKS
    """Tasks."""
    models: tuple[str, ...] = ("transformer-128-h2-matched", "dat-0+2-sym", "dat-0+2-sym-squared-distance", "corelnet")
    """Models, by the names of presets."""
    data: EmojiSets = field(default_factory=EmojiSets)
    """Images."""

    run = EmojiGamesConfig
    images = EmojiDataConfig


@lru_cache(maxsize=1)
def drawings(folder: str) -> tuple[Tensor, list[str]]:
    """Pictures of all emoji by both vendors, ``(2, m, 3, 12, 12)`` uint8, and the identity of each emoji.

    Raises:
        ValueError: if the folder is not one that ``studies.emoji.pictures`` wrote, or a picture is none.
    """
    root = Path(folder)
    check_identities(root)
    vendors = [
        {path.name: path for part in parts for path in (root / part).glob("*/*.png")}
        for parts in (("train", "test"), ("hand", "both"))
    ]
    names = sorted(vendors[0])
    cells = [torch.stack([read_picture(paths[name], CELL_SIZE) for name in names]) for paths in vendors]
    return torch.stack(cells), [Emoji(Path(name).stem.upper(), "", "", ()).identity for name in names]


def emoji_splits(task: str, data: EmojiDataConfig, seed: int) -> dict[str, GameImages]:
    """The splits of a run. Emoji of one identity are trained on together or not at all; a seed draws which.

    Differing emoji are independent draws. The first object of a scene is drawn by one vendor, the others by the other
    one, so objects that are the same never have the same pixels.

    Returns:
        ``{"train": ..., "val": ..., "test": ..., "unseen": ...}``.
    """
    cells, identities = drawings(data.folder)
    order = sorted({*identities})
    generator = torch.Generator().manual_seed(stream_seed("emoji", seed))
    shuffled = torch.randperm(len(order), generator=generator).tolist()
    held = {order[i] for i in shuffled[: round(HELD_OUT * len(order))]}
    unseen = torch.tensor([identity in held for identity in identities])
    sizes = {"train": data.n_train, "val": data.n_val, "test": data.n_test, "unseen": data.n_unseen}
    return {
        name: scenes_of(task, n, cells[:, unseen == (name == "unseen")], stream_seed("emoji", name, seed, task))
        for name, n in sizes.items()
    }


def scenes_of(task: str, n: int, cells: Tensor, seed: int) -> GameImages:
    """Images of a task between emoji: ``cells`` are (2, m, 3, 12, 12), by vendor and emoji."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(n, generator=generator) % 2
    asked = torch.zeros_like(labels)
    count = cells.shape[1]
    source = ObjectSource(featureless_objects(count), generator, 1.0, others_differ=False)
    scenes = get_task(task).rule(labels, asked, source)
    others = (scenes > 0).cumsum(1) > 1
    vendor = torch.randint(2, (n, 1), generator=generator) ^ others
    tiles = torch.cat([torch.zeros_like(cells[0, :1]), *cells])
    return GameImages(render_tiles(torch.where(scenes > 0, scenes + vendor * count, 0), tiles), labels, asked)


@lru_cache(maxsize=2)  # for the models of a sweep that come next on the same task, size and seed
def load_splits(task: str, data: EmojiDataConfig, seed: int) -> dict[str, GameImages]:
    """:func:`emoji_splits`, kept."""
    return emoji_splits(task, data, seed)


class EmojiGames(ImageGames[EmojiGamesConfig]):
    """Tasks of Relational Games between things that two hands drew."""

    name = "emoji-games"
    title = "Relational Games with emoji"
    about: ClassVar = {
        "train": "Train one model on one task between emoji, in a new run folder.",
        "reproduce": "Accuracy between emoji trained on and others. Cells that are done are skipped.",
    }
    Config = EmojiGamesConfig
    Grid = EmojiGamesGrid
    table = images_table(
        TASKS,
        set_title="emoji",
        set_names={"val": "emoji trained on, validation", **TEST_SETS},
        measures=TEST_SETS,
        digests=("data", "loop", "optim"),
        run_in_words="{model} on {task} between emoji, {n_train:,} images, seed {seed}".format_map,
        figures={"emoji.png": CurvesFigure("Relational Games with emoji", tuple(TEST_SETS))},
    )

    def prepare(self, config: EmojiGamesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        return prepare_images(config, lambda: load_splits(config.task, config.data, config.data_seed))

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['task']} between emoji, {result['n_train']:,} examples: {result['model']}"
