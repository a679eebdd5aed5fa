"""Image classification of emoji: trained on pictures of one vendor, measured on those of another and of other emoji."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dat.data.images import LabelledImages, find_pictures, split_images
from dat.experiments.images.config import ImageConfig, ImageSources
from dat.experiments.images.examples import NormalisedImages
from dat.experiments.images.experiment import ImageClassification
from dat.experiments.images.grid import ImageGrid
from dat.sweeps.grid import Cell
from dat.sweeps.table import CurvesFigure
from dat.training.experiment import Prepared

MEASURES = {
    "hand": "emoji trained on, by another vendor",
    "test": "other emoji, by the same vendor",
    "both": "other emoji, by another vendor",
}


@dataclass(frozen=True, kw_only=True)
class EmojiConfig(ImageConfig):
    """One run: train a model to classify emoji of one vendor and measure it on another's, and on other emoji."""

    experiment: str = "emoji"  # pyright: ignore[reportIncompatibleVariableOverride] # one of a file, named at will
    """Experiment of the run."""


@dataclass(frozen=True)
class EmojiGrid(ImageGrid):
    """Models on pictures in a folder that the study's ``pictures.py`` wrote."""

    def run_config(self, cell: Cell) -> EmojiConfig:
        keys: dict[str, Any] = vars(super().run_config(cell))
        return EmojiConfig(**{**keys, "experiment": EmojiConfig.experiment})


def check_identities(root: Path) -> None:
    """Compare the file names of the parts of a folder, which are those of emoji.

    Raises:
        ValueError: an emoji is trained and tested on, or has no picture by the other vendor.
    """
    whole = find_pictures(str(root))
    hand, both = (find_pictures(str(root / part)).train for part in ("hand", "both"))
    names = [
        {(label, path.name) for label, paths in (part or {}).items() for path in paths}
        for part in (whole.train, hand, whole.test, both)
    ]
    for here, there, one, other in ((*names[:2], "train", "hand"), (*names[2:], "test", "both")):
        if alone := sorted(here ^ there):
            raise ValueError(
                f"data.folder: expected the emoji of {one} in {other} in {root}, not so {'/'.join(alone[0])}"
            )
    emoji = [{name for _, name in part} for part in names]
    if leaked := sorted(emoji[0] & emoji[2]):
        raise ValueError(f"data.folder: expected other emoji in test than in train in {root}, got {leaked[0]} in both")


def by_the_other_vendor(data: ImageSources, n_train: int, seed: int) -> dict[str, LabelledImages]:
    """Pictures by the other vendor: ``hand``, of the emoji that a seed trains on, and ``both``, of the test emoji.

    Both vendors' pictures have the same names, so a seed puts them into the same order.
    """
    sizes = {"hand": (n_train, data.n_val), "both": (data.tested("folder"), 0)}
    return {
        part: split_images(
            "folder",
            n_train=n,
            n_val=n_val,
            n_test=0,
            seed=seed,
            folder=str(Path(data.folder or "") / part),
            size=data.image_size,
        )["train"]
        for part, (n, n_val) in sizes.items()
    }


class Emoji(ImageClassification):
    """Classification of emoji by a new hand."""

    name = "emoji"
    title = "emoji by another hand"
    about: ClassVar = {
        "train": "Train one model to classify emoji of one vendor, in a new run folder.",
        "reproduce": "Accuracy on emoji by another vendor and on other emoji. Cells that are done are skipped.",
    }
    Config = EmojiConfig
    Grid = EmojiGrid
    table = replace(
        ImageClassification.table,
        measures=MEASURES,
        tabled={},
        figures={"accuracy.png": CurvesFigure("Emoji", tuple(MEASURES))},
        published=None,
    )

    def prepare(self, config: Any, *, cache: Path, run: Path | None = None) -> Prepared:
        """The run of a folder, measured on its parts ``hand`` and ``both``, too."""
        data = config.data
        root = Path(data.folder or "")
        ready = super().prepare(config, cache=cache, run=run)
        check_identities(root)
        about = data.about("folder")
        beside = by_the_other_vendor(data, data.trained, config.data_seed)
        sets = {name: NormalisedImages(*found, about.mean, about.std, ready.device) for name, found in beside.items()}
        problem = replace(ready.problem, evaluation={**ready.problem.evaluation, **sets})
        return replace(ready, problem=problem)
