"""The lab: data, training, sweeps, experiments, costs, the explorer, and the command ``dat``."""
