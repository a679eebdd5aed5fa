"""Learned prompts of PEFT: vectors in front of the embedded tokens."""

from pathlib import Path

import peft
import pytest
import torch

from tests.library.hf.models import causal, tokens
from tests.support.language import CONTEXT

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")

N_PROMPT = 3
COMMON = {"task_type": "CAUSAL_LM", "num_virtual_tokens": N_PROMPT}
KINDS = {
    "prompt tuning": lambda: peft.PromptTuningConfig(**COMMON),
    "p-tuning": lambda: peft.PromptEncoderConfig(**COMMON, encoder_hidden_size=8),
}
GREEDY = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}


@pytest.mark.parametrize("kind", ["symbolic_attention", "position_relative", "transformer"])
@pytest.mark.parametrize("method", KINDS)
def test_prompts_are_trained_and_used(kind: str, method: str, tmp_path: Path):
    base = causal(kind)
    model = peft.get_peft_model(base, KINDS[method]())
    x = tokens(2, 6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    output = model(input_ids=x, attention_mask=mask, labels=x)
    output.loss.backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert trained and all(parameter.grad is not None and parameter.grad.any() for parameter in trained)

    prompts = model.get_prompt(batch_size=2)
    embedded = torch.cat([prompts, base.get_input_embeddings()(x)], dim=1)
    whole = torch.cat([torch.ones(2, N_PROMPT).long(), mask], dim=1)
    expected = base(inputs_embeds=embedded, attention_mask=whole).logits
    torch.testing.assert_close(output.logits, expected)

    model.eval()
    generated = model.generate(input_ids=x, attention_mask=mask, **GREEDY)
    theirs = base.generate(inputs_embeds=embedded, attention_mask=whole, **GREEDY)
    assert torch.equal(generated[:, x.shape[1] :], theirs)
    assert torch.equal(generated, model.generate(input_ids=x, attention_mask=mask, use_cache=False, **GREEDY))

    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    torch.testing.assert_close(again(input_ids=x, attention_mask=mask).logits, expected)


@pytest.mark.parametrize("length", [4, CONTEXT])
def test_past_the_context_the_prompt_stays(length: int):
    """And the last tokens that fit behind it are read."""
    base = causal()
    model = peft.get_peft_model(base, KINDS["prompt tuning"]()).eval()
    x = tokens(2, length)
    more = {**GREEDY, "max_new_tokens": CONTEXT - length + 3}
    found = model.generate(input_ids=x, **more)
    assert torch.equal(found, model.generate(input_ids=x, use_cache=False, **more))
    read = found[:, -1 - CONTEXT + N_PROMPT : -1]
    embedded = torch.cat([model.get_prompt(batch_size=2), base.get_input_embeddings()(read)], dim=1)
    assert torch.equal(found[:, -1], base(inputs_embeds=embedded).logits[:, -1].argmax(-1))


@pytest.mark.parametrize("length", [4, CONTEXT])
def test_past_the_context_no_prompt_is_looked_up(length: int):
    model = peft.get_peft_model(causal(), KINDS["prompt tuning"]()).eval()
    more = {**GREEDY, "max_new_tokens": CONTEXT - length + 3, "prompt_lookup_num_tokens": 2}
    with pytest.raises(ValueError, match=f"at most {CONTEXT - N_PROMPT + 1} tokens.*with the learned prompt"):
        model.generate(input_ids=tokens(2, length), **more)


def test_a_learned_prefix_is_refused():
    """It consists of keys and values, of which relational heads have others."""
    model = peft.get_peft_model(causal(), peft.PrefixTuningConfig(**COMMON))
    with pytest.raises(TypeError, match=r"or with a learned prefix \(prompt tuning and LoRA need none\)"):
        model(input_ids=tokens(1, 4))
