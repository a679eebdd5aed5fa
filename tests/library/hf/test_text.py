"""From text to text: pipelines, stop strings, the evaluation harness."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import pipeline

from tests.library.hf.models import byte_tokenizer, causal


def test_pipeline():
    tokenizer = byte_tokenizer()
    model = causal(vocab_size=len(tokenizer))
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    prompts = ["a dual", "attention to"]
    outputs = pipe(prompts, max_new_tokens=5, do_sample=False, batch_size=2)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        alone = model.model.generate(ids, 5, temperature=0, stop_tokens=tokenizer.eos_token_id)
        assert output[0]["generated_text"] == tokenizer.decode(alone[0], skip_special_tokens=True)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_stop_strings(options: dict):
    """transformers hands the tokenizer that they need on to the model."""
    tokenizer = byte_tokenizer()
    model = causal(vocab_size=len(tokenizer))
    ids = tokenizer("a dual", return_tensors="pt").input_ids
    letters = set(tokenizer(string.ascii_letters).input_ids)
    others = [token for token in range(len(tokenizer)) if token not in letters]
    common = {"max_new_tokens": 8, "do_sample": False, "suppress_tokens": others, "pad_token_id": 256, **options}
    free = tokenizer.decode(model.generate(ids, **common)[0])
    stop = free[-3:-1]
    stopped = tokenizer.decode(model.generate(ids, stop_strings=[stop], tokenizer=tokenizer, **common)[0])
    assert stopped == free[: free.index(stop, len("a dual")) + 2]


@pytest.mark.slow
def test_language_model_evaluation_harness(tmp_path: Path):
    """lm-eval scores a task of our own as the model's losses say."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    from lm_eval import simple_evaluate  # pyright: ignore[reportMissingImports]
    from lm_eval.models.huggingface import HFLM  # pyright: ignore[reportMissingImports]
    from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

    tokenizer = byte_tokenizer()
    model = causal(vocab_size=len(tokenizer), max_block_size=48)
    documents = [{"text": x, "a": a, "b": b} for x, a, b in [("1+1=", "2", "34"), ("abc", "d", "xyz"), ("q", "r", "s")]]
    for document in documents:
        losses = [-score(model, tokenizer, document["text"], " " + document[choice]) for choice in "ab"]
        document["label"] = int(losses[1] < losses[0])
    documents[-1]["label"] = 1 - documents[-1]["label"]  # one that is wrong
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, documents)))
    (tmp_path / "task.yaml").write_text(
        f"""
task: ours
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {tmp_path / "cache"}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{label}}}}"
doc_to_choice: "{{{{[a, b]}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
    )
    results: Any = simple_evaluate(
        HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2, device="cpu", max_length=48),
        tasks=["ours"],
        task_manager=TaskManager(include_path=str(tmp_path)),
        bootstrap_iters=0,
    )
    assert results["results"]["ours"]["acc,none"] == pytest.approx(2 / 3)


def score(model, tokenizer, text: str, continuation: str) -> float:
    ids = tokenizer(text + continuation, return_tensors="pt").input_ids
    known = len(tokenizer(text).input_ids)
    with torch.no_grad():
        chances = model(ids).logits.log_softmax(dim=-1)
    return float(chances[0, :-1].gather(-1, ids[0, 1:, None])[known - 1 :].sum())
