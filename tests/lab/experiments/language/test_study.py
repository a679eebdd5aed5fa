"""The arms of the announced study, its grids, and its analysis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dat.cli.main import main
from dat.estimate import estimate
from dat.experiments.language.arms import ARMS, LABELS
from dat.experiments.language.experiment import LanguageModelling
from dat.experiments.language.shipped import GRIDS, SHIPPED
from dat.experiments.language.study import BOUND, PRIMARY, differences, study_text
from dat.sweeps.grid import GridFolder, cells
from dat.sweeps.results import to_csv

WIDTHS = (64, 128)


def built(name: str):
    return ARMS[name].language_config(257).build("meta")


def trained(name: str) -> int:
    return sum(parameter.numel() for parameter in built(name).parameters() if parameter.requires_grad)


@pytest.mark.parametrize("width", WIDTHS)
def test_arms_are_matched_within_one_percent(width):
    size = trained(f"DAT-{width}")
    for arm in ("RCA", "T", "T-gated", "T-time"):
        assert trained(f"{arm}-{width}") == pytest.approx(size, rel=0.01), arm
    costs = [
        estimate(built(name), length=ARMS[name].context, device="cpu").step_flops
        for name in (f"DAT-{width}", f"T-operations-{width}")
    ]
    assert costs[1] == pytest.approx(costs[0], rel=0.01)


def test_arms_differ_in_what_their_names_say():
    dat, rca, plain, gated, _, longer = (ARMS[name].language_config(257) for name in ARMS if name.endswith("-64"))
    assert (dat.ra_type, rca.ra_type, plain.model) == ("relational_attention", "rca", "transformer")
    assert gated.block_kwargs == {"attn_kwargs": {"output_gate": "identity"}}
    assert longer == plain and set(LABELS) == set(ARMS)


def test_the_grids_train_every_arm_by_its_rate_and_length():
    grid = GRIDS["study"]
    every = {cell["model"]: grid.config(cell) for cell in cells(LanguageModelling(), grid)}
    assert len(cells(LanguageModelling(), grid)) == 10 * len(every) == 60
    steps = {name: config.loop.steps for name, config in every.items()}
    assert steps.pop("T-time-64") == round(grid.steps[0] * 1.9) and set(steps.values()) == set(grid.steps)
    assert [config.optim.lr for config in every.values()] == list((grid.lr_of or {}).values())
    assert min(config.loop.steps * config.tokens_per_step for config in every.values()) > 4e6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"longer": {"T": 2.0}}, "longer: expected .* got 'T'"),
        ({"longer": {"T-64": 0.0}}, "longer: expected positive numbers"),
    ],
)
def test_impossible_lengths(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(GRIDS["study"], **changes)


def test_a_grid_is_not_continued_with_other_lengths(tmp_path):
    grid = replace(GRIDS["study"], out=str(tmp_path / "grid"))
    folder = GridFolder(LanguageModelling(), grid.out)
    folder.open(grid)
    (folder.cells / "one.json").write_text("{}")
    other = replace(grid, longer={"T-time-64": 2.0})
    with pytest.raises(ValueError, match=r"longer: expected 1.9 for T-time-64, which the cells of the folder were run"):
        folder.open(other)


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ("T-353M", 353_601_536),
        ("DAT-343M", 344_026_112),
        ("T-757M", 756_894_720),
        ("DAT-734M", 733_880_832),
        ("T-1.31B", 1_311_182_848),
        ("DAT-1.27B", 1_272_633_344),
    ],
)
def test_every_row_of_table_5_has_a_configuration(row, size):
    config = SHIPPED[f"configs/{row}.yaml"]
    model = config.model.language_config(50_304).build("meta")
    assert sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) == size
    assert config.loop.steps * config.tokens_per_step == 9_999_745_024
    assert (config.optim.lr, config.optim.lowest_lr, config.optim.warmup_steps) == (6e-4, 6e-5, 715)


def rows(**gaps: float) -> list[dict]:
    """Results of three seeds: the DAT, and arms worse by so much, give or take a little."""
    arms = {"DAT": 0.0, **gaps}
    return [
        {
            "model": f"{arm}-64",
            "steps": 10,
            "seed": seed,
            "parameters": 100,
            "tokens": 1000,
            "perplexity": 3.0,
            "bits_per_byte": 2 + gap + 0.1 * seed + 1e-4 * (seed - 1) * (gap != 0),
            "seconds": 5.0,
        }
        for arm, gap in arms.items()
        for seed in range(3)
    ]


def test_differences_are_paired_and_read_as_announced():
    found = differences(rows(**{"T": 0.02, "T-operations": 1e-9, "T-time": -0.003}), 64, PRIMARY)
    assert [(one.question, one.reading) for one in found] == [
        ("parameters", "better"),
        ("operations", "alike"),
        ("time", f"worse, by less than {BOUND}"),
    ]
    assert found[0].mean == pytest.approx(-0.02) and found[0].half == pytest.approx(2.484e-4, rel=1e-2)
    assert found[0].adjusted == pytest.approx(3 * found[0].p)
    (alone,) = differences(rows(T=0.02), 64, PRIMARY)  # the other two of the family are still to be run
    assert alone.adjusted == found[0].adjusted
    short = [row for row in rows(T=0.5) if row["model"] == "DAT-64" or row["seed"] < 1]
    assert differences(short, 64, PRIMARY) == [] and study_text(short) == ""


def test_only_the_longest_training_of_an_arm_counts():
    early = [{**row, "steps": 5, "bits_per_byte": 9.0} for row in rows(T=0.02)]
    assert differences([*early, *rows(T=0.02)], 64, PRIMARY) == differences(rows(T=0.02), 64, PRIMARY)


def test_plot_writes_the_study(tmp_path):
    (tmp_path / "results.csv").write_text(to_csv(rows(T=0.02, RCA=0.001)))
    assert main(["plot", "language", str(tmp_path / "results.csv"), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "study.md").read_text()
    assert "| parameters | DAT − T | 3 | -0.0200 ± 0.0002 |" in text and "RCA − T" in text
    assert (tmp_path / "out" / "study.png").stat().st_size > 5000
