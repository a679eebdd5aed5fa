"""A day on a GPU: what ``benchmarks/gpu_day.py`` does, one file a step.

===================  ==================================================================================
:mod:`.main`         the command: options, the steps in order, exit status
:mod:`.plan`         a step as data: phases of items, each measured once
:mod:`.running`      a step in processes of its own, within its minutes
:mod:`.process`      such a process
:mod:`.record`       results of a step in a file, written as they come
:mod:`.observing`    which kernels ran, utilisation of the matrix units
:mod:`.right`, :mod:`.rival`, :mod:`.versus`, :mod:`.slices`, :mod:`.parts`, :mod:`.decode`  the steps
===================  ==================================================================================
"""
