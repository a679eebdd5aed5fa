"""The experiment of the example with networks that cannot be trained: killed, as a system does that has run out of
memory, or failing (one of them late), or without their data."""

import os
import signal
import time

from examples.my_experiment import Sums


class Doomed(Sums):
    name = "doomed"

    def prepare(self, config, *, cache, run=None):
        if config.kind == "deep":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().prepare(config, cache=cache, run=run)


class Failing(Sums):
    name = "failing"

    def prepare(self, config, *, cache, run=None):
        if config.kind == "linear":
            raise RuntimeError(f"no network of {config.n_train} examples")
        return super().prepare(config, cache=cache, run=run)


class Alike(Sums):
    name = "alike"

    def prepare(self, config, *, cache, run=None):
        raise RuntimeError("no network")


class Delayed(Alike):
    """The first cell fails last, of those that run at the same time."""

    name = "delayed"

    def prepare(self, config, *, cache, run=None):
        time.sleep(3 if config.kind == "linear" and config.n_train == 8 else 0)
        return super().prepare(config, cache=cache, run=run)


class Lacking(Sums):
    """One kind of network lacks its data: the one that an environment variable names."""

    name = "lacking"

    def prepare(self, config, *, cache, run=None):
        if config.kind == os.environ["LACKING"]:
            raise FileNotFoundError("data.folder: expected numbers.txt, found nothing")
        return super().prepare(config, cache=cache, run=run)
