"""The suites: sizes are the paper's, cases fit together, conclusions follow from rows."""

import importlib.util
from typing import Any

import pytest
import torch

from benchmarks.cases import OURS, Case, Request
from benchmarks.comparing import difference, draw
from benchmarks.floors import multiply_adds
from benchmarks.results import Row, SideResult
from benchmarks.runner import Runner
from benchmarks.subjects import build
from benchmarks.suites import SUITES, crossing, decoding, generation, layers
from benchmarks.work import Settings, Work


def all_cases(*, quick: bool, device: str = "cpu") -> list[Case]:
    return [
        case
        for suite in SUITES.values()
        for case in suite.cases(Request(suite.quick_lengths if quick else suite.lengths, quick, device))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("quick", [True, False])
def test_cases_are_well_formed(quick: bool):
    for case in all_cases(quick=quick):
        assert case.sides[0].name == OURS
        assert len({spec.name for spec in case.sides}) == len(case.sides)
        for spec in case.sides:
            assert Work.from_json(spec.work.to_json()) == spec.work
            if quick and (spec.package is None or importlib.util.find_spec(spec.package)):
                for quantity in case.quantities:
                    assert (multiply_adds(spec.work, quantity) > 0) is (spec.name != decoding.READING)


@pytest.mark.parametrize("quick", [True, False])
def test_every_module_can_be_built(quick: bool):
    """On the meta device, where full sizes take no memory."""
    built = set()
    for case in all_cases(quick=quick):
        for spec in case.sides:
            work = spec.work
            if spec.package is None and (key := (work.subject, str(work.kwargs))) not in built:
                built.add(key)
                with torch.device("meta"):
                    build(work.subject, work.kwargs)
    assert built


def test_triton_takes_part_on_a_gpu_alone():
    names = [{spec.name for case in all_cases(quick=True, device=d) for spec in case.sides} for d in ("cpu", "cuda")]
    assert names[1] - names[0] == {"triton"}


def parameters(work: Work, part: str) -> int:
    with torch.device("meta"):
        module = build(work.subject, work.kwargs)
    return sum(p.numel() for name, p in module.named_parameters() if name.startswith(part))


def test_layers_have_the_papers_sizes():
    """Of 345,074,688 and 353,601,536 parameters, without the embedding, the last normalisation and the retriever."""
    works = {spec.name: spec.work for spec in layers.step_case(64, 1024, quick=False).sides}
    embedding, norm, retriever = 50304 * 1024, 2 * 1024, 3 * 1024**2 + 1024
    assert parameters(works["ours"], "retriever") == retriever
    assert 12 * parameters(works["ours"], "blocks") == 345_074_688 - embedding - norm - retriever
    assert 12 * parameters(works["plain"], "blocks") == 353_601_536 - embedding - norm


@pytest.mark.parametrize("new", generation.NEW)
def test_generation_ends_within_the_context(new):
    case = generation.case(768, new, quick=False)
    works = {spec.name: spec.work for spec in case.sides}
    for work in works.values():
        assert work.generation is not None
        assert work.generation.start + work.generation.new <= 1024
    cached, few = works["ours"].generation, works["published"].generation
    assert cached is not None and few is not None
    assert (cached.start, cached.new) == (768, new)
    middle = cached.start + cached.new / 2
    assert abs(few.start + few.new / 2 - middle) <= 1  # where a token takes about the mean time


def test_compiled_models_are_of_like_sizes():
    pytest.importorskip("transformers", reason="transformers is not installed")
    works = {spec.name: spec.work for spec in generation.compiled_case(generation.SMALL, 2, 64, new=60).sides}
    sizes = {name: parameters(work, "") for name, work in works.items()}
    assert sizes["ours"] == sizes["eager"] and sizes["llama"] == sizes["eager llama"]
    assert sizes["llama"] == pytest.approx(sizes["ours"], rel=0.1)
    assert [work.compiled for work in works.values()] == [True, False, True, False]


@pytest.mark.slow
def test_a_compiled_model_generates_what_the_model_itself_does(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    compile_with_inductor, graphs = torch.compile, []

    def compile_in_name_only(function: Any) -> Any:
        return compile_with_inductor(function, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)

    monkeypatch.setattr(torch, "compile", compile_in_name_only)
    ours, eager, *_ = generation.compiled_case(layers.QUICK, 2, 8, new=6).sides
    tensors = draw(ours.work, Settings())
    wanted = Runner(eager.work, Settings(), tensors).values("generate")
    assert not graphs
    found = Runner(ours.work, Settings(), tensors).values("generate")
    assert graphs and found["tokens"].shape == (1, 6) and difference(found, wanted).size < 1e-5


def test_a_token_over_its_floor_by_bytes():
    measured = row("decoding", 768, ours=0.030, plain=0.022, llama=0.04)
    for side, least in zip(measured.sides, (0.025, 0.02, None), strict=True):
        side.floor_bytes = least
    assert decoding.conclude([measured]) == ["label, n = 768: 1.20 times its floor by bytes; plain 1.10"]
    beside = row("decoding", 768, ours=0.030, plain=0.022, reading=0.0275)
    for side, least in zip(beside.sides, (0.025, 0.02, 0.025), strict=True):
        side.floor_bytes = least
    words = "1.20 (of reading: 1.09) times its floor by bytes; plain 1.10 (of reading: 1.00); reading 1.10"
    assert decoding.conclude([beside]) == [f"label, n = 768: {words}"]
    measured.sides[0].refused = "ours differs"
    assert decoding.conclude([measured]) == []


def row(suite: str, length: int, *, memory: bool = False, **figures: float) -> Row:
    sides = []
    for name, figure in figures.items():
        amount = {"allocated": int(figure)} if memory else {"samples": [figure]}
        sides.append(SideResult(name, "dual", "measured", **amount))
    made = Row(suite, "label", length, "step", memory, 1e-4, sides)
    made.relate()
    return made


def test_growth_of_memory():
    rows = [row("memory", n, memory=True, ours=100 * n, published=3 * n * n) for n in (1024, 2048, 4096)]
    first, second = layers.conclude_memory(rows)
    assert "ours grows as n^1.00 (linear)" in first
    assert "published grows as n^2.00 (quadratic)" in second


def test_one_length_has_no_growth():
    assert layers.conclude_memory([row("memory", 1024, memory=True, ours=5)]) == []


def test_crossing_is_where_linear_stays_ahead():
    times = {64: (1.0, 2.0), 128: (2.0, 1.9), 256: (3.0, 3.5), 512: (9.0, 5.0), 1024: (30.0, 9.0)}
    rows = [row("crossing", n, ours=dense, dense=dense, linear=linear) for n, (dense, linear) in times.items()]
    (line,) = crossing.conclude(rows)
    assert "linear is ahead of dense from n = 512" in line
    assert "at worst 3.33x the time of linear (n = 1024)" in line


def test_a_choice_that_is_always_right():
    rows = [row("crossing", n, ours=1.0, dense=1.5, linear=2.0) for n in (64, 128)]
    (line,) = crossing.conclude(rows)
    assert "linear is nowhere ahead of dense" in line
    assert "the library's choice is the fastest everywhere" in line
