"""What the room imports, and what it says when something is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

import dual_attention.hf
from tests.library.hf.models import causal

WITHOUT = """
import sys
from dual_attention.checkpoints.language import load_language_model
load_language_model(sys.argv[1])
assert not {"huggingface_hub", "transformers"} & sys.modules.keys()
sys.modules["transformers"] = None
import dual_attention.hf
assert "huggingface_hub" not in sys.modules
from dual_attention.hf import DualAttnTransformerLM_HFHub, load_language_model, to_hub
"""

REGISTERED = """
import sys
from transformers import AutoModel, AutoModelForCausalLM
try:
    AutoModelForCausalLM.from_pretrained(sys.argv[1])
except ValueError as error:
    assert "trust_remote_code=True" in str(error)
else:
    raise SystemExit("it is known without the import")
import dual_attention.hf
assert type(AutoModelForCausalLM.from_pretrained(sys.argv[1])).__name__ == "DualAttnForCausalLM"
assert type(AutoModel.from_pretrained(sys.argv[1])).__name__ == "DualAttnModel"
"""


BEFORE = """
import sys
from dual_attention.hf import load_language_model
from transformers import AutoModelForCausalLM
assert type(AutoModelForCausalLM.from_pretrained(sys.argv[1])).__name__ == "DualAttnForCausalLM"
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [WITHOUT, REGISTERED, BEFORE])
def test_what_a_process_imports(script: str, tmp_path: Path):
    """Language models are read without transformers, and the names of the room are there without it. Auto classes know
    the models once dual_attention.hf is imported, before transformers or after it; else they ask whether they may run
    the folder's loader.
    """
    causal("transformer").save_pretrained(tmp_path)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "missing"), [("DualAttnTransformerLM_HFHub", "huggingface_hub"), ("DualAttnForCausalLM", "transformers")]
)
def test_what_to_install(name: str, missing: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(vars(dual_attention.hf), name, raising=False)
    with pytest.raises(
        ImportError, match=rf"'{missing}' could not be imported .*pip install \"relational-attention\[hf\]\""
    ):
        getattr(dual_attention.hf, name)


def test_names():
    assert set(dual_attention.hf.__all__) <= set(dir(dual_attention.hf))
    with pytest.raises(AttributeError, match="has no attribute 'DualAttnForNothing'"):
        _ = dual_attention.hf.DualAttnForNothing
