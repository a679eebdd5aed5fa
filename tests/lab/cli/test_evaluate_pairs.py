"""``dat evaluate --pairs``: minimal pairs, scored by hand, and files that hold none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dat.checkpoints import open_checkpoint
from tests.lab.cli.commands import dat, fails, printed

QUIET = ("--machine.threads=1", "--machine.device=cpu")
PAIRS = {
    "agreement": [("The cat sleeps.", "The cat sleep.", "syntax"), ("Cats sleep.", "Cats sleeps.", "syntax"),
        ("She sees herself.", "She sees himself.", "syntax")],
    "negation": [("Nobody ever came.", "Somebody ever came.", "semantics"),
        ("No one ate anything.", "They ate anything.", "semantics")],
}  # fmt: skip
"""Sentences of our own, in BLiMP's format."""


@pytest.fixture(autouse=True)
def place(here) -> None:
    Path("pairs").mkdir()
    for name, pairs in PAIRS.items():
        lines = [json.dumps({"sentence_good": a, "sentence_bad": b, "field": c, "UID": name}) for a, b, c in pairs]
        Path("pairs", f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def by_hand(run: Path) -> dict[str, tuple[float, int]]:
    """Sum and number of the log-probabilities of each sentence, one sentence and one token at a time."""
    checkpoint = open_checkpoint(run)
    model: Any = checkpoint.model
    tokenizer = checkpoint.tokenizer()
    found = {}
    for pairs in PAIRS.values():
        for text in (text for pair in pairs for text in pair[:2]):
            tokens, total = [tokenizer.end], 0.0
            for token in tokenizer.encode(text):
                with torch.no_grad():
                    total += float(model(torch.tensor([tokens]))[0][0, -1].double().log_softmax(-1)[token])
                tokens.append(token)
            found[text] = total, len(tokens) - 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3, 16])
def test_accuracy_is_that_of_sums_by_hand(run: Path, size: int, capsys: pytest.CaptureFixture[str]):
    sums = by_hand(run)
    found = json.loads(printed(capsys, "evaluate", run, "--pairs=pairs", f"--batch_size={size}", "--json", *QUIET))
    for name, pairs in PAIRS.items():
        right = [sums[a][0] > sums[b][0] for a, b, _ in pairs]
        by_token = [sums[a][0] / sums[a][1] > sums[b][0] / sums[b][1] for a, b, _ in pairs]
        numbers = found["files"][name]
        assert numbers["pairs"] == len(pairs) and numbers["accuracy"] == pytest.approx(sum(right) / len(right))
        assert numbers["by_token"] == pytest.approx(sum(by_token) / len(by_token))
        assert found["fields"][pairs[0][2]] == numbers
    assert found["all"]["all"]["pairs"] == 5


def test_the_interval_is_exact(run: Path, capsys: pytest.CaptureFixture[str]):
    """At its ends the tails of the binomial distribution have 2.5 % each."""
    from math import comb

    assert dat("evaluate", str(run), "--pairs=pairs/*.jsonl", "--json", *QUIET) == 0
    for numbers in json.loads(capsys.readouterr().out)["files"].values():
        n, right = numbers["pairs"], round(numbers["pairs"] * numbers["accuracy"])

        def tail(p: float, ks: range, n: int = n) -> float:
            return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in ks)

        assert right == 0 or tail(numbers["low"], range(right, n + 1)) == pytest.approx(0.025)
        assert right == n or tail(numbers["high"], range(right + 1)) == pytest.approx(0.025)
        assert numbers["low"] <= numbers["accuracy"] <= numbers["high"]


def test_the_table_has_files_fields_and_all(run: Path, capsys: pytest.CaptureFixture[str]):
    assert dat("evaluate", str(run), "--pairs", "pairs/agreement.jsonl", "--pairs", "pairs/negation.jsonl", *QUIET) == 0
    out = capsys.readouterr().out
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == ["agreement", "negation", "syntax (field)", "semantics (field)", "all"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sentence_good": "a"}', "bad.jsonl, line 2: expected an object with texts sentence_good and sentence_bad"),
        ('{"sentence_good": "a", "sentence_bad": " "}', "line 2: expected an object with texts"),
        ("[1]", "line 2: expected an object"),
        ("{", "bad.jsonl, line 2: not JSON"),
        (json.dumps({"sentence_good": "a", "sentence_bad": "b" * 500}),
         r"bad.jsonl, line 2: expected 1 to 24 tokens, the context, got 500"),
    ],
)  # fmt: skip
def test_what_is_no_pair_is_named(run: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]):
    Path("latin.jsonl").write_bytes(b"\xff\n")
    assert "latin.jsonl: not UTF-8 text" in fails(capsys, "evaluate", str(run), "--pairs=latin.jsonl", *QUIET)
    Path("bad.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n' + line + "\n")
    assert message in fails(capsys, "evaluate", str(run), "--pairs=bad.jsonl", *QUIET)


def test_wrong_combinations(run: Path, capsys: pytest.CaptureFixture[str]):
    Path("empty.jsonl").write_text("\n")
    Path("text.txt").write_text("text")
    for words, message in {
        ("--pairs=pairs", "--text=text.txt"): "pairs: expected none with --text",
        ("--pairs=pairs", "--tokens=3"): "tokens: expected none with --pairs",
        ("--pairs=empty.jsonl",): "pairs: expected at least one pair, got none in empty.jsonl",
        ("--pairs=text.txt",): "pairs: expected files of JSON Lines",
        ("--pairs=nowhere",): "pairs: no such file or folder: nowhere",
        ("--batch_size=3",): "batch_size: expected none without --text or --pairs",
    }.items():
        assert message in fails(capsys, "evaluate", str(run), *words, *QUIET)
