"""A callback for language models: what the model writes, and how long a step takes.

dat train language --output.callbacks '[examples/callbacks.py:Samples]'
"""

import time

import torch

from dat.training.callbacks import Callback
from dual_attention.generation.tokenizer import load_tokenizer

PROMPT = "The "


class Samples(Callback):
    """After each evaluation a continuation of a prompt, in ``samples.txt`` of the run folder."""

    def __init__(self):
        self.seconds, self.last = [], None

    def on_step(self, run, row):
        now = time.perf_counter()
        if self.last is not None:
            self.seconds.append(now - self.last)
        self.last = now

    def on_evaluation(self, run, row):
        if run.model is None:  # processes share it
            return
        tokenizer = load_tokenizer(run.folder / "tokenizer")
        prompt = torch.tensor([tokenizer.encode(PROMPT)], device=next(run.model.parameters()).device)
        written = run.model.eval().generate(prompt, 40, temperature=0.8, seed=0)
        with open(run.folder / "samples.txt", "a", encoding="utf-8") as file:
            file.write(f"step {run.step}: {tokenizer.decode(written[0].tolist())!r}\n")
        self.last = None  # this was no step

    def on_end(self, run, numbers):
        if self.seconds:
            middle = sorted(self.seconds)[len(self.seconds) // 2]
            print(f"a step took {middle:.3f} s; step {run.step} of {run.total_steps}")
