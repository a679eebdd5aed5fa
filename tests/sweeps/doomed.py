"""The experiment of :mod:`.toy`, whose deep networks are killed, as a system does that has run out of memory."""

import os
import signal

from .toy import Toy


class Doomed(Toy):
    name = "doomed"

    def prepare(self, config, *, cache, run=None):
        if config.kind == "deep":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().prepare(config, cache=cache, run=run)
