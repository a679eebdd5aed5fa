"""docs/models.md has every layer, mechanism, baseline and model, and says of each what turns out when it is tried."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dual_attention
from dual_attention import baselines, mechanisms
from dual_attention.part_trials import TrialEntry

DOCS = Path(__file__).resolve().parent.parent / "docs"
PARTS = {"AbstractorBlock", "ContextNorm", "GRUUpdate", "LinearUpdate", "ObjectStreamAbstractorBlock"}
PARTS |= {"TripleProduct"}
"""Modules that are parts of those on the page."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(DOCS)
    yield importlib.import_module("make_models")


def whole(module: nn.Module, x: Tensor, **options: Any) -> Tensor:
    return module(x, **options)


def names() -> list[str]:
    """What the page must list: every recipe, and every module except parts, positions and symbols."""
    found = {
        name: value
        for package in (dual_attention, baselines, mechanisms)
        for name in package.__all__
        if inspect.isclass(value := getattr(package, name)) and issubclass(value, nn.Module)
    }
    modules = {
        name
        for name, kind in found.items()
        if (package := kind.__module__).startswith(("dual_attention.baselines", "dual_attention.mechanisms.architec"))
        or (
            not package.startswith("dual_attention.mechanisms")
            and not package.endswith(("positional_encoding", "symbol_retrieval"))
        )
    }
    return sorted(modules - PARTS | {*mechanisms.recipes.__all__})


def test_everything_stands_on_the_page(script):
    assert [*script.rows_of_page()] == [*script.ENTRIES]
    assert sorted(script.ENTRIES) == names()
    assert script.PAGE.read_text(encoding="utf-8").startswith(script.INTRODUCTION)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_an_entry_is_what_turns_out(name, script):
    assert script.row(name) == script.rows_of_page()[name], "make models writes the page anew"


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", re.findall(r"^\| `(\w+)` .* yes \|$", (DOCS / "models.md").read_text("utf-8"), re.M))
def test_memory_is_linear_with_masks_where_the_page_says_so(name, script):
    assert script.Trial(script.ENTRIES[name]).is_linear()


@pytest.mark.parametrize("mask", ["padding_mask", "segments"])
def test_a_mask_that_is_built_of_pairs_is_found(mask, script):
    class Mean(nn.Module):
        def forward(self, x, padding_mask=None, segments=None):
            if mask == "padding_mask" and padding_mask is not None:
                pairs = padding_mask[:, None] & torch.ones_like(padding_mask)[:, :, None]
                return pairs.to(x.dtype) @ x
            if padding_mask is not None:
                x = x * padding_mask[..., None]
            if segments is None:
                return x.sum(1, keepdim=True).expand_as(x)
            if mask == "segments":
                return (segments[:, :, None] == segments[:, None]).to(x.dtype) @ x
            sums = torch.zeros_like(x)
            index = segments[..., None].expand_as(x)
            return sums.scatter_add(1, index, x).gather(1, index)

    trial = script.Trial(TrialEntry(lambda n: Mean(), whole))
    assert trial.packs() and "padding" in trial.masks() and trial.grows_with(*trial.entry.lengths)
    assert not trial.is_linear()


def test_what_is_taken_and_does_nothing_is_found(script):
    class Deaf(nn.Module):
        def forward(self, x, attn_mask=None):
            return x + x.mean(1, keepdim=True)

    trial = script.Trial(TrialEntry(lambda n: Deaf(), whole))
    with pytest.raises(AssertionError, match="attn_mask: taken, and does not do what it says"):
        list(trial.masks())


def test_what_cannot_be_done_is_not_claimed(script):
    class Clumsy(nn.Module):
        def forward(self, x, symbols=None):
            scores = x @ x.mT
            return scores @ x if float(scores.sum()) > 0 else x  # which no tracer follows

    trial = script.Trial(TrialEntry(lambda n: Clumsy(), whole, bare=whole))
    assert list(trial.masks()) == [] and script.symbols(trial) == "takes"
    assert not any((trial.packs(), trial.caches(), trial.compiles(), trial.exports(), trial.is_linear()))
