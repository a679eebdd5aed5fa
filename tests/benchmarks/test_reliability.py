"""The trials see what they are made to see; `make reliability` runs them in earnest."""

import os
import random
import signal

import pytest

from benchmarks.reliability.draws import calls, clear
from benchmarks.reliability.folders import links, read_only
from benchmarks.reliability.kills import TEXT, training
from benchmarks.reliability.mutations import make_unfinished
from benchmarks.reliability.page import BEGIN, OF_WORKERS, PARTS, last_run, last_run_of_workers, write_section
from benchmarks.reliability.places import TEXTS, places
from benchmarks.reliability.trials import Called, Tally, broken, dat, in_a_process, run_trials
from benchmarks.reliability.workers import BATCH, CHANGES, Cluster, Figures, how_it_ended, noted_examples, notes
from tests.support.processes import Ended


def test_a_trial_that_dies_is_a_finding():
    assert in_a_process(lambda: os.kill(os.getpid(), signal.SIGKILL)) == "finding: its process died (SIGKILL)"
    assert in_a_process(lambda: "refused") == "refused"


@pytest.mark.parametrize(
    ("called", "found"),
    [
        (Called(1, "", "", "KeyError"), "finding: traceback (KeyError)"),
        (Called(2, "", "dat: error: it failed"), "finding: the error does not name what is wrong: it failed"),
        (Called(2, "", "dat: error: config.yaml: not YAML"), None),
        (Called(0, "", ""), None),
    ],
)
def test_a_broken_promise_is_a_finding(called, found):
    assert broken(called, ("config.yaml",)) == found


def test_a_raw_error_is_a_finding():
    assert str(clear(RuntimeError("no"))).startswith("finding: raw error")
    assert clear(ValueError("d_model: expected a number, got 'x'"), "d_model") is None
    assert dat("train", "lan").status == 2


@pytest.mark.slow
def test_some_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    trials = dict(places(tmp_path, random.Random(0)))
    tried = [("train", "no home, an unknown user"), ("train", "an ASCII console"), ("train", "no standard streams")]
    tried += [("generate", "a console of Windows"), ("generate", "no standard output"), ("evaluate", "COLUMNS=0")]
    for name in (*(f"`dat {command}` with {place}" for command, place in tried), *(f"text with {of}" for of in TEXTS)):
        assert in_a_process(trials[name]) is None, name


@pytest.mark.slow
def test_some_links_and_a_run_that_is_only_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    assert in_a_process(lambda: str(dat(*training(tmp_path / "runs")).status)) == "0"
    make_unfinished(tmp_path)
    finished, stopped, rng = tmp_path / "runs" / "run", tmp_path / "stopped" / "run", random.Random(0)
    trials = {**dict(read_only(tmp_path, finished, rng)), **dict(links(tmp_path, {"stopped": stopped}, rng))}
    for name, outcome in {
        "`dat evaluate` of a run whose tokens are damaged": None,
        "`.lock` of a stopped run is a link": "refused",
        "`metrics.jsonl` of a stopped run is a link": "taken",
        "`checkpoints` of a stopped run is a link": "taken",
    }.items():
        assert in_a_process(trials[name]) == outcome, name


def test_findings_stand_on_the_page():
    tallies = {name: Tally() for name in PARTS}
    tallies["kills"].counts["kill -9"] = 2
    run_trials(calls(random.Random(0)), tallies["calls"], 0)
    tallies["mutations"].add("`dat info` of run", "finding: traceback")
    assert tallies["calls"].total == 20
    page = last_run(tallies, 0, 1)
    assert "2 kills in 0 runs" in page and "`traceback` | 1 | `dat info` of run" in page


def test_each_run_writes_its_own_section(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"by hand\n\n{OF_WORKERS}\n\nold\n\n{BEGIN}\n\nkept\n")
    tally = Tally({"kills": 3, "as promised": 1})
    tally.add("seed 5", "finding: losses that differ by 2.0e-03")
    figures = Figures(deaths={"kill -9 of one": 3}, seconds=[0.5, 4.0, 1.0], difference=2e-3)
    write_section(page, last_run_of_workers({"another number": tally}, figures, 5, 3))
    text = page.read_text()
    assert text.startswith(f"by hand\n\n{OF_WORKERS}") and text.endswith(f"\n{BEGIN}\n\nkept\n") and "old" not in text
    assert "| another number of processes | 3 | 2 | 1 | 1 |" in text and "at most 2.0e-03" in text
    assert "1.0 s in the middle, at most 4.0 s" in text and "| seed 5 |" in text


def test_a_section_needs_its_line(tmp_path):
    (tmp_path / "page.md").write_text("by hand\n")
    with pytest.raises(ValueError, match="expected a line"):
        write_section(tmp_path / "page.md", "## Unknown\n")


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        ([Ended(-9, "", ""), Ended(2, "", "dat: error: another process of the 2 ended")], None),
        ([Ended(75, "", "dat: interrupted; continue with"), Ended(75, "", "")], None),
        ([Ended(-9, "", ""), Ended(-6, "", "Aborted")], "finding: a process ended with another status"),
        ([Ended(2, "", "dat: error: damaged"), Ended(2, "", "")], "finding: more than one line, or another one"),
        ([Ended(2, "", "Traceback (most recent"), Ended(-9, "", "")], "finding: traceback"),
    ],
)
def test_how_processes_may_end(ended, found):
    said = how_it_ended(ended, signal.SIGKILL)
    assert said == found if found is None else str(said).startswith(found)


@pytest.mark.slow
def test_examples_and_losses_are_compared(tmp_path, monkeypatch):
    """One death of two processes; then notes and losses that something else has changed are findings."""
    monkeypatch.setitem(CHANGES, "loop.steps", 6)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    cluster = Cluster(tmp_path, random.Random(1))
    killed = tmp_path / "killed"
    killed.mkdir()
    with noted_examples():
        words = cluster.words(killed, "replicate", 0.0)
        assert cluster.killed(killed, 2, words, 0.1) is None
        ended = cluster.start(killed, 1, cluster.words(killed, "replicate", 0.0), lambda _: None)
        whole = cluster.whole(1, "replicate", 0.0)[0]
    assert [process.status for process in ended] == [0] and sum(cluster.figures.deaths.values()) == 1
    assert cluster.other_examples(killed) is None and cluster.other_losses(killed, whole) is None
    assert all(len(taken) == BATCH // size for _, _, size, taken in notes(killed))
    metrics, taken = killed / "run" / "metrics.jsonl", killed / "taken.jsonl"
    metrics.write_text(metrics.read_text().replace('"train_loss": 5', '"train_loss": 6', 1))
    assert "losses that differ" in str(cluster.other_losses(killed, whole))
    *lines, last = taken.read_text().splitlines(keepends=True)
    taken.write_text("".join(line for line in lines if not line.startswith("[3,")) + last)
    assert cluster.other_examples(killed) == "finding: steps without all of their examples: 1"
    taken.write_text("".join(lines).replace("[[0,", "[[1,") + last)
    assert "other examples" in str(cluster.other_examples(killed))
