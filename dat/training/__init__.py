"""Training: one run of any experiment.

An :class:`~.experiment.Experiment` prepares a :class:`~.problem.Problem` (a model, batches and a loss) from a
configuration; :mod:`.runs` starts, resumes and evaluates it in a run folder; :mod:`.loop` trains it. Experiments are
in :mod:`dat.experiments`. Importing these modules needs torch only; what the extra ``train`` installs is
imported where it is used.
"""
