"""Architectures composed of several attentions, in the paper's own form where one attention cannot say it.

===================  ==================================================================================================
``coattention``      two inputs attend to each other, or a target and the contexts to its left and right
``hierarchical``     words, then sentences; named aspects; one level through another; several representations
``hops``             a query attends several times, each time changed by what it received
``location_aware``   each query sees the weights of the query before it
``directional``      self-attention without oneself, in one direction, and among drawn objects
``capsules``         one learned query for each class
``differential``     weights that are the difference of two softmaxes
``simplicial``       weights of pairs of senders
``latent``           keys and values from one narrow vector of each sender
===================  ==================================================================================================
"""
