"""Training: one loop, typed configurations, checkpoints, metrics and plots, shared by every experiment.

The loop (:mod:`.loop`) sees an experiment as a :class:`~.problem.Problem` (a model, batches and a loss). What is
special to one experiment lies in a sub-package of its own, such as :mod:`.relational_games`. Importing these modules
needs torch alone; what the extra ``train`` installs is imported where it is used.
"""
