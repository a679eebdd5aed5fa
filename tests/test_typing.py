"""What a type checker knows of the library: types of calls, and misspelt arguments and options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("basedpyright", reason="the extra `dev` has the type checker")

ROOT = Path(__file__).resolve().parent.parent

# Each line, and what the checker says of it: the type that is revealed, or a word of the error.
LINES = {
    "reveal_type(Attention(8, 2)(x, x, x).output)": '"Tensor"',
    "reveal_type(RelationalAttention(8, 2)(x, symbols).relations)": '"Tensor | None"',
    "reveal_type(DualAttention(8, 1, 1)(x, symbols).output)": '"Tensor"',
    "reveal_type(SymbolicAttention(8, 2, 4)(x))": '"Tensor"',
    "reveal_type(encoder_block(x))": '"Tensor"',
    "reveal_type(encoder_block(x, need_weights=True))": '"tuple[Tensor, Tensor | None]"',
    "reveal_type(encoder_block(x, need_weights=bool(mask.any())))": '"Tensor | tuple[Tensor, Tensor | None]"',
    "reveal_type(decoder_block(x, x, symbols, context_padding_mask=mask))": '"Tensor"',
    "reveal_type(decoder_block(x, x, symbols, need_weights=True))": '"tuple[Tensor, DualAttentionOutput, Tensor',
    "reveal_type(language_model.hidden(tokens, padding_mask=mask))": '"Tensor"',
    "reveal_type(language_model(tokens, tokens).loss)": '"Tensor | None"',
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
    'DualAttention(8, 1, 1, sa_kwargs={"n_kv_head": 1})': 'not assignable to "AttentionOptions"',
    'DualAttention(8, 1, 1, ra_kwargs={"wr_init": "small"})': 'not assignable to "RelationalOptions"',
    'DualAttention(8, 1, 1, ra_kwargs={"n_relations": 2, "symmetric_rels": True})': "",
}

START = """\
from torch import Tensor
from dual_attention import (
    Attention, DualAttention, DualAttnDecoderBlock, EncoderBlock, RelationalAttention, SymbolicAttention,
    TransformerLM, VisionTransformer,
)

def calls(
    x: Tensor, symbols: Tensor, mask: Tensor, tokens: Tensor, encoder_block: EncoderBlock,
    decoder_block: DualAttnDecoderBlock, language_model: TransformerLM, vision_model: VisionTransformer,
) -> None:
"""


@pytest.mark.slow
def test_calls_and_options(tmp_path: Path):
    (tmp_path / "calls.py").write_text(START + "".join(f"    {line}\n" for line in LINES), encoding="utf-8")
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.10", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", "calls.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said: dict[int, str] = {}
    for about in json.loads(done.stdout)["generalDiagnostics"]:
        line = about["range"]["start"]["line"] - START.count("\n")
        said[line] = said.get(line, "") + about["message"]
    for number, (line, expected) in enumerate(LINES.items()):
        assert (expected in said.get(number, "")) if expected else number not in said, (line, said.get(number))
    assert set(said) <= set(range(len(LINES)))
