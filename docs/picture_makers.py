"""Which command makes each picture of the pages: a table of paths, taken from the tables that the commands draw by."""

import importlib
from functools import cache
from pathlib import Path

from dat.experiments import experiment_named
from dat.sweeps.experiment import swept
from dat.sweeps.study import load_study, with_study

ROOT = Path(__file__).resolve().parent.parent
IMAGES = "docs/images"
GAMES = "studies/relational_games"

SINGLE = {
    f"{IMAGES}/demo/learning_curves.png": "dat demo",
    f"{IMAGES}/demo/relation.png": "dat demo",
    f"{IMAGES}/coordinate-check.png": "python docs/coordinate_check.py",
    "studies/digit_games/images/examples.png": "dat data studies/digit_games/experiment.py",
    "studies/kinship/images/kinship.png": "dat data studies/kinship/experiment.py",
    "studies/matrices/images/matrices.png": "dat data studies/matrices/experiment.py",
    f"{GAMES}/results/rank/rank.png": f"python {GAMES}/rank_of_relations.py",
    f"{GAMES}/results/protocol/protocol.png": f"python {GAMES}/protocol.py",
    "studies/looking_inside/results/games/games.png": "python studies/looking_inside/figures.py",
    "studies/looking_inside/results/language/language.png": "python studies/looking_inside/figures.py",
}
"""Pictures of commands that draw one or two."""


@cache
def makers_of_docs() -> dict[str, str]:
    """The pictures under ``docs/images``, and the commands that make them."""
    gallery, drawings, explorer, relations, terminal = (
        importlib.import_module(name)
        for name in ("make_gallery", "drawings", "explorer_pictures", "relation_pictures", "terminal_pictures")
    )
    return {
        **{f"{IMAGES}/{name}.png": "make gallery" for name in drawings.DRAWINGS},
        **{f"{IMAGES}/gallery/{name}.png": "make gallery" for name in gallery.PICTURES},
        **{
            f"{IMAGES}/explorer/{name}.webp": "python docs/explorer_pictures.py"
            for name in (*explorer.VIEWS, explorer.TWO, *explorer.OF_IMAGES)
        },
        **{f"{IMAGES}/relations/{name}.png": "python docs/relation_pictures.py" for name in relations.NAMES},
        **{f"{IMAGES}/terminal/{name}.svg": "python docs/terminal_pictures.py" for name in terminal.COMMANDS},
    }


@cache
def figures_of_study(file: Path) -> frozenset[str]:
    """Names of the files that ``dat plot --study FILE --against ARM`` draws."""
    study = load_study(file)
    return frozenset(with_study(swept(experiment_named(study.experiment)), study).table.figures) | {"contrasts.png"}


def maker_of(picture: str) -> str | None:
    """The command that makes a picture.

    Args:
        picture: its path in the repository.

    Returns:
        The command, or None if there is none.
    """
    path = Path(picture)
    if made := {**SINGLE, **makers_of_docs()}.get(picture):
        return made
    if path.parts[0] == "studies" and path.parts[2:3] == ("results",):
        file = ROOT / "studies" / path.parts[1] / "study.py"
        if file.is_file() and path.name in figures_of_study(file):
            return f"dat plot --study {file.relative_to(ROOT)}"
    return None
