"""How much an experiment has to say at most."""

from dat.sweeps.experiment import SweptExperiment
from dat.training.experiment import Experiment

MOST = 25
"""Attributes and methods of an experiment, with those of its sweeps."""


def test_an_experiment_has_few_members():
    names = {name for kind in (Experiment, SweptExperiment) for name in (*vars(kind), *kind.__annotations__)}
    members = {name for name in names if not name.startswith("_")}
    assert {"prepare", "table"} <= members and len(members) <= MOST
