"""Family relations as an experiment: its runs, and what is told of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from torch import Tensor, nn

from dat.experiments.sequences.config import in_batches
from dat.experiments.sequences.experiment import SequenceExperiment, sequence_table
from dat.experiments.sequences.problem import HEAD_SCORES, sequence_loss
from dat.sweeps.table import Axis
from dat.training.configs import check_seed
from dat.training.metrics import Row
from dat.training.problem import Batch
from dual_attention._base.plots import empty_figure, house_style, save_figure
from studies.kinship.config import PRESETS, TASKS, KinshipConfig, KinshipDataConfig, KinshipGrid, KinshipSets
from studies.kinship.data import ANSWERS, FIRST_NAME, FIRST_WORD, PAD

NAMES = "Ada Ben Cem Dua Eli Fay Gus Hal Ida Jon Kai Lea Max Noa Ola Pia Quy Ron Sam Tea Uma Vic Wen Xia Yan Zoe"


def kinship_loss(model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """As :func:`~dat.experiments.sequences.problem.sequence_loss`; in evaluation also the untrained ``rule``."""
    *sequences, guesses = batch
    value, numbers = sequence_loss(model, tuple(sequences))
    right = guesses == sequences[1].max(1).values
    return value, numbers if model.training else {**numbers, "rule": right.float().mean()}


def story_text(tokens: Tensor) -> list[str]:
    """A story as text, a line for each fact and one for the question."""
    names = NAMES.split()

    def name(token: int) -> str:
        number = token - FIRST_NAME
        return names[number % len(names)] + (str(number // len(names) + 1) if number >= len(names) else "")

    *facts, (_, first, last) = tokens[tokens != PAD].view(-1, 3).tolist()
    lines = [f"{name(a)}'s {ANSWERS[word - FIRST_WORD]} is {name(b)}." for a, word, b in facts]
    return [*lines, f"Who is {name(last)} to {name(first)}?"]


@dataclass(frozen=True)
class KinshipSheet:
    """Stories of several lengths, with their answers."""

    out: str
    """Picture (PNG) to write; it is not overwritten."""
    lengths: tuple[int, ...] = (2, 4, 7, 10)
    """Lengths of the chains, a story each."""
    seed: int = 0
    """Seed of the stories."""

    def __post_init__(self) -> None:
        check_seed(self)
        KinshipDataConfig(lengths=self.lengths, names=len(NAMES.split()))

    def draw(self) -> None:
        """Draw it."""
        data = KinshipDataConfig(lengths=self.lengths, names=len(NAMES.split()))
        config, lines = KinshipConfig(data=data), max(self.lengths) + data.noise + 3
        with house_style():
            figure = empty_figure((2.6 * len(self.lengths), 0.24 * lines + 0.4))
            for column, length in enumerate(self.lengths):
                tokens, targets, *_ = config.draw(str(length), 1, self.seed)
                answer = ANSWERS[int(targets.max()) - FIRST_WORD]
                text = "\n".join([f"{length} relations", "", *story_text(tokens[0]), answer])
                figure.text((column + 0.05) / len(self.lengths), 0.97, text, va="top", fontsize=9, linespacing=1.4)
            save_figure(figure, Path(self.out), dpi=110)


class Kinship(SequenceExperiment[KinshipConfig]):
    """Family relations by length of the chain, after CLUTRR (arXiv 1908.06177)."""

    name = "kinship"
    title = "kinship"
    presets = PRESETS
    loss = staticmethod(kinship_loss)
    about: ClassVar = {
        "train": "Train a small causal model on chains of at most four family relations, and measure it on longer "
        "ones, new names and noise, in a new run folder. Without options: a DAT, ten minutes.",
        "reproduce": "Accuracy by length of the chain of Transformers with each kind of positions, with a linear gate, "
        "of DATs and of RCA. --scale tiny takes a minute; --dry_run says how long a grid takes here.",
        "data": "Write stories of several lengths into a picture, with their answers.",
    }
    Config = KinshipConfig
    Grid = KinshipGrid
    Sheet = KinshipSheet
    scales: ClassVar = {
        "tiny": KinshipGrid(
            out="runs/kinship-tiny",
            seeds=1,
            models=("T", "DAT-symbolic", "RCA"),
            data=KinshipSets(lengths=(3, 4, 6), n_test=200),
            loop=in_batches(80, 250, eval_every=0, checkpoint_every=0),
        ),
        "study": KinshipGrid(out="runs/kinship-study", seeds=10),
    }
    table = sequence_table(
        metrics=("accuracy", "rule", "loss", *HEAD_SCORES),
        shares=("accuracy", "rule"),
        counted="stories",
        axes=(
            Axis("task", "task", "facts", "orders of facts", order=TASKS),
            Axis("model", "model.name", "model", "models", order=tuple(PRESETS)),
            Axis("longest", "data.longest", "longest chain trained on", "longest", number=True, prefix="to"),
        ),
        set_names={"val": "validation", "names": "names never trained on", "noise": "more noise"},
        measures={
            "beyond": "accuracy beyond the lengths trained on (%), mean over lengths",
            "within": "accuracy within the lengths trained on (%), mean over lengths",
            "names": "accuracy with names never trained on (%)",
            "noise": "accuracy with more noise (%)",
        },
        tabled={f"rule_{where}": f"untrained rule {where} the lengths trained on (%)" for where in ("beyond", "within")}
        | {"val": "accuracy on validation stories (%)"},
        provenance={"training_steps": None, "blind": None},
        y_title="accuracy (%)",
        chance=100 / len(ANSWERS),
    )

    def headline(self, result: Mapping[str, Any]) -> str:
        blind = ", relations hidden" if result.get("blind") else ""
        return f"kinship, facts {result['task']}, chains to {result['longest']}{blind}: {result['model']}"

    def identity(self, config: KinshipConfig) -> dict[str, Any]:
        blind = int(config.data.blind)
        return {**super().identity(config), "training_steps": config.loop.steps, "blind": blind}

    def row(self, result: Mapping[str, Any]) -> Row:
        keys = ("task", "model", "longest", "seed", "parameters", "trained_parameters", "training_steps", "blind")
        row: Row = {key: result[key] for key in keys}
        for metric, prefix in (("accuracy", ""), ("rule", "rule_")):
            shares = {name: 100 * share for name, share in result[metric].items()}
            by_length = {int(name): share for name, share in shares.items() if name.isdigit()}
            for where, beyond in (("beyond", True), ("within", False)):
                some = [share for length, share in by_length.items() if (length > result["longest"]) == beyond]
                row.update({prefix + where: round(fmean(some), 3)} if some else {})
            row.update({f"{prefix}{name}": round(shares[name], 3) for name in ("names", "noise", "val")})
            row.update({f"{prefix}at_{length}": round(share, 2) for length, share in by_length.items()})
        return {**row, "steps": result["steps"], "seconds": result["seconds"]}
