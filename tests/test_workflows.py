"""Workflows that run elsewhere: they are read, and call what is there."""

import os
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_what_is_there(path: Path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    triggers = workflow[True]  # which is what YAML reads "on" as
    assert triggers.keys() <= {"push", "pull_request", "schedule", "workflow_dispatch", "release"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    called = [step["run"].split() for step in steps if "run" in step]
    assert called
    for command, *words in called:
        if command == "make":
            assert words[0] in TARGETS
        elif command != "gh":  # which GitHub brings
            assert os.access(ROOT / command, os.X_OK)


def test_slow_tests_run_each_night():
    """They are left out of what every change must pass."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "whole.yml").read_text(encoding="utf-8"))
    (trigger,) = workflow[True]["schedule"]
    assert trigger["cron"].endswith("* * *")
    assert "make test-all" in [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert (
        "MARKED ?= not slow or quick\n" in makefile
        and 'pytest -n $(WORKERS) --dist worksteal -m "$(MARKED)"' in makefile
    )
    assert re.search(r"^test-all:.*\n\t.*\$\(MAKE\) .*test MARKED=$", makefile, re.MULTILINE)


def test_findings_fail_the_weekly_trials():
    text = next(path for path in WORKFLOWS if path.stem == "reliability").read_text(encoding="utf-8")
    assert re.search(
        r"make reliability ARGS=\"--seconds \d+ --seed \$\{\{ github.run_number \}\}\"$", text, re.MULTILINE
    )
    assert "continue-on-error" not in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_others_code_is_pinned_by_commit(path: Path):
    """A tag or a branch can be moved, in the job that publishes, too."""
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", action) for action in used)


def test_the_image_is_pinned_and_runs_without_root():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.fullmatch(r"FROM python:3\.11[\d.]*-slim@sha256:[0-9a-f]{64}", line)]
    assert "USER dat" in lines[lines.index('ENTRYPOINT ["torchrun"]') - 2 :]


def test_what_builds_the_package_is_bounded():
    required = re.search(
        r'^requires = \["(.*)"\]$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert required and all(re.fullmatch(r"[\w-]+>=[\d.]+,<\d+", one) for one in required[1].split('", "'))
