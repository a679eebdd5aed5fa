"""What a type checker knows of the library: types of calls, misspelt names, and that the documents are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import PAGES, ROOT, script

pytest.importorskip("basedpyright", reason="the extra `dev` has the type checker")

# Each line, and what the checker says of it: the type that is revealed, or a word of the error.
LINES = {
    "reveal_type(Attention(8, 2)(x, x, x).output)": '"Tensor"',
    "reveal_type(RelationalAttention(8, 2)(x, symbols, need_weights=True).relations)": '"Tensor | Any"',
    "reveal_type(DualAttention(8, 1, 1)(x, symbols).output)": '"Tensor"',
    "reveal_type(SymbolicAttention(8, 2, 4)(x))": '"Tensor"',
    "reveal_type(encoder_block(x))": '"Tensor"',
    "reveal_type(encoder_block(x, need_weights=True))": '"tuple[Tensor, Tensor]"',
    "reveal_type(encoder_block(x, need_weights=bool(mask.any())))": '"Tensor | tuple[Tensor, Tensor]"',
    "reveal_type(decoder_block(x, x, symbols, context_padding_mask=mask))": '"Tensor"',
    "reveal_type(decoder_block(x, x, symbols, need_weights=True))": '"tuple[Tensor, DualAttentionOutput, Tensor',
    "reveal_type(language_model.hidden(tokens, padding_mask=mask))": '"Tensor"',
    "reveal_type(language_model(tokens, tokens).loss)": '"Tensor | Any"',
    "reveal_type(vision_model(x))": '"Tensor"',
    "RelationalAttention(8, 2)(x, symbols, need_weight=True)": 'No parameter named "need_weight"',
    "DualAttention(8, 1, 1)(x, symbols, is_casual=True)": 'No parameter named "is_casual"',
    "encoder_block(x, padding_maks=mask)": "No overloads",
    "encoder_block(x, need_weights=True, padding_maks=mask)": "No overloads",
    "decoder_block(x, x)": "No overloads",
    "decoder_block(x, x, symbols, context_mask=mask)": "",
    "decoder_block(x, x, symbols, contexts_mask=mask)": "No overloads",
    "language_model(tokens, padding_maks=mask)": 'No parameter named "padding_maks"',
    "language_model.trace(tokens, padding_maks=mask)": 'No parameter named "padding_maks"',
    "vision_model(x, tokens)": "Expected 1 positional argument",
    'DualAttention(8, 1, 1, ra_kwargs={"n_relations": 2, "symmetric_rels": True})': "",
    "DualAttention(8, 1, 1, ra_kwargs=dict(n_relations=2, symmetric_rels=True))": "",
    "RelationalOptions(n_relation=2)": "No overloads",
    "DualAttention(8, 1, 1, ra_kwargs=2)": 'not assignable to "RelationalOptions"',
    "reveal_type(language_model.generate(tokens, 5))": '"Tensor"',
    "language_model.generate(tokens, 5, top_q=0.9)": 'No parameter named "top_q"',
    "reveal_type(language_model.beam_search(tokens, 5, 4).scores)": '"Tensor"',
    "reveal_type(language_model.layers.blocks[0].attention.wq)": '"Any"',
    "reveal_type(GeneralAttention(Dot())(x).context)": '"Tensor"',
    "reveal_type(DualAttnForCausalLM(DualAttnConfig())(tokens).logits)": '"Tensor | Any"',
    "reveal_type(draw_arcs(x, []))": '"Figure"',
    "from dual_attention import DualAtention": "unknown import symbol",
    "from dual_attention.hf import DualAttnForCausalML": "unknown import symbol",
    "reveal_type(dual_attention.functional.relational_attention)": "RelationalAttentionOutput",
    "reveal_type(dual_attention.funtional)": "not a known attribute of module",
}

START = """\
from torch import Tensor
import dual_attention
from dual_attention import (
    Attention, DualAttention, DualAttnDecoderBlock, EncoderBlock, RelationalAttention, RelationalOptions,
    SymbolicAttention, TransformerLM, VisionTransformer,
)
from dual_attention.hf import DualAttnConfig, DualAttnForCausalLM
from dual_attention.mechanisms import Dot, GeneralAttention
from dual_attention.model_analysis.views import draw_arcs

def calls(
    x: Tensor, symbols: Tensor, mask: Tensor, tokens: Tensor, encoder_block: EncoderBlock,
    decoder_block: DualAttnDecoderBlock, language_model: TransformerLM, vision_model: VisionTransformer,
) -> None:
"""


def files() -> dict[str, str]:
    """The lines, the Python of each page as one file, and the examples."""
    examples = {f"examples/{path.name}": path.read_text(encoding="utf-8") for path in ROOT.glob("examples/*.py")}
    pages = {f"{name}.py": script(page) for name, page in PAGES.items() if "```python\n" in page}
    return {"calls.py": START + "".join(f"    {line}\n" for line in LINES), **examples, **pages}


@pytest.fixture
def said(tmp_path: Path) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """What the checker says of each line of a file of a user's, in its standard mode, all in one run."""
    given = files()
    for name, text in given.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.10", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson"]
    done = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout)
    assert done["summary"]["filesAnalyzed"] == len(given)
    found: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in given}
    for about in done["generalDiagnostics"]:
        if about["severity"] != "warning":
            name = Path(about["file"]).resolve().relative_to(tmp_path.resolve()).as_posix()
            found[name].setdefault(about["range"]["start"]["line"] + 1, []).append(about)
    return found


@pytest.mark.slow
def test_calls_documents_and_examples(said: dict[str, dict[int, list[dict[str, Any]]]]):
    """The checker says of the lines above what stands beside them, and of documents and examples nothing."""
    calls = {line - START.count("\n") - 1: abouts for line, abouts in said.pop("calls.py").items()}
    for number, (line, expected) in enumerate(LINES.items()):
        words = "".join(about["message"] for about in calls.pop(number, []))
        assert (expected in words) if expected else not words, (line, words)
    assert not calls

    absent = re.compile(r'Import "(?!dual_attention\b|dat\b)[\w.]+" could not be resolved')  # packages of others
    wrong = [
        f"{name}, line {line}: {about['message']}"
        for name, lines in said.items()
        for line, abouts in lines.items()
        for about in abouts
        if not absent.match(about["message"])
    ]
    assert not wrong, "\n".join(wrong)
