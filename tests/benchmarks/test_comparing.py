"""Running cases: turns, agreement before time, and sides that cannot run."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import comparing
from benchmarks.cases import OURS, Case, Request, SideSpec
from benchmarks.comparing import Bench
from benchmarks.runner import Runner, implementation
from benchmarks.subjects import library
from benchmarks.suites import layers
from benchmarks.work import Settings


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Settings(), tmp_path, repeats=3, sample_seconds=0.0)


def two_layers() -> Case:
    return layers.step_case(4, 16, quick=True)


def changed(case: Case, name: str, **changes) -> Case:
    """The case with one side changed."""
    return replace(case, sides=[replace(s, **changes) if s.name == name else s for s in case.sides])


def only(case: Case, *names: str) -> Case:
    return replace(case, sides=[s for s in case.sides if s.name in names])


def wrong(spec: SideSpec) -> SideSpec:
    """A side that does not hide later tokens."""
    block = {**spec.work.kwargs["block"], "causal": False}
    return replace(spec, work=replace(spec.work, kwargs={**spec.work.kwargs, "block": block}))


def test_sides_are_sampled_in_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    turns = []
    sample = Runner.sample

    def noted(self: Runner, quantity, number: int) -> float:
        turns.append((self.work.subject, self.work.impl))
        return sample(self, quantity, number)

    monkeypatch.setattr(Runner, "sample", noted)
    case = replace(only(two_layers(), "ours", "reference", "plain"), quantities=("forward",))
    (row,) = bench.run(case)
    round_of_all = [("dual_layers", None), ("plain_layers", None), ("dual_layers", "reference")]
    assert turns == round_of_all * (1 + bench.repeats)
    assert [len(s.samples) for s in row.sides] == [3, 3, 3]


def test_all_agree_before_any_is_timed(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    events = []
    for name in ("values", "sample"):
        method = getattr(Runner, name)

        def noted(self: Runner, *arguments, name: str = name, method=method):
            events.append(name)
            return method(self, *arguments)

        monkeypatch.setattr(Runner, name, noted)
    list(bench.run(replace(only(two_layers(), "ours", "reference"), quantities=("step",))))
    assert events[:2] == ["values", "values"]
    assert set(events[2:]) == {"sample"}


def test_right_sides_are_related(bench: Bench):
    for row in bench.run(only(two_layers(), "ours", "reference", "plain")):
        ours, plain, reference = row.sides
        assert ours.agrees and reference.agrees and plain.agrees is None
        assert ours.yardstick == "reference"
        assert ours.difference is not None and 0 <= ours.difference < 1e-4
        assert [side.ratio for side in row.sides] == [side.figure / ours.figure for side in row.sides]
        assert ours.multiply_adds == reference.multiply_adds != plain.multiply_adds


def test_a_wrong_side_is_refused(bench: Bench):
    case = only(two_layers(), "ours", "reference")
    case = replace(case, sides=[*case.sides, wrong(replace(case.sides[0], name="other"))])
    for row in bench.run(case):
        ours, reference, other = row.sides
        assert other.agrees is False and other.ratio is None and "differs from reference" in other.refused
        assert row.disagreements == [other]
        assert ours.ratio == 1.0 and reference.ratio is not None


def test_nothing_is_said_if_ours_is_wrong(bench: Bench):
    case = only(two_layers(), "ours", "reference", "plain")
    case = replace(case, sides=[wrong(case.sides[0]), *case.sides[1:]])
    for row in bench.run(case):
        assert row.sides[0].agrees is False
        assert all(s.ratio is None and "ours differs" in s.refused for s in row.sides)


def test_a_wrong_gradient_alone_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    values = Runner.values

    def spoiled(self: Runner, quantity):
        found = values(self, quantity)
        if self.work.impl is None and "gradient of retriever.q_proj.weight" in found:
            found["gradient of retriever.q_proj.weight"] = 1.001 * found["gradient of retriever.q_proj.weight"]
        return found

    monkeypatch.setattr(Runner, "values", spoiled)
    forward, training = bench.run(only(two_layers(), "ours", "reference"))
    assert forward.sides[0].agrees
    assert training.sides[0].agrees is False
    assert training.sides[0].where == "gradient of retriever.q_proj.weight"


def test_the_implementation_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    module = library("functional.relational.choice")
    seen = []
    choose = module.choose

    def noted(x, impl, **told):
        seen.append(impl)
        return choose(x, impl, **told)

    monkeypatch.setattr(module, "choose", noted)
    work = two_layers().sides[0].work
    tensors = comparing.draw(work, Settings())
    seen.clear()
    for impl in (None, "reference", "linear"):
        Runner(replace(work, impl=impl), Settings(), tensors).step()
    assert seen == ["auto"] * 2 + ["reference"] * 2 + ["linear"] * 2
    with implementation("dense"):
        assert module.choose is not noted
    assert module.choose is noted


def test_sides_that_cannot_run_are_left_out_with_a_reason(bench: Bench):
    case = changed(two_layers(), "reference", needs=2.0**60)
    case = changed(case, "llama", package="no_such_package")
    for row in bench.run(case):
        notes = {s.name: s.note for s in row.sides if s.status == "left out"}
        assert notes["published"] == "needs --published"
        assert notes["llama"] == "no_such_package is not installed"
        assert "would need about 1073741824 GiB" in notes["reference"]
        assert row.sides[0].agrees is None  # nothing was left to compare with
        assert [s.status for s in row.sides if s.name in ("ours", "plain")] == ["measured", "measured"]


def test_a_side_that_fails_does_not_stop_the_others(bench: Bench):
    case = only(two_layers(), "ours", "reference")
    broken = replace(case.sides[0], name="other", work=replace(case.sides[0].work, impl="no such implementation"))
    for row in bench.run(replace(case, sides=[*case.sides, broken])):
        ours, reference, other = row.sides
        assert other.status == "failed" and "ValueError: impl: expected one of" in other.note
        assert ours.agrees and reference.ratio is not None


def test_without_ours_there_is_nothing_to_measure(bench: Bench):
    case = changed(two_layers(), OURS, package="no_such_package")
    for row in bench.run(case):
        assert {s.status for s in row.sides} == {"left out"}


def test_lack_of_memory_is_no_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    step_of = Runner.step

    def starved(self: Runner):
        if self.work.impl == "reference":
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return step_of(self)

    monkeypatch.setattr(Runner, "step", starved)
    _, training = bench.run(only(two_layers(), "ours", "reference"))
    assert (training.sides[1].status, training.sides[1].note) == ("left out", "out of memory")
    assert training.sides[0].status == "measured"


def test_only_the_sides_that_were_asked_for(bench: Bench):
    bench.only = frozenset({"plain"})
    for row in bench.run(two_layers()):
        assert [s.name for s in row.sides] == ["ours", "plain"]


@pytest.mark.slow
def test_memory_of_each_side_in_a_fresh_process(bench: Bench):
    case = only(layers.memory_case(4, 64, quick=True), "ours", "reference")
    (row,) = bench.run(case)
    ours, reference = row.sides
    assert row.memory and ours.agrees and reference.agrees
    assert not ours.samples
    assert ours.allocated and reference.allocated and reference.ratio == reference.allocated / ours.allocated
    assert reference.allocated > 4 * 64 * 64 * 4  # the relations of all pairs, which the reference builds


def test_relative_symbols_get_the_gradient_of_their_table(bench: Bench):
    (case,) = layers.relative_cases(Request((16,), quick=True))
    ours = Runner(case.sides[0].work, Settings(), comparing.draw(case.sides[0].work, Settings()))
    assert "gradient of retriever.rel_pos_enc.rel_pos_embeddings" in ours.values("step")
    _, training = bench.run(only(case, "ours", "reference"))
    assert training.sides[0].agrees
