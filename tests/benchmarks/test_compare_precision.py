"""Curves of both precisions: paired by seed, and refused where runs differ in anything else."""

import csv
import json
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.compare_precision import curves, differences, main

EVEN = {("float32", 0): (3.0, 2.0), ("bfloat16", 0): (3.1, 2.0)}
LOSSES = {**EVEN, ("float32", 1): (3.2, 2.4), ("bfloat16", 1): (3.2, 2.5)}


def write_run(folder: Path, precision: str, seed: int, losses: tuple[float, ...], lr: float = 0.1) -> Path:
    run = folder / f"{precision}-{seed}"
    run.mkdir(parents=True)
    config = f"seed: {seed}\noptim: {{lr: {lr}}}\nmachine: {{precision: {precision}}}\noutput: {{name: {run.name}}}\n"
    (run / "config.yaml").write_text(config)
    rows = [{"report": 1, "step": 10, "train_loss": 4.0}]
    rows += [{"report": 2 + i, "step": 20 * (i + 1), "val_loss": loss} for i, loss in enumerate(losses)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.fixture
def runs(tmp_path):
    return [write_run(tmp_path / "runs", *key, losses) for key, losses in LOSSES.items()]


def test_differences_are_paired_by_seed(runs):
    found = differences(curves(runs[::-1]))
    assert found == {20: pytest.approx((0.1, 0.0)), 40: pytest.approx((0.0, 0.1))}


def test_writes_table_numbers_and_picture(runs, tmp_path, capsys):
    out = tmp_path / "new" / "precision"
    assert main([*map(str, runs), "--out", str(out)]) == 0
    text = out.with_suffix(".md").read_text()
    assert text == capsys.readouterr().out
    assert "| 40 | 2.2000 | 0.2828 | +0.0500 ± 0.6353 |" in text  # 12.706 standard errors of two
    with out.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and fmean(float(row["val_loss"]) for row in rows) == pytest.approx(2.675)
    assert out.with_suffix(".png").stat().st_size > 10_000


def test_runs_that_are_no_pairs_are_refused(runs, tmp_path, capsys):
    other = write_run(tmp_path / "other", "bfloat16", 2, (3.0, 2.0), lr=0.2)
    for given, message in (
        ([*runs, other], "differs from .* in more than seed and precision"),
        (runs[:3], "expected two or more seeds, each in both precisions"),
        ([*runs, runs[0]], "expected one run of each seed"),
    ):
        with pytest.raises(ValueError, match=message):
            curves(given)
    assert main([str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert not (tmp_path / "out.md").exists()
