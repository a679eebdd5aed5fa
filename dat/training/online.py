"""Names on the network that runs ask for. A run folder alone is not enough: the user must have said so, too.

So is code, see :mod:`dat._own_code`: opening a stranger's run is safe.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from dual_attention._base.words import listed
from dual_attention.checkpoints.files import ADAPTER

from .configs import RunConfig
from .experiment import AnyExperiment
from .run_folder import RunFolder

OPTION = "--online"
"""Option by which the user lets a run ask for what its configuration names."""
Said: TypeAlias = Mapping[str, str] | None
"""Names that the user has given beside the folder of a run, as :func:`network_names` gives it; None stands for all."""
NOTHING: Said = MappingProxyType({})
OPTION_HELP = "Let the run ask the network for what its config.yaml names: a tracker, weights or a data set on the hub."


def network_names(experiment: AnyExperiment, config: RunConfig, *, begun: bool = False) -> dict[str, str]:
    """Names on the network that training asks for, by their keys.

    Args:
        begun: whether there is a checkpoint, so that no other weights are taken.
    """
    found, weights, output = dict(experiment.online(config)), config.loop.weights_from, config.output
    local = weights is None or (Path(weights).is_dir() and not (Path(weights) / ADAPTER).is_file())
    if not (begun or local):
        found["loop.weights_from"] = str(weights)
    if output.tracker is not None:
        found["output.tracker"] = f"{output.tracker}{f' (project {output.project})' if output.project else ''}"
    return found


def check_said(folder: RunFolder, names: Mapping[str, str], said: Said) -> None:
    """Raise ``ValueError`` naming the option, if a run asks for something that the user has not named."""
    if said is not None and (unsaid := [f"{key} {name}" for key, name in names.items() if said.get(key) != name]):
        raise ValueError(
            f"{folder.path}: names {listed(unsaid)}, for which the network is asked only if you say so (read "
            f"{folder.config.name} first): {OPTION}"
        )
