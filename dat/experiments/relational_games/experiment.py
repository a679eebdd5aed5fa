"""Relational Games as an experiment: its runs, its learning curves, and their figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...data.relational_games import OBJECT_SETS, TASKS, contact_sheet, generator_version
from ...sweeps.published import Published
from ...sweeps.table import CurvesFigure
from ...training.configs import check_integers, check_seed
from ...training.experiment import Prepared
from .config import TASK_NAMES, RelationalGamesConfig
from .grid import GamesGrid
from .image_games import ImageGames, images_table, prepare_images
from .problem import load_splits
from .published import published_curve, published_losses
from .scales import SCALES

TEST_SETS = {
    "test": "pentominoes, as in training",
    "hexominoes": "hexominoes, never trained on",
    "stripes": "stripes, never trained on",
}
"""Evaluation sets of the final accuracies: pentominoes, and the two object sets held out of training."""


SEEDING = 2
"""Version of what is drawn from the seed of a run: 1 had the same initial weights for all tasks."""


@dataclass(frozen=True)
class SheetOptions:
    """A contact sheet: examples of every class of every task."""

    out: str
    """Picture (PNG) to write; it is not overwritten."""
    tasks: tuple[str, ...] = TASKS
    """Tasks; there are also colour_and_or_shape and left_of."""
    objects: tuple[str, ...] = OBJECT_SETS
    """Object sets."""
    per_class: int = 4
    """Examples of each class."""
    seed: int = 0
    """Seed of the images."""

    def __post_init__(self) -> None:
        check_integers(self, "", "per_class", most=100)
        check_seed(self)

    def draw(self) -> None:
        """Draw it."""
        contact_sheet(Path(self.out), **{name: value for name, value in vars(self).items() if name != "out"})


def published(measure: str, panel: str, curve: str) -> Sequence[Published]:
    """Points of a published curve of accuracies, in percent, or of losses."""
    if measure.endswith("_loss"):
        return published_losses(measure.removesuffix("_loss"), panel, curve)
    return published_curve(measure, panel, curve)


class RelationalGames(ImageGames[RelationalGamesConfig]):
    """Figures 2, 7, 8 and 11 of arXiv 2405.16727."""

    name = "relational-games"
    title = "Relational Games"
    about: ClassVar = {
        "train": "Train one model on one Relational Games task, in a new run folder.",
        "reproduce": "Learning curves on Relational Games. The defaults are the published grid.",
        "data": "Draw a contact sheet: examples of every class of every task.",
    }
    Config = RelationalGamesConfig
    Grid = GamesGrid
    scales = SCALES
    Sheet = SheetOptions
    table = images_table(
        TASK_NAMES,
        set_title="objects",
        set_names={"val": "pentominoes, validation", **TEST_SETS, "test": "pentominoes, test"},
        measures=TEST_SETS,
        tabled={f"{name}_loss": f"cross-entropy: {text}" for name, text in TEST_SETS.items()},
        provenance={"generator": 1, "independent_share": None, "seeding": 1, "epochs": 50, "batch_size": 512},
        run_in_words="{model} on {task}, {n_train:,} images, seed {seed}".format_map,
        figures={
            "learning_curves.png": CurvesFigure("Relational Games: sample efficiency", ("test",)),
            "heldout.png": CurvesFigure("Relational Games: objects never seen in training", ("hexominoes", "stripes")),
        },
        published=published,
        adjusted="test images seen in training",
    )

    def identity(self, config: RelationalGamesConfig) -> dict[str, Any]:
        """The axes, and how a run was made.

        That is the version of the generator of the task's images (0: official ones), a share that is given,
        the version of what is drawn from the seed, and the length of training.
        """
        identity, data = super().identity(config), config.data
        identity["generator"] = generator_version(config.task) if data.official_folder is None else 0
        if data.independent_share is not None:
            identity["independent_share"] = data.independent_share
        return identity | {"seeding": SEEDING, "epochs": config.loop.epochs, "batch_size": config.loop.batch_size}

    def prepare(self, config: RelationalGamesConfig, *, cache: Path, run: Path | None = None) -> Prepared:
        return prepare_images(config, lambda: load_splits(config))

    def headline(self, result: Mapping[str, Any]) -> str:
        return f"{result['task']}, {result['n_train']:,} examples: {result['model']}"
